import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CirclePause, Copy, MoreHorizontal, Play, Plus } from "lucide-react";
import { useState } from "react";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { EMPTY, termsText } from "../copy.ts";
import { formatCount, formatMoney, formatZone, parseUsd, toUsdInput } from "../format.ts";
import { Button, IconButton } from "../ui/buttons.tsx";
import { Checkbox, CheckboxList, Segmented } from "../ui/choices.tsx";
import { Combobox } from "../ui/combobox.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { FilterBar, useUrlState } from "../ui/filter_bar.tsx";
import { useForm } from "../ui/form.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Empty, Loaded, Status } from "../ui/states.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { toast } from "../ui/toast.tsx";
import { useOpened } from "./page_hooks.ts";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** What can be sold. An offering never changes: packages are copies of it. A new price is a new offering. */

const NAME_CHARS_MAX = 100;
/** Source: contract › Limits, and the server's checks. */
const DAYS = { min: 1, max: 30 };
const DAILY = { daily: { min: 100, max: 2_000 }, custom: { min: 1, max: 1_000_000 } };
const TOTAL = { min: 1, max: 30_000_000, optional: true };
const TOKENS = { min: 1, max: 1_000_000_000_000, optional: true };
const WHOLESALE = { maxUsd: 9_000_000, decimals: 9 } as const;
const MODELS_MAX = 500;
const OFFERINGS_KEY = ["admin", "offerings"];

type Offering = NonNullable<Awaited<ReturnType<typeof api.admin.offerings.get>>["data"]>["offerings"][number];

const SHOWN = [
  { value: "", label: "All" },
  { value: "on", label: "On sale" },
  { value: "off", label: "Off sale" },
] as const;

export function OfferingsPage() {
  const offerings = useQuery({ queryKey: OFFERINGS_KEY, queryFn: () => ask(api.admin.offerings.get()) });
  const [filter, setFilter] = useUrlState({ show: "" });
  const adding = useOpened<Offering | null>();
  const show = SHOWN.find(({ value }) => value === filter.show)?.value ?? "";
  const addButton = (
    <Button variant="primary" icon={Plus} disabled={offerings.data === undefined} onClick={() => adding.open(null)}>
      New offering
    </Button>
  );
  return (
    <Page
      title="Offerings"
      lead="What customers can be given. An offering never changes, so that a package is always what was sold."
      // An empty list offers the first step itself.
      action={offerings.data?.offerings.length !== 0 && addButton}
    >
      <FilterBar>
        <Segmented label="Which offerings" value={show} onValue={(next) => setFilter({ show: next })} options={SHOWN} />
      </FilterBar>
      <Section flush>
        <Loaded query={offerings}>
          {(data) => (
            <OfferingsTable
              rows={data.offerings.filter(({ enabled }) => show === "" || enabled === (show === "on"))}
              hasAny={data.offerings.length > 0}
              onCopy={adding.open}
              onAdd={() => adding.open(null)}
            />
          )}
        </Loaded>
      </Section>
      {offerings.data && adding.times > 0 && (
        <NewOffering
          key={adding.times}
          open={adding.isOpen}
          onClose={adding.close}
          like={adding.what}
          timeZone={offerings.data.timeZone}
        />
      )}
    </Page>
  );
}

