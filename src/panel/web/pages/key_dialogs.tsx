import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { ApiError, api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { formatMoney, formatOf, formatZone, parseUsd, toUsdInput } from "../format.ts";
import { nowMs } from "../ui/clock.ts";
import { Button, CheckboxList, Field, NativeSelect, RadioList, TextInput } from "../ui/controls.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Banner, Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { checkCount, checkUsd, readCount, useForm } from "./admin_form.tsx";
import { useRefresh } from "./forms.ts";
import { showSecret } from "./key_secret.tsx";
import { type OwnKey, useKeyOptions } from "./own.ts";

/** The dialogs about a key: create, name and ceilings, rotate. What becomes of a new secret stands in key_secret.tsx. */

const NAME_CHARS_MAX = 100;
const UNITS_MAX = 30_000_000;
const SPEND_MAX_USD = 9_000_000;
const DAY_MS = 86_400_000;
const HOUR_SECONDS = 3_600;
const SENT_BEFORE =
  "This was sent before, and its answer got lost. If the new key stands in the list, revoke it and create another.";

type DialogState = { open: boolean; onClose: () => void };
type Options = NonNullable<ReturnType<typeof useKeyOptions>["data"]>;
type Mode = "package" | "payg";

export function CreateKeyDialog({ open, onClose }: DialogState) {
  const formKey = useIdempotencyKey();
  const options = useKeyOptions();
  const [name, setName] = useState("");
  const [chosenMode, setMode] = useState<Mode | null>(null);
  const [modelIds, setModelIds] = useState<string[] | null>(null);
  const [hosts, setHosts] = useState<string[] | null>(null);
  const expiry = useExpiry();
  const ceilings = useCeilings({ dailyUnitsMax: null, dailySpendMaxNanoUsd: null });
  const mode = chosenMode ?? (options.data ? likelyMode(options.data) : "package");
  const form = useForm({
    wrong: {
      name: name.trim() === "" ? "A name by which you know it again." : null,
      mode: null,
      modelIds: modelIds?.length === 0 ? "Choose a model, or allow all." : null,
      hosts: hosts?.length === 0 ? "Choose a host, or allow all." : null,
      expiresAt: expiry.wrong,
      ...ceilings.wrong,
    },
    send: () => {
      const wanted = { name, mode, modelIds, hosts, expiresAt: expiry.read(), ...ceilings.read() };
      return unlessSentBefore(ask(api.keys.post(wanted, sentOnce(formKey))));
    },
    // The list is asked for when the secret is safe.
    onSent: ({ secret, key }) => {
      showSecret({ ...key, secret, title: `Key ${key.name} is ready` });
      onClose();
    },
  });
  const { errorOf } = form;
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      mayClose={() => !form.isPending}
      title="Create key"
      description="A key lets your server call the API."
      onSubmit={form.submit}
      footer={<Buttons onClose={onClose} isPending={form.isPending} label="Create key" />}
    >
      <Field label="Name" hint="Where it will be used: ci, website, my laptop." error={errorOf("name")} required>
        <TextInput value={name} onValue={setName} maxLength={NAME_CHARS_MAX} />
      </Field>
      <Loaded query={options} skeleton={<Skeleton className="h-48" />}>
        {(data) => (
          <>
            <RadioList
              label="Pays with"
              value={mode}
              onValue={setMode}
              options={modeOptions(data)}
              error={errorOf("mode")}
            />
            <div className="grid border-y border-line">
              <More label="Models" value={scopeWords(modelIds, "model")} isWrong={errorOf("modelIds") !== null}>
                <CheckboxList
                  label="Models it may use"
                  allLabel="All models, new ones too"
                  value={modelIds}
                  onValue={setModelIds}
                  options={data.models.map((model) => ({ value: model.id, label: model.id }))}
                  error={errorOf("modelIds")}
                />
              </More>
              <More label="Hosts" value={scopeWords(hosts, "host")} isWrong={errorOf("hosts") !== null}>
                <CheckboxList
                  label="Hosts it may be used on"
                  allLabel="All hosts, new ones too"
                  value={hosts}
                  onValue={setHosts}
                  options={data.hosts.map(({ host, label }) => ({ value: host, label: host, hint: label }))}
                  error={errorOf("hosts")}
                />
              </More>
              <More label="Ends" value={expiry.words} isWrong={errorOf("expiresAt") !== null}>
                <ExpiryFields expiry={expiry} error={errorOf("expiresAt")} />
              </More>
              <More
                label="Daily ceilings"
                value={ceilings.words}
                isWrong={errorOf("dailyUnitsMax") !== null || errorOf("dailySpendMaxNanoUsd") !== null}
              >
                <CeilingFields ceilings={ceilings} errorOf={errorOf} zone={data.timeZone} />
              </More>
            </div>
          </>
        )}
      </Loaded>
      {form.problem}
    </Dialog>
  );
}

/** What could pay now; with both, the package. */
function likelyMode({ modes }: Options): Mode {
  return modes.find(({ canPay }) => canPay)?.mode ?? "package";
}

