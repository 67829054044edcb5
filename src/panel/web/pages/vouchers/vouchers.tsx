import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { Plus, Ticket } from "lucide-react";
import { lazy } from "react";
import { api, ask } from "../../api.ts";
import { formatCalendarDay, formatCount } from "../../format.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { Later } from "../../ui/later.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { type Batch, BatchState, VOUCHERS_KEY, worthOf } from "./voucher_words.tsx";

/** A seller's vouchers: batches of codes, and who tries wrong ones. */

const CreateDialog = lazy(() => import("./voucher_create.tsx").then((m) => ({ default: m.CreateVouchers })));
const CodesOnce = lazy(() => import("./voucher_create.tsx").then((m) => ({ default: m.CodesOnce })));
const codes = keptOnce<{ batch: Batch; csv: string }>();

export function VouchersPage() {
  const { role, lock } = useViewer();
  const creating = useOpened<true>();
  const made = codes.useShown();
  const batches = useInfiniteQuery({
    queryKey: [...VOUCHERS_KEY, "list"],
    queryFn: ({ pageParam }) => ask(api.vouchers.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ batches: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.batchId : undefined),
  });
  const create = (
    <Button variant="primary" icon={Plus} onClick={() => creating.open(true)} {...lock}>
      <Trans>Create vouchers</Trans>
    </Button>
  );
  const isEmpty = batches.data?.pages[0]?.batches.length === 0;
  return (
    <Page
      title={t`Vouchers`}
      lead={t`Codes for a package or an amount. Share them as you like. Your customers redeem them under Billing.`}
      action={!isEmpty && create}
    >
      <Guesses />
      <Section flush>
        <Loaded query={batches} skeleton={<SkeletonRows rows={4} />}>
          {({ pages }) => (
            <DataTable
              caption={t`Batches of vouchers`}
              rows={pages.flatMap((page) => page.batches)}
              rowKey={({ batchId }) => String(batchId)}
              rowHref={({ batchId }) => `${role === "admin" ? "/admin" : ""}/vouchers/${batchId}`}
              columns={COLUMNS}
              empty={
                <Empty icon={Ticket} action={create}>
                  <Trans>
                    No vouchers yet. Create codes that your customers redeem for a package, or for an amount on their
                    balance.
                  </Trans>
                </Empty>
              }
              older={toOlder(batches)}
            />
          )}
        </Loaded>
      </Section>
      <Later>
        {creating.times > 0 && (
          <CreateDialog key={creating.times} open={creating.isOpen} onClose={creating.close} onMade={codes.show} />
        )}
        {made && <CodesOnce onDone={() => codes.show(null)} {...made} />}
      </Later>
    </Page>
  );
}

const COLUMNS: readonly Column<Batch>[] = [
  { head: t`Name`, cell: ({ name }) => <span className="wrap-anywhere">{name}</span> },
  {
    head: t({ message: "For", context: "what a code is for" }),
    cell: (batch) => (
      <span className="grid justify-items-start gap-1">
        {worthOf(batch)}
        {batch.problem && (
          <Badge tone="warn">{batch.problem.why === "offering" ? t`Off sale` : t`Could not be paid`}</Badge>
        )}
      </span>
    ),
  },
  { head: t`Codes`, align: "right", cell: ({ codes }) => formatCount(codes) },
  {
    head: t`Redeemed`,
    align: "right",
    cell: ({ used, left }) => t`${{ used: formatCount(used) }} of ${{ all: formatCount(used + left) }}`,
  },
  { head: t`Until`, hideBelow: "md", cell: ({ endsAt }) => <Instant iso={endsAt} /> },
  { head: t`State`, cell: ({ state }) => <BatchState state={state} /> },
];

/** Accounts that tried many wrong codes. */
function Guesses() {
  const { data } = useQuery({
    queryKey: [...VOUCHERS_KEY, "guesses"],
    queryFn: () => ask(api.vouchers.guesses.get()),
  });
  const guesses = data?.guesses ?? [];
  if (guesses.length === 0) return null;
  return (
    <Banner
      tone="warn"
      title={t`Accounts that try wrong codes. After ten in a quarter of an hour, further codes are refused.`}
    >
      <ul className="mt-1 grid gap-1">
        {guesses.map(({ account, day, wrong, refused }) => (
          <li key={`${account.accountId} ${day}`}>
            {guessText({ ...account, day: formatCalendarDay(day), wrong, refused })}
          </li>
        ))}
      </ul>
    </Banner>
  );
}

type Guess = { name: string; email: string; day: string; wrong: number; refused: number };

function guessText({ name, email, day, wrong, refused }: Guess): string {
  if (refused === 0)
    return t`${name} (${email}), ${day}: ${plural(wrong, { one: "# wrong code", other: "# wrong codes" })}`;
  return t`${name} (${email}), ${day}: ${plural(wrong, { one: "# wrong code", other: "# wrong codes" })}, ${plural(refused, { one: "# more refused", other: "# more refused" })}`;
}
