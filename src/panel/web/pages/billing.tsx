import { Plus } from "lucide-react";
import { lazy, Suspense, useEffect, useEffectEvent } from "react";
import { useMe } from "../api.ts";
import { EMPTY, termsText } from "../copy.ts";
import { formatCount, formatMoney } from "../format.ts";
import { Button, ButtonLink } from "../ui/buttons.tsx";
import { useUrlState } from "../ui/filter_bar.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Badge, Empty, Loaded, Skeleton, SkeletonRows } from "../ui/states.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { BalanceSection, type Billing, PackagesSection, useBilling } from "./holdings.tsx";
import { type Offering, useOfferings } from "./offerings.tsx";
import type { OrderKind } from "./orders.tsx";
import { OwnOrders } from "./own_orders.tsx";
import { useOpened, useViewer } from "./page_hooks.ts";

const AssignDialog = lazy(() => import("./assign_dialog.tsx").then((m) => ({ default: m.AssignDialog })));
const AskDialog = lazy(() => import("./ask_dialog.tsx").then((m) => ({ default: m.AskDialog })));

/** What one has: packages, balance with every movement, orders; for a reseller also what it can hand out, and at what price. */

export function BillingPage() {
  const { accountId, role, lock } = useViewer();
  const billing = useBilling(null);
  const asking = useAsking();
  return (
    <Page
      title="Billing"
      lead="Your packages, your balance, and every movement of it."
      action={
        // An admin would ask itself.
        role === "admin" ? (
          <ButtonLink href={`/admin/people/${accountId}`}>Open in People</ButtonLink>
        ) : (
          <Button variant="primary" icon={Plus} onClick={() => asking.open("package")} {...lock}>
            Ask for more
          </Button>
        )
      }
    >
      <Loaded query={billing} skeleton={<BillingSkeleton />}>
        {({ packages, balance, allotments }) => (
          <>
            <PackagesSection
              packages={packages}
              isOwn
              onTurn={() => void billing.refetch()}
              firstStep={
                role === "customer" && (
                  <Button onClick={() => asking.open("package")} {...lock}>
                    Ask for a package
                  </Button>
                )
              }
            />
            {role === "reseller" && <HandOut allotments={allotments} />}
            <BalanceSection
              accountId={null}
              balance={balance}
              role={role}
              action={
                role !== "admin" && (
                  <Button size="sm" onClick={() => asking.open("top_up")} {...lock}>
                    Ask for a top-up
                  </Button>
                )
              }
            />
          </>
        )}
      </Loaded>
      {role !== "admin" && <OwnOrders />}
      <Suspense>
        {asking.what && <AskDialog key={asking.times} open={asking.isOpen} onClose={asking.close} kind={asking.what} />}
      </Suspense>
    </Page>
  );
}

/** The dialog for asking, which other pages open by address: /billing?ask=top_up. */
function useAsking() {
  const { lock } = useViewer();
  const [{ ask }, setUrl] = useUrlState({ ask: "" });
  const asking = useOpened<OrderKind>();
  const onAddress = useEffectEvent((wanted: string) => {
    // The address is left clean, so that a reload does not open it again.
    if (wanted !== "") setUrl({ ask: "" });
    if (!lock.disabled && (wanted === "package" || wanted === "top_up")) asking.open(wanted);
  });
  useEffect(() => onAddress(ask), [ask]);
  return asking;
}

type HandOutRow = {
  offeringId: number;
  name: string;
  /** null: it is off sale, and known by its allotment alone. */
  offering: Offering | null;
  allotment: Billing["allotments"][number] | undefined;
};

/** A reseller's offerings: wholesale price, what its allotments have left, and one for itself. */
function HandOut({ allotments }: { allotments: Billing["allotments"] }) {
  const { accountId, role, lock } = useViewer();
  const { person, viewing } = useMe();
  const offerings = useOfferings();
  const assigning = useOpened<Offering>();
  const columns: Column<HandOutRow>[] = [
    {
      head: "Offering",
      cell: ({ name, offering }) => (
        <span className="grid min-w-0">
          <span className="font-medium">{name}</span>
          {offering && <span className="text-ink-2">{termsText(offering)}</span>}
        </span>
      ),
    },
    {
      head: "Wholesale price",
      align: "right",
      cell: ({ offering }) =>
        offering?.wholesaleNanoUsd == null ? <Badge>Off sale</Badge> : formatMoney(offering.wholesaleNanoUsd),
    },
    {
      head: "In your allotment",
      align: "right",
      cell: ({ allotment }) =>
        allotment ? `${formatCount(allotment.left)} of ${formatCount(allotment.granted)} left` : "–",
    },
    {
      head: "For yourself",
      align: "right",
      cell: ({ offering }) =>
        offering && (
          <Button size="sm" onClick={() => assigning.open(offering)} {...lock}>
            Assign to me<span className="sr-only">: {offering.name}</span>
          </Button>
        ),
    },
  ];
  return (
    <Section
      title="What you can hand out"
      description="Each hand-out costs its wholesale price, or takes a piece of an allotment."
      action={
        <ButtonLink href="/customers" size="sm">
          Customers
        </ButtonLink>
      }
      flush
    >
      <Loaded query={offerings} skeleton={<SkeletonRows rows={3} />}>
        {({ offerings: onSale }) => (
          <DataTable
            caption="Offerings and allotments"
            rows={handOutRows(onSale, allotments)}
            rowKey={({ offeringId }) => String(offeringId)}
            columns={columns}
            empty={<Empty>{EMPTY.offerings}</Empty>}
          />
        )}
      </Loaded>
      <Suspense>
        {assigning.what && (
          <AssignDialog
            key={assigning.times}
            open={assigning.isOpen}
            onClose={assigning.close}
            holder={{ accountId, role, name: (viewing ?? person).name, resellerId: null }}
            first={assigning.what}
          />
        )}
      </Suspense>
    </Section>
  );
}

function handOutRows(onSale: readonly Offering[], allotments: Billing["allotments"]): HandOutRow[] {
  const rows: HandOutRow[] = onSale.map((offering) => ({
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

function BillingSkeleton() {
  return (
    <>
      <Section title="Packages">
        <div className="grid gap-6">
          <Skeleton className="h-6 w-56" />
          <div className="grid gap-8 sm:grid-cols-2 lg:grid-cols-3">
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
            <Skeleton className="h-20" />
          </div>
        </div>
      </Section>
      <Section title="Balance">
        <Skeleton className="h-16 w-72" />
      </Section>
    </>
  );
}
