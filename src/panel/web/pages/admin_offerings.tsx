import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CirclePause, Copy, MoreHorizontal, Play, Plus } from "lucide-react";
import {
  MONEY_USD_MAX,
  OFFERING_DAILY_REQUESTS,
  OFFERING_DAYS,
  OFFERING_NAME_CHARS_MAX,
  OFFERING_TOKENS,
  OFFERING_TOTAL_REQUESTS,
} from "../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { EMPTY, termsText } from "../copy.ts";
import { formatCount, formatMoney, formatZone, parseUsd, toUsdInput } from "../format.ts";
import { Button, IconButton } from "../ui/buttons.tsx";
import { Checkbox, CheckboxList, Segmented } from "../ui/choices.tsx";
import { Combobox } from "../ui/combobox.tsx";
import { CountField, DollarField, Field, TextField } from "../ui/fields.tsx";
import { FilterBar, useUrlState } from "../ui/filter_bar.tsx";
import { type DialogState, type Form, FormDialog, useForm } from "../ui/form.tsx";
import { Menu } from "../ui/menu.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Empty, Loaded, Status } from "../ui/states.tsx";
import { type Column, DataTable } from "../ui/table.tsx";
import { toast } from "../ui/toast.tsx";
import { useOpened } from "./page_hooks.ts";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** Offerings, for admins. An offering never changes, because packages are copies of it: a new price is a new offering. */

const MODELS_PAGE_MAX = 500;
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
      lead="What can be sold. An offering never changes, so that a package is always what was sold."
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

/** Puts an offering on or off sale, with Undo. */
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

/** A new offering as typed, by the server's names. */
function draftOf(like: Offering | null, timeZone: string) {
  if (like === null) {
    return {
      name: "",
      kind: "custom" as Offering["kind"],
      days: "7",
      dailyLimit: "500",
      carryover: true,
      totalLimit: "",
      tokenLimit: "",
      modelIds: null as string[] | null,
      timeZone,
      wholesaleNanoUsd: "",
    };
  }
  const isWhole = like.totalLimit === like.dailyLimit * like.days;
  return {
    name: `${like.name} (new)`.slice(0, OFFERING_NAME_CHARS_MAX),
    kind: like.kind,
    days: String(like.days),
    dailyLimit: String(like.dailyLimit),
    carryover: like.carryover,
    totalLimit: isWhole ? "" : String(like.totalLimit),
    tokenLimit: like.tokenLimit === null ? "" : String(like.tokenLimit),
    modelIds: like.modelIds,
    timeZone: like.timeZone,
    wholesaleNanoUsd: toUsdInput(like.wholesaleNanoUsd),
  };
}
type Draft = ReturnType<typeof draftOf>;

/** The numbers of a draft; `days` is 1 for a daily offering, and null or NaN stands for what cannot be read. */
function readDraft(draft: Draft) {
  const days = draft.kind === "daily" ? 1 : readCount(draft.days);
  const dailyLimit = readCount(draft.dailyLimit);
  const [totalLimit, tokenLimit] = [readCount(draft.totalLimit), readCount(draft.tokenLimit)];
  return { days, dailyLimit, totalLimit, tokenLimit, carryover: draft.carryover && days !== 1 };
}

function wrongIn(draft: Draft): Record<keyof Draft, string | null> {
  const chars = [...draft.name.trim()].length;
  return {
    name: chars >= 1 && chars <= OFFERING_NAME_CHARS_MAX ? null : `1 to ${OFFERING_NAME_CHARS_MAX} characters.`,
    kind: null,
    days: draft.kind === "daily" ? null : checkCount(draft.days, OFFERING_DAYS),
    dailyLimit: checkCount(draft.dailyLimit, OFFERING_DAILY_REQUESTS[draft.kind]),
    carryover: null,
    totalLimit: checkCount(draft.totalLimit, { ...OFFERING_TOTAL_REQUESTS, optional: true }),
    tokenLimit: checkCount(draft.tokenLimit, { ...OFFERING_TOKENS, optional: true }),
    modelIds: draft.modelIds?.length === 0 ? "Choose a model, or all of them." : null,
    timeZone: null,
    wholesaleNanoUsd: checkUsd(draft.wholesaleNanoUsd, { maxUsd: MONEY_USD_MAX, decimals: 9 }),
  };
}

function bodyOf(draft: Draft) {
  const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
  return {
    name: draft.name.trim(),
    kind: draft.kind,
    days: days ?? 1,
    dailyLimit: dailyLimit ?? 0,
    ...(totalLimit !== null && { totalLimit }),
    carryover,
    tokenLimit,
    modelIds: draft.modelIds,
    timeZone: draft.timeZone,
    wholesaleNanoUsd: parseUsd(draft.wholesaleNanoUsd) ?? "",
  };
}

const KINDS = [
  { value: "daily", label: "One day" },
  { value: "custom", label: `Up to ${OFFERING_DAYS.max} days` },
] as const;

