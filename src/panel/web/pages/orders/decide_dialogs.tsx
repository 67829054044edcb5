import { useQuery } from "@tanstack/react-query";
import { ORDER_TEXT_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatApart, formatMoney } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Field, TextArea } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.tsx";
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
      toast.done(`Declined: ${wants(order)} for ${order.account.name}.`);
      onClose();
    },
  });
  const { error, ...answer } = form.field("answer");
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={`Decline ${wants(order)}?`}
      description={`For ${order.account.name}`}
      size="sm"
      submitLabel="Decline order"
      cancelLabel="Keep order"
      isDanger
    >
      <Field label="Answer" optional hint="Shown beside their order." error={error}>
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
      toast.done(`${formatMoney(amount)} added to the balance of ${name}.`);
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={`Top up ${formatMoney(amount)}?`}
      description={`For ${name}`}
      size="sm"
      submitLabel={records === null ? `Top up ${formatMoney(amount)}` : PAID_FULFIL}
      canSubmit={!isShort}
    >
      {holder.data && <IdleMoney person={holder.data} />}
      <p className="text-14 text-ink-2">{sourceText({ payer, available, amount })}</p>
      {records && <p className="text-14 text-ink-2">{records}</p>}
      {isShort && (
        <p className="text-13 font-medium text-warn">That is not enough. Decline the order, or top up first.</p>
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
    payer: payerId === null ? null : isMine ? "your balance" : "the reseller's balance",
    available: billing.data?.balance.freeNanoUsd,
  };
}

function sourceText(of: { payer: string | null; available: string | undefined; amount: string }): string {
  if (of.payer === null) return "It is added to their balance. No other balance is charged.";
  if (of.available === undefined) return `It comes from ${of.payer}.`;
  const after = BigInt(of.available) - BigInt(of.amount);
  const [available] = formatApart(of.available, of.amount);
  return `It comes from ${of.payer}: ${available} available, ${formatMoney(after)} afterwards.`;
}
