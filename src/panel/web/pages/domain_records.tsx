import { Check, ChevronRight, CircleHelp, X } from "lucide-react";
import type { ReactNode } from "react";
import type { api } from "../api.ts";
import { DNS } from "../copy.ts";
import { CopyButton, CopyText } from "../ui/copy_text.tsx";
import { cx } from "../ui/cx.ts";
import { Section } from "../ui/page.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { type RecordRow, recordRows, type Sight, todoText } from "./domain_text.ts";

/** The DNS table of a domain, what to do about it, and what it may be if that does not help. */

export type Domain = NonNullable<Awaited<ReturnType<ReturnType<typeof api.domains>["get"]>>["data"]>;

/** What is to be set, what each resolver sees, and what to do. */
export function Records({ domain }: { domain: Domain }) {
  const rows = recordRows(domain);
  const { steps, waits } = todoText(domain);
  const resolvers = domain.report?.resolvers.map(({ resolver }) => resolver) ?? [];
  const columns: Column<RecordRow>[] = [
    { head: "Type", cell: ({ type }) => <span className="font-semibold">{type}</span> },
    { head: "Name", cell: ({ label, name }) => <Mono title={name}>{label}</Mono> },
    { head: "Set to", cell: (row) => <SetTo row={row} /> },
    ...resolvers.map((resolver, at) => ({
      head: resolver,
      cell: ({ sights }: RecordRow) => <Seen sight={sights[at] ?? []} />,
    })),
  ];
  return (
    <Section
      title="Records"
      description={domain.contested ? DNS.contested(domain.host) : "What the DNS must say, and what it says."}
      flush
      action={
        <CopyButton
          value={domain.instructions}
          what=""
          label={
            <>
              Copy instructions<span className="max-sm:sr-only"> for whoever runs your DNS</span>
            </>
          }
        />
      }
    >
      <DataTable caption="DNS records" columns={columns} rows={rows} rowKey={({ type }) => type} />
      {(steps.length > 0 || waits.length > 0) && (
        <div className="grid gap-3 border-t border-line px-4 py-4 sm:px-6">
          {steps.length > 0 && (
            <>
              <h3 className="text-14 font-semibold">Do this:</h3>
              <ol className={cx("grid gap-2 text-14", steps.length > 1 && "list-decimal pl-5")}>
                {steps.map((step) => (
                  <li key={step} className="[overflow-wrap:anywhere]">
                    {step}
                  </li>
                ))}
              </ol>
            </>
          )}
          {waits.map((wait) => (
            <p key={wait} className="text-14 text-ink-2">
              {wait}
            </p>
          ))}
        </div>
      )}
    </Section>
  );
}

function Mono({ title, children }: { title: string; children: ReactNode }) {
  return (
    <span title={title} className="font-mono [overflow-wrap:anywhere]">
      {children}
    </span>
  );
}

function SetTo({ row: { type, label, values } }: { row: RecordRow }) {
  if (values.length === 0) return <span className="text-ink-3">(none)</span>;
  return (
    <span className="grid justify-items-start gap-1 max-sm:justify-items-end">
      {values.map((value) => (
        <CopyText key={value} value={value} what={`the ${type} record of ${label}`} isWhole={type === "A"} />
      ))}
    </span>
  );
}

const MARKS = {
  ok: { icon: Check, className: "text-ok", said: "right: " },
  bad: { icon: X, className: "text-bad", said: "wrong: " },
  unknown: { icon: CircleHelp, className: "text-ink-3", said: "unknown: " },
} as const;

function Seen({ sight }: { sight: Sight }) {
  return (
    <span className="grid gap-1 max-sm:justify-items-end">
      {sight.map(({ mark, words }) => {
        const { icon: Icon, className, said } = MARKS[mark];
        return (
          <span key={words} className="flex items-start gap-1.5">
            <Icon size={14} strokeWidth={2.5} aria-hidden className={cx("mt-0.5 flex-none", className)} />
            <span className="sr-only">{said}</span>
            <span className={cx("figures [overflow-wrap:anywhere]", mark === "unknown" ? "text-ink-2" : className)}>
              {words}
            </span>
          </span>
        );
      })}
    </span>
  );
}

/** What it is, nine times out of ten. */
export function Stuck({ label, host }: { label: string; host: string }) {
  const zone = host.slice(label.length + 1);
  return (
    <details className="group rounded-lg border border-line bg-surface">
      <summary className="flex items-center gap-2 rounded-lg px-4 py-3 text-14 font-semibold sm:px-6">
        <ChevronRight
          size={16}
          aria-hidden
          className="flex-none text-ink-3 transition-transform group-open:rotate-90"
        />
        Still stuck?
      </summary>
      <ul className="grid list-disc gap-2 px-4 pr-4 pb-4 pl-10 text-14 text-ink-2 marker:text-ink-3 sm:pr-6 sm:pl-14">
        <li>A change takes as long to be seen as the old record's TTL: often an hour, at times a day.</li>
        <li>
          Most editors add the domain by themselves. Type <b className="font-mono font-semibold">{label}</b> as the
          name, or it becomes <span className="font-mono">{`${host}.${zone}`}</span>.
        </li>
        <li>
          A proxy in front of the name (an orange cloud, a "web forwarding") must be off: the name leads straight to us.
        </li>
        <li>
          The records must be set where the name servers of <span className="font-mono">{zone}</span> are run. That may
          not be where the domain was bought.
        </li>
      </ul>
    </details>
  );
}
