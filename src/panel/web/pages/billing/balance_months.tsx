import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatMonth, formatZoneTime } from "../../format.ts";
import { Amount } from "../../shared/amount.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";

/** Incoming and outgoing money of a balance, by month. */

type Row = NonNullable<Awaited<ReturnType<typeof api.billing.months.get>>["data"]>["months"][number];

export function BalanceMonths({ accountId, paysPackages }: { accountId: number | null; paysPackages: boolean }) {
  const months = useQuery({
    queryKey: ["billing", accountId, "months"],
    queryFn: () =>
      accountId === null ? ask(api.billing.months.get()) : ask(api.people({ id: accountId }).billing.months.get()),
  });
  const columns: Column<Row>[] = [
    { head: t`Month`, cell: ({ month }) => formatMonth(month) },
    {
      head: t`Top-ups, transfers, earnings`,
      align: "right",
      cell: ({ topUpsNanoUsd }) => <Sum nanoUsd={topUpsNanoUsd} />,
    },
    ...(paysPackages || months.data?.months.some(({ packagesNanoUsd }) => packagesNanoUsd !== "0")
      ? [
          {
            head: t`Packages`,
            align: "right",
            cell: ({ packagesNanoUsd }: Row) => <Sum nanoUsd={packagesNanoUsd} />,
          } as const,
        ]
      : []),
    {
      head: t`Requests`,
      align: "right",
      cell: ({ chargesNanoUsd, charges }) => (
        <Hint says={charges === 0 ? null : plural({ count: charges }, { one: "# request", other: "# requests" })}>
          <Sum nanoUsd={chargesNanoUsd} />
        </Hint>
      ),
    },
    {
      head: t`Corrections, refunds`,
      align: "right",
      hideBelow: "lg",
      cell: (row) => <Sum nanoUsd={row.correctionsNanoUsd} />,
    },
    {
      head: t({ message: "Change", context: "column: by how much the balance changed" }),
      align: "right",
      cell: ({ changeNanoUsd }) => <Amount nanoUsd={changeNanoUsd} />,
    },
  ];
  return (
    <Loaded query={months} skeleton={<SkeletonRows rows={2} />}>
      {({ months: rows, timeZone }) =>
        rows.length > 0 && (
          <div className="border-t border-line">
            <h3 className="px-4 py-2 text-13 sm:px-6">
              <ByMonth zone={formatZoneTime(timeZone)} />
            </h3>
            <div className="border-t border-line">
              <DataTable
                caption={t`The balance by month`}
                rows={rows}
                rowKey={({ month }) => month}
                columns={columns}
              />
            </div>
          </div>
        )
      }
    </Loaded>
  );
}

function ByMonth({ zone }: { zone: string }) {
  return (
    <Trans>
      By month <span className="font-normal text-ink-3">in {zone}</span>
    </Trans>
  );
}

function Sum({ nanoUsd }: { nanoUsd: string }) {
  return nanoUsd === "0" ? <span className="text-ink-3">–</span> : <Amount nanoUsd={nanoUsd} />;
}
