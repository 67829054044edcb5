import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Check, CircleHelp, X } from "lucide-react";
import type { api } from "../../api.ts";
import { DNS } from "../../copy.ts";
import { Collapsed } from "../../ui/collapsed.tsx";
import { CopyButton, CopyText } from "../../ui/copy_text.tsx";
import { cx } from "../../ui/cx.ts";
import { Hint } from "../../ui/hint.tsx";
import { Section } from "../../ui/page.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { instructionsText, type RecordRow, type ResolverView, recordRows, todoText } from "./domain_text.ts";

/** The DNS records of a domain: what to set, what each resolver sees, what to do, and common causes of trouble. */

export type Domain = NonNullable<Awaited<ReturnType<ReturnType<typeof api.domains>["get"]>>["data"]>;

/** The table of records, and the steps to take. */
export function Records({ domain }: { domain: Domain }) {
  const rows = recordRows(domain);
  const { steps, waits } = todoText(domain);
  const resolvers = domain.report?.resolvers.map(({ resolver }) => resolver) ?? [];
  const columns: Column<RecordRow>[] = [
    { head: t`Type`, cell: ({ type }) => <span className="font-semibold">{type}</span> },
    {
      head: t`Name`,
      cell: ({ label, name }) => (
        <Hint says={label === name ? null : name} className="font-mono wrap-anywhere">
          {label}
        </Hint>
      ),
    },
    { head: t`Set to`, cell: (row) => <SetTo row={row} /> },
    ...resolvers.map((resolver, at) => ({
      head: resolver,
      cell: ({ views }: RecordRow) => <Seen view={views[at] ?? []} />,
    })),
  ];
  return (
    <Section
      title={t`Records`}
      description={domain.contested ? DNS.contested(domain.host) : t`The records to set, and what resolvers see.`}
      flush
      action={
        <CopyButton
          value={instructionsText(domain)}
          what=""
          label={
            <Trans>
              Copy instructions<span className="max-sm:sr-only"> for your DNS administrator</span>
            </Trans>
          }
        />
      }
    >
      <DataTable caption={t`DNS records`} columns={columns} rows={rows} rowKey={({ type }) => type} />
      {(steps.length > 0 || waits.length > 0) && (
        <div className="grid gap-3 border-t border-line px-4 py-4 sm:px-6">
          {steps.length > 0 && (
            <>
              <h3 className="text-14 font-semibold">
                <Trans>Do this:</Trans>
              </h3>
              <ol className={cx("grid gap-2 text-14", steps.length > 1 && "list-decimal ps-5")}>
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

function SetTo({ row: { type, label, values } }: { row: RecordRow }) {
  if (values.length === 0)
    return <span className="text-ink-3">{t({ message: "(none)", context: "DNS records" })}</span>;
  return (
    <span className="grid justify-items-start gap-1 max-sm:justify-items-end">
      {values.map((value) => (
        <CopyText key={value} value={value} what={t`the ${type} record of ${label}`} isWhole={type === "A"} />
      ))}
    </span>
  );
}

const MARKS = {
  ok: { icon: Check, className: "text-ok", said: t({ message: "right:", context: "a DNS record" }) },
  bad: { icon: X, className: "text-bad", said: t({ message: "wrong:", context: "a DNS record" }) },
  unknown: { icon: CircleHelp, className: "text-ink-3", said: t({ message: "unknown:", context: "a DNS record" }) },
} as const;

function Seen({ view }: { view: ResolverView }) {
  return (
    <span className="grid gap-1 max-sm:justify-items-end">
      {view.map(({ mark, words }) => {
        const { icon: Icon, className, said } = MARKS[mark];
        return (
          <span key={words} className="flex items-start gap-1.5">
            <Icon size={14} strokeWidth={2.5} aria-hidden className={cx("mt-0.5 flex-none", className)} />
            <span className="sr-only">{said} </span>
            <span className={cx("figures [overflow-wrap:anywhere]", mark === "unknown" ? "text-ink-2" : className)}>
              {words}
            </span>
          </span>
        );
      })}
    </span>
  );
}

/** The most common causes. */
export function Stuck({ label, host }: { label: string; host: string }) {
  const zone = host.slice(label.length + 1);
  const twice = `${host}.${zone}`;
  return (
    <Collapsed look="section" label={t`Still stuck?`}>
      <ul className="grid list-disc gap-2 px-4 pe-4 pb-4 ps-10 text-14 text-ink-2 marker:text-ink-3 sm:pe-6 sm:ps-14">
        <li>
          <Trans>A change becomes visible when the old record's TTL has passed: often an hour, sometimes a day.</Trans>
        </li>
        <li>
          <Trans>
            Most DNS editors add the domain to the name. Enter <b className="font-mono font-semibold">{label}</b> as the
            name, or it becomes <span className="font-mono">{twice}</span>.
          </Trans>
        </li>
        <li>
          <Trans>
            A proxy in front of the name (an orange cloud, a "web forwarding") must be off: the name must point directly
            to us.
          </Trans>
        </li>
        <li>
          <Trans>
            Set the records at the provider of the name servers of <span className="font-mono">{zone}</span>. It may be
            another company than the one that sold the domain.
          </Trans>
        </li>
      </ul>
    </Collapsed>
  );
}
