import { useMutation, useQuery } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask } from "../api.ts";
import { formatMoney } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, TextArea } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Problem } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { AssignDialog } from "./assign_dialog.tsx";
import { useBilling } from "./holdings.tsx";
import { IdleMoney } from "./idle_money.tsx";
import { type IncomingOrder, wants } from "./orders.tsx";
import { useRefresh, useViewer } from "./page_hooks.ts";

const ANSWER_CHARS_MAX = 500;

type DecideProps = { open: boolean; onClose: () => void; order: IncomingOrder };

/** Fulfils or declines an order that waits. */
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
      order={{ orderId: order.orderId, offeringId, offeringName: name }}
    />
  );
}

function DeclineDialog({ open, onClose, order }: DecideProps) {
  const refresh = useRefresh();
  const [answer, setAnswer] = useState("");
  const form = useForm({
    wrong: { answer: null },
    send: () => ask(api.orders({ id: order.orderId }).decline.post({ answer: answer.trim() === "" ? null : answer })),
    onSent: async () => {
      await refresh();
      toast.done(`Declined: ${wants(order)} for ${order.account.name}.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={`Decline ${wants(order)}?`}
      description={`For ${order.account.name}`}
      size="sm"
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Keep waiting</Button>
          <Button type="submit" variant="danger" pending={form.isPending}>
            Decline order
          </Button>
        </>
      }
    >
      <Field label="Answer" optional hint="They read it beside their order." error={form.errorOf("answer")}>
        <TextArea value={answer} onValue={setAnswer} rows={3} maxLength={ANSWER_CHARS_MAX} />
      </Field>
      {form.problem}
    </Dialog>
  );
}

/** A top-up that was asked for: a reseller's comes from its own balance, the operator's is added. */
function FulfilTopUp({ open, onClose, order }: DecideProps) {
  const viewer = useViewer();
  const refresh = useRefresh();
  const { role, resellerId } = order.account;
  const payerId = role === "customer" ? resellerId : null;
  const payer = useBilling(payerId === viewer.accountId ? null : payerId, { enabled: open && payerId !== null });
  const holder = useQuery({
    queryKey: ["people", order.account.accountId],
    queryFn: () => ask(api.people({ id: order.account.accountId }).get()),
    enabled: open,
  });
  const amount = order.amountNanoUsd ?? "0";
  const free = payer.data?.balance.freeNanoUsd;
  const isShort = free !== undefined && BigInt(free) < BigInt(amount);
  const fulfil = useMutation({
    mutationFn: () => ask(api.orders({ id: order.orderId }).fulfil.post({})),
    onSuccess: async () => {
      await refresh();
      toast.done(`${formatMoney(amount)} added to the balance of ${order.account.name}.`);
      onClose();
    },
  });
  const whose = payerId === viewer.accountId ? "your balance" : "the reseller's balance";
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={`Top up ${formatMoney(amount)}?`}
      description={`For ${order.account.name}`}
      size="sm"
      onSubmit={() => fulfil.isPending || isShort || fulfil.mutate()}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={fulfil.isPending} disabled={isShort}>
            Top up {formatMoney(amount)}
          </Button>
        </>
      }
    >
      {holder.data && <IdleMoney person={holder.data} />}
      <p className="text-14 text-ink-2">
        {payerId === null
          ? "It is added to their balance, and comes from no other."
          : free === undefined
            ? `It comes from ${whose}.`
            : `It comes from ${whose}: ${formatMoney(free)} is free, ${formatMoney(BigInt(free) - BigInt(amount))} after it.`}
      </p>
      {isShort && <p className="text-13 font-medium text-warn">That is not enough. Decline it, or top up first.</p>}
      {fulfil.error && <Problem error={fulfil.error} />}
    </Dialog>
  );
}
