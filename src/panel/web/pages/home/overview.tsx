import { plural, t } from "@lingui/core/macro";
import { Plural, Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { api, ask } from "../../api.ts";
import { formatCount, formatList } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { nowMs } from "../../ui/clock.ts";
import { cx } from "../../ui/cx.ts";
import { inPlace } from "../../ui/in_place.tsx";
import { ErrorState, Loading, Skeleton } from "../../ui/states.tsx";
import { Ago } from "../../ui/time.tsx";

/** The overview of the service for admins. Each figure links to the list that it counts. */

const REFETCH_MS = 30_000;
/** The service checks the books every five minutes. */
const CHECK_LATE_MS = 15 * 60_000;

type OverviewData = NonNullable<Awaited<ReturnType<typeof api.admin.overview.get>>["data"]>;
type Cell = { label: string; href: string; value: ReactNode; note: ReactNode; tone?: "warn" | "bad" };

export function Overview() {
  const overview = useQuery({
    queryKey: [...ADMIN_KEY, "overview"],
    queryFn: () => ask(api.admin.overview.get()),
    refetchInterval: REFETCH_MS,
  });
  if (overview.data === undefined && overview.error)
    return <ErrorState error={overview.error} onRetry={() => void overview.refetch()} />;
  const cells = overview.data ? cellsOf(overview.data) : undefined;
  return (
    <section aria-label={t`The service`}>
      {cells ? (
        <ul className={GRID}>
          {inPlace(cells, (cell) => (
            <li className="grid bg-surface">
              <OverviewCell {...cell} />
            </li>
          ))}
        </ul>
      ) : (
        <Loading className={GRID}>
          {inPlace(LABELS, (label) => (
            <span className="grid gap-2 bg-surface p-4 sm:px-6">
              <span className="text-12 font-medium text-ink-3">{label}</span>
              <Skeleton className="h-8 w-16" />
              <Skeleton className="h-5 w-24" />
            </span>
          ))}
        </Loading>
      )}
    </section>
  );
}

const GRID = "grid grid-cols-2 gap-px overflow-hidden rounded-lg border border-line bg-line md:grid-cols-4";
const LABELS = [
  t`Accounts`,
  t`Requests in 24 h`,
  t`Orders waiting`,
  t`Disputes to answer`,
  t`Providers`,
  t`Replicas`,
  t`Domains`,
  t`Books`,
];

function OverviewCell({ label, href, value, note, tone }: Cell) {
  return (
    <Link href={href} className="grid content-start gap-1 p-4 -outline-offset-2 hover:bg-hover sm:px-6">
      <span className="text-12 font-medium text-ink-3">{label}</span>
      <span
        className={cx(
          "text-28 font-semibold tabular-nums",
          tone === "warn" && "text-warn",
          tone === "bad" && "text-bad",
        )}
      >
        {value}
      </span>
      <span className="text-13 text-ink-2">{note}</span>
    </Link>
  );
}

function cellsOf(data: OverviewData): Cell[] {
  const { accountsActive, ordersOpen, ordersByHand, domainsFailing, requests } = data;
  return [
    {
      label: t`Accounts`,
      href: "/admin/people?state=active",
      value: formatCount(accountsActive),
      note: peopleNote(data),
    },
    {
      label: t`Requests in 24 h`,
      href: "/admin/requests",
      value: requests ? formatCount(requests.settled) : t({ message: "Many", context: "requests" }),
      note: requests ? t`charged, ${{ released: formatCount(requests.released) }} released` : t`too many to count here`,
    },
    {
      label: t`Orders waiting`,
      href: "/admin/orders",
      value: formatCount(ordersOpen),
      note:
        ordersOpen === 0
          ? t({ message: "none waiting", context: "orders" })
          : ordersByHand > 0
            ? plural(ordersByHand, { one: "# payment to confirm", other: "# payments to confirm" })
            : t({ message: "waiting for a decision", context: "orders" }),
      ...(ordersOpen > 0 && { tone: "warn" }),
    },
    disputesCell(data.disputesToAnswer),
    providersCell(data.providers),
    replicasCell(data.replicas),
    {
      label: t`Domains`,
      href: domainsFailing === 0 ? "/admin/domains" : "/admin/domains?status=failing",
      ...domainsFigure(data),
      ...(domainsFailing > 0 && { tone: "warn" }),
    },
    booksCell(data.books),
  ];
}

function disputesCell(toAnswer: number): Cell {
  return {
    label: t`Disputes to answer`,
    href: toAnswer === 0 ? "/admin/payments?show=disputed" : "/admin/payments?show=to_answer",
    value: formatCount(toAnswer),
    note: toAnswer === 0 ? t({ message: "none waiting", context: "disputes" }) : t`in Stripe's dashboard`,
    ...(toAnswer > 0 && { tone: "bad" }),
  };
}

/** Of all replicas that have reported in the last minutes. */
function replicasCell({ all, unwell }: OverviewData["replicas"]): Cell {
  return {
    label: t`Replicas`,
    href: "/admin/books",
    value: unwell === 0 ? t`OK` : plural({ unwell }, { one: "# not healthy", other: "# not healthy" }),
    note: plural(all, { one: "of # replica", other: "of # replicas" }),
    ...(unwell > 0 && { tone: "bad" }),
  };
}

/** "OK" only if providers were called and answered: of what was not tried, nothing is known. */
function providersCell({ failing, degraded, answering, untested }: OverviewData["providers"]): Cell {
  const label = t`Providers`;
  const href = "/admin/providers";
  if (failing.length > 0)
    return {
      label,
      href: `${href}?state=failing`,
      value: plural({ failing: failing.length }, { one: "# fails", other: "# fail" }),
      note: formatList(failing.map(({ name }) => name)),
      tone: "bad",
    };
  const known = plural(answering, { one: "# answering", other: "# answering" });
  const unknown = untested > 0 ? [plural(untested, { one: "# untested", other: "# untested" })] : [];
  if (degraded > 0)
    return {
      label,
      href,
      value: plural(degraded, { one: "# degraded", other: "# degraded" }),
      note: formatList([known, ...unknown]),
      tone: "warn",
    };
  if (answering === 0)
    return {
      label,
      href,
      value:
        untested === 0
          ? t({ message: "None", context: "providers" })
          : t({ message: "Untested", context: "providers" }),
      note: untested === 0 ? t({ message: "none is on", context: "providers" }) : t`no request in 24 hours`,
    };
  return { label, href, value: t`OK`, note: formatList([known, ...unknown]) };
}

/** "OK" only if a domain is live: one that waits for its records has not been well yet. */
function domainsFigure({ domains, domainsLive, domainsFailing }: OverviewData): { value: string; note: string } {
  if (domainsFailing > 0)
    return {
      value: plural({ failing: domainsFailing }, { one: "# fails", other: "# fail" }),
      note: t`check their DNS records`,
    };
  if (domains === 0) return { value: t({ message: "None", context: "domains" }), note: t`resellers add them` };
  const live = t`${{ live: formatCount(domainsLive) }} of ${{ domains: formatCount(domains) }} live`;
  return { value: domainsLive === 0 ? t({ message: "Waiting", context: "domains" }) : t`OK`, note: live };
}

/** "active; 2 invited, 1 suspended" */
function peopleNote({ accountsInvited, accountsSuspended }: OverviewData): string {
  const invited = plural(accountsInvited, { one: "# invited", other: "# invited" });
  const suspended = plural(accountsSuspended, { one: "# suspended", other: "# suspended" });
  if (accountsInvited > 0) return accountsSuspended > 0 ? t`active; ${invited}, ${suspended}` : t`active; ${invited}`;
  return accountsSuspended > 0 ? t`active; ${suspended}` : t({ message: "active", context: "accounts" });
}

function booksCell(books: OverviewData["books"]): Cell {
  const cell = { label: t`Books`, href: "/admin/books" };
  if (books === null) return { ...cell, value: "–", note: t`not checked yet` };
  const { broken, uncounted, checkedAt } = books;
  if (broken > 0) {
    return {
      ...cell,
      value: plural(broken, { one: "# broken", other: "# broken" }),
      note: <Ago iso={checkedAt} />,
      tone: "bad",
    };
  }
  const isLate = nowMs() - Date.parse(checkedAt) > CHECK_LATE_MS;
  const unknown = uncounted > 0 || isLate;
  return {
    ...cell,
    value: isLate
      ? t({ message: "Late", context: "a check of the books" })
      : uncounted > 0
        ? t`Not all counted`
        : t`OK`,
    note:
      uncounted > 0 ? (
        <Trans>
          <Plural value={uncounted} one="# not counted in time" other="# not counted in time" />, checked{" "}
          <Ago iso={checkedAt} />
        </Trans>
      ) : (
        <Trans>
          checked <Ago iso={checkedAt} />
        </Trans>
      ),
    ...(unknown && { tone: "warn" }),
  };
}
