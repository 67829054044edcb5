import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatDay, formatMoney, formatMonth, formatOf } from "../../format.ts";
import { HOME_KEY } from "../../shared/account_queries.ts";
import { ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Figure, Figures, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";

/** The first part of a reseller's home: sales of this month, and customers about to run out. */

type Data = NonNullable<Awaited<ReturnType<typeof api.home.selling.get>>["data"]>;
type Row = Data["runningOut"]["rows"][number];

export function Selling() {
  const selling = useQuery({ queryKey: [...HOME_KEY, "selling"], queryFn: () => ask(api.home.selling.get()) });
  return (
    <Loaded query={selling} skeleton={<Skeleton className="h-48 rounded-lg" />}>
      {(data) => (
        <>
          <Month data={data} />
          <Section
            title="About to run out"
            description="Customers with a low package or balance, or with a package that ends soon or ended in the last week and has no successor."
            action={
              data.runningOut.hasMore && (
                <ButtonLink href="/customers" size="sm">
                  All customers
                </ButtonLink>
              )
            }
            flush
          >
            <DataTable
              caption="Customers about to run out"
              rows={data.runningOut.rows}
              rowKey={({ accountId }) => String(accountId)}
              rowHref={({ accountId }) => `/customers/${accountId}`}
              columns={COLUMNS}
              empty={<Empty>No customer is about to run out.</Empty>}
            />
          </Section>
        </>
      )}
    </Loaded>
  );
}

function Month({ data: { month, ordersOpen } }: { data: Data }) {
  const isLoss = BigInt(month.marginNanoUsd) < 0n;
  return (
    <Section
      title="Sales"
      description={`${formatOf(month.orders, "order")} that you fulfilled, and what you earned by markups, in ${formatMonth(month.name)}.${month.unpriced > 0 ? ` ${formatOf(month.unpriced, "order")} without a price ${month.unpriced === 1 ? "is" : "are"} not counted.` : ""}`}
      action={
        ordersOpen > 0 && (
          <ButtonLink href="/orders" size="sm" variant="primary">
            {formatOf(ordersOpen, "order")} waiting
          </ButtonLink>
        )
      }
    >
      <Figures>
        <Figure label="Package sales" note="At your prices, less refunds.">
          {formatMoney(month.revenueNanoUsd)}
        </Figure>
        <Figure label="Cost" note="The wholesale prices that you paid for them.">
          {formatMoney(month.costNanoUsd)}
        </Figure>
        <Figure label="Markups" note="Earned on requests that your customers' balances paid for.">
          {formatMoney(month.earnedNanoUsd)}
        </Figure>
        <Figure
          label="Sales margin"
          note={
            <>
              Package sales − cost + markups. <TextLink href="/statement">Statement</TextLink>
            </>
          }
        >
          <span className={isLoss ? "text-bad" : undefined}>{formatMoney(month.marginNanoUsd)}</span>
        </Figure>
        <Figure label="Top-ups" note="Your customers' money until requests use it. Not in the margin.">
          {formatMoney(month.topUpsNanoUsd)}
        </Figure>
      </Figures>
    </Section>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  { head: "Customer", cell: ({ name }) => <span className="wrap-anywhere">{name}</span> },
  { head: "Why", cell: (row) => whyText(row), className: "wrap-anywhere" },
  {
    head: "Ends or ended",
    align: "right",
    cell: ({ package: active }) => active && formatDay(active.endsAt, active.timeZone, nowMs()),
  },
];

function whyText({ package: active, freeNanoUsd }: Row): string {
  if (active === null) return `${formatMoney(freeNanoUsd)} of the balance available`;
  if (active.ended) return `${active.name} ended`;
  return `${formatOf(active.left, "request")} of ${active.name} left`;
}
