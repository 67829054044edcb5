/** What `bench/without.ts` changes in the gateway's source as it is loaded: by part, the lines that leave it out. */

/** `from` stands in a file under `src/`. */
export type Edit = { file: string; from: string; to: string };

const CANNED = "globalThis.cannedAnswer";
export const LEFT_OUT: Readonly<Record<string, readonly Edit[]>> = {
  limiter: [
    {
      file: "gateway/admission.ts",
      from: "slots.rate = await deps.limiter.enter(rateId, owner);",
      to: "slots.rate = () => {};",
    },
  ],
  ledger: [
    {
      file: "ledger/batch.ts",
      from: "reserve: (request) => submit<ReserveResult>(request.accountId, { reserve: request }),",
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
      from: "const response = await upstreamFetch(callUrl.target, init);",
      to: `await new Promise((resolve) => setImmediate(resolve));
        const response = ${CANNED}(init.body);`,
    },
  ],
  flow: [
    {
      file: "gateway/flow.ts",
      from: 'const model = requireModel(deps, caller, body.model, "text");',
      to: `if (body.model) { slots.release(); return ${CANNED}(raw.text); }
        const model = requireModel(deps, caller, body.model, "text");`,
    },
  ],
  door: [
    {
      file: "gateway/flow.ts",
      from: "export async function serveMetered(deps: Deps, request: Request, serve: Serve): Promise<Response> {",
      to: `export async function serveMetered(deps: Deps, request: Request, serve: Serve): Promise<Response> {
        if (true) return ${CANNED}(await request.text());`,
    },
  ],
};
