import { useInfiniteQuery } from "@tanstack/react-query";
import { Ban } from "lucide-react";
import { useState } from "react";
import { useParams } from "wouter";
import { api, ask } from "../../api.ts";
import { formatCount, formatOf } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Facts, Figure, Figures, Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.tsx";
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
      title={batch?.name ?? "Vouchers"}
      lead={batch && `${codesText(batch)}.`}
      action={
        batch?.disabledAt === null && (
          <Button icon={Ban} onClick={() => setDisabling(true)} {...lock}>
            Revoke
          </Button>
        )
      }
    >
      <Loaded query={uses} skeleton={<Skeleton className="h-64 rounded-lg" />}>
        {({ pages }) => (
          <>
            {batch && <Summary batch={batch} />}
            <Section title="Redeemed by" flush>
              <DataTable
                caption="Redemptions"
                rows={pages.flatMap((page) => page.uses)}
                rowKey={({ useId }) => String(useId)}
                rowHref={({ account }) => `${people}/${account.accountId}`}
                columns={COLUMNS}
                empty={<Empty>No code has been redeemed yet.</Empty>}
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
          <Banner tone="warn" title={`${problemText(batch.problem)}.`}>
            The last one <Ago iso={batch.problem.lastAt} />. The codes stay unused and can be redeemed later.
          </Banner>
        )}
        <Figures>
          <Figure label="Redeemed">{formatCount(used)}</Figure>
          <Figure label="Left" note={<BatchState state={batch.state} />}>
            {formatCount(left)}
          </Figure>
        </Figures>
        <Facts
          facts={[
            [
              "Codes",
              usesPerCode === 1
                ? `${formatCount(codes)}, one use each`
                : `${formatCount(codes)}, ${formatCount(usesPerCode)} uses each`,
            ],
            ...(payWith === "operator"
              ? []
              : [
                  [
                    "Paid from",
                    payWith === "balance" ? "Your balance, when redeemed" : "Your allotment, when redeemed",
                  ] as const,
                ]),
            ["Created", <Instant key="created" iso={createdAt} />],
            ["Until", <Instant key="ends" iso={endsAt} />],
            ...(disabledAt === null ? [] : [["Revoked", <Instant key="off" iso={disabledAt} />] as const]),
          ]}
        />
      </div>
    </Section>
  );
}

const COLUMNS: readonly Column<Use>[] = [
  {
    head: "Customer",
    cell: ({ account }) => <TwoLines below={account.email}>{account.name}</TwoLines>,
  },
  { head: "Code", cell: ({ suffix }) => <span className="font-mono">…{suffix}</span> },
  { head: "Voucher", align: "right", hideBelow: "md", cell: ({ voucherId }) => voucherId },
  { head: "Time", cell: ({ at }) => <Instant iso={at} /> },
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
      title={`Revoke ${batch.name}?`}
      confirmLabel="Revoke codes"
      cancelLabel="Keep codes"
      onConfirm={async () => {
        await ask(api.vouchers({ id: batch.batchId }).disable.post());
        await refresh();
        toast.done(`${batch.name} is revoked.`);
      }}
    >
      {formatOf(batch.left, "use")} of its codes will be refused from now on. What was redeemed stays. This cannot be
      undone.
    </Confirm>
  );
}
