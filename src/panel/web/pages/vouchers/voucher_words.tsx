import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { api } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { Status } from "../../ui/states.tsx";

/** What the pages of vouchers share: the type of a batch, its state, and what its codes are for. */

export type Batch = NonNullable<Awaited<ReturnType<typeof api.vouchers.get>>["data"]>["batches"][number];
export const VOUCHERS_KEY = ["vouchers"] as const;

/** What a code of the batch is for. */
export function worthOf({ offering, amountNanoUsd }: Pick<Batch, "offering" | "amountNanoUsd">): string {
  return offering?.name ?? t`Top-up of ${{ amount: formatMoney(amountNanoUsd ?? "0") }}`;
}

/** The batch in a few words: "10 codes for a top-up of $20.00". */
export function codesText({
  codes,
  offering,
  amountNanoUsd,
}: Pick<Batch, "codes" | "offering" | "amountNanoUsd">): string {
  if (offering)
    return plural(codes, {
      one: `# code for ${{ offering: offering.name }}`,
      other: `# codes for ${{ offering: offering.name }}`,
    });
  const amount = formatMoney(amountNanoUsd ?? "0");
  return plural(codes, { one: `# code for a top-up of ${amount}`, other: `# codes for a top-up of ${amount}` });
}

export function BatchState({ state }: { state: Batch["state"] }) {
  if (state === "used_up")
    return (
      <Status kind="ended">
        <Trans>Used up</Trans>
      </Status>
    );
  if (state === "disabled") return <Status kind="revoked" />;
  return <Status kind={state} />;
}

/** Why customers could not redeem codes. */
export function problemText({ why, count }: NonNullable<Batch["problem"]>): string {
  switch (why) {
    case "balance":
      return plural(count, {
        one: "# redemption failed, because your balance was too low.",
        other: "# redemptions failed, because your balance was too low.",
      });
    case "allotment":
      return plural(count, {
        one: "# redemption failed, because your allotment was used up.",
        other: "# redemptions failed, because your allotment was used up.",
      });
    case "offering":
      return plural(count, {
        one: "# redemption failed, because the offering was off sale.",
        other: "# redemptions failed, because the offering was off sale.",
      });
  }
}
