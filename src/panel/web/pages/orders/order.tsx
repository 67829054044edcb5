import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CreditCard, Landmark, type LucideIcon, Store } from "lucide-react";
import { useEffect, useState } from "react";
import { useParams } from "wouter";
import { ORDER_PAYABLE_DAYS } from "../../../../limits.ts";
import { formatAmount } from "../../../../platform/currencies.ts";
import { api, ask } from "../../api.ts";
import { formatMoney } from "../../format.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { priceFacts } from "../../shared/selling.tsx";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { RadioList } from "../../ui/choices.tsx";
import { CopyText } from "../../ui/copy_text.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { brandName, Facts, Page, Section } from "../../ui/page.tsx";
import { Banner, Loaded, Problem, Skeleton } from "../../ui/states.tsx";
import { Stepper, type StepState } from "../../ui/stepper.tsx";
import { Instant } from "../../ui/time.tsx";
import { PackageStart, startText } from "../billing/package_start.tsx";
import { useBilling } from "../billing/queries.ts";
import { OrderState, wants } from "./order_parts.tsx";
import { WithdrawOrder } from "./withdraw_order.tsx";

/** One of the person's own orders: how to pay for it, and its state. Stripe and shops send the customer back here. */

type Shown = NonNullable<Awaited<ReturnType<ReturnType<typeof api.orders>["get"]>>["data"]>;
type Method = "stripe" | "instructions" | "shop";

/** The interval at which the page asks again while it waits for a payment. */
const LOOK_MS = 3_000;

export function OrderPage() {
  const { id = "" } = useParams<{ id: string }>();
  const orderId = Number(id);
  const [{ back }] = useUrlState({ back: "" });
  const shown = useOrder(orderId, back === "paid");
  return (
    <Page
      title={shown.data ? wants(shown.data.order) : "Order"}
      lead="What you ordered, how to pay for it, and when you get it."
      size="sm"
      action={<ButtonLink href="/billing">Back to Billing</ButtonLink>}
    >
      <Loaded query={shown} skeleton={<Skeleton className="h-80 rounded-lg" />}>
        {(data) => <OrderSections key={data.order.orderId} shown={data} isBack={back === "paid"} />}
      </Loaded>
    </Page>
  );
}

/** The order. It is loaded again while its payment or fulfilment is pending; then Stripe is asked too. */
function useOrder(orderId: number, isBack: boolean) {
  const client = useQueryClient();
  const refresh = useRefresh();
  const queryKey = ["orders", "one", orderId];
  const shown = useQuery({ queryKey, queryFn: () => ask(api.orders({ id: orderId }).get()) });
  const { mutate: look } = useMutation({
    mutationFn: () => ask(api.orders({ id: orderId }).look.post()),
    onSuccess: (data) => {
      client.setQueryData(queryKey, data);
      if (data.order.status === "fulfilled") void refresh();
    },
  });
  const { lock } = useViewer();
  const status = shown.data?.order.status;
  const isWaited = status === "paid" || (status === "open" && (isBack || shown.data?.order.method !== null));
  const mayLook = isWaited && lock.disabled !== true;
  useEffect(() => {
    if (!mayLook) return;
    look();
    const timer = setInterval(() => document.hidden || look(), LOOK_MS);
    return () => clearInterval(timer);
  }, [mayLook, look]);
  return shown;
}

function OrderSections({ shown, isBack }: { shown: Shown; isBack: boolean }) {
  const { order, ways } = shown;
  const isPayable = order.status === "open" && order.totalNano !== null && order.unpayable === null;
  const [isChoosing, setChoosing] = useState(order.method === null);
  const count = Number(ways.stripe) + Number(ways.shop) + Number(ways.instructions !== null);
  const hasWays = count > 0;
  // Instructions are already on the page.
  const mayChoose = count > 1 || (hasWays && order.method !== "instructions");
  return (
    <>
      {order.status !== "declined" && order.status !== "withdrawn" && order.status !== "refunded" && (
        <Stepper label="Progress of the order" steps={stepsOf(shown)} />
      )}
      <News shown={shown} isAwaited={(isBack || order.method === "shop") && !isChoosing} />
      {isPayable && order.method === "instructions" && ways.instructions !== null && !isChoosing && (
        <Instructions shown={shown} text={ways.instructions} />
      )}
      {isPayable && hasWays && (isChoosing || order.method === null) && <Choose shown={shown} onDone={setChoosing} />}
      {isPayable && mayChoose && !isChoosing && order.method !== null && (
        <div>
          <Button onClick={() => setChoosing(true)}>
            {order.method === "instructions" ? "Pay in another way" : "Choose how to pay"}
          </Button>
        </div>
      )}
      <Section title="Order">
        <Facts facts={factsOf(shown)} />
      </Section>
    </>
  );
}