function OfferingsTable({
  rows,
  hasAny,
  onCopy,
  onAdd,
}: {
  rows: readonly Offering[];
  hasAny: boolean;
  onCopy: (like: Offering) => void;
  onAdd: () => void;
}) {
  const setOnSale = useOnSale();
  const columns: Column<Offering>[] = [
    {
      head: "Offering",
      cell: (row) => (
        <span className="grid min-w-0 gap-0.5 py-1">
          <span className="font-medium wrap-anywhere">{row.name}</span>
          <span className="font-normal text-ink-2" title={row.modelIds?.join(", ")}>
            {termsText(row)}
          </span>
        </span>
      ),
    },
    { head: "Time zone", hideBelow: "lg", cell: (row) => formatZone(row.timeZone) },
    { head: "Wholesale", align: "right", cell: (row) => formatMoney(row.wholesaleNanoUsd) },
    { head: "Active packages", align: "right", cell: (row) => formatCount(row.activePackages) },
    {
      head: "Sale",
      className: "sm:w-28",
      cell: (row) => (row.enabled ? <Status kind="active">On sale</Status> : <Status kind="disabled">Off sale</Status>),
    },
  ];
  return (
    <DataTable
      caption="Offerings"
      rows={rows}
      rowKey={({ offeringId }) => String(offeringId)}
      columns={columns}
      actions={(row) => (
        <Menu
          trigger={<IconButton icon={MoreHorizontal} label={`Actions for ${row.name}`} size="sm" />}
          items={[
            row.enabled
              ? { label: "Take off sale", icon: CirclePause, onSelect: () => setOnSale.mutate({ row, enabled: false }) }
              : { label: "Put on sale", icon: Play, onSelect: () => setOnSale.mutate({ row, enabled: true }) },
            { label: "New one like this", icon: Copy, onSelect: () => onCopy(row) },
          ]}
        />
      )}
      empty={
        hasAny ? (
          <Empty>No offering is in this view.</Empty>
        ) : (
          <Empty
            action={
              <Button variant="primary" icon={Plus} onClick={onAdd}>
                New offering
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

/** Shown at once, taken back if the server refuses. */
function useOnSale() {
  const client = useQueryClient();
  const send = async ({ row, enabled }: { row: Offering; enabled: boolean }) => {
    await ask(api.admin.offerings({ id: row.offeringId }).patch({ enabled }));
    await client.invalidateQueries({ queryKey: OFFERINGS_KEY });
  };
  return useMutation({
    mutationFn: send,
    onSuccess: (_, { row, enabled }) =>
      toast.undo(enabled ? `${row.name} is on sale.` : `${row.name} is off sale. Packages that were sold stay.`, () =>
        send({ row, enabled: !enabled }),
      ),
    onError: (error, { row, enabled }) => toast.failed(error, `${row.name} stays ${enabled ? "off" : "on"} sale.`),
  });
}

type Draft = {
  name: string;
  kind: "daily" | "custom";
  days: string;
  dailyLimit: string;
  carryover: boolean;
  totalLimit: string;
  tokenLimit: string;
  modelIds: string[] | null;
  timeZone: string;
  wholesale: string;
};

function draftOf(like: Offering | null, timeZone: string): Draft {
  if (like === null) {
    return {
      name: "",
      kind: "custom",
      days: "7",
      dailyLimit: "500",
      carryover: true,
      totalLimit: "",
      tokenLimit: "",
      modelIds: null,
      timeZone,
      wholesale: "",
    };
  }
  const isWhole = like.totalLimit === like.dailyLimit * like.days;
  return {
    name: `${like.name} (new)`.slice(0, NAME_CHARS_MAX),
    kind: like.kind,
    days: String(like.days),
    dailyLimit: String(like.dailyLimit),
    carryover: like.carryover,
    totalLimit: isWhole ? "" : String(like.totalLimit),
    tokenLimit: like.tokenLimit === null ? "" : String(like.tokenLimit),
    modelIds: like.modelIds,
    timeZone: like.timeZone,
    wholesale: toUsdInput(like.wholesaleNanoUsd),
  };
}

/** What the draft says, where its numbers can be read; `days` is 1 for a daily one. */
function readDraft(draft: Draft) {
  const days = draft.kind === "daily" ? 1 : readCount(draft.days);
  const dailyLimit = readCount(draft.dailyLimit);
  const [totalLimit, tokenLimit] = [readCount(draft.totalLimit), readCount(draft.tokenLimit)];
  return { days, dailyLimit, totalLimit, tokenLimit, carryover: draft.carryover && days !== 1 };
}

function wrongIn(draft: Draft) {
  const chars = [...draft.name.trim()].length;
  return {
    name: chars >= 1 && chars <= NAME_CHARS_MAX ? null : `1 to ${NAME_CHARS_MAX} characters.`,
    days: draft.kind === "daily" ? null : checkCount(draft.days, DAYS),
    dailyLimit: checkCount(draft.dailyLimit, DAILY[draft.kind]),
    totalLimit: checkCount(draft.totalLimit, TOTAL),
    tokenLimit: checkCount(draft.tokenLimit, TOKENS),
    modelIds: draft.modelIds?.length === 0 ? "Choose a model, or all of them." : null,
    timeZone: null,
    wholesaleNanoUsd: checkUsd(draft.wholesale, WHOLESALE),
  };
}

const KINDS = [
  { value: "daily", label: "One day" },
  { value: "custom", label: "Up to 30 days" },
] as const;

function NewOffering({
  open,
  onClose,
  like,
  timeZone,
}: {
  open: boolean;
  onClose: () => void;
  /** The offering it begins as. */
  like: Offering | null;
  timeZone: string;
}) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const [draft, setDraft] = useState(() => draftOf(like, timeZone));
  const set = (changes: Partial<Draft>) => setDraft((before) => ({ ...before, ...changes }));
  const models = useQuery({
    queryKey: ["admin", "models", "names"],
    queryFn: () => ask(api.admin.models.get({ query: { limit: MODELS_MAX } })),
  });
  const form = useForm({
    wrong: wrongIn(draft),
    send: async () => {
      const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
      const added = await ask(
        api.admin.offerings.post(
          {
            name: draft.name.trim(),
            kind: draft.kind,
            days: days ?? 1,
            dailyLimit: dailyLimit ?? 0,
            ...(totalLimit !== null && { totalLimit }),
            carryover,
            tokenLimit,
            modelIds: draft.modelIds,
            timeZone: draft.timeZone,
            wholesaleNanoUsd: parseUsd(draft.wholesale) ?? "",
          },
          sentOnce(formKey),
        ),
      );
      await client.invalidateQueries({ queryKey: OFFERINGS_KEY });
      return added;
    },
    onSent: ({ name }) => {
      toast.done(`${name} is on sale.`);
      onClose();
    },
  });
  const daily = DAILY[draft.kind];
  return (
    <Dialog
      open={open}
      onOpenChange={onClose}
      title="New offering"
      size="lg"
      onSubmit={form.submit}
      footer={
        <>
          <Button onClick={onClose}>Cancel</Button>
          <Button type="submit" variant="primary" pending={form.isPending}>
            Put on sale
          </Button>
        </>
      }
    >
      <div className="grid gap-4 [&_input]:scroll-mt-40">
        <Sentence draft={draft} />
        <div className="grid items-start gap-4 sm:grid-cols-2">
          <Field label="Name" hint="Customers see it." error={form.errorOf("name")} required>
            <TextInput value={draft.name} onValue={(name) => set({ name })} maxLength={NAME_CHARS_MAX} />
          </Field>
          <Field
            label="Wholesale price"
            hint="What a reseller pays for one."
            error={form.errorOf("wholesaleNanoUsd")}
            required
          >
            <TextInput
              before="$"
              inputMode="decimal"
              className="figures"
              value={draft.wholesale}
              onValue={(wholesale) => set({ wholesale })}
            />
          </Field>
        </div>
        <Segmented
          label="How long"
          value={draft.kind}
          onValue={(kind) => set({ kind })}
          options={KINDS}
          className="justify-self-start"
        />
        <div className="grid items-start gap-4 sm:grid-cols-2">
          <Field
            label="Requests a day"
            hint={`${formatCount(daily.min)} to ${formatCount(daily.max)}`}
            error={form.errorOf("dailyLimit")}
            required
          >
            <CountInput value={draft.dailyLimit} onValue={(dailyLimit) => set({ dailyLimit })} />
          </Field>
          {draft.kind === "custom" && (
            <Field label="Days" hint={`${DAYS.min} to ${DAYS.max}`} error={form.errorOf("days")} required>
              <CountInput value={draft.days} onValue={(days) => set({ days })} />
            </Field>
          )}
        </div>
        {draft.kind === "custom" && (
          <Checkbox
            label="Carryover"
            hint="What is left of a day is kept for the next ones."
            checked={draft.carryover}
            onValue={(carryover) => set({ carryover })}
          />
        )}
        <div className="grid items-start gap-4 border-t border-line pt-4 sm:grid-cols-2">
          <Field
            label="Requests in all"
            optional
            hint="Empty: every day's requests."
            error={form.errorOf("totalLimit")}
          >
            <CountInput
              value={draft.totalLimit}
              onValue={(totalLimit) => set({ totalLimit })}
              placeholder={allOf(draft)}
            />
          </Field>
          <Field label="Tokens in all" optional hint="Empty: no limit of tokens." error={form.errorOf("tokenLimit")}>
            <CountInput value={draft.tokenLimit} onValue={(tokenLimit) => set({ tokenLimit })} />
          </Field>
        </div>
        <Field
          label="Time zone"
          hint="Days begin at its midnight."
          error={form.errorOf("timeZone")}
          className="sm:max-w-[calc(50%-0.5rem)]"
        >
          <Combobox value={draft.timeZone} onValue={(zone) => set({ timeZone: zone })} options={zonesWith(timeZone)} />
        </Field>
        <CheckboxList
          label="Models"
          allLabel="All models, new ones too"
          value={draft.modelIds}
          onValue={(modelIds) => set({ modelIds })}
          options={(models.data?.models ?? []).map(({ id, enabled }) => ({
            value: id,
            label: id,
            ...(!enabled && { hint: "Off now" }),
          }))}
          error={form.errorOf("modelIds")}
        />
      </div>
      {form.problem}
    </Dialog>
  );
}

function CountInput(props: { value: string; onValue: (typed: string) => void; placeholder?: string }) {
  return <TextInput inputMode="numeric" className="figures" {...props} />;
}

/** Every day's requests together, or nothing while they cannot be read. */
function allOf(draft: Draft): string {
  const { days, dailyLimit } = readDraft(draft);
  return days && dailyLimit ? formatCount(days * dailyLimit) : "";
}

/** What a customer gets, in words, as it is typed. What cannot be read yet is a gap in it. */
function Sentence({ draft }: { draft: Draft }) {
  const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
  const wrong = wrongIn(draft);
  const isReadable = !wrong.days && !wrong.dailyLimit && !wrong.totalLimit && !wrong.tokenLimit;
  const price = wrong.wholesaleNanoUsd === null ? parseUsd(draft.wholesale) : null;
  const all = (days ?? 0) * (dailyLimit ?? 0);
  return (
    // It stays in sight while the fields below are filled in.
    <div className="z-10 -mx-1 -mt-6 bg-raised px-1 pt-6 sm:sticky sm:-top-6">
      <output aria-label="The offering in words" className="block min-h-20 rounded-md bg-sunken p-4 text-14 text-ink-2">
        <span className="mb-1 block text-16 font-semibold text-ink">
          {isReadable
            ? termsText({
                days: days ?? 1,
                dailyLimit: dailyLimit ?? 0,
                totalLimit: totalLimit ?? all,
                carryover,
                tokenLimit,
                modelIds: draft.modelIds,
              })
            : "…"}
        </span>
        {isReadable && sentences(draft, { days, all, totalLimit, carryover, price }).join(" ")}
      </output>
    </div>
  );
}

function sentences(
  draft: Draft,
  {
    days,
    all,
    totalLimit,
    carryover,
    price,
  }: { days: number | null; all: number; totalLimit: number | null; carryover: boolean; price: string | null },
): string[] {
  const most = Math.min(all, totalLimit ?? all);
  return [
    `At most ${formatCount(most)} requests in all.`,
    ...(totalLimit !== null && totalLimit > all ? [`More than ${formatCount(all)} can never be used.`] : []),
    ...(days === 1 ? [] : [carryover ? "What is left of a day is kept." : "What is left of a day is lost."]),
    `Days begin at 00:00 ${formatZone(draft.timeZone)}.`,
    ...(price === null ? [] : [`A reseller pays ${formatMoney(price)} for it.`]),
  ];
}

/** Every zone the browser knows, and the one of the service. */
function zonesWith(zone: string) {
  const zones = new Set(["UTC", zone, ...Intl.supportedValuesOf("timeZone")]);
  return [...zones].map((value) => ({ value, label: value.replaceAll("_", " ") }));
}
