import { Inbox } from "lucide-react";
import { useParams } from "wouter";
import { formatOf } from "../../format.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { Page } from "../../ui/page.tsx";
import { Banner } from "../../ui/states.tsx";
import { CustomerRenewals } from "../orders/customer_renewals.tsx";
import { IncomingOrders, useWaitingOrders } from "../orders/incoming_orders.tsx";
import { InviteButton, PeopleList } from "./people_list.tsx";
import { PersonView } from "./person_page.tsx";

/** A reseller's customers, and their orders. */

export function CustomersPage() {
  const waiting = useWaitingOrders();
  const invite = <InviteButton personHref={hrefOf} label="Invite customer" />;
  return (
    <Page title="Customers" lead="Your customers, and what they have left." action={invite}>
      {waiting && waiting.count > 0 && (
        <Banner
          tone="accent"
          icon={Inbox}
          title={`${formatOf(waiting.count, "order")} ${waiting.count === 1 ? "waits" : "wait"} for your answer.`}
          action={
            <ButtonLink href="/orders" size="sm">
              See orders
            </ButtonLink>
          }
        />
      )}
      <PeopleList personHref={hrefOf} invite={invite} />
    </Page>
  );
}

export function CustomerPage() {
  const { id } = useParams<{ id: string }>();
  return <PersonView key={id} accountId={Number(id)} listName="Customer" />;
}

export function OrdersPage() {
  return (
    <Page title="Orders" lead="Packages and top-ups that your customers have ordered.">
      <IncomingOrders personHref={hrefOf} />
      <CustomerRenewals personHref={hrefOf} />
    </Page>
  );
}

function hrefOf(accountId: number): string {
  return `/customers/${accountId}`;
}
