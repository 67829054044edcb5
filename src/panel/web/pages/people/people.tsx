import { t } from "@lingui/core/macro";
import { useParams } from "wouter";
import { Page } from "../../ui/page.tsx";
import { CustomerRenewals } from "../orders/customer_renewals.tsx";
import { IncomingOrders } from "../orders/incoming_orders.tsx";
import { InviteButton, PeopleList } from "./people_list.tsx";
import { PersonView } from "./person_page.tsx";

/** The admin's pages of people, of one person, and of incoming orders. */

export function PeoplePage() {
  const invite = <InviteButton personHref={hrefOf} label={t`Add person`} />;
  return (
    <Page title={t`Customers`} lead={t`Customers, resellers and admins.`} action={invite}>
      <PeopleList personHref={hrefOf} invite={invite} />
    </Page>
  );
}

export function PersonPage() {
  const { id } = useParams<{ id: string }>();
  return <PersonView key={id} accountId={Number(id)} listName={t`Person`} />;
}

export function OrdersPage() {
  return (
    <Page title={t`Orders`} lead={t`Packages and top-ups that people have ordered.`}>
      <IncomingOrders personHref={hrefOf} />
      <CustomerRenewals personHref={hrefOf} />
    </Page>
  );
}

function hrefOf(accountId: number): string {
  return `/admin/people/${accountId}`;
}
