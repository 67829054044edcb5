import { useQueryClient } from "@tanstack/react-query";
import { RotateCcw } from "lucide-react";
import { api, ask } from "../api.ts";
import { formatCount } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Confirm } from "../ui/dialog.tsx";
import { Section } from "../ui/page.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { Instant } from "../ui/time.tsx";
import { toast } from "../ui/toast.tsx";
import type { Model, Route } from "./admin_catalog.tsx";
import { useOpened } from "./page_hooks.ts";
import { ROUTE } from "./route_reports.tsx";

/** What answers of a model's routes cost beyond their holds, and what is therefore reserved on top. */

const PERMILLE = 1_000;

type Overhead = NonNullable<Route["overhead"]>;
type Learned = Route & { overhead: Overhead };

/** Empty as long as no answer cost more than its hold. */
export function Overheads({ model }: { model: Model }) {
  const client = useQueryClient();
  const resetting = useOpened<Learned>();
  const routes = model.routes.filter(isLearned);
  if (routes.length === 0) return null;
  return (
    <Section
      title="Overruns"
      description="Answers of these routes cost more than was reserved for them. More is now reserved for the accounts that caused it, and for everyone once several accounts did. The extra halves each day."
      flush
    >
      <DataTable
        caption={`Overruns of ${model.id}`}
        rows={routes}
        rowKey={({ id }) => String(id)}
        columns={COLUMNS}
        actions={(route) => (
          <Button size="sm" icon={RotateCcw} onClick={() => resetting.open(route)}>
            Reset
          </Button>
        )}
      />
      {resetting.what && (
        <Confirm
          open={resetting.isOpen}
          onOpenChange={resetting.close}
          title={`Forget the overruns of ${resetting.what.providerName}?`}
          confirmLabel="Reset"
          cancelLabel="Keep"
          onConfirm={async () => {
            if (resetting.what) await ask(api.admin.routes({ id: resetting.what.id }).overhead.delete());
            await client.invalidateQueries({ queryKey: ["admin"] });
            toast.done("Only the maximum cost of each request is reserved again.");
          }}
        >
          Only the maximum cost of each request is reserved, until answers cost more again.
        </Confirm>
      )}
    </Section>
  );
}

function isLearned(route: Route): route is Learned {
  return route.overhead !== null;
}

const COLUMNS: Column<Learned>[] = [
  ROUTE,
  { head: "Reserved for everyone", cell: ({ overhead }) => <Parts of={overhead.overhead} /> },
  { head: "Most for one account", hideBelow: "md", cell: ({ overhead }) => <Parts of={overhead.largest} /> },
  {
    head: "Accounts",
    align: "right",
    cell: ({ overhead }) => formatCount(overhead.accounts),
  },
  { head: "Since", hideBelow: "md", cell: ({ overhead }) => <Instant iso={overhead.firstAt} /> },
  { head: "Last", hideBelow: "lg", cell: ({ overhead }) => <Instant iso={overhead.lastAt} /> },
];

/** The parts that are not zero, one a line. */
function Parts({ of: { constantTokens, imageTokens, factorPermille } }: { of: Overhead["overhead"] }) {
  const parts = [
    constantTokens > 0 && `${formatCount(constantTokens)} tokens a request`,
    imageTokens > 0 && `${formatCount(imageTokens)} tokens an image`,
    factorPermille > PERMILLE && `Text and output × ${factorPermille / PERMILLE}`,
  ].filter((part) => part !== false);
  if (parts.length === 0) return <span className="text-ink-3">Nothing</span>;
  return (
    <ul className="grid gap-1">
      {parts.map((part) => (
        <li key={part}>{part}</li>
      ))}
    </ul>
  );
}
