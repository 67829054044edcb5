import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { CreditCard, Landmark, RefreshCw } from "lucide-react";
import { api, ask } from "../../api.ts";
import { formatAmount, formatDay, formatMoney } from "../../format.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { RadioList } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { cardName, useCard } from "./card_section.tsx";
import { useBilling } from "./queries.ts";

/** Whether a package of the person's own renews, with the button that changes it. */

type Renewing = NonNullable<Awaited<ReturnType<typeof api.renewals.get>>["data"]>["renewals"][number];
type Source = "card" | "balance";

/** Why a renewal, or an automatic charge, did not work. */
const PROBLEMS: Readonly<Record<string, string>> = {
  no_card: t`no card is saved`,
  card_refused: t`the bank refused the card`,
  card_expired: t`the card has expired`,
  needs_person: t`the bank wants you to confirm it`,
  stripe: t`the payment service could not be used`,
  not_on_sale: t`the package is no longer on sale`,
  unpayable: t`the amount cannot be paid in the currency of the seller`,
  price_changed: t`the seller has changed its tax or currency, and a top-up would cost more than you agreed to`,
  seller_suspended: t`the seller does not sell at the moment`,
  seller_balance: t`the seller cannot provide it at the moment`,
  account_suspended: t`your account was suspended`,
  balance_low: t`the balance was too low`,
  too_late: t`it could not be paid before the package ended`,
  withdrawn: t`the order was withdrawn`,
};

export function problemWords(problem: string): string {
  return PROBLEMS[problem] ?? t`it did not work`;
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
  const { packageId, name, renewal } = row;
  const cancel = useMutation({
    mutationFn: () => ask(api.renewals.cancel.post({ packageId })),
    onSuccess: async () => {
      await refresh();
      toast.done(t`${name} does not renew.`);
    },
    onError: (error) => toast.failed(error),
  });
  const isOn = renewal !== null && (renewal.status === "on" || renewal.status === "ordered");
  return (
    <div className="mt-3 flex flex-wrap items-center gap-x-3 gap-y-2 text-13 text-ink-2">
      <span>{stateOf(row, isOwn)}</span>
      {isOn ? (
        <Button size="sm" pending={cancel.isPending} onClick={() => cancel.mutate()} {...lock}>
          <Trans>
            Cancel renewal<span className="sr-only"> of {name}</span>
          </Trans>
        </Button>
      ) : (
        isOwn &&
        row.price !== null && (
          <Button size="sm" icon={RefreshCw} onClick={() => dialog.open(true)} {...lock}>
            <Trans>
              Renew automatically<span className="sr-only"> {name}</span>
            </Trans>
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
  const ends = t`Ends on ${{ day: day(endsAt) }}.`;
  if (renewal === null) return ends;
  const problem = problemWords(renewal.problem ?? "");
  const failed = renewal.problem === null ? "" : ` ${t`The last try failed: ${problem}.`}`;
  switch (renewal.status) {
    case "on":
      return `${renewsText({ day: day(renewsAt), price, source: renewal.source, isOwn })}${failed}`;
    case "ordered":
      return (
        <>
          {t`The renewal is being paid.`}
          {failed}{" "}
          {isOwn && renewal.orderId !== null && (
            <TextLink href={`/billing/orders/${renewal.orderId}`}>{t`Open the order`}</TextLink>
          )}
        </>
      );
    case "failed":
      return `${ends} ${t`It could not be renewed: ${problem}.`}`;
    case "cancelled":
      return `${ends} ${t`The renewal is cancelled.`}`;
  }
}

type Renews = { day: string; price: Price | null; source: Source; isOwn: boolean };

function renewsText({ day, price, source, isOwn }: Renews): string {
  if (price === null) return t`Renews on ${day} if it is on sale again.`;
  const amount = paidFrom(source, price);
  if (source === "card")
    return isOwn
      ? t`Renews on ${day} for ${amount}, from your card.`
      : t`Renews on ${day} for ${amount}, from their card.`;
  return isOwn
    ? t`Renews on ${day} for ${amount}, from your balance.`
    : t`Renews on ${day} for ${amount}, from their balance.`;
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
      toast.done(t`${{ name: row.name }} renews automatically.`);
      onClose();
    },
  });
  const sources = [
    ...(card ? [{ value: "card" as const, label: cardName(card), icon: CreditCard }] : []),
    {
      value: "balance" as const,
      label: t`Your balance`,
      icon: Landmark,
      ...(balance && { hint: t`${{ amount: formatMoney(balance.freeNanoUsd) }} available.` }),
    },
  ];
  const day = formatDay(row.renewsAt, row.timeZone, nowMs());
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Renew ${{ name: row.name }} automatically`}
      description={t`It costs ${{ amount: paidFrom(form.values.source, price) }} today. Three days before it ends you get a mail with the price. You can cancel at any time.`}
      submitLabel={t`Renew automatically`}
    >
      <RadioList
        label={t`What pays?`}
        value={form.values.source}
        onValue={(source) => form.set({ source })}
        options={sources}
      />
      {!card && <p className="text-13 text-ink-2">{t`To pay from a card, save one under Card on file first.`}</p>}
      <p className="text-13 text-ink-2">
        {Date.parse(row.renewsAt) <= nowMs()
          ? t`It is paid within a minute, and the new package starts when this one ends.`
          : t`It is paid on ${day}, and the new package starts when this one ends.`}
      </p>
    </FormDialog>
  );
}
