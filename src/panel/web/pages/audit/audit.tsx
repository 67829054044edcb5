import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQuery } from "@tanstack/react-query";
import { ArrowRight, CirclePlus, Eye, type LucideIcon, Pencil, Trash2 } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { language } from "#language";
import { api, ask } from "../../api.ts";
import { EMPTY } from "../../copy.ts";
import { formatCount } from "../../format.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { idIn } from "../../shared/url_values.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { useNow } from "../../ui/clock.ts";
import { Combobox } from "../../ui/combobox.tsx";
import { CopyText } from "../../ui/copy_text.tsx";
import { cx } from "../../ui/cx.ts";
import { NativeSelect, TextInput } from "../../ui/fields.tsx";
import { FilterBar, useUrlState } from "../../ui/filter_bar.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { LoadOlder, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { modelHref, providerHref } from "../models/catalog.tsx";
import { PEOPLE_KEY } from "../people/queries.ts";
import { type Change, changesOf, nameIn, SUBJECTS } from "./audit_words.ts";

/** Who changed what, before and after. Filters are in the URL: `?subject=offerings&person=1&account=7`. */

const PAGE_SIZE = 50;
const PEOPLE_MAX = 200;
/** Fields of an entry that are shown; the rest unfold. */
const FIELDS_SHOWN = 12;
const YEAR_TICK_MS = 60 * 60_000;

/** Subjects without a name of their own: their account is named. */
const OF_ACCOUNT = new Set([
  "balances",
  "balance_entries",
  "brands",
  "buyer_details",
  "email_changes",
  "links",
  "mail_servers",
  "muted_mails",
  "recovery_codes",
  "sellers",
]);

type Entry = NonNullable<Awaited<ReturnType<typeof api.audit.get>>["data"]>["entries"][number];
type Names = NonNullable<Awaited<ReturnType<typeof api.audit.get>>["data"]>["names"];
/** `from` and `to` are days of the viewer, both included: "2026-11-21". */
type Filters = { subject: string; person: string; account: string; from: string; to: string };

const NO_FILTERS: Filters = { subject: "", person: "", account: "", from: "", to: "" };

