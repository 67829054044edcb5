import { t } from "@lingui/core/macro";
import { useLocation } from "wouter";
import { packageAmounts, topUpAmounts } from "../../../../commerce/order_amounts.ts";
import { ORDER_TEXT_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { parseUsd } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { amountsText, rateText } from "../../shared/selling.tsx";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Segmented } from "../../ui/choices.tsx";
import { DollarField, Field, TextArea } from "../../ui/fields.tsx";
import { type DialogState, type FieldState, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { brandName, Facts } from "../../ui/page.tsx";
import { toast } from "../../ui/toast.ts";
import { type Offering, OfferingField, useOfferings, useTerms } from "../billing/on_sale.tsx";
import { PackageStart } from "../billing/package_start.tsx";
import { forHowLong, PlanLines } from "../billing/plan_cards.tsx";
import { useBilling } from "../billing/queries.ts";
import { type OrderKind, wants } from "./order_parts.tsx";

/**
 * Places an order, for the plan of a card or for a choice made here. An order with a price is paid on its own page.
 */

const KINDS = [
  { value: "package", label: t`Package` },
  { value: "top_up", label: t`Top-up` },
] as const satisfies readonly { value: OrderKind; label: string }[];

/** Orders one plan. Shows its terms, its price and its start. */
export function BuyDialog({ open, onClose, offering }: DialogState & { offering: Offering }) {
  const order = useOrdering(onClose);
  const form = useForm({
    first: { note: "" },
    wrong: { note: null },
    send: ({ note }) => order.send({ kind: "package", offeringId: offering.offeringId, note }),
    onSent: order.onSent,
  });
  const { name, priceNano } = offering;
  const isPriced = priceNano !== null;
  const terms = useTerms();
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={isPriced ? t`Buy ${name}` : t`Ask for ${name}`}
      description={
        isPriced ? t`Choose how to pay in the next step.` : t`The seller answers with the price and how to pay.`
      }
      submitLabel={isPriced ? t`Continue` : t`Send order`}
    >
      <PlanLines offering={offering} />
      {isPriced && (
        <Facts
          facts={[
            [
              t`Price`,
              t`${{ price: amountsText(terms, "package", packageAmounts(terms, BigInt(priceNano))) }} ${{ duration: forHowLong(offering) }}`,
            ],
            [t`Starts`, <PackageStart key="start" />],
          ]}
        />
      )}
      <NoteField {...form.field("note")} />
    </FormDialog>
  );
}

/** Orders a package or a top-up. A customer sees only the brand, not who answers. */
export function AskDialog({ open, onClose, kind: first }: DialogState & { kind: OrderKind }) {
  const offerings = useOfferings({ enabled: open });
  const { role } = useViewer();
  const order = useOrdering(onClose);
  const form = useForm({
    first: { kind: first, offeringId: null as Offering | null, amountNanoUsd: "", note: "" },
    wrong: ({ kind, offeringId, amountNanoUsd }) => ({
      offeringId: kind === "package" && offeringId === null ? t`Choose an offering.` : null,
      amountNanoUsd: kind === "top_up" ? checkPrice(amountNanoUsd) : null,
      note: null,
    }),
    send: ({ kind, offeringId, amountNanoUsd, note }) =>
      order.send(
        kind === "package"
          ? { kind, offeringId: offeringId?.offeringId ?? 0, note }
          : { kind, amountNanoUsd: parseUsd(amountNanoUsd) ?? "", note },
      ),
    onSent: order.onSent,
  });
  const whoAnswers = useWhoAnswers();
  const { kind, offeringId: chosen } = form.values;
  // A reseller's package has no price: its balance pays when the order is fulfilled.
  const isPriced = kind === "top_up" || (role === "customer" && chosen !== null && chosen.priceNano !== null);
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`New order`}
      description={
        isPriced
          ? t`Choose how to pay in the next step.`
          : `${whoAnswers} ${t`If it has a price, you pay in the next step. Otherwise the answer appears under Orders.`}`
      }
      submitLabel={isPriced ? t`Continue` : t`Send order`}
    >
      <Segmented
        label={t`What to ask for`}
        value={kind}
        onValue={(next) => form.set({ kind: next })}
        options={KINDS}
        className="justify-self-start"
      />
      {kind === "package" ? (
        <>
          <OfferingField offerings={offerings} {...form.field("offeringId")} />
          {isPriced && <Facts facts={[[t`Starts`, <PackageStart key="start" />]]} />}
        </>
      ) : (
        <>
          <AmountField {...form.field("amountNanoUsd")} />
          <TopUpPrice typed={form.values.amountNanoUsd} />
        </>
      )}
      <NoteField {...form.field("note")} />
    </FormDialog>
  );
}

type Wanted = { note: string } & ({ kind: "package"; offeringId: number } | { kind: "top_up"; amountNanoUsd: string });

/** Sends an order once. An order with a price opens its page. */
function useOrdering(onClose: () => void) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const [, navigate] = useLocation();
  const send = ({ note, ...wanted }: Wanted) =>
    ask(api.orders.post({ ...wanted, note: isBlank(note) ? null : note }, sentOnce(formKey)));
  const onSent = async ({ order }: Awaited<ReturnType<typeof send>>) => {
    await refresh();
    onClose();
    if (order.totalNano !== null) return navigate(`/billing/orders/${order.orderId}`);
    toast.done(t`Asked for ${{ order: wants(order) }}. The answer appears under Orders.`);
  };
  return { send, onSent };
}

/** A reseller's own host shows its own brand, but the operator answers a reseller. */
function useWhoAnswers(): string {
  const { role } = useViewer();
  const brand = brandName();
  if (role === "reseller") return t`The operator gets the order.`;
  return brand ? t`${brand} gets the order.` : t`The company you buy from gets the order.`;
}

function NoteField({ error, ...note }: FieldState) {
  return (
    <Field label={t`Note`} optional hint={t`For the seller, such as your own order number.`} error={error}>
      <TextArea {...note} rows={3} maxLength={ORDER_TEXT_CHARS_MAX} />
    </Field>
  );
}

/** What a top-up costs, if that is more than its amount: in another currency, or with tax. */
export function TopUpPrice({ typed }: { typed: string }) {
  const terms = useTerms();
  if (checkPrice(typed) !== null || (terms.taxCountry === null && terms.usdRateNano === null)) return null;
  const rate = rateText(terms);
  const amounts = topUpAmounts(terms, BigInt(parseUsd(typed) ?? 0));
  return (
    <Facts
      facts={[
        [t`You pay`, amountsText(terms, "top_up", amounts)],
        ...(rate === null ? [] : [[t`Exchange rate`, rate] as const]),
      ]}
    />
  );
}

function AmountField(field: FieldState) {
  const { role } = useViewer();
  const billing = useBilling(null);
  // A reseller's balance pays for the packages it assigns, even without pay-as-you-go.
  const isIdle = role !== "reseller" && billing.data?.balance.paygEnabled === false;
  const hint = isIdle
    ? t`In US dollars. Your balance does not pay for requests yet: ask for pay-as-you-go in the note.`
    : t`In US dollars, added to your balance.`;
  return <DollarField label={t`Amount`} hint={hint} {...field} />;
}