function modeOptions({ modes }: Options) {
  return modes.map(({ mode, canPay, packageName }) =>
    mode === "package"
      ? {
          value: mode,
          label: "Package",
          hint: packageName
            ? `${packageName}${canPay ? "" : ", used up for now"}. Each request counts as one.`
            : "No package is active now; the key works as soon as one is.",
        }
      : {
          value: mode,
          label: "Balance",
          hint: canPay
            ? "Each request costs what its tokens cost."
            : "Cannot pay now: it is empty, or not switched on for requests.",
        },
  );
}

function scopeWords(chosen: readonly string[] | null, one: string): string {
  if (chosen === null) return "all";
  return chosen.length === 1 ? (chosen[0] ?? "") : formatOf(chosen.length, one);
}

/** One line that opens: most keys need none of it. It opens by itself when something in it is wrong. */
function More({
  label,
  value,
  isWrong,
  children,
}: {
  label: string;
  value: string;
  isWrong: boolean;
  children: ReactNode;
}) {
  const [isOpen, setOpen] = useState(false);
  return (
    <details
      open={isOpen || isWrong}
      onToggle={(event) => setOpen(event.currentTarget.open)}
      className="group border-b border-line last:border-0"
    >
      <summary className="flex min-h-(--row) items-center gap-2 rounded-sm text-14 -outline-offset-2">
        <ChevronRight
          size={16}
          aria-hidden
          className="flex-none text-ink-3 transition-transform group-open:rotate-90"
        />
        {label}: <span className="min-w-0 truncate text-ink-2">{value}</span>
      </summary>
      <div className="pt-1 pb-4 pl-6">{children}</div>
    </details>
  );
}

const EXPIRIES = [
  { value: "never", label: "Never" },
  { value: "7", label: "In 7 days" },
  { value: "30", label: "In 30 days" },
  { value: "90", label: "In 90 days" },
  { value: "365", label: "In a year" },
  { value: "day", label: "After a day of my choice" },
] as const;
type ExpiryChoice = (typeof EXPIRIES)[number]["value"];

function useExpiry() {
  const [choice, setChoice] = useState<ExpiryChoice>("never");
  const [day, setDay] = useState("");
  // The chosen day still counts, to its end where one is.
  const chosen = Date.parse(`${day}T23:59:59`);
  return {
    choice,
    setChoice,
    day,
    setDay,
    words:
      choice === "day"
        ? `after ${day || "…"}`
        : (EXPIRIES.find(({ value }) => value === choice)?.label ?? "").toLowerCase(),
    wrong: choice === "day" && !(chosen > nowMs()) ? "A day from today on." : null,
    read: () => {
      if (choice === "never") return null;
      const endsMs = choice === "day" ? chosen : nowMs() + Number(choice) * DAY_MS;
      return new Date(endsMs).toISOString();
    },
  };
}

function ExpiryFields({ expiry, error }: { expiry: ReturnType<typeof useExpiry>; error: string | null }) {
  const isDay = expiry.choice === "day";
  return (
    <div className="grid gap-3 sm:grid-cols-2">
      <Field label="The key ends" error={!isDay && error}>
        <NativeSelect value={expiry.choice} onValue={expiry.setChoice} options={EXPIRIES} />
      </Field>
      {isDay && (
        <Field label="Last day" error={error}>
          <TextInput type="date" value={expiry.day} onValue={expiry.setDay} />
        </Field>
      )}
    </div>
  );
}

type Ceilings = Pick<OwnKey, "dailyUnitsMax" | "dailySpendMaxNanoUsd">;

function useCeilings(first: Ceilings) {
  const [units, setUnits] = useState(first.dailyUnitsMax === null ? "" : String(first.dailyUnitsMax));
  const [usd, setUsd] = useState(first.dailySpendMaxNanoUsd === null ? "" : toUsdInput(first.dailySpendMaxNanoUsd));
  const wrong = {
    dailyUnitsMax: checkCount(units, { min: 1, max: UNITS_MAX, optional: true }),
    dailySpendMaxNanoUsd: wrongSpend(usd),
  };
  const read = () => ({
    dailyUnitsMax: readCount(units),
    dailySpendMaxNanoUsd: usd.trim() === "" ? null : parseUsd(usd),
  });
  return { units, setUnits, usd, setUsd, wrong, read, words: ceilingWords(units, usd, wrong) };
}

function wrongSpend(usd: string): string | null {
  const wrong = checkUsd(usd, { maxUsd: SPEND_MAX_USD, decimals: 9, optional: true });
  return wrong ?? (usd.trim() !== "" && parseUsd(usd) === "0" ? "More than $0, or nothing for no ceiling." : null);
}

function ceilingWords(units: string, usd: string, wrong: Record<keyof Ceilings, string | null>): string {
  const count = readCount(units);
  const nanoUsd = parseUsd(usd);
  const parts = [
    wrong.dailyUnitsMax === null && count !== null && formatOf(count, "request"),
    wrong.dailySpendMaxNanoUsd === null && nanoUsd !== null && formatMoney(nanoUsd),
  ].filter(Boolean);
  return parts.length === 0 ? "none" : parts.join(", ");
}

