import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Plus, Search, Users } from "lucide-react";
import { lazy, type ReactNode } from "react";
import { EMAIL_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, type Role } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { formatMoney } from "../../format.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { useDebounced, useOpened, useViewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { FilterBar, SearchInput, useUrlState } from "../../ui/filter_bar.tsx";
import { Later } from "../../ui/later.tsx";
import { Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { PEOPLE_KEY } from "./queries.ts";

/** The list of people (a reseller sees its customers, an admin everyone), and the button that adds one. */

const InviteDialog = lazy(() => import("./person_invite.tsx").then((m) => ({ default: m.InviteDialog })));

type Row = NonNullable<Awaited<ReturnType<typeof api.people.get>>["data"]>["people"][number];

const ROLE_FILTER = [
  { value: "all", label: t({ message: "All", context: "people" }) },
  { value: "customer", label: t`Customers` },
  { value: "reseller", label: t`Resellers` },
  { value: "admin", label: t`Admins` },
] as const satisfies readonly { value: Role | "all"; label: string }[];
const STATE_FILTER = [
  { value: "", label: t`Any state` },
  { value: "active", label: t`Active` },
  { value: "invited", label: t`Invited` },
  { value: "suspended", label: t`Suspended` },
] as const;
const SORTS = [
  { value: "added", label: t`Newest first` },
  { value: "name", label: t`By name` },
  { value: "balance", label: t`Smallest balance first` },
] as const;
type Sort = (typeof SORTS)[number]["value"];
type PersonState = Exclude<(typeof STATE_FILTER)[number]["value"], "">;
const ROLE_WORDS: Record<Role, string> = { customer: t`Customer`, reseller: t`Reseller`, admin: t`Admin` };

/** The list, with search and filters, which are kept in the URL. */
function NoPeople({ invite }: { invite: ReactNode }) {
  return (
    <Empty icon={Users} action={invite}>
      {EMPTY.customers}
    </Empty>
  );
}

function NoMatch({ q }: { q: string }) {
  return (
    <Empty icon={Search}>
      {t`No match.`}
      {q !== "" && ` ${t`The search compares the beginnings of names and e-mail addresses.`}`}
    </Empty>
  );
}

export function PeopleList({ personHref, invite }: { personHref: (accountId: number) => string; invite: ReactNode }) {
  const isAdmin = useViewer().role === "admin";
  const [filters, setFilters] = useUrlState({ q: "", role: "all", state: "", sort: "added" });
  const role = oneOf(ROLE_FILTER, filters.role, "all");
  const state = oneOf(STATE_FILTER, filters.state, "");
  const sort = oneOf(SORTS, filters.sort, "added");
  const q = useDebounced(filters.q.trim());
  const people = usePeople({ q, role, state, sort });
  const isFiltered = q !== "" || role !== "all" || state !== "";
  return (
    <>
      <FilterBar
        isFiltered={isFiltered}
        onClear={() => setFilters({ q: "", role: "all", state: "" })}
        aside={
          <>
            <NativeSelect
              label={t({ message: "Order", context: "of a list" })}
              value={sort}
              onValue={(next) => setFilters({ sort: next })}
              options={SORTS}
            />
            <ExportCsv query={queryOf({ q, role, state })} />
          </>
        }
      >
        <SearchInput
          label={t`Search by name or e-mail`}
          placeholder={t`Name or e-mail begins with`}
          value={filters.q}
          onValue={(typed) => setFilters({ q: typed })}
          maxLength={EMAIL_CHARS_MAX}
          // On a desktop, all filters fit into one line.
          className="xl:w-64"
        />
        {isAdmin && (
          <Segmented
            label={t`Role`}
            value={role}
            onValue={(next) => setFilters({ role: next })}
            options={ROLE_FILTER}
          />
        )}
        <NativeSelect
          label={t`State`}
          value={state}
          onValue={(next) => setFilters({ state: next })}
          options={STATE_FILTER}
        />
      </FilterBar>
      <Section flush>
        <Loaded query={people} skeleton={<SkeletonRows rows={6} />}>
          {({ pages }) => (
            <DataTable
              caption={isAdmin ? t`People` : t`Customers`}
              rows={pages.flatMap((page) => page.people)}
              rowKey={({ accountId }) => String(accountId)}
              rowHref={({ accountId }) => personHref(accountId)}
              columns={isAdmin ? [...WHO, ...WHOSE, ...WHAT] : [...WHO, ...WHAT]}
              empty={isFiltered ? <NoMatch q={q} /> : <NoPeople invite={invite} />}
              older={toOlder(people)}
            />
          )}
        </Loaded>
      </Section>
    </>
  );
}

type Filter = { q: string; role: Role | "all"; state: PersonState | "" };

function queryOf({ q, role, state }: Filter) {
  return { ...(q !== "" && { q }), ...(role !== "all" && { role }), ...(state !== "" && { state }) };
}

function ExportCsv({ query }: { query: ReturnType<typeof queryOf> }) {
  return (
    <DownloadButton path={() => `/api/panel/people.csv?${new URLSearchParams(query)}`} fileName="customers.csv">
      <Trans>
        CSV<span className="sr-only"> export</span>
      </Trans>
    </DownloadButton>
  );
}

function usePeople({ sort, ...filter }: Filter & { sort: Sort }) {
  return useInfiniteQuery({
    queryKey: [...PEOPLE_KEY, "list", { sort, ...filter }],
    queryFn: ({ pageParam }) =>
      ask(
        api.people.get({
          query: {
            ...queryOf(filter),
            ...(sort !== "added" && { sort }),
            ...(pageParam > 0 && { before: pageParam }),
          },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ people: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.accountId : undefined),
    placeholderData: keepPreviousData,
  });
}

const WHO: readonly Column<Row>[] = [
  {
    head: t`Name`,
    cell: ({ name, email }) => <TwoLines below={email}>{name}</TwoLines>,
  },
];
const WHOSE: readonly Column<Row>[] = [
  { head: t`Role`, cell: ({ role }) => ROLE_WORDS[role] },
  {
    head: t`Reseller`,
    hideBelow: "lg",
    cell: ({ resellerName }) => resellerName ?? <None />,
    className: "wrap-anywhere",
  },
];
const WHAT: readonly Column<Row>[] = [
  { head: t`Package`, cell: ({ packageName }) => packageName ?? <None />, className: "wrap-anywhere" },
  { head: t`Balance`, align: "right", cell: ({ balanceNanoUsd }) => formatMoney(balanceNanoUsd) },
  { head: t`State`, cell: (row) => <PersonStatus person={row} /> },
  { head: t`Added`, hideBelow: "lg", cell: ({ createdAt }) => <Ago iso={createdAt} /> },
];

function None() {
  return (
    <span className="text-ink-3">
      <Trans>None</Trans>
    </span>
  );
}

type StatusFacts = Pick<Row, "status" | "hasPassword" | "hasIdentity">;

function PersonStatus({ person: { status, hasPassword, hasIdentity } }: { person: StatusFacts }) {
  if (status === "suspended") return <Status kind="suspended" />;
  return hasPassword || hasIdentity ? (
    <Status kind="active" />
  ) : (
    <Status kind="pending">
      <Trans>Invited</Trans>
    </Status>
  );
}

/** A button that opens the form for a new person. */
export function InviteButton({ personHref, label }: { personHref: (accountId: number) => string; label: string }) {
  const { lock } = useViewer();
  const dialog = useOpened<true>();
  return (
    <>
      <Button variant="primary" icon={Plus} onClick={() => dialog.open(true)} {...lock}>
        {label}
      </Button>
      <Later>
        {dialog.what && (
          <InviteDialog key={dialog.times} open={dialog.isOpen} onClose={dialog.close} personHref={personHref} />
        )}
      </Later>
    </>
  );
}
