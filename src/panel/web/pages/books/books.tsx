import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { RotateCw } from "lucide-react";
import { api, ask } from "../../api.ts";
import { formatCalendarDay, formatCount, formatMoney, formatTook } from "../../format.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { Figure, Figures, Page, Section } from "../../ui/page.tsx";
import { Loaded, Loading, Problem, Skeleton, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { modelHref } from "../models/catalog.tsx";
import { PART_NAMES } from "../models/price_parts.ts";
import { BOOKS_KEY, type Books, History, Invariants, Verdict } from "./books_checks.tsx";
import { Replicas } from "./replicas.tsx";
import { Retention } from "./retention.tsx";

/** Whether every request and cent is accounted for, and the health of the replicas. */

const BOOKS_REFETCH_MS = 10_000;
/** While a check runs that outlasts its request. */
const RUNNING_REFETCH_MS = 2_000;

export function BooksPage() {
  const client = useQueryClient();
  const check = useMutation({
    /** Its argument is the time of the last check before this one; null if there was none. */
    mutationFn: (_before: string | null) => ask(api.admin.books.check.post()),
    onSuccess: () => client.invalidateQueries({ queryKey: BOOKS_KEY }),
  });
  /** A check was started here, continues in the background, and has no result yet. */
  const isAwaited = (books: Books | undefined) =>
    check.data?.running === true && (books?.last?.checkedAt ?? null) === check.variables;
  const books = useQuery({
    queryKey: BOOKS_KEY,
    queryFn: () => ask(api.admin.books.get()),
    refetchInterval: ({ state }) => (isAwaited(state.data) ? RUNNING_REFETCH_MS : BOOKS_REFETCH_MS),
  });
  return (
    <Page
      title={t`Books`}
      lead={t`Is every request and every cent accounted for?`}
      action={
        <Button
          variant="primary"
          icon={RotateCw}
          pending={check.isPending || isAwaited(books.data)}
          onClick={() => check.mutate(books.data?.last?.checkedAt ?? null)}
        >
          <Trans>Check now</Trans>
        </Button>
      }
    >
      {check.error && <Problem error={check.error} />}
      <Loaded query={books} skeleton={<BooksSkeleton />}>
        {(data) => (
          <>
            <Section flush>
              <Verdict last={data.last} />
              {data.last && <Invariants check={data.last} />}
            </Section>
            <InProgress books={data} />
            <Unpriced counts={data.unpriced} />
          </>
        )}
      </Loaded>
      <Replicas />
      <Retention />
      {books.data && <History history={books.data.history} />}
    </Page>
  );
}

function BooksSkeleton() {
  return (
    <Loading className="grid gap-6">
      <div className="rounded-lg border border-line bg-surface">
        <div className="flex items-center gap-4 p-6">
          <Skeleton className="size-10 rounded-full" />
          <Skeleton className="h-6 w-48" />
        </div>
        <SkeletonRows rows={9} className="border-t border-line" />
      </div>
      <Skeleton className="h-32 rounded-lg" />
    </Loading>
  );
}

function InProgress({ books: { holds, spoolsWaiting, lossesNanoUsd, reapedAt } }: { books: Books }) {
  return (
    <Section title={t`In progress`}>
      <Figures>
        <Figure
          label={t`Requests in progress`}
          note={
            holds.oldestAgeMs === null
              ? t({ message: "None", context: "holds" })
              : t`The oldest for ${{ duration: formatTook(holds.oldestAgeMs) }}`
          }
        >
          {formatCount(holds.alive)}
        </Figure>
        <Figure
          label={t`Charges on disk`}
          note={spoolsWaiting === 0 ? t`No replica has any` : t`Replicas that could not write them to Postgres yet`}
        >
          {formatCount(spoolsWaiting)}
        </Figure>
        <Figure label={t`Losses, 30 days`} note={t`Cost beyond what could be charged`}>
          {lossesNanoUsd === null ? (
            <span className="text-14 font-normal">{t`Too many to add up`}</span>
          ) : (
            formatMoney(lossesNanoUsd)
          )}
        </Figure>
        <Figure label={t`Last clean-up`} note={t`Releases requests whose replica died`}>
          {reapedAt === null ? (
            <span className="text-14 font-normal">{t`Has not run yet`}</span>
          ) : (
            <Ago iso={reapedAt} />
          )}
        </Figure>
      </Figures>
    </Section>
  );
}

type UnpricedCount = Books["unpriced"][number];

const UNPRICED_COLUMNS: Column<UnpricedCount>[] = [
  {
    head: t`Model`,
    cell: ({ modelId }) => (
      <TextLink href={modelHref(modelId)} className="font-mono wrap-anywhere">
        {modelId}
      </TextLink>
    ),
  },
  { head: t({ message: "Count", context: "column: what was counted" }), cell: ({ kind }) => PART_NAMES[kind] },
  { head: t`Tokens`, align: "right", cell: ({ tokens }) => formatCount(BigInt(tokens)) },
  { head: t`Requests`, align: "right", cell: ({ requests }) => formatCount(requests) },
  { head: t`Since`, cell: ({ since }) => formatCalendarDay(since) },
  {
    head: t({ message: "Last", context: "column: the last day" }),
    hideBelow: "md",
    cell: ({ until }) => formatCalendarDay(until),
  },
];

/** What providers count apart and the prices of models do not. */
function Unpriced({ counts }: { counts: readonly UnpricedCount[] }) {
  if (counts.length === 0) return null;
  return (
    <Section
      title={t`Counted, but not priced`}
      description={t`Providers count these tokens separately, and the model has no price for them. They are charged at its highest input or output price. Days are in UTC.`}
      flush
    >
      <DataTable
        caption={t`Counted, but not priced`}
        rows={counts}
        rowKey={({ modelId, kind }) => `${kind} ${modelId}`}
        columns={UNPRICED_COLUMNS}
      />
    </Section>
  );
}
