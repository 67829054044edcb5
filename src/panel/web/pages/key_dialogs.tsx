import { useState } from "react";
import { ApiError, api, ask, sentOnce, useIdempotencyKey } from "../api.ts";
import { formatMoney, formatOf, formatZone, parseUsd, toUsdInput } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { RadioList } from "../ui/choices.tsx";
import { Dialog } from "../ui/dialog.tsx";
import { Field, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Banner } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import type { OwnKey } from "./account_queries.ts";
import { showSecret } from "./key_secret.tsx";
import { useRefresh } from "./page_hooks.ts";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** The dialogs about a key that is there: name and ceilings, rotate; and what creating one has in common with them. */

export const NAME_CHARS_MAX = 100;
const UNITS_MAX = 30_000_000;
const SPEND_MAX_USD = 9_000_000;
const HOUR_SECONDS = 3_600;
const SENT_BEFORE =
  "This was sent before, and its answer got lost. If the new key stands in the list, revoke it and create another.";

export type DialogState = { open: boolean; onClose: () => void };

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
      {row.requestsLastDay !== null && row.requestsLastDay > 0 && (
        <Banner tone={overlap === "0" ? "warn" : "neutral"}>
          {formatOf(row.requestsLastDay, "request")} used it in the last 24 h.
          {overlap === "0" && ` The next ${row.requestsLastDay === 1 ? "one" : "ones"} will be refused.`}
        </Banner>
      )}
      {form.problem}
    </Dialog>
  );
}

export type Ceilings = Pick<OwnKey, "dailyUnitsMax" | "dailySpendMaxNanoUsd">;

export function useCeilings(first: Ceilings) {
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

export function CeilingFields({
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

export function Buttons({ onClose, isPending, label }: { onClose: () => void; isPending: boolean; label: string }) {
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
export async function unlessSentBefore<T>(sent: Promise<T>): Promise<T> {
  try {
    return await sent;
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "idempotency_conflict") throw error;
    const { status, code, requestId } = error;
    throw new ApiError(SENT_BEFORE, { status, code, requestId });
  }
}
