import { plural } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatCompact, formatMoney } from "../../format.ts";

/** Loading a request's receipt, and its cost and tokens as text. */

export type AnyReceipt = NonNullable<Awaited<ReturnType<ReturnType<typeof api.receipts>["get"]>>["data"]>;
export type RefusalReceipt = Extract<AnyReceipt, { status: "refused" }>;
export type Receipt = Exclude<AnyReceipt, RefusalReceipt>;

/** `accountId` null: the person's own account. */
export function useReceipt(requestId: string | null, accountId: number | null = null) {
  return useQuery({
    queryKey: ["receipt", accountId, requestId],
    queryFn: () =>
      ask(
        api.receipts({ requestId: plainId(requestId ?? "") }).get({ query: accountId === null ? {} : { accountId } }),
      ),
    enabled: requestId !== null,
    // A receipt never changes.
    staleTime: Number.POSITIVE_INFINITY,
  });
}

/** A request id as people paste it ("req_…", without dashes, in capitals) in its plain form. */
export function plainId(typed: string): string {
  const hex = typed.trim().replace(/^req_/i, "").replaceAll("-", "").toLowerCase();
  if (!/^[0-9a-f]{32}$/.test(hex)) return typed.trim();
  return [hex.slice(0, 8), hex.slice(8, 12), hex.slice(12, 16), hex.slice(16, 20), hex.slice(20)].join("-");
}

/** The cost: "1 request" or "$0.0124". */
export function costText({ mode, units, chargedNanoUsd }: Pick<Receipt, "mode" | "units" | "chargedNanoUsd">): string {
  return mode === "package"
    ? plural({ count: units }, { one: "# request", other: "# requests" })
    : formatMoney(chargedNanoUsd);
}

/** "9.2k"; "~9.2k" if the tokens were estimated here. */
export function tokensText({
  promptTokens,
  completionTokens,
  estimated,
}: Pick<Receipt, "promptTokens" | "completionTokens" | "estimated">): string {
  return `${estimated ? "~" : ""}${formatCompact(promptTokens + completionTokens)}`;
}

/** After a stop, the server needs a moment to settle the request. */
const COST_TRIES_MAX = 12;
const COST_WAIT_MS = 400;

/** The cost of a request that has just ended, for the playground. */
export type Cost = {
  isCharged: boolean;
  promptTokens: number;
  completionTokens: number;
  durationMs: number;
  /** "1 request", "$0.0124" */
  words: string;
};

/** Waits for the receipt of the person's own request. null: not available in time; its receipt page may still show it. */
export async function costOf(requestId: string): Promise<Cost | null> {
  for (let tries = 0; tries < COST_TRIES_MAX; tries++) {
    if (tries > 0) await new Promise((done) => setTimeout(done, COST_WAIT_MS));
    const receipt = await ask(api.receipts({ requestId }).get({ query: {} })).catch(() => null);
    if (receipt === null || receipt.status === "refused") continue;
    const { status, promptTokens, completionTokens, createdAt, finishedAt } = receipt;
    const durationMs = Date.parse(finishedAt ?? createdAt) - Date.parse(createdAt);
    return { isCharged: status === "settled", promptTokens, completionTokens, durationMs, words: costText(receipt) };
  }
  return null;
}
