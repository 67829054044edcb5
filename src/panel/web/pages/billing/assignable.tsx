import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { lazy } from "react";
import { useMe } from "../../api.ts";
import { EMPTY, termsText } from "../../copy.ts";
import { formatCount, formatMoney } from "../../format.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { Later } from "../../ui/later.tsx";
import { Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { type Offering, useOfferings } from "./on_sale.tsx";
import type { Billing } from "./queries.ts";

const AssignDialog = lazy(() => import("../orders/assign_dialog.tsx").then((m) => ({ default: m.AssignDialog })));

/** What a reseller can assign: offerings with their wholesale price, what is left of its allotments, and assigning to itself. */

type Row = {
  offeringId: number;
  name: string;
  /** null: off sale, and only assignable from an allotment. */
  offering: Offering | null;
  allotment: Billing["allotments"][number] | undefined;
};

export function Assignable({ allotments }: { allotments: Billing["allotments"] }) {
  const { accountId, role } = useViewer();
  const { account, viewing } = useMe();
  const offerings = useOfferings();
  const assigning = useOpened<Offering>();
  return (
    <Section
      title={t`Packages you can assign`}
      description={t`Each package costs its wholesale price, or one piece of an allotment.`}
      action={
        <ButtonLink href="/customers" size="sm">
          {t`Customers`}
        </ButtonLink>
      }
      flush
    >
      <Loaded query={offerings} skeleton={<SkeletonRows rows={3} />}>
        {({ offerings: onSale }) => (
          <DataTable
            caption={t`Offerings and allotments`}
            rows={rowsOf(onSale, allotments)}
            rowKey={({ offeringId }) => String(offeringId)}
            columns={[
              ...COLUMNS,
              {
                head: t`For yourself`,
                align: "right",
                cell: ({ offering }) => offering && <AssignButton offering={offering} onAssign={assigning.open} />,
              },
            ]}
            empty={<Empty>{EMPTY.offerings}</Empty>}
          />
        )}
      </Loaded>
      <Later>
        {assigning.what && (
          <AssignDialog
            key={assigning.times}
            open={assigning.isOpen}
            onClose={assigning.close}
            holder={{ accountId, role, name: (viewing ?? account).name, resellerId: null }}
            first={assigning.what}
          />
        )}
      </Later>
    </Section>
  );
}

const COLUMNS: readonly Column<Row>[] = [
  {
    head: t`Offering`,
    cell: ({ name, offering }) => <TwoLines below={offering && termsText(offering)}>{name}</TwoLines>,
  },
  {
    head: t`Wholesale price`,
    align: "right",
    cell: ({ offering }) =>
      offering?.wholesaleNanoUsd == null ? <Badge>{t`Off sale`}</Badge> : formatMoney(offering.wholesaleNanoUsd),
  },
  {
    head: t`In your allotment`,
    align: "right",
    cell: ({ allotment }) =>
      allotment
        ? t`${{ left: formatCount(allotment.left) }} of ${{ granted: formatCount(allotment.granted) }} left`
        : "–",
  },
];

function AssignButton({ offering, onAssign }: { offering: Offering; onAssign: (offering: Offering) => void }) {
  const { lock } = useViewer();
  const { name } = offering;
  return (
    <Button size="sm" onClick={() => onAssign(offering)} {...lock}>
      <Trans>
        Assign to me<span className="sr-only">: {name}</span>
      </Trans>
    </Button>
  );
}

/** Offerings on sale, followed by those off sale that an allotment still has. */
function rowsOf(onSale: readonly Offering[], allotments: Billing["allotments"]): Row[] {
  const rows: Row[] = onSale.map((offering) => ({
    offeringId: offering.offeringId,
    name: offering.name,
    offering,
    allotment: allotments.find(({ offeringId }) => offeringId === offering.offeringId),
  }));
  const offSale = allotments.filter(({ offeringId }) => !onSale.some((each) => each.offeringId === offeringId));
  return [
    ...rows,
    ...offSale.map((allotment) => ({
      offeringId: allotment.offeringId,
      name: allotment.offeringName,
      offering: null,
      allotment,
    })),
  ];
}