/** Adds an offering; `like` is the offering it starts as a copy of. */
function NewOffering({ open, onClose, like, timeZone }: DialogState & { like: Offering | null; timeZone: string }) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  const form = useForm({
    first: draftOf(like, timeZone),
    wrong: wrongIn,
    send: async (draft) => {
      const added = await ask(api.admin.offerings.post(bodyOf(draft), sentOnce(formKey)));
      await client.invalidateQueries({ queryKey: OFFERINGS_KEY });
      return added;
    },
    onSent: ({ name }) => {
      toast.done(`${name} is on sale.`);
      onClose();
    },
  });
  const { error: zoneError, ...zone } = form.field("timeZone");
  return (
    <FormDialog form={form} open={open} onClose={onClose} title="New offering" size="lg" submitLabel="Put on sale">
      <div className="grid gap-4 [&_input]:scroll-mt-40">
        <Sentence draft={form.values} />
        <div className="grid items-start gap-4 sm:grid-cols-2">
          <TextField
            label="Name"
            hint="Customers see it."
            required
            {...form.field("name")}
            maxLength={OFFERING_NAME_CHARS_MAX}
          />
          <DollarField
            label="Wholesale price"
            hint="What a reseller pays for one."
            required
            {...form.field("wholesaleNanoUsd")}
          />
        </div>
        <DayFields form={form} />
        <TotalFields form={form} />
        <Field
          label="Time zone"
          hint="Days begin at its midnight."
          error={zoneError}
          className="sm:max-w-[calc(50%-0.5rem)]"
        >
          <Combobox {...zone} options={zonesWith(timeZone)} />
        </Field>
        <ModelsField {...form.field("modelIds")} />
      </div>
    </FormDialog>
  );
}

type OfferingForm = Form<Draft, keyof Draft>;

/** How long it lasts, how much a day, and whether unused requests stay. */
function DayFields({ form }: { form: OfferingForm }) {
  const { kind, carryover } = form.values;
  const daily = OFFERING_DAILY_REQUESTS[kind];
  return (
    <>
      <Segmented
        label="How long"
        value={kind}
        onValue={(next) => form.set({ kind: next })}
        options={KINDS}
        className="justify-self-start"
      />
      <div className="grid items-start gap-4 sm:grid-cols-2">
        <CountField
          label="Requests a day"
          hint={`${formatCount(daily.min)} to ${formatCount(daily.max)}`}
          required
          {...form.field("dailyLimit")}
        />
        {kind === "custom" && (
          <CountField
            label="Days"
            hint={`${OFFERING_DAYS.min} to ${OFFERING_DAYS.max}`}
            required
            {...form.field("days")}
          />
        )}
      </div>
      {kind === "custom" && (
        <Checkbox
          label="Carryover"
          hint="Requests that are not used on one day stay usable on the next days."
          checked={carryover}
          onValue={(isOn) => form.set({ carryover: isOn })}
        />
      )}
    </>
  );
}

function TotalFields({ form }: { form: OfferingForm }) {
  return (
    <div className="grid items-start gap-4 border-t border-line pt-4 sm:grid-cols-2">
      <CountField
        label="Requests in all"
        optional
        hint="If empty, the requests of all days."
        {...form.field("totalLimit")}
        placeholder={allOf(form.values)}
      />
      <CountField label="Tokens in all" optional hint="If empty, no token limit." {...form.field("tokenLimit")} />
    </div>
  );
}

function ModelsField(field: {
  value: string[] | null;
  onValue: (modelIds: string[] | null) => void;
  error: string | null;
}) {
  const models = useQuery({
    queryKey: ["admin", "models", "names"],
    queryFn: () => ask(api.admin.models.get({ query: { limit: MODELS_PAGE_MAX } })),
  });
  return (
    <CheckboxList
      label="Models"
      allLabel="All models, new ones too"
      {...field}
      options={(models.data?.models ?? []).map(({ id, enabled }) => ({
        value: id,
        label: id,
        ...(!enabled && { hint: "Off now" }),
      }))}
    />
  );
}

/** The requests of all days together; empty while the numbers cannot be read. */
function allOf(draft: Draft): string {
  const { days, dailyLimit } = readDraft(draft);
  return days && dailyLimit ? formatCount(days * dailyLimit) : "";
}

/** The offering in words, updated while it is typed; "…" while a number cannot be read. */
function Sentence({ draft }: { draft: Draft }) {
  const { days, dailyLimit, totalLimit, tokenLimit, carryover } = readDraft(draft);
  const wrong = wrongIn(draft);
  const isReadable = !wrong.days && !wrong.dailyLimit && !wrong.totalLimit && !wrong.tokenLimit;
  const price = wrong.wholesaleNanoUsd === null ? parseUsd(draft.wholesaleNanoUsd) : null;
  const all = (days ?? 0) * (dailyLimit ?? 0);
  return (
    // Sticky, so that it is visible while the fields below are filled in.
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
    ...(days === 1
      ? []
      : [carryover ? "Unused requests stay usable." : "Unused requests are lost at the end of the day."]),
    `Days begin at 00:00 ${formatZone(draft.timeZone)}.`,
    ...(price === null ? [] : [`A reseller pays ${formatMoney(price)} for it.`]),
  ];
}

/** Every zone that the browser knows, and the one of the service. */
function zonesWith(zone: string) {
  const zones = new Set(["UTC", zone, ...Intl.supportedValuesOf("timeZone")]);
  return [...zones].map((value) => ({ value, label: value.replaceAll("_", " ") }));
}