function CeilingFields({
  ceilings,
  errorOf,
  zone,
}: {
  ceilings: ReturnType<typeof useCeilings>;
  errorOf: (name: keyof Ceilings) => string | null;
  zone: string;
}) {
  return (
    <div className="grid gap-3">
      <div className="grid gap-3 sm:grid-cols-2">
        <Field label="Requests a day" optional error={errorOf("dailyUnitsMax")}>
          <TextInput value={ceilings.units} onValue={ceilings.setUnits} inputMode="numeric" className="figures" />
        </Field>
        <Field label="Spending a day" optional error={errorOf("dailySpendMaxNanoUsd")}>
          <TextInput
            value={ceilings.usd}
            onValue={ceilings.setUsd}
            inputMode="decimal"
            before="$"
            className="figures"
          />
        </Field>
      </div>
      <p className="text-12 text-ink-3">
        What the key may use of the package and spend of the balance in a day, {formatZone(zone)} time. More is refused.
      </p>
    </div>
  );
}

/** Name and ceilings, which can change; the rest of a key is fixed when it is made. */
export function EditKeyDialog({ open, onClose, row }: DialogState & { row: OwnKey }) {
  const refresh = useRefresh();
  const [name, setName] = useState(row.name);
  const ceilings = useCeilings(row);
  const form = useForm({
    wrong: { name: name.trim() === "" ? "A name by which you know it again." : null, ...ceilings.wrong },
    send: async () => {
      await ask(api.keys({ id: row.keyId }).patch({ name, ...ceilings.read() }));
      await refresh();
    },
    onSent: () => {
      toast.done(`Key ${name.trim()} is saved.`);
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      mayClose={() => !form.isPending}
      title={`Key ${row.name}`}
      description="How it pays, and what it may use, is fixed when a key is made."
      onSubmit={form.submit}
      footer={<Buttons onClose={onClose} isPending={form.isPending} label="Save" />}
    >
      <Field label="Name" error={form.errorOf("name")} required>
        <TextInput value={name} onValue={setName} maxLength={NAME_CHARS_MAX} />
      </Field>
      <CeilingFields ceilings={ceilings} errorOf={form.errorOf} zone={row.timeZone} />
      {form.problem}
    </Dialog>
  );
}

const OVERLAPS = [
  { value: "0", label: "Not at all", hint: "Requests with the old key get 401 at once." },
  { value: String(HOUR_SECONDS), label: "1 hour" },
  { value: String(24 * HOUR_SECONDS), label: "24 hours" },
  { value: String(7 * 24 * HOUR_SECONDS), label: "7 days" },
] as const;
type Overlap = (typeof OVERLAPS)[number]["value"];

/** A new secret with the same settings; the old one ends when the new one has had time to get everywhere. */
export function RotateKeyDialog({ open, onClose, row }: DialogState & { row: OwnKey }) {
  const formKey = useIdempotencyKey();
  const [overlap, setOverlap] = useState<Overlap>(String(24 * HOUR_SECONDS));
  const words = OVERLAPS.find(({ value }) => value === overlap)?.label ?? "";
  const form = useForm({
    wrong: { overlapSeconds: null },
    send: () =>
      unlessSentBefore(
        ask(api.keys({ id: row.keyId }).rotate.post({ overlapSeconds: Number(overlap) }, sentOnce(formKey))),
      ),
    onSent: ({ secret, key }) => {
      const old = overlap === "0" ? "the old one has ended" : `the old one works for ${words} more`;
      showSecret({ ...key, secret, title: `New key ${key.name}: ${old}` });
      onClose();
    },
  });
  return (
    <Dialog
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      mayClose={() => !form.isPending}
      title={`Rotate key ${row.name}?`}
      description="You get a new key with the same settings, and exchange the old one for it wherever it is used."
      onSubmit={form.submit}
      footer={<Buttons onClose={onClose} isPending={form.isPending} label="Rotate key" />}
    >
      <RadioList
        label="The old key goes on working for"
        value={overlap}
        onValue={setOverlap}
        options={OVERLAPS}
        error={form.errorOf("overlapSeconds")}
      />
      {row.requestsLastDay > 0 && (
        <Banner tone={overlap === "0" ? "warn" : "neutral"}>
          {formatOf(row.requestsLastDay, "request")} used it in the last 24 h.
          {overlap === "0" && ` The next ${row.requestsLastDay === 1 ? "one" : "ones"} will be refused.`}
        </Banner>
      )}
      {form.problem}
    </Dialog>
  );
}

function Buttons({ onClose, isPending, label }: { onClose: () => void; isPending: boolean; label: string }) {
  return (
    <>
      <Button onClick={onClose} disabled={isPending}>
        Cancel
      </Button>
      <Button type="submit" variant="primary" pending={isPending}>
        {label}
      </Button>
    </>
  );
}

/** A second sending finds the work done, and its secret gone with the first answer. */
async function unlessSentBefore<T>(sent: Promise<T>): Promise<T> {
  try {
    return await sent;
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "idempotency_conflict") throw error;
    const { status, code, requestId } = error;
    throw new ApiError(SENT_BEFORE, { status, code, requestId });
  }
}
