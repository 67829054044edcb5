import { readFileSync } from "node:fs";
import { plugin } from "bun";

/**
 * The gateway with parts of its work left out as it is loaded, named by BENCH_WITHOUT: what is missing in its CPU is theirs.
 * It keeps no books and is no product: `bun run bench:parts` alone starts it.
 */

type Edit = { file: string; from: string; to: string };

const CANNED = "globalThis.cannedAnswer";
const EDITS: Record<string, readonly Edit[]> = {
  limiter: [
    { file: "gateway/door.ts", from: "leaveRate = await deps.limiter.enter(limitId);", to: "leaveRate = () => {};" },
  ],
  ledger: [
    {
      file: "ledger/batch.ts",
      from: "reserve: (ask) => submit<ReserveResult>(ask.accountId, { ask }),",
      to: `reserve: async () => ({ firstSentMs: nowMs(), result: { code: null, mode: "package", heldNanoUsd: 0n, capTokens: null,
        limit: 1, used: 0, remaining: 1, resetsAt: null } }),`,
    },
    {
      file: "ledger/batch.ts",
      from: "finish: (finish) => submit<FinishResult>(finish.accountId, { finish }),",
      to: `finish: async () => ({ firstSentMs: nowMs(), result: { outcome: "settled", chargedNanoUsd: 0n, shortfallNanoUsd: 0n,
        units: 1 } }),`,
    },
  ],
  // A turn of the event loop is what an answer takes at the least.
  provider: [
    {
      file: "catalog/provider_client.ts",
      from: "const response = await upstreamFetch(place.target, init);",
      to: `await new Promise((resolve) => setImmediate(resolve));
        const response = ${CANNED}(init.body);`,
    },
  ],
  flow: [
    {
      file: "gateway/flow.ts",
      from: 'const model = modelOf(deps, caller, body.model, "text");',
      to: `if (body.model) { leave(); return ${CANNED}(raw.text); }
        const model = modelOf(deps, caller, body.model, "text");`,
    },
  ],
  door: [
    {
      file: "gateway/v1_routes.ts",
      from: "async function serveMetered(deps: Deps, request: Request, serve: typeof chat): Promise<Response> {",
      to: `async function serveMetered(deps: Deps, request: Request, serve: typeof chat): Promise<Response> {
        if (true) return ${CANNED}(await request.text());`,
    },
  ],
};

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
  const own = EDITS[part];
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
