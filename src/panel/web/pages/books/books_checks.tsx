import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { CircleAlert, CircleCheck, CircleDashed, CircleHelp, type LucideIcon } from "lucide-react";
import { i18n } from "#language";
import { api, ask } from "../../api.ts";
import { formatCount, formatDuration, formatTook, formatUtc } from "../../format.ts";
import { ADMIN_KEY } from "../../shared/account_queries.ts";
import { useNow } from "../../ui/clock.ts";
import { Collapsed } from "../../ui/collapsed.tsx";
import { cx } from "../../ui/cx.ts";
import { ScrollingTable } from "../../ui/scrolling.tsx";
import { Badge, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";

/** What the checks of the books have found: the last one, rule by rule, and those before. */

const AGE_TICK_MS = 5_000;
/** The service checks every five minutes; an older result means that checks are failing. */
const CHECK_LATE_MS = 15 * 60_000;
const BROKEN_ROWS_MAX = 20;

export const BOOKS_KEY = [...ADMIN_KEY, "books"] as const;

export type Books = NonNullable<Awaited<ReturnType<typeof api.admin.books.get>>["data"]>;
type Check = NonNullable<Books["last"]>;
type Result = Check["results"][number];

type Standing = { icon: LucideIcon; look: string; words: string };
const BALANCED: Standing = { icon: CircleCheck, look: "bg-ok-soft text-ok", words: t`Books balance` };
const BROKEN: Standing = { icon: CircleAlert, look: "bg-bad-soft text-bad", words: t`Books do not balance` };
const UNCOUNTED: Standing = { icon: CircleHelp, look: "bg-warn-soft text-warn", words: t`Not everything was counted` };
const UNCHECKED: Standing = { icon: CircleDashed, look: "bg-sunken text-ink-3", words: t`Not checked yet` };

function standingOf(results: readonly Result[] | undefined): Standing {
  if (results === undefined) return UNCHECKED;
  if (results.some(isBroken)) return BROKEN;
  return results.some(({ rows }) => rows === null) ? UNCOUNTED : BALANCED;
}

function isBroken({ rows }: Pick<Result, "rows">): boolean {
  return rows !== null && rows > 0;
}

/** The result of the last check. */
export function Verdict({ last }: { last: Check | null }) {
  const { icon: Icon, look, words } = standingOf(last?.results);
  const kept = formatCount(last?.results.filter(({ rows }) => rows === 0).length ?? 0);
  return (
    <div className="flex items-center gap-4 p-4 sm:p-6">
      <span className={cx("grid size-10 flex-none place-content-center rounded-full", look)}>
        <Icon size={20} aria-hidden />
      </span>
      <div className="min-w-0">
        <h2 className="text-20">
          <span role="status">{words}</span>
        </h2>
        <p className="text-14 text-ink-2">
          {last ? (
            <>
              {plural(
                { all: last.results.length },
                { one: `${kept} of # rule is kept.`, other: `${kept} of # rules are kept.` },
              )}{" "}
              <Trans>
                Checked <Age iso={last.checkedAt} /> in {{ duration: formatTook(last.tookMs) }}
              </Trans>
            </>
          ) : (
            t`The service checks every five minutes. Press Check now to check immediately.`
          )}
        </p>
      </div>
    </div>
  );
}

/** "40 s ago", with a warning if that is too long. */
function Age({ iso }: { iso: string }) {
  const now = useNow(AGE_TICK_MS);
  const ageMs = Math.max(0, now - Date.parse(iso));
  return (
    <>
      <time dateTime={iso} title={formatUtc(iso)} className="whitespace-nowrap">
        {ageMs < AGE_TICK_MS ? t`just now` : t`${{ duration: formatDuration(ageMs) }} ago`}
      </time>
      {ageMs > CHECK_LATE_MS && (
        <>
          {" "}
          <Badge tone="warn">{t`Late: due every 5 min`}</Badge>
        </>
      )}
    </>
  );
}

export function Invariants({ check: { results, checkedAt } }: { check: Check }) {
  return (
    <ul aria-label={t`Rules`} className="border-t border-line">
      {results.map((result) => (
        <Invariant key={result.name} result={result} checkedAt={checkedAt} />
      ))}
    </ul>
  );
}

function Invariant({ result, checkedAt }: { result: Result; checkedAt: string }) {
  const { name, rows } = result;
  const says = i18n._(result.says);
  const state: [LucideIcon, string, string] =
    rows === null
      ? [CircleHelp, "text-warn", t`Not counted in time`]
      : isBroken(result)
        ? [CircleAlert, "text-bad", plural(rows, { one: "# row", other: "# rows" })]
        : [CircleCheck, "text-ok", t`OK`];
  const [Icon, look, words] = state;
  return (
    <li className="border-b border-line last:border-0">
      <div className="flex min-h-(--row) items-start gap-3 px-4 py-2.5 sm:px-6">
        <Icon size={16} aria-hidden className={cx("mt-0.5 flex-none", look)} />
        <p className="min-w-0 flex-1 text-14">
          {/* A rule of another release has no text here. */}
          {says || <span className="font-mono text-13">{name}</span>}
        </p>
        <span className={cx("flex-none text-13 tabular-nums", rows === 0 ? "text-ink-3" : cx("font-medium", look))}>
          {words}
        </span>
      </div>
      {isBroken(result) && <BrokenRows name={name} says={says} checkedAt={checkedAt} />}
    </li>
  );
}

/** The first rows that break a rule now, with the columns of its view. */
function BrokenRows({ name, says, checkedAt }: { name: string; says: string; checkedAt: string }) {
  const broken = useQuery({
    queryKey: [...BOOKS_KEY, "rows", name, checkedAt],
    queryFn: () => ask(api.admin.books({ name }).rows.get({ query: { limit: BROKEN_ROWS_MAX } })),
  });
  return (
    <div className="px-4 pb-4 sm:pe-6 sm:ps-13">
      <Loaded query={broken} skeleton={<SkeletonRows rows={2} />}>
        {({ rows, hasMore }) =>
          rows.length === 0 ? (
            <p className="text-13 text-ink-2">{t`No row breaks it now. Check again.`}</p>
          ) : (
            <>
              <RowsTable label={t`Rows that break it: ${says}`} rows={rows} />
              {hasMore && (
                <p className="mt-2 text-12 text-ink-3">{t`The first ${{ count: formatCount(rows.length) }}. There are more.`}</p>
              )}
            </>
          )
        }
      </Loaded>
    </div>
  );
}

function RowsTable({ label, rows }: { label: string; rows: readonly Record<string, string | null>[] }) {
  const columns = Object.keys(rows[0] ?? {});
  return (
    <ScrollingTable
      label={label}
      className="font-mono text-12 whitespace-nowrap"
      head={columns.map((column) => (
        <th key={column} scope="col" className="text-start font-medium">
          {column}
        </th>
      ))}
    >
      {rows.map((row) => (
        <tr key={JSON.stringify(row)} className="border-t border-line">
          {columns.map((column) => (
            <td key={column}>{row[column] ?? <span className="text-ink-3">{t`none`}</span>}</td>
          ))}
        </tr>
      ))}
    </ScrollingTable>
  );
}

type Past = Books["history"][number];

const PAST_COLUMNS: Column<Past>[] = [
  { head: t`When`, cell: ({ checkedAt }) => <Instant iso={checkedAt} seconds /> },
  {
    head: t`Result`,
    cell: ({ broken, uncounted }) => (
      <span className="inline-flex flex-wrap gap-1">
        {broken > 0 && <Badge tone="bad">{plural(broken, { one: "# broken", other: "# broken" })}</Badge>}
        {uncounted > 0 && (
          <Badge tone="warn">{plural(uncounted, { one: "# not counted", other: "# not counted" })}</Badge>
        )}
        {broken === 0 && uncounted === 0 && <Badge tone="ok">{t`Balanced`}</Badge>}
      </span>
    ),
  },
  { head: t`Duration`, align: "right", cell: ({ tookMs }) => formatTook(tookMs) },
];

export function History({ history }: { history: readonly Past[] }) {
  if (history.length === 0) return null;
  const isFine = history.every(({ broken, uncounted }) => broken === 0 && uncounted === 0);
  return (
    <Collapsed
      look="section"
      label={
        <>
          {plural({ count: history.length }, { 1: "The last check", other: "The last # checks" })}
          <span className="font-normal text-ink-2">{isFine ? t`all balanced` : t`some did not balance`}</span>
        </>
      }
    >
      <div className="border-t border-line">
        <DataTable
          caption={t`The last checks`}
          rows={history}
          rowKey={({ checkedAt }) => checkedAt}
          columns={PAST_COLUMNS}
        />
      </div>
    </Collapsed>
  );
}
