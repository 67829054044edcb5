import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { MoreHorizontal, TriangleAlert, X } from "lucide-react";
import { api, ask } from "../../api.ts";
import { EMPTY, termsText } from "../../copy.ts";
import { formatAmount, formatMoney } from "../../format.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { toTerms } from "../../shared/selling.tsx";
import { Button, ButtonLink, IconButton } from "../../ui/buttons.tsx";
import { Switch } from "../../ui/choices.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { MeasuredPrices } from "./measured_prices.tsx";
import { PriceDialog } from "./price_dialog.tsx";

/** A reseller's own prices: its cost of each offering, its customers' price, and the margin. */

type Row = NonNullable<Awaited<ReturnType<typeof api.prices.get>>["data"]>["offerings"][number];

export function PricesPage() {
  const prices = useQuery({ queryKey: ["prices"], queryFn: () => ask(api.prices.get()) });
  const editing = useOpened<Row>();
  return (
    <Page
      title={t`Prices`}
      lead={t`The prices that your customers pay for packages. They see the offerings that you have priced.`}
    >
      <Loaded query={prices}>
        {({ offerings, pricesPublic, terms }) => (
          <>
            {offerings.length > 0 && offerings.every(({ priceNano }) => priceNano === null) && (
              <Banner tone="warn" icon={TriangleAlert} title={t`You have not set a price yet.`}>
                <Trans>
                  Your customers see every offering without a price, and ask you for it. With your first price they see
                  only what you have priced.
                </Trans>
              </Banner>
            )}
            <Section title={t`Packages`} flush>
              <PricesTable rows={offerings} currency={terms.currency} onEdit={editing.open} />
            </Section>
            <MeasuredPrices kind="retail" />
            <PublicPrices isPublic={pricesPublic} />
          </>
        )}
      </Loaded>
      {editing.what && (
        <PriceDialog
          key={editing.times}
          open={editing.isOpen}
          onClose={editing.close}
          offering={editing.what}
          terms={toTerms(prices.data?.terms)}
        />
      )}
    </Page>
  );
}

type PricesProps = { rows: readonly Row[]; currency: string; onEdit: (row: Row) => void };

function PricesTable({ rows, currency, onEdit }: PricesProps) {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const remove = useMutation({
    mutationFn: ({ offeringId }: Row) => ask(api.prices({ id: offeringId }).delete()),
    onSuccess: async (_, { name }) => {
      await refresh();
      toast.done(t`${name} has no price now.`);
    },
    onError: (error) => toast.failed(error),
  });
  const columns: Column<Row>[] = [
    {
      head: t`Offering`,
      cell: (row) => (
        <TwoLines below={termsText(row)}>
          {row.name}{" "}
          {!row.enabled && (
            <Badge>
              <Trans>Off sale</Trans>
            </Badge>
          )}
        </TwoLines>
      ),
    },
    { head: t`You pay`, align: "right", cell: ({ wholesaleNanoUsd }) => formatMoney(wholesaleNanoUsd) },
    {
      head: t`Your price`,
      align: "right",
      cell: ({ priceNano }) => (priceNano === null ? <NotSold /> : formatAmount(priceNano, currency)),
    },
    { head: t`Margin`, align: "right", cell: (row) => <Margin row={row} /> },
    {
      head: t`Change`,
      align: "right",
      className: "sm:w-36",
      cell: (row) =>
        row.enabled && (
          <Button size="sm" onClick={() => onEdit(row)} {...lock}>
            <EditLabel row={row} />
          </Button>
        ),
    },
  ];
  return (
    <DataTable
      caption={t`Prices of packages`}
      rows={rows}
      rowKey={({ offeringId }) => String(offeringId)}
      columns={columns}
      empty={<Empty>{EMPTY.offerings}</Empty>}
      actions={(row) =>
        row.priceNano !== null && (
          <Menu
            trigger={
              <IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" {...lock} />
            }
            items={[{ label: t`Remove price`, icon: X, onSelect: () => remove.mutate(row) }]}
          />
        )
      }
    />
  );
}

function EditLabel({ row: { priceNano, name } }: { row: Row }) {
  return priceNano === null ? (
    <Trans>
      Set price<span className="sr-only"> of {name}</span>
    </Trans>
  ) : (
    <Trans>
      Change<span className="sr-only"> of {name}</span>
    </Trans>
  );
}

function NotSold() {
  return (
    <span className="text-ink-3">
      <Trans>Not set</Trans>
    </span>
  );
}

/**
 * A negative margin says whether the seller confirmed it: a wholesale price that is raised later can make a price fall
 * below it.
 */
function Margin({ row: { marginNanoUsd, belowWholesaleConfirmed } }: { row: Row }) {
  if (marginNanoUsd === null) return null;
  if (BigInt(marginNanoUsd) >= 0n) return formatMoney(marginNanoUsd, { sign: true });
  return (
    <span className="inline-grid justify-items-end gap-0.5">
      {formatMoney(marginNanoUsd, { sign: true })}
      <Badge tone={belowWholesaleConfirmed ? "warn" : "bad"} icon={TriangleAlert}>
        {belowWholesaleConfirmed ? t`Below wholesale` : t`Below wholesale, not confirmed`}
      </Badge>
    </span>
  );
}

function PublicPrices({ isPublic }: { isPublic: boolean }) {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const set = useMutation({
    mutationFn: (pricesPublic: boolean) => ask(api.prices.patch({ pricesPublic })),
    onSuccess: async ({ pricesPublic }) => {
      await refresh();
      toast.done(
        pricesPublic ? t`Everyone can see your prices now.` : t`Only people who signed in can see your prices now.`,
      );
    },
    onError: (error) => toast.failed(error),
  });
  return (
    <Section
      title={t`Models and their prices`}
      action={
        isPublic && (
          <ButtonLink href="/model-prices" size="sm">
            <Trans>Open the page</Trans>
          </ButtonLink>
        )
      }
    >
      <Switch
        label={t`Show them without a sign-in`}
        hint={t`Everyone can then see, on your domains, every model and its pay-as-you-go prices.`}
        checked={set.isPending ? set.variables : isPublic}
        pending={set.isPending}
        onValue={(wanted) => set.mutate(wanted)}
        {...(lock.disabled && { disabled: true })}
      />
    </Section>
  );
}
