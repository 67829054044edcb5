import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatDay, formatMoney, formatMonth } from "../../format.ts";
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
            title={t`About to run out`}
            description={t`Customers with a low package or balance, or with a package that ends soon or ended in the last week and has no successor.`}
            action={
              data.runningOut.hasMore && (
                <ButtonLink href="/customers" size="sm">
                  <Trans>All customers</Trans>
                </ButtonLink>
              )
            }
            flush
          >
            <DataTable
              caption={t`Customers about to run out`}
              rows={data.runningOut.rows}
              rowKey={({ accountId }) => String(accountId)}
              rowHref={({ accountId }) => `/customers/${accountId}`}
              columns={COLUMNS}
              empty={
                <Empty>
                  <Trans>No customer is about to run out.</Trans>
                </Empty>
              }
            />
          </Section>
        </>
      )}
    </Loaded>
  );
}

function Month({ data: { month, ordersOpen, disputesToAnswer } }: { data: Data }) {
  const isLoss = BigInt(month.marginNanoUsd) < 0n;
  const counted = t`${plural({ orders: month.orders }, { one: "# order", other: "# orders" })} that you fulfilled, and what you earned by markups, in ${{ month: formatMonth(month.name) }}.`;
  const notCounted = plural(
    { unpriced: month.unpriced },
    { one: "# order without a price is not counted.", other: "# orders without a price are not counted." },
  );
  return (
    <Section
      title={t`Sales`}
      description={month.unpriced > 0 ? `${counted} ${notCounted}` : counted}
      action={
        <>
          {disputesToAnswer > 0 && (
            <ButtonLink href="/payments?show=to_answer" size="sm">
              {plural(disputesToAnswer, { one: "# dispute to answer", other: "# disputes to answer" })}
            </ButtonLink>
          )}
          {ordersOpen > 0 && (
            <ButtonLink href="/orders" size="sm" variant="primary">
              {plural(ordersOpen, { one: "# order waiting", other: "# orders waiting" })}
            </ButtonLink>
          )}
        </>
      }
    >
      <Figures>
        <Figure label={t`Package sales`} note={t`At your prices, less refunds.`}>
          {formatMoney(month.revenueNanoUsd)}
        </Figure>
        <Figure label={t`Cost`} note={t`The wholesale prices that you paid for them.`}>
          {formatMoney(month.costNanoUsd)}
        </Figure>
        <Figure label={t`Markups`} note={t`Earned on requests that your customers' balances paid for.`}>
          {formatMoney(month.earnedNanoUsd)}
        </Figure>
        <Figure
          label={t`Sales margin`}
          note={
            <Trans>
              Package sales − cost + markups. <TextLink href="/statement">Statement</TextLink>
            </Trans>
          }
        >
          <span className={isLoss ? "text-bad" : undefined}>{formatMoney(month.marginNanoUsd)}</span>
        </Figure>
        <Figure label={t`Top-ups`} note={t`Your customers' money until requests use it. Not in the margin.`}>
          {formatMoney(month.topUpsNanoUsd)}
        </Figure>
      </Figures>
    </Section>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  { head: t`Customer`, cell: ({ name }) => <span className="wrap-anywhere">{name}</span> },
  { head: t`Why`, cell: (row) => whyText(row), className: "wrap-anywhere" },
  {
    head: t`Ends or ended`,
    align: "right",
    cell: ({ package: active }) => active && formatDay(active.endsAt, active.timeZone, nowMs()),
  },
];

function whyText({ package: active, freeNanoUsd }: Row): string {
  if (active === null) return t`${{ free: formatMoney(freeNanoUsd) }} of the balance available`;
  if (active.ended) return t`${{ name: active.name }} ended`;
  return t`${plural({ left: active.left }, { one: "# request", other: "# requests" })} of ${{ name: active.name }} left`;
}
