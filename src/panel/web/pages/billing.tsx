import { Plus } from "lucide-react";
import { lazy, Suspense, useEffect, useEffectEvent } from "react";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { useUrlState } from "../ui/filter_bar.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { Assignable } from "./assignable.tsx";
import { BalanceSection, PackagesSection, useBilling } from "./holdings.tsx";
import type { OrderKind } from "./orders.tsx";
import { OwnOrders } from "./own_orders.tsx";
import { useOpened, useViewer } from "./page_hooks.ts";

const OrderDialog = lazy(() => import("./order_dialog.tsx").then((m) => ({ default: m.OrderDialog })));

/** The person's packages, balance with transactions, and orders; for a reseller also what it can assign. */

export function BillingPage() {
  const { accountId, role, lock } = useViewer();
  const billing = useBilling(null);
  const asking = useAsking();
  return (
    <Page
      title="Billing"
      lead="Your packages, your balance and its transactions."
      action={
        // Admins would ask themselves.
        role === "admin" ? (
          <ButtonLink href={`/admin/people/${accountId}`}>Open in People</ButtonLink>
        ) : (
          <Button variant="primary" icon={Plus} onClick={() => asking.open("package")} {...lock}>
            Ask for more
          </Button>
        )
      }
    >
      <Loaded query={billing} skeleton={<BillingSkeleton />}>
        {({ packages, balance, allotments }) => (
          <>
            <PackagesSection
              packages={packages}
              isOwn
              onTurn={() => void billing.refetch()}
              firstStep={
                role === "customer" && (
                  <Button onClick={() => asking.open("package")} {...lock}>
                    Ask for a package
                  </Button>
                )
              }
            />
            {role === "reseller" && <Assignable allotments={allotments} />}
            <BalanceSection
              accountId={null}
              balance={balance}
              role={role}
              action={
                role !== "admin" && (
                  <Button size="sm" onClick={() => asking.open("top_up")} {...lock}>
                    Ask for a top-up
                  </Button>
                )
              }
            />
          </>
        )}
      </Loaded>
      {role !== "admin" && <OwnOrders />}
      <Suspense>
        {asking.what && (
          <OrderDialog key={asking.times} open={asking.isOpen} onClose={asking.close} kind={asking.what} />
        )}
      </Suspense>
    </Page>
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
      <Section title="Packages">
        <div className="grid gap-6">
          <Skeleton className="h-6 w-56" />
          <div className="grid gap-8 sm:grid-cols-2 lg:grid-cols-3">
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
          </div>
        </div>
      </Section>
      <Section title="Balance">
        <Skeleton className="h-16 w-72" />
      </Section>
    </>
  );
}