function stepsOf({ order }: Shown): { label: string; state: StepState }[] {
  const isPaid = order.paidAt !== null;
  const isDone = order.status === "fulfilled";
  return [
    { label: "Ordered", state: "done" },
    { label: isPaid || isDone ? "Paid" : "Pay", state: isPaid || isDone ? "done" : "current" },
    {
      label: order.offering ? "Package active" : "Balance topped up",
      state: isDone ? "done" : isPaid ? "waiting" : "todo",
    },
  ];
}

/** The state of the order, in one sentence. */
function News({ shown: { order, package: bought, ways }, isAwaited }: { shown: Shown; isAwaited: boolean }) {
  const seller = brandName() || "The seller";
  if (order.status === "fulfilled")
    return (
      <Banner
        tone="ok"
        title={
          bought
            ? packageNews(bought)
            : order.offering
              ? "Done."
              : `${formatMoney(order.amountNanoUsd ?? "0")} is in your balance.`
        }
        action={<ButtonLink href="/billing">Show in Billing</ButtonLink>}
      >
        {bought?.state === "queued" && `It starts ${startText(bought)}, when your other packages have ended.`}
        {order.kind === "top_up" && <IdleBalance />}
      </Banner>
    );
  if (order.status === "paid")
    return (
      <Banner tone="warn" title="Paid. What you ordered is on its way.">
        {order.waitsFor === null
          ? "This takes a few seconds. You can close this page."
          : `${seller} has your payment and must do something first. You do not have to do anything: your order is fulfilled, or you get a refund.`}
      </Banner>
    );
  if (order.status === "refunded")
    return <Banner title="Your payment was refunded.">You were not charged for this order.</Banner>;
  if (order.unpayable !== null)
    return (
      <Banner
        tone="warn"
        title="This order can no longer be paid."
        action={order.status === "open" && <WithdrawOrder order={order} />}
      >
        {order.unpayable === "too_old"
          ? `It is older than ${ORDER_PAYABLE_DAYS} days, and prices may have changed. Withdraw it, and order again.`
          : "The package is no longer on sale. Withdraw the order, or ask the seller."}{" "}
        {order.method !== null &&
          "If you have already paid, the seller sees the payment, and fulfils the order or refunds it."}
      </Banner>
    );
  if (order.status === "open" && isAwaited)
    return (
      <Banner tone="warn" title="We are waiting for the payment.">
        It can take a few minutes. This page updates automatically, and you can close it.
      </Banner>
    );
  if (order.status !== "open" || ((ways.stripe || ways.shop || ways.instructions !== null) && order.totalNano !== null))
    return null;
  return (
    <Banner title={`${seller} answers this order.`}>The answer, and how to pay, appear here and under Orders.</Banner>
  );
}

/** A topped-up balance pays for requests only with pay-as-you-go. */
function IdleBalance() {
  const { role } = useViewer();
  const billing = useBilling(null);
  if (role === "reseller" || billing.data?.balance.paygEnabled !== false) return null;
  return `It does not pay for requests yet: ask ${brandName() || "the seller"} to switch on pay-as-you-go for you.`;
}

function packageNews({ name, state }: { name: string; state: string }): string {
  if (state === "active") return `Your package ${name} is active.`;
  return state === "queued" ? `You have the package ${name}.` : `The package ${name} has ended.`;
}

const WAYS: Record<Method, { icon: LucideIcon; label: string; hint: string; go: string }> = {
  stripe: {
    icon: CreditCard,
    label: "By card, on Stripe's page",
    hint: "You come back to this page, and your order is fulfilled immediately.",
    go: "Continue to Stripe",
  },
  shop: {
    icon: Store,
    label: "In the shop",
    hint: "You pay there. Your order is fulfilled once the shop has reported the payment.",
    go: "Continue to the shop",
  },
  instructions: {
    icon: Landmark,
    label: "By bank transfer, or as the seller instructs",
    hint: "Your order is fulfilled once the seller has received the money.",
    go: "Show how to pay",
  },
};

