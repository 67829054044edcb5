import { readFileSync } from "node:fs";
import { plugin } from "bun";
import { LEFT_OUT } from "./left_out.ts";

/**
 * Runs the gateway without the parts named in BENCH_WITHOUT, which are removed from its source while it is loaded. The CPU that this
 * saves is their cost. It does not keep books: only `bun run bench:parts` starts it.
 */

/** The response that the bench's provider would send, with the request's mark. */
(globalThis as { cannedAnswer?: (body: string) => Response }).cannedAnswer = (body) => {
  const mark = /\[\[\S+ \S+ \S+ ([^\]]*)\]\]/.exec(body)?.[1] ?? "";
  const message = { role: "assistant", content: mark.padEnd(600, " Tolls are paid at the gate.") };
  const text = JSON.stringify({
    ...{ id: "chatcmpl-bench", object: "chat.completion", created: 1_700_000_000, model: "chat-a" },
    choices: [{ index: 0, message, finish_reason: "stop" }],
    usage: { prompt_tokens: 250, completion_tokens: 150, total_tokens: 400 },
  });
  return new Response(text, {
    headers: { "content-type": "application/json", "content-length": String(text.length) },
  });
};

const edits = (process.env.BENCH_WITHOUT ?? "").split(",").flatMap((part) => {
  const editsOfPart = LEFT_OUT[part];
  if (editsOfPart === undefined) throw new Error(`BENCH_WITHOUT has an unknown part: ${part}`);
  return editsOfPart;
});
const pending = new Set(edits);

plugin({
  name: "without parts",
  setup(build) {
    build.onLoad({ filter: /\/src\/(?:gateway|ledger|catalog)\/\w+\.ts$/ }, ({ path }) => {
      let source = readFileSync(path, "utf8");
      for (const edit of edits.filter(({ file }) => path.endsWith(`/src/${file}`))) {
        if (!source.includes(edit.from)) throw new Error(`${path} does not contain: ${edit.from}`);
        source = source.replace(edit.from, () => edit.to);
        pending.delete(edit);
      }
      return { contents: source, loader: "ts" };
    });
  },
});

await import("../src/main.ts");
if (pending.size > 0) throw new Error(`not loaded, so not changed: ${[...pending].map(({ file }) => file).join(", ")}`);
