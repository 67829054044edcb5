import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { ORDER_TEXT_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatApart, formatMoney } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Field, TextArea } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { IdleMoney } from "../billing/idle_money.tsx";
import { useBilling } from "../billing/queries.ts";
import { personQuery } from "../people/queries.ts";
import { AssignDialog } from "./assign_dialog.tsx";
import { type IncomingOrder, PAID_FULFIL, paidByHand, wants } from "./order_parts.tsx";

type DecideProps = DialogState & { order: IncomingOrder };

/** Fulfils or declines an open order. */
export function DecideDialog({ isFulfil, ...props }: DecideProps & { isFulfil: boolean }) {
  const { order } = props;
  if (!isFulfil) return <DeclineDialog {...props} />;
  if (order.offering === null) return <FulfilTopUp {...props} />;
  const { offeringId, name } = order.offering;
  return (
    <AssignDialog
      open={props.open}
      onClose={props.onClose}
      holder={order.account}
      order={{ orderId: order.orderId, offeringId, offeringName: name, records: paidByHand(order) }}
    />
  );
}

function DeclineDialog({ open, onClose, order }: DecideProps) {
  const refresh = useRefresh();
  const form = useForm({
    first: { answer: "" },
    wrong: { answer: null },
    send: ({ answer }) =>
      ask(api.orders({ id: order.orderId }).decline.post({ answer: isBlank(answer) ? null : answer })),
    onSent: async () => {
      await refresh();
      toast.done(t`Declined: ${{ order: wants(order) }} for ${{ name: order.account.name }}.`);
      onClose();
    },
  });
  const { error, ...answer } = form.field("answer");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Decline ${{ order: wants(order) }}?`}
      description={t`For ${{ name: order.account.name }}`}
      size="sm"
      submitLabel={t`Decline order`}
      cancelLabel={t`Keep order`}
      isDanger
    >
      <Field label={t`Answer`} optional hint={t`Shown beside their order.`} error={error}>
        <TextArea {...answer} rows={3} maxLength={ORDER_TEXT_CHARS_MAX} />
      </Field>
    </FormDialog>
  );
}

/** Fulfils a top-up. A reseller's comes from its own balance; the operator's comes from no balance. */
function FulfilTopUp({ open, onClose, order }: DecideProps) {
  const refresh = useRefresh();
  const { accountId, name } = order.account;
  const holder = useQuery({ ...personQuery(accountId), enabled: open });
  const amount = order.amountNanoUsd ?? "0";
  const records = paidByHand(order);
  const { payer, available } = usePayer(order, { enabled: open });
  const isShort = available !== undefined && BigInt(available) < BigInt(amount);
  const form = useForm({
    wrong: {},
    send: () => ask(api.orders({ id: order.orderId }).fulfil.post({})),
    onSent: async () => {
      await refresh();
      toast.done(t`${{ amount: formatMoney(amount) }} added to the balance of ${name}.`);
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Top up ${{ amount: formatMoney(amount) }}?`}
      description={t`For ${name}`}
      size="sm"
      submitLabel={records === null ? t`Top up ${{ amount: formatMoney(amount) }}` : PAID_FULFIL}
      canSubmit={!isShort}
    >
      {holder.data && <IdleMoney person={holder.data} />}
      <p className="text-14 text-ink-2">{sourceText({ payer, available, amount })}</p>
      {records && <p className="text-14 text-ink-2">{records}</p>}
      {isShort && (
        <p className="text-13 font-medium text-warn">
          <Trans>That is not enough. Decline the order, or top up first.</Trans>
        </p>
      )}
    </FormDialog>
  );
}

/** Whose balance pays for the top-up, and what it has available; null for the operator. */
function usePayer({ account: { role, resellerId } }: IncomingOrder, { enabled }: { enabled: boolean }) {
  const viewer = useViewer();
  const payerId = role === "customer" ? resellerId : null;
  const isMine = payerId === viewer.accountId;
  const billing = useBilling(isMine ? null : payerId, { enabled: enabled && payerId !== null });
  return {
    payer: payerId === null ? null : isMine ? ("mine" as const) : ("reseller" as const),
    available: billing.data?.balance.freeNanoUsd,
  };
}

function sourceText(of: { payer: "mine" | "reseller" | null; available: string | undefined; amount: string }): string {
  if (of.payer === null) return t`It is added to their balance. No other balance is charged.`;
  const isMine = of.payer === "mine";
  if (of.available === undefined)
    return isMine ? t`It comes from your balance.` : t`It comes from the reseller's balance.`;
  const after = formatMoney(BigInt(of.available) - BigInt(of.amount));
  const [available] = formatApart(of.available, of.amount);
  return isMine
    ? t`It comes from your balance: ${available} available, ${after} afterwards.`
    : t`It comes from the reseller's balance: ${available} available, ${after} afterwards.`;
}
