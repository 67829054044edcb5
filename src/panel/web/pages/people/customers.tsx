import { Inbox } from "lucide-react";
import { lazy, Suspense } from "react";
import { useParams } from "wouter";
import { formatOf } from "../../format.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Page } from "../../ui/page.tsx";
import { Banner, Skeleton } from "../../ui/states.tsx";
import { IncomingOrders, useWaitingOrders } from "../orders/incoming_orders.tsx";
import { InviteButton, PeopleList } from "./people_list.tsx";
import { PersonView } from "./person_page.tsx";

/** A reseller's customers: the list, their orders, and the monthly statement. */

const Statement = lazy(() => import("../billing/statement.tsx").then((m) => ({ default: m.Statement })));

const VIEWS = [
  { value: "customers", label: "Customers" },
  { value: "orders", label: "Orders" },
  { value: "statement", label: "Statement" },
] as const;

export function CustomersPage() {
  const [filters, setFilters] = useUrlState({ view: "customers" });
  const view = oneOf(VIEWS, filters.view, "customers");
  const waiting = useWaitingOrders();
  const count = waiting && waiting.count > 0 ? ` (${waiting.count}${waiting.hasMore ? "+" : ""})` : "";
  const invite = <InviteButton personHref={hrefOf} label="Invite customer" />;
  return (
    <Page title="Customers" lead="Your customers, what they have left, and their orders." action={invite}>
      <Segmented
        label="View"
        value={view}
        onValue={(next) => setFilters({ view: next }, { push: true })}
        options={VIEWS.map(({ value, label }) => ({ value, label: value === "orders" ? `${label}${count}` : label }))}
        className="self-start"
      />
      {view === "customers" && (
        <>
          {waiting && waiting.count > 0 && (
            <Banner
              tone="accent"
              icon={Inbox}
              title={`${formatOf(waiting.count, "order")} ${waiting.count === 1 ? "waits" : "wait"} for your answer.`}
              action={
                <Button size="sm" onClick={() => setFilters({ view: "orders" }, { push: true })}>
                  See orders
                </Button>
              }
            />
          )}
          <PeopleList personHref={hrefOf} invite={invite} />
        </>
      )}
      {view === "orders" && <IncomingOrders personHref={hrefOf} />}
      {view === "statement" && (
        <Suspense fallback={<Skeleton className="h-96 rounded-lg" />}>
          <Statement />
        </Suspense>
      )}
    </Page>
  );
}

export function CustomerPage() {
  const { id } = useParams<{ id: string }>();
  return <PersonView key={id} accountId={Number(id)} listName="Customer" />;
}

function hrefOf(accountId: number): string {
  return `/customers/${accountId}`;
}
