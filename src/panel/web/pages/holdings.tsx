import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ChevronRight } from "lucide-react";
import type { ReactNode } from "react";
import { api, ask, type Role } from "../api.ts";
import { EMPTY, termsText } from "../copy.ts";
import { formatCount, formatDay, formatMoney, formatZone, toUsdInput } from "../format.ts";
import { TextLink } from "../ui/buttons.tsx";
import { nowMs } from "../ui/clock.ts";
import { NativeSelect } from "../ui/fields.tsx";
import { useUrlState } from "../ui/filter_bar.tsx";
import { Figure, Figures, Section } from "../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows, Status } from "../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../ui/table.tsx";
import { Instant } from "../ui/time.tsx";
import { filledPage } from "./filled_page.ts";
import { PackageMeters } from "./package_meters.tsx";
import { useViewer } from "./page_hooks.ts";

/**
 * What an account holds, one's own or one that is looked after: packages with their meters, the balance, and every
 * movement of it. `accountId` null stands for one's own.
 *
 *   const billing = useBilling(accountId);
 *   <PackagesSection packages={billing.data.packages} actions={(row) => …} onTurn={billing.refetch} isOwn />
 *   <BalanceSection accountId={accountId} balance={billing.data.balance} role={role} action={…} />
 */

const ENTRIES_SIZE = 100;

export type Billing = NonNullable<Awaited<ReturnType<typeof api.billing.get>>["data"]>;
export type Package = Billing["packages"][number];
export type Balance = Billing["balance"];
type Entry = NonNullable<Awaited<ReturnType<typeof api.billing.entries.get>>["data"]>["entries"][number];

export function useBilling(accountId: number | null, { enabled = true } = {}) {
  return useQuery<Billing>({
    queryKey: ["billing", accountId],
    queryFn: () => (accountId === null ? ask(api.billing.get()) : ask(api.people({ id: accountId }).billing.get())),
    enabled,
  });
}

/** The package that counts now, with its meters; those that come after it; and those that are over, folded away. */
export function PackagesSection({
  packages,
  isOwn,
  firstStep,
  actions,
  onTurn,
}: {
  packages: readonly Package[];
  isOwn: boolean;
  /** A button, where no package is active. */
  firstStep?: ReactNode;
  /** A menu for a package that is not over. */
  actions?: (row: Package) => ReactNode;
  /** The day has turned, or a package has ended: ask again. */
  onTurn: () => void;
}) {
  const active = packages.find(({ state }) => state === "active");
  // The list comes with the latest first; what is queued is read in the order it comes.
  const queued = packages.filter(({ state }) => state === "queued").reverse();
  const ended = packages.filter(({ state }) => state === "ended");
  return (
    <Section title="Packages" flush>
      {active ? (
        <ActivePackage row={active} actions={actions?.(active)} onTurn={onTurn} />
      ) : (
        <Empty action={firstStep}>{isOwn ? EMPTY.packages : EMPTY.theirPackages}</Empty>
      )}
      {queued.map((row) => (
        <QueuedPackage key={row.packageId} row={row} actions={actions?.(row)} />
      ))}
      {ended.length > 0 && <EndedPackages rows={ended} />}
    </Section>
  );
}

function ActivePackage({ row, actions, onTurn }: { row: Package; actions: ReactNode; onTurn: () => void }) {
  const { allowance } = row;
  if (allowance === null) return null;
  return (
    <div className="grid gap-6 p-4 sm:p-6">
      <div className="flex items-start gap-3">
        <div className="min-w-0 flex-1">
          <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-16">
            {row.name} <Status kind="active" />
          </h3>
          <PackageTerms row={row} />
        </div>
        {actions}
      </div>
      <PackageMeters row={{ ...row, ...allowance, totalUsed: row.unitsUsed + row.unitsHeld }} onTurn={onTurn} />
    </div>
  );
}

const PAID_WITH = { balance: "paid by balance", allotment: "from an allotment", operator: "given by the operator" };

/** The terms in words, and for those whose business it is who paid. */
function PackageTerms({ row }: { row: Package }) {
  const { modelIds } = row;
  return (
    <p className="mt-1 text-13 text-ink-2" title={modelIds?.join(", ")}>
      {termsText(row)}, days of {formatZone(row.timeZone)}
      {row.paidWith && `, ${PAID_WITH[row.paidWith]}`}
    </p>
  );
}

