import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CreditCard, Landmark, type LucideIcon, Store } from "lucide-react";
import { useEffect, useState } from "react";
import { useParams } from "wouter";
import { i18n } from "#language";
import { ORDER_PAYABLE_DAYS } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatAmount, formatMoney } from "../../format.ts";
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
      title={shown.data ? wants(shown.data.order) : t`Order`}
      lead={t`What you ordered, how to pay for it, and when you get it.`}
      size="sm"
      action={
        <ButtonLink href="/billing">
          <Trans>Back to Billing</Trans>
        </ButtonLink>
      }
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
        <Stepper label={t`Progress of the order`} steps={stepsOf(shown)} />
      )}
      <News shown={shown} isAwaited={(isBack || order.method === "shop") && !isChoosing} />
      {isPayable && order.method === "instructions" && ways.instructions !== null && !isChoosing && (
        <Instructions shown={shown} text={ways.instructions} />
      )}
      {isPayable && hasWays && (isChoosing || order.method === null) && <Choose shown={shown} onDone={setChoosing} />}
      {isPayable && mayChoose && !isChoosing && order.method !== null && (
        <div>
          <Button onClick={() => setChoosing(true)}>
            {order.method === "instructions" ? t`Pay in another way` : t`Choose how to pay`}
          </Button>
        </div>
      )}
      <Section title={t`Order`}>
        <Facts facts={factsOf(shown)} />
      </Section>
    </>
  );
}

function stepsOf({ order }: Shown): { label: string; state: StepState }[] {
  const isPaid = order.paidAt !== null;
  const isDone = order.status === "fulfilled";
  return [
    { label: t`Ordered`, state: "done" },
    { label: isPaid || isDone ? t`Paid` : t`Pay`, state: isPaid || isDone ? "done" : "current" },
    {
      label: order.offering ? t`Package active` : t`Balance topped up`,
      state: isDone ? "done" : isPaid ? "waiting" : "todo",
    },
  ];
}

/** The state of the order, in one sentence. */
function Unpayable({ order }: { order: Shown["order"] }) {
  return (
    <Banner
      tone="warn"
      title={t`This order can no longer be paid.`}
      action={order.status === "open" && <WithdrawOrder order={order} />}
    >
      {order.unpayable === "too_old"
        ? plural(
            { days: ORDER_PAYABLE_DAYS },
            {
              one: "It is older than # day, and prices may have changed. Withdraw it, and order again.",
              other: "It is older than # days, and prices may have changed. Withdraw it, and order again.",
            },
          )
        : t`The package is no longer on sale. Withdraw the order, or ask the seller.`}{" "}
      {order.method !== null &&
        t`If you have already paid, the seller sees the payment, and fulfils the order or refunds it.`}
    </Banner>
  );
}

function News({ shown: { order, package: bought, ways }, isAwaited }: { shown: Shown; isAwaited: boolean }) {
  const brand = brandName();
  if (order.status === "fulfilled")
    return (
      <Banner
        tone="ok"
        title={
          bought
            ? packageNews(bought)
            : order.offering
              ? t`Done.`
              : t`${{ amount: formatMoney(order.amountNanoUsd ?? "0") }} is in your balance.`
        }
        action={
          <ButtonLink href="/billing">
            <Trans>Show in Billing</Trans>
          </ButtonLink>
        }
      >
        {bought?.state === "queued" &&
          t`It starts ${{ start: startText(bought) }}, when your other packages have ended.`}
        {order.kind === "top_up" && <IdleBalance />}
      </Banner>
    );
  if (order.status === "paid")
    return (
      <Banner tone="warn" title={t`Paid. What you ordered is on its way.`}>
        {order.waitsFor === null
          ? t`This takes a few seconds. You can close this page.`
          : brand
            ? t`${brand} has your payment and must do something first. You do not have to do anything: your order is fulfilled, or you get a refund.`
            : t`The seller has your payment and must do something first. You do not have to do anything: your order is fulfilled, or you get a refund.`}
      </Banner>
    );
  if (order.status === "refunded")
    return (
      <Banner title={t`Your payment was refunded.`}>
        <Trans>You were not charged for this order.</Trans>
      </Banner>
    );
  if (order.unpayable !== null) return <Unpayable order={order} />;
  if (order.status === "open" && isAwaited)
    return (
      <Banner tone="warn" title={t`We are waiting for the payment.`}>
        <Trans>It can take a few minutes. This page updates automatically, and you can close it.</Trans>
      </Banner>
    );
  if (order.status !== "open" || ((ways.stripe || ways.shop || ways.instructions !== null) && order.totalNano !== null))
    return null;
  return (
    <Banner title={brand ? t`${brand} answers this order.` : t`The seller answers this order.`}>
      <Trans>The answer, and how to pay, appear here and under Orders.</Trans>
    </Banner>
  );
}