export function AuditPage() {
  const [filters, setFilters] = useUrlState(NO_FILTERS);
  const [subject, actorId, accountId] = [
    filters.subject in SUBJECTS ? filters.subject : "",
    idIn(filters.person),
    idIn(filters.account),
  ];
  const filter = {
    ...(subject !== "" && { subject }),
    ...(actorId !== null && { actorId }),
    ...(accountId !== null && { accountId }),
    ...spanOf(filters),
  };
  const audit = useInfiniteQuery({
    queryKey: ["audit", filter],
    queryFn: ({ pageParam }) =>
      ask(api.audit.get({ query: { ...filter, limit: PAGE_SIZE, ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ entries, hasMore }) => (hasMore ? entries.at(-1)?.id : undefined),
  });
  return (
    <Page title={t`Audit`} lead={t`Who changed what, before and after. Entries cannot be changed.`}>
      <Filter
        filters={{ ...filters, subject }}
        onChange={setFilters}
        aside={
          <DownloadButton
            path={() =>
              `/api/panel/audit.csv?${new URLSearchParams(Object.entries(filter).map(([name, value]) => [name, String(value)]))}`
            }
            fileName="audit.csv"
          >
            <Trans>
              CSV<span className="sr-only"> export</span>
            </Trans>
          </DownloadButton>
        }
      />
      <Section flush>
        <Loaded query={audit} skeleton={<SkeletonRows rows={8} />}>
          {({ pages }) => {
            if (pages.every(({ entries }) => entries.length === 0)) return <Empty>{EMPTY.audit}</Empty>;
            return (
              <ol aria-label={t`Changes, newest first`}>
                {pages.flatMap(({ entries, names }) =>
                  entries.map((entry) => <Line key={entry.id} entry={entry} names={names} filters={filters} />),
                )}
              </ol>
            );
          }}
        </Loaded>
        <LoadOlder older={toOlder(audit)} />
      </Section>
    </Page>
  );
}

const SUBJECT_OPTIONS = [
  { value: "", label: t`Everything` },
  ...Object.entries(SUBJECTS)
    .map(([value, label]) => ({ value, label: capital(label) }))
    .sort((a, b) => a.label.localeCompare(b.label)),
];

function capital(words: string): string {
  return words.charAt(0).toLocaleUpperCase(language) + words.slice(1);
}

const DAY = /^\d{4}-\d\d-\d\d$/;

/** The moments between which the days of the filter lie, in the viewer's time zone. */
function spanOf({ from, to }: Filters): { start?: string; end?: string } {
  const midnight = (day: string, daysAfter: number) => {
    const [year = 0, month = 1, date = 1] = day.split("-").map(Number);
    return new Date(year, month - 1, date + daysAfter).toISOString();
  };
  return { ...(DAY.test(from) && { start: midnight(from, 0) }), ...(DAY.test(to) && { end: midnight(to, 1) }) };
}

function Filter({
  filters,
  onChange,
  aside,
}: {
  filters: Filters;
  onChange: (changes: Partial<Filters>) => void;
  aside: ReactNode;
}) {
  const people = useQuery({
    queryKey: [...PEOPLE_KEY, "names"],
    queryFn: () => ask(api.people.get({ query: { limit: PEOPLE_MAX } })),
  });
  const known = (people.data?.people ?? []).map(({ accountId, name, email }) => ({
    value: String(accountId),
    label: name,
    hint: email,
  }));
  const optionsWith = (id: string, all: string) => [
    { value: "", label: all },
    ...(id !== "" && !known.some(({ value }) => value === id) ? [{ value: id, label: t`Account ${id}` }] : []),
    ...known,
  ];
  const emptyText = people.data?.hasMore
    ? t`Not among the last ${{ count: formatCount(PEOPLE_MAX) }} accounts. Click a name in the list below.`
    : t`No person with that name.`;
  return (
    <FilterBar
      isFiltered={Object.values(filters).some((value) => value !== "")}
      onClear={() => onChange(NO_FILTERS)}
      aside={aside}
    >
      <NativeSelect
        label={t`What was changed`}
        value={filters.subject}
        onValue={(subject) => onChange({ subject })}
        options={SUBJECT_OPTIONS}
        className="max-sm:w-full"
      />
      <Combobox
        label={t`Who changed it`}
        value={filters.person}
        onValue={(person) => onChange({ person })}
        options={optionsWith(filters.person, t`By anyone`)}
        emptyText={emptyText}
        className="w-full sm:w-60"
      />
      <Combobox
        label={t`Whose account`}
        value={filters.account}
        onValue={(account) => onChange({ account })}
        options={optionsWith(filters.account, t`Of any account`)}
        emptyText={emptyText}
        className="w-full sm:w-60"
      />
      <DayInput
        label={t({ message: "From", context: "a day" })}
        value={filters.from}
        onValue={(from) => onChange({ from })}
      />
      <DayInput label={t({ message: "To", context: "a day" })} value={filters.to} onValue={(to) => onChange({ to })} />
    </FilterBar>
  );
}

function DayInput({ label, value, onValue }: { label: string; value: string; onValue: (day: string) => void }) {
  const id = useId();
  return (
    <span className="flex items-center gap-2 text-13 text-ink-2">
      <label htmlFor={id}>{label}</label>
      <TextInput id={id} type="date" value={value} onValue={onValue} className="w-40" />
    </span>
  );
}

const ICONS: Record<Entry["action"], LucideIcon> = { added: CirclePlus, changed: Pencil, removed: Trash2, viewed: Eye };

/** One change: when, who, what, and each field's old and new value. */
function Line({ entry, names, filters }: { entry: Entry; names: Names; filters: Filters }) {
  const Icon = ICONS[entry.action];
  return (
    <li className="grid gap-x-6 gap-y-2 border-b border-line px-4 py-4 last:border-0 sm:px-6 md:grid-cols-[9rem_minmax(0,1fr)_9rem]">
      <span className="text-13 text-ink-3">
        <Instant iso={entry.at} seconds />
      </span>
      <div className="grid min-w-0 gap-2">
        <p className="flex items-start gap-2 text-14">
          <Icon size={16} aria-hidden className="mt-0.5 flex-none text-ink-3" />
          <span className="min-w-0 wrap-anywhere">
            <Sentence entry={entry} filters={filters} />
          </span>
        </p>
        {entry.action !== "viewed" && <Changes entry={entry} names={names} />}
      </div>
      {entry.requestId && (
        <span className="md:justify-self-end">
          <CopyText value={entry.requestId} what={t`request id`} />
        </span>
      )}
    </li>
  );
}

/** "Ann (ann@acme.com) changed offering Week of Acme". */
function Sentence({ entry, filters }: { entry: Entry; filters: Filters }) {
  const { action, account, subject } = entry;
  const actor = <Actor entry={entry} filters={filters} />;
  if (action === "viewed") return <Viewed entry={entry} actor={actor} />;
  const what = <What entry={entry} />;
  if (!account || subject === "accounts")
    return {
      added: (
        <Trans>
          {actor} added {what}
        </Trans>
      ),
      changed: (
        <Trans>
          {actor} changed {what}
        </Trans>
      ),
      removed: (
        <Trans>
          {actor} removed {what}
        </Trans>
      ),
    }[action];
  const owner = <FilterLink filters={{ ...filters, account: String(account.accountId) }}>{account.name}</FilterLink>;
  return {
    added: (
      <Trans>
        {actor} added {what} of {owner}
      </Trans>
    ),
    changed: (
      <Trans>
        {actor} changed {what} of {owner}
      </Trans>
    ),
    removed: (
      <Trans>
        {actor} removed {what} of {owner}
      </Trans>
    ),
  }[action];
}

function Actor({ entry: { actor, token }, filters }: { entry: Entry; filters: Filters }) {
  if (actor === null) return <strong className="font-semibold">{t`The service or its command line`}</strong>;
  const person = (
    <>
      <FilterLink filters={{ ...filters, person: String(actor.accountId) }} isStrong>
        {actor.name}
      </FilterLink>{" "}
      <span className="text-13 text-ink-2">({actor.email})</span>
    </>
  );
  if (token === null) return person;
  const { name } = token;
  return (
    <Trans>
      {person} with token {name}
    </Trans>
  );
}

/** A name that filters the page by it. */
function FilterLink({
  filters,
  isStrong = false,
  children,
}: {
  filters: Filters;
  isStrong?: boolean;
  children: string;
}) {
  const given = Object.entries(filters).filter(([, value]) => value !== "");
  return (
    <TextLink href={`/admin/audit?${new URLSearchParams(given)}`} className={isStrong ? "font-semibold" : ""}>
      {children}
    </TextLink>
  );
}

/** "offering Week", with a link if the subject has a page. */
function What({ entry }: { entry: Entry }) {
  const { subject } = entry;
  const what = SUBJECTS[subject] ?? subject.replaceAll("_", " ");
  const name = nameOf(entry);
  const href = hrefOf(entry, name);
  return (
    <>
      {what} {href ? <TextLink href={href}>{name}</TextLink> : <span className="font-medium">{name}</span>}
    </>
  );
}

/** Its name today, or in this entry, or else its number. */
function nameOf(entry: Entry): string {
  const { subject, subjectId, subjectName, account } = entry;
  if (subject === "accounts") return account?.name ?? subjectId;
  return OF_ACCOUNT.has(subject) ? "" : (subjectName ?? nameIn(entry) ?? subjectId);
}

function hrefOf({ action, subject, subjectId, subjectName }: Entry, name: string): string | null {
  if (action === "removed" || name === "") return null;
  if (subject === "models" || subject === "image_prices") return modelHref(subjectId);
  if (subject === "routes") return subjectName === null ? null : modelHref(subjectName);
  if (subject === "providers") return providerHref(Number(subjectId));
  return subject === "accounts" ? `/admin/people/${subjectId}` : null;
}

function Viewed({ entry: { account, subjectId, after }, actor }: { entry: Entry; actor: ReactNode }) {
  const person = <TextLink href={`/admin/people/${subjectId}`}>{account?.name ?? subjectId}</TextLink>;
  return after?.viewing === false ? (
    <Trans>
      {actor} stopped viewing the panel of {person}
    </Trans>
  ) : (
    <Trans>
      {actor} started viewing the panel of {person}
    </Trans>
  );
}

function Changes({ entry, names }: { entry: Entry; names: Names }) {
  const now = useNow(YEAR_TICK_MS);
  const [isWhole, setWhole] = useState(false);
  const changes = changesOf(entry, now, names);
  const shown = isWhole ? changes : changes.slice(0, FIELDS_SHOWN);
  const hidden = changes.length - shown.length;
  if (changes.length === 0) return null;
  return (
    <div className="ms-6 grid justify-items-start gap-1">
      {/* Changes are listed one a line; the fields of an added or removed row in a paragraph. */}
      <dl className={cx("flex gap-y-1 text-13", entry.action === "changed" ? "flex-col" : "flex-wrap gap-x-5")}>
        {shown.map((change) => (
          <div key={change.column} className="flex min-w-0 flex-wrap gap-x-2">
            <dt className="text-ink-3">{change.field}</dt>
            <dd className="min-w-0 wrap-anywhere text-ink">
              <Values change={change} action={entry.action} />
            </dd>
          </div>
        ))}
      </dl>
      {hidden > 0 && (
        <Button
          variant="quiet"
          size="sm"
          onClick={() => setWhole(true)}
          className="-ms-3"
          aria-label={plural(hidden, { one: "# more field of this change", other: "# more fields of this change" })}
        >
          {plural(hidden, { other: "# more" })}
        </Button>
      )}
    </div>
  );
}

const SECRETS: Record<Extract<Change, { secret: unknown }>["secret"], string> = {
  set: t({ message: "set", context: "a secret" }),
  changed: t({ message: "changed", context: "a secret" }),
  removed: t({ message: "removed", context: "a secret" }),
};

/** Old → new for a change; for an added or removed row its only value. */
function Values({ change, action }: { change: Change; action: Entry["action"] }) {
  if ("secret" in change) return SECRETS[change.secret];
  if (action !== "changed") return change.after ?? change.before ?? t`not set`;
  return (
    <>
      <del className="text-ink-3 no-underline">{change.before ?? t`not set`}</del>{" "}
      <ArrowRight
        size={12}
        aria-label={t({ message: "became", context: "between an old and a new value" })}
        className="mx-0.5 inline align-baseline text-ink-3"
      />{" "}
      <ins className="font-medium no-underline">{change.after ?? t`not set`}</ins>
    </>
  );
}
