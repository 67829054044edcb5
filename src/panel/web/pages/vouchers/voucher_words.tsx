import type { api } from "../../api.ts";
import { formatMoney, formatOf } from "../../format.ts";
import { Status } from "../../ui/states.tsx";

/** What the pages of vouchers share: the type of a batch, its state, and what its codes are for. */

export type Batch = NonNullable<Awaited<ReturnType<typeof api.vouchers.get>>["data"]>["batches"][number];
export const VOUCHERS_KEY = ["vouchers"] as const;

/** What a code of the batch is for. */
export function worthOf({ offering, amountNanoUsd }: Pick<Batch, "offering" | "amountNanoUsd">): string {
  return offering?.name ?? `Top-up of ${formatMoney(amountNanoUsd ?? "0")}`;
}

/** The batch in a few words: "10 codes for a top-up of $20.00". */
export function codesText({ codes, ...batch }: Pick<Batch, "codes" | "offering" | "amountNanoUsd">): string {
  return `${formatOf(codes, "code")} for ${batch.offering ? batch.offering.name : worthOf(batch).replace("Top-up", "a top-up")}`;
}

export function BatchState({ state }: { state: Batch["state"] }) {
  if (state === "used_up") return <Status kind="ended">Used up</Status>;
  if (state === "disabled") return <Status kind="revoked" />;
  return <Status kind={state} />;
}

const PROBLEMS = {
  balance: "your balance was too low",
  allotment: "your allotment was used up",
  offering: "the offering was off sale",
} as const;

/** Why customers could not redeem codes, in a few words. */
export function problemText({ why, count }: NonNullable<Batch["problem"]>): string {
  return `${formatOf(count, "redemption")} failed, because ${PROBLEMS[why]}`;
}
