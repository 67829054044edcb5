/** Source edits by which `bench/without.ts` removes each part from the gateway while loading it. */

/** Replaces `from` by `to` in a file below `src/`. */
export type Edit = { file: string; from: string; to: string };

const CANNED = "globalThis.cannedAnswer";
export const LEFT_OUT: Readonly<Record<string, readonly Edit[]>> = {
  limiter: [
    {
      file: "gateway/admission.ts",
      from: "const entered = slots.limits.enter();",
      to: "const entered: Promise<void> | undefined = undefined;",
    },
  ],
  ledger: [
    {
      file: "ledger/open_ledger.ts",
      from: "  const hold = escrow.grant(request);",
      to: `  const { requestId, accountId, keyId, host, modelId, priceVersionId, markupBasisPoints } = request;
  const hold: Hold | undefined = { requestId, accountId, keyId, host, modelId, priceVersionId, markupBasisPoints, leaseId: escrow.leaseId, packageId: 1,
    day: "2026-01-01", keyDay: null, heldNanoUsd: 0n, heldTokens: null, capTokens: null, reservedAtUs: 0, mode: "package" };`,
    },
    {
      file: "ledger/batch.ts",
      from: "finish: (finish) => submit<FinishResult>(finish.accountId, { finish }),",
      to: `finish: async () => ({ outcome: "settled", chargedNanoUsd: 0n, shortfallNanoUsd: 0n, units: 1 }),`,
    },
  ],
  // One turn of the event loop: even the fastest response takes that long.
  provider: [
    {
      file: "catalog/provider_client.ts",
      from: "const response = decoded(await upstreamFetch(callUrl.target, init));",
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
  admission: [
    {
      file: "gateway/metered.ts",
      from: "  const authenticated = authenticate(deps, request);",
      to: `
        if (request.method) return ${CANNED}(await request.text());
        const authenticated = authenticate(deps, request);`,
    },
  ],
};
