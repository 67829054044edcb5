import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { CirclePause, Copy, MoreHorizontal, Play, Plus, Tag } from "lucide-react";
import { api, ask } from "../../api.ts";
import { boundsText, EMPTY, limitsText, termsText } from "../../copy.ts";
import { formatAmount, formatCount, formatMoney, formatZone } from "../../format.ts";
import { useOpened } from "../../shared/page_hooks.ts";
import { toTerms } from "../../shared/selling.tsx";
import { useSwitching } from "../../shared/switching.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Status } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { MeasuredPrices } from "./measured_prices.tsx";
import { NewOffering } from "./new_offering.tsx";
import { PriceDialog } from "./price_dialog.tsx";
import { OFFERINGS_KEY, type Offering } from "./queries.ts";

/** Offerings, for admins. An offering never changes, because packages are copies of it: a new price is a new offering. */

const SHOWN = [
  { value: "", label: t({ message: "All", context: "offerings" }) },
  { value: "on", label: t`On sale` },
  { value: "off", label: t`Off sale` },
] as const;

export function OfferingsPage() {
  const offerings = useQuery({ queryKey: OFFERINGS_KEY, queryFn: () => ask(api.admin.offerings.get()) });
  const [filter, setFilter] = useUrlState({ show: "" });
  const adding = useOpened<Offering | null>();
  const pricing = useOpened<Offering>();
  const show = oneOf(SHOWN, filter.show, "");
  const addButton = (
    <Button variant="primary" icon={Plus} disabled={offerings.data === undefined} onClick={() => adding.open(null)}>
      <Trans>New offering</Trans>
    </Button>
  );
  return (
    <Page
      title={t`Offerings`}
      lead={t`What can be sold. An offering never changes, so that a package is always what was sold.`}
      // An empty list offers the first step itself.
      action={offerings.data?.offerings.length !== 0 && addButton}
    >
      <FilterBar>
        <Segmented
          label={t`Which offerings`}
          value={show}
          onValue={(next) => setFilter({ show: next })}
          options={SHOWN}
        />
      </FilterBar>
      <Section flush>
        <Loaded query={offerings}>
          {(data) => (
            <OfferingsTable
              rows={data.offerings.filter(({ enabled }) => show === "" || enabled === (show === "on"))}
              hasAny={data.offerings.length > 0}
              onCopy={adding.open}
              onPrice={pricing.open}
              onAdd={() => adding.open(null)}
            />
          )}
        </Loaded>
      </Section>
      <MeasuredPrices kind="retail" />
      <MeasuredPrices kind="wholesale" />
      {pricing.what && (
        <PriceDialog
          key={pricing.times}
          open={pricing.isOpen}
          onClose={pricing.close}
          offering={pricing.what}
          terms={toTerms(offerings.data?.terms)}
        />
      )}
      {offerings.data && adding.times > 0 && (
        <NewOffering
          key={adding.times}
          open={adding.isOpen}
          onClose={adding.close}
          like={adding.what}
          timeZone={offerings.data.timeZone}
          terms={toTerms(offerings.data.terms)}
        />
      )}
    </Page>
  );
}

const COLUMNS: readonly Column<Offering>[] = [
  {
    head: t`Offering`,
    cell: (row) => (
      <span className="grid min-w-0 gap-0.5 py-1">
        <span className="font-medium wrap-anywhere">{row.name}</span>
        <span className="font-normal text-ink-2">
          <Hint says={row.modelIds !== null && row.modelIds.length > 1 ? row.modelIds.join(", ") : null}>
            {[termsText(row), row.limits && limitsText(row.limits)].filter(Boolean).join("; ")}
          </Hint>
          . {boundsText(row.requestBounds)}.
        </span>
      </span>
    ),
  },
  { head: t`Time zone`, hideBelow: "lg", cell: (row) => formatZone(row.timeZone) },
  { head: t`Wholesale`, align: "right", cell: (row) => formatMoney(row.wholesaleNanoUsd) },
  {
    head: t`Retail`,
    align: "right",
    cell: (row) => <Retail row={row} />,
  },
  { head: t`Active packages`, align: "right", cell: (row) => formatCount(row.activePackages) },
  {
    head: t`Sale`,
    className: "sm:w-28",
    cell: (row) =>
      row.enabled ? (
        <Status kind="active">
          <Trans>On sale</Trans>
        </Status>
      ) : (
        <Status kind="disabled">
          <Trans>Off sale</Trans>
        </Status>
      ),
  },
];

function OfferingsTable({
  rows,
  hasAny,
  onCopy,
  onPrice,
  onAdd,
}: {
  rows: readonly Offering[];
  hasAny: boolean;
  onPrice: (row: Offering) => void;
  onCopy: (like: Offering) => void;
  onAdd: () => void;
}) {
  const setOnSale = useOnSale();
  return (
    <DataTable
      caption={t`Offerings`}
      rows={rows}
      rowKey={({ offeringId }) => String(offeringId)}
      columns={COLUMNS}
      actions={(row) => (
        <Menu
          trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" />}
          items={[
            row.enabled
              ? {
                  label: t`Take off sale`,
                  icon: CirclePause,
                  onSelect: () => setOnSale.mutate({ what: row, isOn: false }),
                }
              : { label: t`Put on sale`, icon: Play, onSelect: () => setOnSale.mutate({ what: row, isOn: true }) },
            { label: t`Set retail price`, icon: Tag, onSelect: () => onPrice(row) },
            { label: t`Copy as a new offering`, icon: Copy, onSelect: () => onCopy(row) },
          ]}
        />
      )}
      empty={
        hasAny ? (
          <Empty>
            <Trans>No offerings in this view.</Trans>
          </Empty>
        ) : (
          <Empty
            action={
              <Button variant="primary" icon={Plus} onClick={onAdd}>
                <Trans>New offering</Trans>
              </Button>
            }
          >
            {EMPTY.catalogOfferings}
          </Empty>
        )
      }
    />
  );
}

/** What customers without a reseller pay. */
function Retail({ row: { priceNano, currency, marginNanoUsd } }: { row: Offering }) {
  if (priceNano === null)
    return (
      <span className="text-ink-3">
        <Trans>On request</Trans>
      </span>
    );
  const price = formatAmount(priceNano, currency);
  if (BigInt(marginNanoUsd ?? 0) >= 0n) return price;
  return (
    <span className="font-medium text-warn">
      <Trans>
        {price}
        <span className="sr-only">, below wholesale</span>
      </Trans>
    </span>
  );
}

/** Puts an offering on or off sale, with Undo. */
function useOnSale() {
  return useSwitching<Offering>({
    send: ({ offeringId }, isOn) => ask(api.admin.offerings({ id: offeringId }).patch({ enabled: isOn })),
    stale: OFFERINGS_KEY,
    done: ({ name }, isOn) => (isOn ? t`${name} is on sale.` : t`${name} is off sale. Packages that were sold stay.`),
    stays: ({ name }, isOn) => (isOn ? t`${name} stays off sale.` : t`${name} stays on sale.`),
  });
}
