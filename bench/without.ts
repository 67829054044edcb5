import { readFileSync } from "node:fs";
import { plugin } from "bun";
import { LEFT_OUT } from "./left_out.ts";

/**
 * The gateway with parts of its work left out as it is loaded, named by BENCH_WITHOUT: what is missing in its CPU is theirs.
 * It keeps no books and is no product: `bun run bench:parts` alone starts it.
 */

/** What the bench's provider answers, with the request's mark in it. */
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
  const own = LEFT_OUT[part];
  if (own === undefined) throw new Error(`BENCH_WITHOUT names ${part}, which is no part`);
  return own;
});
const undone = new Set(edits);

plugin({
  name: "without parts",
  setup(build) {
    build.onLoad({ filter: /\/src\/(?:gateway|ledger|catalog)\/\w+\.ts$/ }, ({ path }) => {
      let source = readFileSync(path, "utf8");
      for (const edit of edits.filter(({ file }) => path.endsWith(`/src/${file}`))) {
        if (!source.includes(edit.from)) throw new Error(`${path} has no ${edit.from}`);
        source = source.replace(edit.from, () => edit.to);
        undone.delete(edit);
      }
      return { contents: source, loader: "ts" };
    });
  },
});

await import("../src/main.ts");
if (undone.size > 0) throw new Error(`not loaded: ${[...undone].map(({ file }) => file).join(", ")}`);