/** A topped-up balance pays for requests only with pay-as-you-go. */
function IdleBalance() {
  const { role } = useViewer();
  const billing = useBilling(null);
  if (role === "reseller" || billing.data?.balance.paygEnabled !== false) return null;
  const brand = brandName();
  return brand
    ? t`It does not pay for requests yet: ask ${brand} to switch on pay-as-you-go for you.`
    : t`It does not pay for requests yet: ask the seller to switch on pay-as-you-go for you.`;
}

function packageNews({ name, state }: { name: string; state: string }): string {
  if (state === "active") return t`Your package ${name} is active.`;
  return state === "queued" ? t`You have the package ${name}.` : t`The package ${name} has ended.`;
}

const WAYS: Record<Method, { icon: LucideIcon; label: string; hint: string; go: string }> = {
  stripe: {
    icon: CreditCard,
    label: t`By card, on Stripe's page`,
    hint: t`You come back to this page, and your order is fulfilled immediately.`,
    go: t`Continue to Stripe`,
  },
  shop: {
    icon: Store,
    label: t`In the shop`,
    hint: t`You pay there. Your order is fulfilled once the shop has reported the payment.`,
    go: t`Continue to the shop`,
  },
  instructions: {
    icon: Landmark,
    label: t`By bank transfer, or as the seller instructs`,
    hint: t`Your order is fulfilled once the seller has received the money.`,
    go: t`Show how to pay`,
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
    <Section title={t`Pay ${{ price: formatAmount(order.totalNano ?? "0", order.currency) }}`}>
      <div className="grid gap-4">
        {offered.length === 1 ? (
          <p className="text-14">
            {WAYS[chosen].label}
            <span className="block text-13 text-ink-2">{WAYS[chosen].hint}</span>
          </p>
        ) : (
          <RadioList
            label={t`How do you want to pay?`}
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
  const brand = brandName();
  return (
    <Section
      title={t`Pay ${{ price: formatAmount(order.totalNano ?? "0", order.currency) }}`}
      description={
        brand
          ? t`Give the reference with the payment: without it the seller cannot assign the money to your order. When ${brand} has the money, this page updates automatically. You can close it.`
          : t`Give the reference with the payment: without it the seller cannot assign the money to your order. When the seller has the money, this page updates automatically. You can close it.`
      }
    >
      <div className="grid gap-4">
        <p className="max-w-[42rem] text-14 break-words whitespace-pre-line">{text}</p>
        <Facts
          facts={[
            [t`Amount`, formatAmount(order.totalNano ?? "0", order.currency)],
            [t`Reference`, <CopyText key="reference" value={order.reference} what={t`reference`} />],
          ]}
        />
      </div>
    </Section>
  );
}

function InvoiceFile({ invoice: { invoiceId, number, title } }: { invoice: NonNullable<Shown["invoice"]> }) {
  return (
    <DownloadButton path={() => `/api/panel/invoices/${invoiceId}/pdf`} fileName={`invoice-${number}.pdf`} size="sm">
      {title === "Receipt" ? (
        <Trans>
          <span className="sr-only">Download receipt </span>
          {number}
          <span className="sr-only"> as PDF</span>
        </Trans>
      ) : (
        <Trans>
          <span className="sr-only">Download invoice </span>
          {number}
          <span className="sr-only"> as PDF</span>
        </Trans>
      )}
    </DownloadButton>
  );
}

function factsOf({ order, invoice }: Shown) {
  const { totalNano, refundedNano, currency, paidAt, answer, note } = order;
  return [
    [t`State`, <OrderState key="state" order={order} />],
    ...priceFacts(order),
    ...(order.amountNanoUsd === null || (order.tax === null && order.usdRateNano === null)
      ? []
      : [[t`Added to your balance`, formatMoney(order.amountNanoUsd)] as const]),
    ...(order.offering && order.status === "open" && totalNano !== null
      ? [[t`Starts`, <PackageStart key="start" />] as const]
      : []),
    [t`Reference`, <CopyText key="reference" value={order.reference} what={t`reference`} />],
    [t`Ordered`, <Instant key="ordered" iso={order.createdAt} />],
    ...(paidAt === null ? [] : [[t`Paid`, <Instant key="paid" iso={paidAt} />] as const]),
    ...(invoice === null ? [] : [[i18n._(invoice.title), <InvoiceFile key="invoice" invoice={invoice} />] as const]),
    ...(BigInt(refundedNano) === 0n ? [] : [[t`Refunded`, formatAmount(refundedNano, currency)] as const]),
    ...(note === null ? [] : [[t`Your note`, note] as const]),
    ...(answer === null ? [] : [[t`Answer`, answer] as const]),
  ] as const;
}
