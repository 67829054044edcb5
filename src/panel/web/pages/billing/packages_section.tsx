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
    <Section title="Packages" flush>
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
  balance: "paid from the balance",
  allotment: "from an allotment",
  operator: "given by the operator",
};

/** The terms in words, and who paid for those who may know. */
function PackageTerms({ row }: { row: Package }) {
  const { modelIds } = row;
  return (
    <p className="mt-1 text-13 text-ink-2">
      <Hint says={modelIds !== null && modelIds.length > 1 ? modelIds.join(", ") : null}>{termsText(row)}</Hint>, days
      in {formatZoneTime(row.timeZone)}
      {row.paidWith && `, ${PAID_WITH[row.paidWith]}`}
    </p>
  );
}

function QueuedPackage({ row, actions, renewal }: Shown) {
  const day = (iso: string) => formatDay(iso, row.timeZone, nowMs());
  return (
    <div className="flex items-start gap-3 border-t border-line px-4 py-4 sm:px-6">
      <div className="min-w-0 flex-1">
        <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-14 wrap-anywhere">
          {row.name} <Badge tone="accent">Next, from {day(row.startsAt)}</Badge>
        </h3>
        <PackageTerms row={row} />
        <p className="mt-1 text-13 text-ink-3">
          {day(row.startsAt)} to {day(row.endsAt)}
        </p>
        {renewal}
      </div>
      {actions}
    </div>
  );
}

function EndedPackages({ rows }: { rows: readonly Package[] }) {
  const day = ({ timeZone }: Package, iso: string) => formatDay(iso, timeZone, nowMs());
  return (
    <Collapsed look="rows" label={`Ended packages (${formatCount(rows.length)})`}>
      <DataTable
        caption="Ended packages"
        rows={rows}
        rowKey={({ packageId }) => String(packageId)}
        columns={[
          { head: "Package", cell: (row) => row.name, className: "wrap-anywhere" },
          { head: "From", cell: (row) => day(row, row.startsAt) },
          { head: "To", cell: (row) => day(row, row.endsAt) },
          {
            head: "Used",
            align: "right",
            cell: (row) => `${formatCount(row.unitsUsed)} of ${formatCount(row.totalLimit)}`,
          },
          { head: "How it ended", cell: howItEnded },
        ]}
      />
    </Collapsed>
  );
}

function howItEnded({ endedEarly, unitsDropped }: Package): string {
  if (endedEarly === null) return "On time";
  const dropped = unitsDropped ? `, ${formatCount(unitsDropped)} dropped` : "";
  return `${endedEarly === "replaced" ? "Replaced by another package" : "Ended early"}${dropped}`;
}
