import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask, type Role } from "../../api.ts";
import { EMPTY, ENTRY_KINDS } from "../../copy.ts";
import { formatMoney, toUsdInput } from "../../format.ts";
import { Amount } from "../../shared/amount.tsx";
import { filledPage } from "../../shared/filled_page.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { TextLink } from "../../ui/buttons.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Hint } from "../../ui/hint.tsx";
import { brandName, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { BalanceFigures } from "./balance_figures.tsx";
import { BalanceMonths } from "./balance_months.tsx";
import type { Balance } from "./queries.ts";

/**
 * The balance of an account, with its transactions. `accountId` null is your own account; otherwise it is one that you manage.
 *
 *   <BalanceSection accountId={accountId} balance={billing.data.balance} role={role} action={…} />
 */

const ENTRIES_SIZE = 100;

type FullEntry = NonNullable<Awaited<ReturnType<typeof api.billing.entries.get>>["data"]>["entries"][number];
/** Without the balance after it in the view without requests. */
type Entry = Omit<FullEntry, "balanceAfterNanoUsd"> & { balanceAfterNanoUsd?: string };
type EntryKind = keyof typeof ENTRY_KINDS;
/** "": all but requests. */
type Shown = EntryKind | "all" | "";
const KIND_FILTER = [
  { value: "", label: t`Without requests` },
  { value: "all", label: t`All, each request too` },
  { value: "top_up", label: t`Top-ups` },
  { value: "charge", label: t`Requests` },
  { value: "wholesale", label: t`Packages` },
  { value: "package", label: t`Renewals` },
  { value: "transfer", label: t`Transfers` },
  { value: "correction", label: t`Corrections` },
  { value: "refund", label: t`Refunds` },
  { value: "earning", label: t`Earnings` },
] as const satisfies readonly { value: Shown; label: string }[];

/** Only resellers earn, and their customers need not know. */
const CUSTOMER_KIND_FILTER = KIND_FILTER.filter(({ value }) => value !== "earning");

/** Available and reserved money, and the transactions with the balance after each. */
export function BalanceSection({
  accountId,
  balance,
  role,
  action,
}: {
  accountId: number | null;
  balance: Balance;
  role: Role;
  action?: ReactNode;
}) {
  const [filters, setFilters] = useUrlState({ kind: "" });
  const kind = oneOf(KIND_FILTER, filters.kind, "");
  return (
    <Section title={t`Balance`} action={action} flush>
      <div className="grid gap-6 p-4 sm:p-6">
        <BalanceFigures balance={balance} role={role} isOwn={accountId === null} />
      </div>
      <BalanceMonths accountId={accountId} paysPackages={role === "reseller"} />
      <div className="flex items-center justify-between gap-3 border-t border-line px-4 py-2 sm:px-6">
        <h3 className="text-13">{t`Transactions`}</h3>
        <NativeSelect
          label={t`Kind of transaction`}
          value={kind}
          onValue={(next) => setFilters({ kind: next })}
          options={role === "reseller" ? KIND_FILTER : CUSTOMER_KIND_FILTER}
        />
      </div>
      <Transactions accountId={accountId} kind={kind} />
    </Section>
  );
}

function Transactions({ accountId, kind }: { accountId: number | null; kind: Shown }) {
  const entries = useInfiniteQuery({
    queryKey: ["billing", accountId, "entries", kind],
    queryFn: ({ pageParam, signal }) =>
      kind === ""
        ? movementsPage(accountId, pageParam, signal)
        : filledPage<Entry, string>(ENTRIES_SIZE, pageParam, async (before, limit) => {
            const query = { limit, ...(kind !== "all" && { kind }), ...(before && { before }) };
            const options = { query, fetch: { signal } };
            const { entries, nextBefore } = await (accountId === null
              ? ask(api.billing.entries.get(options))
              : ask(api.people({ id: accountId }).billing.entries.get(options)));
            return { rows: entries, next: nextBefore };
          }),
    initialPageParam: "",
    getNextPageParam: ({ next }) => next,
  });
  const columns: Column<Entry>[] = [
    {
      head: t({ message: "What", context: "column: what a transaction is" }),
      cell: (entry) => <EntryWords entry={entry} accountId={accountId} />,
    },
    { head: t`When`, cell: ({ createdAt }) => <Instant iso={createdAt} /> },
    {
      head: t({ message: "By", context: "column: who did it" }),
      hideBelow: "lg",
      cell: ({ actor }) => actor?.name ?? "",
    },
    { head: t`Amount`, align: "right", cell: (entry) => <Amount nanoUsd={entry.amountNanoUsd} /> },
    ...(kind === "" ? [] : [BALANCE_AFTER]),
  ];
  return (
    <div className="border-t border-line">
      <Loaded query={entries} skeleton={<SkeletonRows rows={4} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Transactions of the balance`}
            rows={pages.flatMap((page) => page.rows)}
            rowKey={({ entryId }) => String(entryId)}
            columns={columns}
            empty={
              <Empty>{kind === "" || kind === "all" ? EMPTY.transactions : t`No transaction of this kind.`}</Empty>
            }
            older={toOlder(entries)}
          />
        )}
      </Loaded>
    </div>
  );
}

const NANO_PER_CENT = 10_000_000n;

function isRounded(nanoUsd: string): boolean {
  return BigInt(nanoUsd) % NANO_PER_CENT !== 0n;
}

const BALANCE_AFTER: Column<Entry> = {
  head: t`Balance after`,
  align: "right",
  // With all decimals on demand: a request can cost less than the rounding.
  cell: ({ balanceAfterNanoUsd: after }) =>
    after !== undefined && <Hint says={isRounded(after) ? `$${toUsdInput(after)}` : null}>{formatMoney(after)}</Hint>,
};

/** The transactions that are no requests; the server leaves those out. */
async function movementsPage(accountId: number | null, pageParam: string, signal: AbortSignal) {
  const query = { limit: ENTRIES_SIZE, ...(pageParam && { before: Number(pageParam) }) };
  const options = { query, fetch: { signal } };
  const { entries, hasMore } = await (accountId === null
    ? ask(api.billing.movements.get(options))
    : ask(api.people({ id: accountId }).billing.movements.get(options)));
  const rows: Entry[] = entries;
  return { rows, next: hasMore ? String(entries[entries.length - 1]?.entryId) : null };
}

function EntryWords({ entry, accountId }: { entry: Entry; accountId: number | null }) {
  const { kind, requestId } = entry;
  return (
    <TwoLines
      below={
        requestId === null ? (
          <Reason entry={entry} isOwn={accountId === null} />
        ) : (
          <ReceiptLink requestId={requestId} accountId={accountId} />
        )
      }
    >
      {ENTRY_KINDS[kind]}
    </TwoLines>
  );
}

function ReceiptLink({ requestId, accountId }: { requestId: string; accountId: number | null }) {
  const account = accountId === null ? "" : `accountId=${accountId}&`;
  return <TextLink href={`/usage?${account}receipt=${requestId}`}>{t`Receipt`}</TextLink>;
}

/** The ledger's own reasons in words; a reason that a person typed is shown unchanged. */
function Reason({ entry, isOwn }: { entry: Entry; isOwn: boolean }) {
  const { reason, package: paid, counterpart, amountNanoUsd, orderId } = entry;
  const { accountId, role } = useViewer();
  const isIn = BigInt(amountNanoUsd) > 0n;
  const [, order] = /^order ([0-9A-F]{12})$/.exec(reason ?? "") ?? [];
  const [, voucher] = /^voucher (\d+)$/.exec(reason ?? "") ?? [];
  if (order && orderId !== null && isOwn) {
    const href = `/billing/orders/${orderId}`;
    if (counterpart === null) return <TextLink href={href}>{t`Order ${order}`}</TextLink>;
    // A customer knows its seller by the brand.
    const seller = (role === "customer" && brandName()) || counterpart.name;
    return (
      <Trans>
        From {seller}, <TextLink href={href}>Order {order}</TextLink>
      </Trans>
    );
  }
  const said = order ? t`Order ${order}` : voucher ? t`Voucher ${voucher}` : reason;
  // A customer paid its seller for the package; the seller sees who paid.
  if (entry.kind === "package" && paid !== null && (!isIn || counterpart === null)) return paid.name;
  if (counterpart !== null) {
    const person = <PersonName person={counterpart} />;
    if (!said) return isIn ? <Trans>From {person}</Trans> : <Trans>To {person}</Trans>;
    return isIn ? (
      <Trans>
        From {person}, {said}
      </Trans>
    ) : (
      <Trans>
        To {person}, {said}
      </Trans>
    );
  }
  if (paid === null) return said;
  if (paid.holder.accountId === accountId) return t`${{ name: paid.name }}, for yourself`;
  const { name } = paid;
  const person = <PersonName person={paid.holder} />;
  return said ? (
    <Trans>
      {name}, for {person}, {said}
    </Trans>
  ) : (
    <Trans>
      {name}, for {person}
    </Trans>
  );
}

/** A name, linked to its page if the viewer has one for it. */
function PersonName({ person: { accountId, name } }: { person: { accountId: number; name: string } }) {
  const viewer = useViewer();
  if (viewer.role === "customer" || viewer.accountId === accountId) return name;
  return <TextLink href={`${viewer.role === "admin" ? "/admin/people" : "/customers"}/${accountId}`}>{name}</TextLink>;
}
