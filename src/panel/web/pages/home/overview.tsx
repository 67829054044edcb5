import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Link } from "wouter";
import { api, ask } from "../../api.ts";
import { formatCount, formatList, formatOf } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { nowMs } from "../../ui/clock.ts";
import { cx } from "../../ui/cx.ts";
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
    <section aria-label="The service">
      {cells ? (
        <ul className={GRID}>
          {cells.map((cell) => (
            <li key={cell.label} className="grid bg-surface">
              <OverviewCell {...cell} />
            </li>
          ))}
        </ul>
      ) : (
        <Loading className={GRID}>
          {LABELS.map((label) => (
            <span key={label} className="grid gap-2 bg-surface p-4 sm:px-6">
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

const GRID = "grid grid-cols-2 gap-px overflow-hidden rounded-lg border border-line bg-line md:grid-cols-3";
const LABELS = ["Accounts", "Requests in 24 h", "Orders waiting", "Providers", "Domains", "Books"];

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
  const { accountsActive, ordersOpen, domainsFailing, requests } = data;
  return [
    {
      label: "Accounts",
      href: "/admin/people?state=active",
      value: formatCount(accountsActive),
      note: peopleNote(data),
    },
    {
      label: "Requests in 24 h",
      href: "/admin/requests",
      value: requests ? formatCount(requests.settled) : "Many",
      note: requests ? `charged, ${formatCount(requests.released)} released` : "too many to count here",
    },
    {
      label: "Orders waiting",
      href: "/admin/orders",
      value: formatCount(ordersOpen),
      note: ordersOpen === 0 ? "none waiting" : "waiting for a decision",
      ...(ordersOpen > 0 && { tone: "warn" }),
    },
    providersCell(data.providers),
    {
      label: "Domains",
      href: domainsFailing === 0 ? "/admin/domains" : "/admin/domains?status=failing",
      ...domainsFigure(data),
      ...(domainsFailing > 0 && { tone: "warn" }),
    },
    booksCell(data.books),
  ];
}

/** "OK" only if providers were called and answered: of what was not tried, nothing is known. */
function providersCell({ failing, degraded, answering, untested }: OverviewData["providers"]): Cell {
  const label = "Providers";
  const href = "/admin/providers";
  if (failing.length > 0)
    return {
      label,
      href: `${href}?state=failing`,
      value: formatOf(failing.length, "fails", "fail"),
      note: formatList(failing.map(({ name }) => name)),
      tone: "bad",
    };
  const unknown = untested > 0 ? [`${formatCount(untested)} untested`] : [];
  if (degraded > 0)
    return {
      label,
      href,
      value: `${formatCount(degraded)} degraded`,
      note: formatList([`${formatCount(answering)} answering`, ...unknown]),
      tone: "warn",
    };
  if (answering === 0)
    return {
      label,
      href,
      value: untested === 0 ? "None" : "Untested",
      note: untested === 0 ? "none is on" : "no request in 24 hours",
    };
  return { label, href, value: "OK", note: formatList([`${formatCount(answering)} answering`, ...unknown]) };
}

/** "OK" only if a domain is live: one that waits for its records has not been well yet. */
function domainsFigure({ domains, domainsLive, domainsFailing }: OverviewData): { value: string; note: string } {
  if (domainsFailing > 0) return { value: formatOf(domainsFailing, "fails", "fail"), note: "check their DNS records" };
  if (domains === 0) return { value: "None", note: "resellers add them" };
  const live = `${formatCount(domainsLive)} of ${formatCount(domains)} live`;
  return { value: domainsLive === 0 ? "Waiting" : "OK", note: live };
}

/** "active; 2 invited, 1 suspended" */
function peopleNote({ accountsInvited, accountsSuspended }: OverviewData): string {
  const others = [
    ...(accountsInvited > 0 ? [`${formatCount(accountsInvited)} invited`] : []),
    ...(accountsSuspended > 0 ? [`${formatCount(accountsSuspended)} suspended`] : []),
  ];
  return others.length === 0 ? "active" : `active; ${others.join(", ")}`;
}

function booksCell(books: OverviewData["books"]): Cell {
  const cell = { label: "Books", href: "/admin/books" };
  if (books === null) return { ...cell, value: "–", note: "not checked yet" };
  const { broken, uncounted, checkedAt } = books;
  if (broken > 0) {
    return { ...cell, value: `${formatCount(broken)} broken`, note: <Ago iso={checkedAt} />, tone: "bad" };
  }
  const isLate = nowMs() - Date.parse(checkedAt) > CHECK_LATE_MS;
  const unknown = uncounted > 0 || isLate;
  return {
    ...cell,
    value: isLate ? "Late" : uncounted > 0 ? "Not all counted" : "OK",
    note: (
      <>
        {uncounted > 0 && `${formatCount(uncounted)} not counted in time, `}checked <Ago iso={checkedAt} />
      </>
    ),
    ...(unknown && { tone: "warn" }),
  };
}
