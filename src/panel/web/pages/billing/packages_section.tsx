import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import type { ReactNode } from "react";
import { EMPTY, termsText } from "../../copy.ts";
import { formatCount, formatDay, formatZoneTime } from "../../format.ts";
import { nowMs } from "../../ui/clock.ts";
import { Collapsed } from "../../ui/collapsed.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Status } from "../../ui/states.tsx";
import { DataTable } from "../../ui/table.tsx";
import { PackageMeters } from "./package_meters.tsx";
import type { Package } from "./queries.ts";

/**
 * The packages of an account.
 *
 *   <PackagesSection packages={billing.data.packages} actions={(row) => …} onTurn={billing.refetch} isOwn />
 */

/** The active package with its meters, the queued ones, and the ended ones, collapsed. */
export function PackagesSection({
  packages,
  isOwn,
  firstStep,
  actions,
  renewal,
  onTurn,
}: {
  packages: readonly Package[];
  isOwn: boolean;
  /** A button to show if no package is active. */
  firstStep?: ReactNode;
  /** A menu for a package that has not ended. */
  actions?: (row: Package) => ReactNode;
  /** What a package that has not ended says of its renewal. */
  renewal?: (row: Package) => ReactNode;
  /** Called when the day or the package ends: load again. */
  onTurn: () => void;
}) {
  const active = packages.find(({ state }) => state === "active");
  // The list has the latest first; queued packages are shown in the order they start.
  const queued = packages.filter(({ state }) => state === "queued").reverse();
  const ended = packages.filter(({ state }) => state === "ended");
  return (
    <Section title={t`Packages`} flush>
      {active ? (
        <ActivePackage row={active} actions={actions?.(active)} renewal={renewal?.(active)} onTurn={onTurn} />
      ) : (
        <Empty action={firstStep}>{isOwn ? EMPTY.packages : EMPTY.theirPackages}</Empty>
      )}
      {queued.map((row) => (
        <QueuedPackage key={row.packageId} row={row} actions={actions?.(row)} renewal={renewal?.(row)} />
      ))}
      {ended.length > 0 && <EndedPackages rows={ended} />}
    </Section>
  );
}

type Shown = { row: Package; actions: ReactNode; renewal: ReactNode };

function ActivePackage({ row, actions, renewal, onTurn }: Shown & { onTurn: () => void }) {
  const { allowance } = row;
  if (allowance === null) return null;
  return (
    <div className="grid gap-6 p-4 sm:p-6">
      <div className="flex items-start gap-3">
        <div className="min-w-0 flex-1">
          <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-16 wrap-anywhere">
            {row.name} <Status kind="active" />
          </h3>
          <PackageTerms row={row} />
          {renewal}
        </div>
        {actions}
      </div>
      <PackageMeters row={{ ...row, ...allowance, totalUsed: row.unitsUsed + row.unitsHeld }} onTurn={onTurn} />
    </div>
  );
}

const PAID_WITH = {
  balance: t`paid from the balance`,
  allotment: t`from an allotment`,
  operator: t`given by the operator`,
};

/** The terms in words, and who paid for those who may know. */
function PackageTerms({ row }: { row: Package }) {
  const { modelIds } = row;
  const terms = (
    <Hint says={modelIds !== null && modelIds.length > 1 ? modelIds.join(", ") : null}>{termsText(row)}</Hint>
  );
  const zone = formatZoneTime(row.timeZone);
  const payment = row.paidWith && PAID_WITH[row.paidWith];
  return (
    <p className="mt-1 text-13 text-ink-2">
      {payment ? (
        <Trans>
          {terms}, days in {zone}, {payment}
        </Trans>
      ) : (
        <Trans>
          {terms}, days in {zone}
        </Trans>
      )}
    </p>
  );
}

function QueuedPackage({ row, actions, renewal }: Shown) {
  const day = (iso: string) => formatDay(iso, row.timeZone, nowMs());
  return (
    <div className="flex items-start gap-3 border-t border-line px-4 py-4 sm:px-6">
      <div className="min-w-0 flex-1">
        <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-14 wrap-anywhere">
          {row.name} <Badge tone="accent">{t`Next, from ${{ day: day(row.startsAt) }}`}</Badge>
        </h3>
        <PackageTerms row={row} />
        <p className="mt-1 text-13 text-ink-3">{t`${{ start: day(row.startsAt) }} to ${{ end: day(row.endsAt) }}`}</p>
        {renewal}
      </div>
      {actions}
    </div>
  );
}

function EndedPackages({ rows }: { rows: readonly Package[] }) {
  const day = ({ timeZone }: Package, iso: string) => formatDay(iso, timeZone, nowMs());
  return (
    <Collapsed look="rows" label={t`Ended packages (${{ count: formatCount(rows.length) }})`}>
      <DataTable
        caption={t`Ended packages`}
        rows={rows}
        rowKey={({ packageId }) => String(packageId)}
        columns={[
          { head: t`Package`, cell: (row) => row.name, className: "wrap-anywhere" },
          {
            head: t({ message: "From", context: "column: when a package began" }),
            cell: (row) => day(row, row.startsAt),
          },
          { head: t({ message: "To", context: "column: when a package ended" }), cell: (row) => day(row, row.endsAt) },
          {
            head: t`Used`,
            align: "right",
            cell: (row) => t`${{ used: formatCount(row.unitsUsed) }} of ${{ limit: formatCount(row.totalLimit) }}`,
          },
          { head: t`How it ended`, cell: howItEnded },
        ]}
      />
    </Collapsed>
  );
}

function howItEnded({ endedEarly, unitsDropped }: Package): string {
  if (endedEarly === null) return t`On time`;
  const count = unitsDropped ?? 0;
  if (endedEarly === "replaced")
    return count === 0
      ? t`Replaced by another package`
      : t`Replaced by another package, ${plural(count, { one: "# dropped", other: "# dropped" })}`;
  return count === 0 ? t`Ended early` : t`Ended early, ${plural(count, { one: "# dropped", other: "# dropped" })}`;
}
