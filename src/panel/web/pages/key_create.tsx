import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { formatOf } from "../format.ts";
import { CheckboxList, RadioList } from "../ui/choices.tsx";
import { nowMs } from "../ui/clock.ts";
import { Dialog } from "../ui/dialog.tsx";
import { Field, NativeSelect, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { useKeyOptions } from "./account_queries.ts";
import {
  Buttons,
  CeilingFields,
  type Ceilings,
  type DialogState,
  NAME_CHARS_MAX,
  unlessSentBefore,
  useCeilings,
} from "./key_dialogs.tsx";
import { showSecret } from "./key_secret.tsx";

/** A new key: its name and what pays are asked for, the rest is folded away. What becomes of its secret: key_secret.tsx. */

const DAY_MS = 86_400_000;

type Options = NonNullable<ReturnType<typeof useKeyOptions>["data"]>;
type Mode = "package" | "payg";
type LimitName = "modelIds" | "hosts" | "expiresAt" | keyof Ceilings;

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
            <Limits options={data} {...{ modelIds, setModelIds, hosts, setHosts, expiry, ceilings, errorOf }} />
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

/** What most keys need none of: each folded into a line that says how it stands. */
function Limits({
  options,
  modelIds,
  setModelIds,
  hosts,
  setHosts,
  expiry,
  ceilings,
  errorOf,
}: {
  options: Options;
  modelIds: string[] | null;
  setModelIds: (modelIds: string[] | null) => void;
  hosts: string[] | null;
  setHosts: (hosts: string[] | null) => void;
  expiry: ReturnType<typeof useExpiry>;
  ceilings: ReturnType<typeof useCeilings>;
  errorOf: (name: LimitName) => string | null;
}) {
  const isWrong = (...names: LimitName[]) => names.some((name) => errorOf(name) !== null);
  return (
    <div className="grid border-y border-line">
      <More label="Models" value={scopeWords(modelIds, "model")} isWrong={isWrong("modelIds")}>
        <CheckboxList
          label="Models it may use"
          allLabel="All models, new ones too"
          value={modelIds}
          onValue={setModelIds}
          options={options.models.map(({ id }) => ({ value: id, label: id }))}
          error={errorOf("modelIds")}
        />
      </More>
      <More label="Hosts" value={scopeWords(hosts, "host")} isWrong={isWrong("hosts")}>
        <CheckboxList
          label="Hosts it may be used on"
          allLabel="All hosts, new ones too"
          value={hosts}
          onValue={setHosts}
          options={options.hosts.map(({ host, label }) => ({ value: host, label: host, hint: label }))}
          error={errorOf("hosts")}
        />
      </More>
      <More label="Ends" value={expiry.words} isWrong={isWrong("expiresAt")}>
        <ExpiryFields expiry={expiry} error={errorOf("expiresAt")} />
      </More>
      <More label="Daily ceilings" value={ceilings.words} isWrong={isWrong("dailyUnitsMax", "dailySpendMaxNanoUsd")}>
        <CeilingFields ceilings={ceilings} errorOf={errorOf} zone={options.timeZone} />
      </More>
    </div>
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
