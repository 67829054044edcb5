import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery } from "@tanstack/react-query";
import { Ban } from "lucide-react";
import { useState } from "react";
import { useParams } from "wouter";
import { api, ask } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Facts, Figure, Figures, Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { type Batch, BatchState, codesText, problemText, VOUCHERS_KEY } from "./voucher_words.tsx";

/** One batch of vouchers: how many are left, and the accounts that redeemed them. */

type Use = NonNullable<Awaited<ReturnType<ReturnType<typeof api.vouchers>["get"]>>["data"]>["uses"][number];

export function VoucherBatchPage() {
  const { id } = useParams<{ id: string }>();
  return <BatchView key={id} batchId={Number(id)} />;
}

function BatchView({ batchId }: { batchId: number }) {
  const { role, lock } = useViewer();
  const [isDisabling, setDisabling] = useState(false);
  const uses = useInfiniteQuery({
    queryKey: [...VOUCHERS_KEY, batchId],
    queryFn: ({ pageParam }) =>
      ask(api.vouchers({ id: batchId }).get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ uses: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.useId : undefined),
  });
  const batch = uses.data?.pages[0]?.batch;
  const people = role === "admin" ? "/admin/people" : "/customers";
  return (
    <Page
      title={batch?.name ?? t`Vouchers`}
      lead={batch && t`${{ codes: codesText(batch) }}.`}
      action={
        batch?.disabledAt === null && (
          <Button icon={Ban} onClick={() => setDisabling(true)} {...lock}>
            <Trans>Revoke</Trans>
          </Button>
        )
      }
    >
      <Loaded query={uses} skeleton={<Skeleton className="h-64 rounded-lg" />}>
        {({ pages }) => (
          <>
            {batch && <Summary batch={batch} />}
            <Section title={t`Redeemed by`} flush>
              <DataTable
                caption={t`Redemptions`}
                rows={pages.flatMap((page) => page.uses)}
                rowKey={({ useId }) => String(useId)}
                rowHref={({ account }) => `${people}/${account.accountId}`}
                columns={COLUMNS}
                empty={
                  <Empty>
                    <Trans>No code has been redeemed yet.</Trans>
                  </Empty>
                }
                older={toOlder(uses)}
              />
            </Section>
          </>
        )}
      </Loaded>
      {batch && <DisableBatch batch={batch} open={isDisabling} onOpenChange={setDisabling} />}
    </Page>
  );
}

function Summary({ batch }: { batch: Batch }) {
  const { used, left, codes, usesPerCode, endsAt, disabledAt, createdAt, payWith } = batch;
  return (
    <Section>
      <div className="grid gap-6">
        {batch.problem && (
          <Banner tone="warn" title={problemText(batch.problem)}>
            <Trans>
              The last one <Ago iso={batch.problem.lastAt} />. The codes stay unused and can be redeemed later.
            </Trans>
          </Banner>
        )}
        <Figures>
          <Figure label={t`Redeemed`}>{formatCount(used)}</Figure>
          <Figure label={t({ message: "Left", context: "remaining uses" })} note={<BatchState state={batch.state} />}>
            {formatCount(left)}
          </Figure>
        </Figures>
        <Facts
          facts={[
            [
              t`Codes`,
              plural(usesPerCode, {
                1: `${{ codes: formatCount(codes) }}, one use each`,
                other: `${{ codes: formatCount(codes) }}, # uses each`,
              }),
            ],
            ...(payWith === "operator"
              ? []
              : [
                  [
                    t`Paid from`,
                    payWith === "balance" ? t`Your balance, when redeemed` : t`Your allotment, when redeemed`,
                  ] as const,
                ]),
            [t`Created`, <Instant key="created" iso={createdAt} />],
            [t`Until`, <Instant key="ends" iso={endsAt} />],
            ...(disabledAt === null ? [] : [[t`Revoked`, <Instant key="off" iso={disabledAt} />] as const]),
          ]}
        />
      </div>
    </Section>
  );
}

const COLUMNS: readonly Column<Use>[] = [
  {
    head: t`Customer`,
    cell: ({ account }) => <TwoLines below={account.email}>{account.name}</TwoLines>,
  },
  { head: t`Code`, cell: ({ suffix }) => <span className="font-mono">…{suffix}</span> },
  { head: t`Voucher`, align: "right", hideBelow: "md", cell: ({ voucherId }) => voucherId },
  { head: t`Time`, cell: ({ at }) => <Instant iso={at} /> },
];

function DisableBatch({
  batch,
  open,
  onOpenChange,
}: {
  batch: Batch;
  open: boolean;
  onOpenChange: (open: boolean) => void;
}) {
  const refresh = useRefresh();
  return (
    <Confirm
      open={open}
      onOpenChange={onOpenChange}
      title={t`Revoke ${{ name: batch.name }}?`}
      confirmLabel={t`Revoke codes`}
      cancelLabel={t`Keep codes`}
      onConfirm={async () => {
        await ask(api.vouchers({ id: batch.batchId }).disable.post());
        await refresh();
        toast.done(t`${{ name: batch.name }} is revoked.`);
      }}
    >
      {plural(
        { count: batch.left },
        {
          one: "# use of its codes will be refused from now on. What was redeemed stays. This cannot be undone.",
          other: "# uses of its codes will be refused from now on. What was redeemed stays. This cannot be undone.",
        },
      )}
    </Confirm>
  );
}
