import { useMutation, useQuery } from "@tanstack/react-query";
import { CreditCard, Landmark, RefreshCw } from "lucide-react";
import { formatAmount } from "../../../../platform/currencies.ts";
import { api, ask } from "../../api.ts";
import { formatDay, formatMoney } from "../../format.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { RadioList } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.tsx";
import { cardName, useCard } from "./card_section.tsx";
import { useBilling } from "./queries.ts";

/** Whether a package of the person's own renews, with the button that changes it. */

type Renewing = NonNullable<Awaited<ReturnType<typeof api.renewals.get>>["data"]>["renewals"][number];
type Source = "card" | "balance";

/** Why a renewal, or an automatic charge, did not work. */
const PROBLEMS: Readonly<Record<string, string>> = {
  no_card: "no card is saved",
  card_refused: "the bank refused the card",
  card_expired: "the card has expired",
  needs_person: "the bank wants you to confirm it",
  stripe: "the payment service could not be used",
  not_on_sale: "the package is no longer on sale",
  unpayable: "the amount cannot be paid in the currency of the seller",
  price_changed: "the seller has changed its tax or currency, and a top-up would cost more than you agreed to",
  seller_suspended: "the seller does not sell at the moment",
  seller_balance: "the seller cannot provide it at the moment",
  account_suspended: "your account was suspended",
  balance_low: "the balance was too low",
  too_late: "it could not be paid before the package ended",
  withdrawn: "the order was withdrawn",
};

export function problemWords(problem: string): string {
  return PROBLEMS[problem] ?? "it did not work";
}

/** Of one package; nothing if its package cannot renew. With an account, it is a customer's, which its seller can only cancel. */
export function Renewal({ packageId, accountId }: { packageId: number; accountId?: number }) {
  const { data } = useQuery({
    queryKey: ["renewals", accountId ?? "own"],
    queryFn: () => ask(api.renewals.get({ query: accountId === undefined ? {} : { accountId } })),
  });
  const row = data?.renewals.find((one) => one.packageId === packageId);
  return row ? <RenewalLine row={row} isOwn={accountId === undefined} /> : null;
}

function RenewalLine({ row, isOwn }: { row: Renewing; isOwn: boolean }) {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const dialog = useOpened<true>();
  const { packageId, renewal } = row;
  const cancel = useMutation({
    mutationFn: () => ask(api.renewals.cancel.post({ packageId })),
    onSuccess: async () => {
      await refresh();
      toast.done(`${row.name} does not renew.`);
    },
    onError: (error) => toast.failed(error),
  });
  const isOn = renewal !== null && (renewal.status === "on" || renewal.status === "ordered");
  return (
    <div className="mt-3 flex flex-wrap items-center gap-x-3 gap-y-2 text-13 text-ink-2">
      <span>{stateOf(row, isOwn)}</span>
      {isOn ? (
        <Button size="sm" pending={cancel.isPending} onClick={() => cancel.mutate()} {...lock}>
          Cancel renewal<span className="sr-only"> of {row.name}</span>
        </Button>
      ) : (
        isOwn &&
        row.price !== null && (
          <Button size="sm" icon={RefreshCw} onClick={() => dialog.open(true)} {...lock}>
            Renew automatically<span className="sr-only"> {row.name}</span>
          </Button>
        )
      )}
      {dialog.what && row.price && (
        <RenewDialog key={dialog.times} open={dialog.isOpen} onClose={dialog.close} row={row} price={row.price} />
      )}
    </div>
  );
}

type Price = NonNullable<Renewing["price"]>;

/** The card pays with tax, in the seller's currency; the balance pays without, because its top-ups were taxed. */
function paidFrom(source: Source, { currency, totalNano, priceNanoUsd }: Price): string {
  return source === "card" ? formatAmount(totalNano, currency) : formatMoney(priceNanoUsd);
}

function stateOf({ renewal, renewsAt, price, endsAt, timeZone }: Renewing, isOwn: boolean) {
  const day = (iso: string) => formatDay(iso, timeZone, nowMs());
  const ends = `Ends on ${day(endsAt)}.`;
  if (renewal === null) return ends;
  const failed = renewal.problem === null ? "" : ` The last try failed: ${problemWords(renewal.problem)}.`;
  switch (renewal.status) {
    case "on":
      if (price === null) return `Renews on ${day(renewsAt)} if it is on sale again.${failed}`;
      return `Renews on ${day(renewsAt)} for ${paidFrom(renewal.source, price)}, from ${isOwn ? "your" : "their"} ${renewal.source}.${failed}`;
    case "ordered":
      return (
        <>
          The renewal is being paid.{failed}{" "}
          {isOwn && renewal.orderId !== null && (
            <TextLink href={`/billing/orders/${renewal.orderId}`}>Open the order</TextLink>
          )}
        </>
      );
    case "failed":
      return `${ends} It could not be renewed: ${problemWords(renewal.problem ?? "")}.`;
    case "cancelled":
      return `${ends} The renewal is cancelled.`;
  }
}

function RenewDialog({ open, onClose, row, price }: DialogState & { row: Renewing; price: Price }) {
  const refresh = useRefresh();
  const card = useCard().data?.card ?? null;
  const balance = useBilling(null).data?.balance;
  const form = useForm<"source", unknown, { source: Source }>({
    first: { source: card ? "card" : "balance" },
    wrong: { source: null },
    send: ({ source }) => ask(api.packages({ id: row.packageId }).renewal.put({ source })),
    onSent: async () => {
      await refresh();
      toast.done(`${row.name} renews automatically.`);
      onClose();
    },
  });
  const sources = [
    ...(card ? [{ value: "card" as const, label: cardName(card), icon: CreditCard }] : []),
    {
      value: "balance" as const,
      label: "Your balance",
      icon: Landmark,
      ...(balance && { hint: `${formatMoney(balance.freeNanoUsd)} available.` }),
    },
  ];
  const day = formatDay(row.renewsAt, row.timeZone, nowMs());
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={`Renew ${row.name} automatically`}
      description={`It costs ${paidFrom(form.values.source, price)} today. Three days before it ends you get a mail with the price. You can cancel at any time.`}
      submitLabel="Renew automatically"
    >
      <RadioList
        label="What pays?"
        value={form.values.source}
        onValue={(source) => form.set({ source })}
        options={sources}
      />
      {!card && <p className="text-13 text-ink-2">To pay from a card, save one under Card on file first.</p>}
      <p className="text-13 text-ink-2">
        {Date.parse(row.renewsAt) <= nowMs() ? "It is paid within a minute" : `It is paid on ${day}`}, and the new
        package starts when this one ends.
      </p>
    </FormDialog>
  );
}
