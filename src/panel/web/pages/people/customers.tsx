import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Inbox } from "lucide-react";
import { useParams } from "wouter";
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
  const invite = <InviteButton personHref={hrefOf} label={t`Invite customer`} />;
  return (
    <Page title={t`Customers`} lead={t`Your customers, and what they have left.`} action={invite}>
      {waiting && waiting.count > 0 && (
        <Banner
          tone="accent"
          icon={Inbox}
          title={plural(
            { orders: waiting.count },
            { one: "# order waits for your answer.", other: "# orders wait for your answer." },
          )}
          action={
            <ButtonLink href="/orders" size="sm">
              <Trans>See orders</Trans>
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
  return <PersonView key={id} accountId={Number(id)} listName={t`Customer`} />;
}

export function OrdersPage() {
  return (
    <Page title={t`Orders`} lead={t`Packages and top-ups that your customers have ordered.`}>
      <IncomingOrders personHref={hrefOf} />
      <CustomerRenewals personHref={hrefOf} />
    </Page>
  );
}

function hrefOf(accountId: number): string {
  return `/customers/${accountId}`;
}
