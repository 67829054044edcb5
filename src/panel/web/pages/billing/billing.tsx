import { t } from "@lingui/core/macro";
import { Plus, Ticket } from "lucide-react";
import { lazy, useEffect, useEffectEvent } from "react";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Later } from "../../ui/later.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { OwnInvoices } from "../invoices/invoice_list.tsx";
import type { OrderKind } from "../orders/order_parts.tsx";
import { OwnOrders } from "../orders/own_orders.tsx";
import { Assignable } from "./assignable.tsx";
import { AutoTopUpSection } from "./auto_top_up.tsx";
import { BalanceSection } from "./balance_section.tsx";
import { CardSection } from "./card_section.tsx";
import { MeasuredSection } from "./measured.tsx";
import type { Offering } from "./on_sale.tsx";
import { PackagesSection } from "./packages_section.tsx";
import { PlanCards } from "./plan_cards.tsx";
import { useBilling } from "./queries.ts";
import { Renewal } from "./renewal.tsx";

const AskDialog = lazy(() => import("../orders/order_dialog.tsx").then((m) => ({ default: m.AskDialog })));
const BuyDialog = lazy(() => import("../orders/order_dialog.tsx").then((m) => ({ default: m.BuyDialog })));
const RedeemVoucher = lazy(() => import("./redeem_voucher.tsx").then((m) => ({ default: m.RedeemVoucher })));

/** The person's packages, balance with transactions, and orders; for a reseller also what it can assign. */

export function BillingPage() {
  const { role, lock } = useViewer();
  const billing = useBilling(null);
  const asking = useAsking();
  const buying = useOpened<Offering>();
  const redeeming = useOpened<true>();
  return (
    <Page
      title={t`Billing`}
      lead={
        role === "customer"
          ? t`Your package, what you can buy, and your balance.`
          : t`Your packages, your balance and its transactions.`
      }
      action={<PageActions onRedeem={() => redeeming.open(true)} onAsk={() => asking.open("package")} />}
    >
      <Loaded query={billing} skeleton={<BillingSkeleton />}>
        {({ packages, balance, allotments }) => (
          <>
            <PackagesSection
              packages={packages}
              isOwn
              onTurn={() => void billing.refetch()}
              {...(role === "customer" && { renewal: ({ packageId }) => <Renewal packageId={packageId} /> })}
              firstStep={
                role === "customer" && (
                  <Button onClick={() => asking.open("package")} {...lock}>
                    {t`Get a package`}
                  </Button>
                )
              }
            />
            {role === "customer" && <PlanCards onBuy={buying.open} />}
            {role === "customer" && <MeasuredSection />}
            {role === "reseller" && <Assignable allotments={allotments} />}
            <BalanceSection
              accountId={null}
              balance={balance}
              role={role}
              action={
                role !== "admin" && (
                  <Button size="sm" onClick={() => asking.open("top_up")} {...lock}>
                    {t`Top up the balance`}
                  </Button>
                )
              }
            />
          </>
        )}
      </Loaded>
      {role !== "admin" && <CardSection />}
      {role !== "admin" && <AutoTopUpSection />}
      {role !== "admin" && <OwnOrders />}
      <OwnInvoices />
      <Later>
        {asking.what && (
          <AskDialog key={`ask ${asking.times}`} open={asking.isOpen} onClose={asking.close} kind={asking.what} />
        )}
        {buying.what && (
          <BuyDialog key={`buy ${buying.times}`} open={buying.isOpen} onClose={buying.close} offering={buying.what} />
        )}
        {redeeming.times > 0 && (
          <RedeemVoucher key={`redeem ${redeeming.times}`} open={redeeming.isOpen} onClose={redeeming.close} />
        )}
      </Later>
    </Page>
  );
}

function PageActions({ onRedeem, onAsk }: { onRedeem: () => void; onAsk: () => void }) {
  const { accountId, role, lock } = useViewer();
  // Admins would ask themselves.
  return role === "admin" ? (
    <ButtonLink href={`/admin/people/${accountId}`}>{t`Open your account`}</ButtonLink>
  ) : (
    <>
      <Button icon={Ticket} onClick={onRedeem} {...lock}>
        {t`Redeem a voucher`}
      </Button>
      {/* A customer buys from a card. */}
      <Button variant={role === "customer" ? "secondary" : "primary"} icon={Plus} onClick={onAsk} {...lock}>
        {t`New order`}
      </Button>
    </>
  );
}

/** The dialog for asking. Other pages open it with /billing?ask=top_up. */
function useAsking() {
  const { lock } = useViewer();
  const [{ ask }, setUrl] = useUrlState({ ask: "" });
  const asking = useOpened<OrderKind>();
  const onUrl = useEffectEvent((wanted: string) => {
    // The URL is cleaned, so that a reload does not open the dialog again.
    if (wanted !== "") setUrl({ ask: "" });
    if (!lock.disabled && (wanted === "package" || wanted === "top_up")) asking.open(wanted);
  });
  useEffect(() => onUrl(ask), [ask]);
  return asking;
}

function BillingSkeleton() {
  return (
    <>
      <Section title={t`Packages`}>
        <div className="grid gap-6">
          <Skeleton className="h-6 w-56" />
          <div className="grid gap-8 sm:grid-cols-2 lg:grid-cols-3">
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
          </div>
        </div>
      </Section>
      <Section title={t`Balance`}>
        <Skeleton className="h-16 w-72" />
      </Section>
    </>
  );
}
