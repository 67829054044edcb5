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
      <Figure label="Available" note={paysFor(paygEnabled, { role, isOwn })}>
        {formatMoney(freeNanoUsd)}
      </Figure>
      <Figure label="Reserved" note="For requests under way. What they do not cost becomes available again.">
        {formatMoney(heldNanoUsd)}
      </Figure>
      {children}
    </Figures>
  );
}

function paysFor(isPayg: boolean, { role, isOwn }: { role: Role; isOwn: boolean }): string {
  if (role === "reseller") {
    const whose = isOwn ? "your customers" : "their customers";
    return `Pays for packages and top-ups of ${whose}${isPayg ? ", and for pay-as-you-go requests" : ""}.`;
  }
  if (isPayg) return "Pays for pay-as-you-go requests.";
  return isOwn ? "Does not pay for requests until pay-as-you-go is switched on for you." : "Does not pay for requests.";
}