function Choose({ shown: { order, ways }, onDone }: { shown: Shown; onDone: (isChoosing: boolean) => void }) {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const offered = (["stripe", "shop", "instructions"] as const).filter((way) =>
    way === "instructions" ? ways.instructions !== null : ways[way],
  );
  const [chosen, setChosen] = useState<Method>(offered.find((way) => way === order.method) ?? offered[0] ?? "stripe");
  const pay = useMutation({
    mutationFn: () => ask(api.orders({ id: order.orderId }).pay.post({ method: chosen })),
    onSuccess: async ({ url }) => {
      if (url !== null) return location.assign(url);
      await refresh();
      onDone(false);
    },
  });
  return (
    <Section title={`Pay ${formatAmount(order.totalNano ?? "0", order.currency)}`}>
      <div className="grid gap-4">
        {offered.length === 1 ? (
          <p className="text-14">
            {WAYS[chosen].label}
            <span className="block text-13 text-ink-2">{WAYS[chosen].hint}</span>
          </p>
        ) : (
          <RadioList
            label="How do you want to pay?"
            value={chosen}
            onValue={setChosen}
            options={offered.map((value) => ({ value, ...WAYS[value] }))}
          />
        )}
        {pay.error && <Problem error={pay.error} />}
        <div>
          <Button
            variant="primary"
            icon={WAYS[chosen].icon}
            // The browser is leaving the page, so the button stays pending.
            pending={pay.isPending || (pay.isSuccess && pay.data.url !== null)}
            onClick={() => pay.mutate()}
            {...lock}
          >
            {WAYS[chosen].go}
          </Button>
        </div>
      </div>
    </Section>
  );
}

function Instructions({ shown: { order }, text }: { shown: Shown; text: string }) {
  return (
    <Section
      title={`Pay ${formatAmount(order.totalNano ?? "0", order.currency)}`}
      description={`Give the reference with the payment: without it the seller cannot assign the money to your order. When ${brandName() || "the seller"} has the money, this page updates automatically. You can close it.`}
    >
      <div className="grid gap-4">
        <p className="max-w-[42rem] text-14 break-words whitespace-pre-line">{text}</p>
        <Facts
          facts={[
            ["Amount", formatAmount(order.totalNano ?? "0", order.currency)],
            ["Reference", <CopyText key="reference" value={order.reference} what="reference" />],
          ]}
        />
      </div>
    </Section>
  );
}

function InvoiceFile({ invoice: { invoiceId, number, title } }: { invoice: NonNullable<Shown["invoice"]> }) {
  return (
    <DownloadButton path={() => `/api/panel/invoices/${invoiceId}/pdf`} fileName={`invoice-${number}.pdf`} size="sm">
      <span className="sr-only">Download {title.toLowerCase()} </span>
      {number}
      <span className="sr-only"> as PDF</span>
    </DownloadButton>
  );
}

function factsOf({ order, invoice }: Shown) {
  const { totalNano, refundedNano, currency, paidAt, answer, note } = order;
  return [
    ["State", <OrderState key="state" order={order} />],
    ...priceFacts(order),
    ...(order.amountNanoUsd === null || (order.tax === null && order.usdRateNano === null)
      ? []
      : [["Added to your balance", formatMoney(order.amountNanoUsd)] as const]),
    ...(order.offering && order.status === "open" && totalNano !== null
      ? [["Starts", <PackageStart key="start" />] as const]
      : []),
    ["Reference", <CopyText key="reference" value={order.reference} what="reference" />],
    ["Ordered", <Instant key="ordered" iso={order.createdAt} />],
    ...(paidAt === null ? [] : [["Paid", <Instant key="paid" iso={paidAt} />] as const]),
    ...(invoice === null ? [] : [[invoice.title, <InvoiceFile key="invoice" invoice={invoice} />] as const]),
    ...(BigInt(refundedNano) === 0n ? [] : [["Refunded", formatAmount(refundedNano, currency)] as const]),
    ...(note === null ? [] : [["Your note", note] as const]),
    ...(answer === null ? [] : [["Answer", answer] as const]),
  ] as const;
}