function QueuedPackage({ row, actions }: { row: Package; actions: ReactNode }) {
  const day = (iso: string) => formatDay(iso, row.timeZone, nowMs());
  return (
    <div className="flex items-start gap-3 border-t border-line px-4 py-4 sm:px-6">
      <div className="min-w-0 flex-1">
        <h3 className="flex flex-wrap items-center gap-x-3 gap-y-1 text-14">
          {row.name} <Badge tone="accent">Next, from {day(row.startsAt)}</Badge>
        </h3>
        <PackageTerms row={row} />
        <p className="mt-1 text-13 text-ink-3">
          {day(row.startsAt)} to {day(row.endsAt)}
        </p>
      </div>
      {actions}
    </div>
  );
}

function EndedPackages({ rows }: { rows: readonly Package[] }) {
  const day = ({ timeZone }: Package, iso: string) => formatDay(iso, timeZone, nowMs());
  return (
    <details className="group border-t border-line">
      <summary className="flex min-h-(--row) items-center gap-2 px-4 py-2 text-13 font-medium text-ink-2 -outline-offset-2 hover:text-ink sm:px-6">
        <ChevronRight size={16} aria-hidden className="flex-none transition-transform group-open:rotate-90" />
        Ended packages ({formatCount(rows.length)})
      </summary>
      <DataTable
        caption="Ended packages"
        rows={rows}
        rowKey={({ packageId }) => String(packageId)}
        columns={[
          { head: "Package", cell: (row) => row.name },
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
    </details>
  );
}

function howItEnded({ endedEarly, unitsDropped }: Package): string {
  if (endedEarly === null) return "In its time";
  const dropped = unitsDropped ? `, ${formatCount(unitsDropped)} dropped` : "";
  return `${endedEarly === "replaced" ? "Replaced by another" : "Ended by hand"}${dropped}`;
}

const ENTRY_KINDS = {
  top_up: "Top-up",
  charge: "Request",
  wholesale: "Package",
  transfer: "Transfer",
  correction: "Correction",
} as const;
type EntryKind = keyof typeof ENTRY_KINDS;
const KIND_FILTER = [
  { value: "", label: "All movements" },
  { value: "top_up", label: "Top-ups" },
  { value: "charge", label: "Requests" },
  { value: "wholesale", label: "Packages" },
  { value: "transfer", label: "Transfers" },
  { value: "correction", label: "Corrections" },
] as const satisfies readonly { value: EntryKind | ""; label: string }[];

/** Free and held, and the movements with the balance after each. */
export function BalanceSection({
  accountId,
  balance,
  role,
  action,
}: {
  accountId: number | null;
  balance: Balance;
  /** The holder's: a reseller's balance pays for what it hands out. */
  role: Role;
  action?: ReactNode;
}) {
  const [filters, setFilters] = useUrlState({ kind: "" });
  const kind = KIND_FILTER.find(({ value }) => value === filters.kind)?.value ?? "";
  return (
    <Section title="Balance" action={action} flush>
      <div className="grid gap-6 p-4 sm:p-6">
        <Figures>
          <Figure label="Free" note={payNote(balance.paygEnabled, { role, isOwn: accountId === null })}>
            {formatMoney(balance.freeNanoUsd)}
          </Figure>
          <Figure label="Held" note="For requests under way; what they do not cost comes back.">
            {formatMoney(balance.heldNanoUsd)}
          </Figure>
        </Figures>
      </div>
      <div className="flex items-center justify-between gap-3 border-t border-line px-4 py-2 sm:px-6">
        <h3 className="text-13">Movements</h3>
        <NativeSelect
          label="Kind of movement"
          value={kind}
          onValue={(next) => setFilters({ kind: next })}
          options={KIND_FILTER}
        />
      </div>
      <Movements accountId={accountId} kind={kind} />
    </Section>
  );
}

/** What the balance is good for. */
function payNote(isPayg: boolean, { role, isOwn }: { role: Role; isOwn: boolean }): string {
  if (role === "reseller") {
    const whose = isOwn ? "your customers" : "their customers";
    return `Pays for packages and top-ups of ${whose}${isPayg ? ", and for requests by the token" : ""}.`;
  }
  if (isPayg) return "Requests can be paid from it, by the token.";
  return isOwn
    ? "Requests are not paid from it: that has to be switched on for you."
    : "Requests are not paid from it.";
}

function Movements({ accountId, kind }: { accountId: number | null; kind: EntryKind | "" }) {
  const entries = useInfiniteQuery({
    queryKey: ["billing", accountId, "entries", kind],
    queryFn: ({ pageParam, signal }) =>
      filledPage<Entry, string>(ENTRIES_SIZE, pageParam, async (before, limit) => {
        const options = { query: { limit, ...(kind && { kind }), ...(before && { before }) }, fetch: { signal } };
        const { entries, nextBefore } = await (accountId === null
          ? ask(api.billing.entries.get(options))
          : ask(api.people({ id: accountId }).billing.entries.get(options)));
        return { rows: entries, next: nextBefore };
      }),
    initialPageParam: "",
    getNextPageParam: ({ next }) => next,
  });
  const columns: Column<Entry>[] = [
    { head: "What", cell: (entry) => <EntryWords entry={entry} accountId={accountId} /> },
    { head: "When", cell: ({ createdAt }) => <Instant iso={createdAt} /> },
    { head: "By", hideBelow: "lg", cell: ({ actor }) => actor?.name ?? "" },
    { head: "Amount", align: "right", cell: (entry) => <Amount nanoUsd={entry.amountNanoUsd} /> },
    {
      head: "Balance after",
      align: "right",
      // What is rounded away here is much for a request.
      cell: ({ balanceAfterNanoUsd: after }) => <span title={`$${toUsdInput(after)}`}>{formatMoney(after)}</span>,
    },
  ];
  return (
    <div className="border-t border-line">
      <Loaded query={entries} skeleton={<SkeletonRows rows={4} />}>
        {({ pages }) => (
          <DataTable
            caption="Movements of the balance"
            rows={pages.flatMap((page) => page.rows)}
            rowKey={({ entryId }) => String(entryId)}
            columns={columns}
            empty={<Empty>{kind === "" ? EMPTY.movements : "No movement of this kind."}</Empty>}
            older={toOlder(entries)}
          />
        )}
      </Loaded>
    </div>
  );
}

/** Money that came in is green and has a plus; a minus is enough for what went out. */
export function Amount({ nanoUsd }: { nanoUsd: string }) {
  const isIn = BigInt(nanoUsd) > 0n;
  return <span className={isIn ? "font-medium text-ok" : undefined}>{formatMoney(nanoUsd, { sign: true })}</span>;
}

function EntryWords({ entry, accountId }: { entry: Entry; accountId: number | null }) {
  const { kind, requestId } = entry;
  return (
    <span className="grid min-w-0">
      <span className="font-medium">{ENTRY_KINDS[kind]}</span>
      <span className="text-ink-2">
        {requestId === null ? <Reason entry={entry} /> : <ReceiptLink requestId={requestId} accountId={accountId} />}
      </span>
    </span>
  );
}

function ReceiptLink({ requestId, accountId }: { requestId: string; accountId: number | null }) {
  const account = accountId === null ? "" : `accountId=${accountId}&`;
  return <TextLink href={`/usage?${account}receipt=${requestId}`}>Receipt</TextLink>;
}

/** The ledger's own reasons in words; what a person wrote as it is. */
function Reason({ entry: { reason, package: paid, counterpart, amountNanoUsd } }: { entry: Entry }) {
  const { accountId } = useViewer();
  const [, order] = /^order (\d+)$/.exec(reason ?? "") ?? [];
  const said = order ? `Order ${order}` : reason;
  if (counterpart !== null) {
    return (
      <>
        {BigInt(amountNanoUsd) > 0n ? "From " : "To "}
        <PersonName person={counterpart} />
        {said && `, ${said}`}
      </>
    );
  }
  if (paid === null) return said;
  if (paid.holder.accountId === accountId) return `${paid.name}, for yourself`;
  return (
    <>
      {paid.name}, for <PersonName person={paid.holder} />
    </>
  );
}

/** A name that leads to its page, for those who have one. */
function PersonName({ person: { accountId, name } }: { person: { accountId: number; name: string } }) {
  const viewer = useViewer();
  if (viewer.role === "customer" || viewer.accountId === accountId) return name;
  return <TextLink href={`${viewer.role === "admin" ? "/admin/people" : "/customers"}/${accountId}`}>{name}</TextLink>;
}
