import { t } from "@lingui/core/macro";
import type { ReactNode } from "react";
import type { Role } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { Figure, Figures } from "../../ui/page.tsx";

/** What of a balance is available and what is reserved, with what it pays for. */
export function BalanceFigures({
  balance: { paygEnabled, freeNanoUsd, heldNanoUsd },
  role,
  isOwn,
  children,
}: {
  balance: { paygEnabled: boolean; freeNanoUsd: string; heldNanoUsd: string };
  /** Of the account: a reseller's balance pays for the packages and top-ups of its customers. */
  role: Role;
  isOwn: boolean;
  /** More figures. */
  children?: ReactNode;
}) {
  return (
    <Figures>
      <Figure label={t`Available`} note={paysFor(paygEnabled, { role, isOwn })}>
        {formatMoney(freeNanoUsd)}
      </Figure>
      <Figure label={t`Reserved`} note={t`For requests under way. What they do not cost becomes available again.`}>
        {formatMoney(heldNanoUsd)}
      </Figure>
      {children}
    </Figures>
  );
}

function paysFor(isPayg: boolean, { role, isOwn }: { role: Role; isOwn: boolean }): string {
  if (role === "reseller") {
    if (isPayg)
      return isOwn
        ? t`Pays for packages and top-ups of your customers, and for pay-as-you-go requests.`
        : t`Pays for packages and top-ups of their customers, and for pay-as-you-go requests.`;
    return isOwn
      ? t`Pays for packages and top-ups of your customers.`
      : t`Pays for packages and top-ups of their customers.`;
  }
  if (isPayg) return t`Pays for pay-as-you-go requests.`;
  return isOwn
    ? t`Does not pay for requests until pay-as-you-go is switched on for you.`
    : t`Does not pay for requests.`;
}
