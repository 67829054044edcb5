import { SlidersHorizontal } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { formatMicroUsd, formatPrice } from "../format.ts";
import { Button } from "../ui/buttons.tsx";
import { Combobox } from "../ui/combobox.tsx";
import { cx } from "../ui/cx.ts";
import { Field, NativeSelect, TextArea, TextInput } from "../ui/fields.tsx";
import type { Offer, Offers } from "./playground.tsx";
import { setPlayground, usePlayground } from "./playground_state.ts";
import { checkCount } from "./typed_numbers.ts";

/** What the playground asks with: model, key, and for a chat its temperature, length and system prompt. Who pays, and how much. */

const TEMPERATURE_MAX = 2;
const TOKENS_MAX = 2_000_000_000;
const SYSTEM_CHARS_MAX = 100_000;

export type Kind = "chat" | "images";
export type Choice = {
  /** The models that this key, or any, may be asked for. */
  models: readonly Offer[];
  /** undefined: there is none. */
  model: Offer | undefined;
  /** "": the server's own choice. */
  keyId: string;
  /** What pays, and by which price. */
  pays: "package" | "balance";
};

/** What is chosen, as far as it is still there to choose. */
export function useChoice({ models, keys }: Offers, kind: Kind): Choice {
  const wantedModel = usePlayground((state) => (kind === "chat" ? state.chatModel : state.imageModel));
  const wantedKey = usePlayground((state) => state.keyId);
  const key = keys.find(({ keyId }) => String(keyId) === wantedKey);
  const fitting = models.filter(
    ({ id, modality }) =>
      (kind === "chat" ? modality !== "image" : modality !== "text") && (key?.modelIds?.includes(id) ?? true),
  );
  // A model for pictures alone goes before one that may draw as well.
  const first = kind === "chat" ? fitting[0] : (fitting.find(({ modality }) => modality === "image") ?? fitting[0]);
  const model = fitting.find(({ id }) => id === wantedModel) ?? first;
  return {
    models: fitting,
    model,
    keyId: key ? wantedKey : "",
    pays: key?.mode === "payg" ? "balance" : (model?.pays ?? "package"),
  };
}

/** On a wide window beside the conversation, on a narrow one behind a button above it. */
export function SettingsPanel({ summary, children }: { summary: string; children: ReactNode }) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  return (
    <section
      aria-label="Settings"
      className="lg:sticky lg:top-[calc(var(--bar)+2rem)] lg:col-start-2 lg:row-start-1 lg:self-start"
    >
      <Button
        icon={SlidersHorizontal}
        aria-expanded={isOpen}
        aria-controls={id}
        onClick={() => setOpen(!isOpen)}
        className="w-full min-w-0 justify-start lg:hidden"
      >
        <span className="truncate">{summary}</span>
      </Button>
      <div id={id} className={cx("grid gap-4 max-lg:mt-3 lg:grid", isOpen ? "grid" : "max-lg:hidden")}>
        {children}
      </div>
    </section>
  );
}

export function ModelAndKey({ offers, choice, kind }: { offers: Offers; choice: Choice; kind: Kind }) {
  const { models, model, keyId } = choice;
  return (
    <>
      <Field label="Model" hint={<Pays choice={choice} kind={kind} />}>
        <Combobox
          value={model?.id ?? null}
          onValue={(id) => setPlayground(kind === "chat" ? { chatModel: id } : { imageModel: id })}
          options={models.map(({ id, name }) => ({ value: id, label: id, ...(name !== id && { hint: name }) }))}
          placeholder={models.length === 0 ? "None for this" : "Choose…"}
        />
      </Field>
      <Field label="Key">
        <NativeSelect
          value={keyId}
          onValue={(next) => setPlayground({ keyId: next })}
          options={[
            { value: "", label: "The latest that fits" },
            ...offers.keys.map((key) => ({
              value: String(key.keyId),
              label: key.name,
              hint: key.mode === "payg" ? "by balance" : "by package",
            })),
          ]}
        />
      </Field>
    </>
  );
}

/** "1 request each, paid by Starter." */
function Pays({ choice: { model, pays }, kind }: { choice: Choice; kind: Kind }) {
  if (model === undefined) return null;
  const { packageName, prices } = model;
  if (pays === "package") return `1 request each, paid by ${packageName ?? "the package"}.`;
  if (kind === "images") return "Paid by the balance, by size.";
  if (prices === null) return "The balance cannot pay: this model has no price.";
  return `${formatPrice(prices.inputMicroUsd)} in, ${formatPrice(prices.outputMicroUsd)} out, paid by the balance.`;
}

/** What one picture costs; null: it cannot be paid like this. */
export function imageCost({ model, pays }: Choice, size: string): string | null {
  if (pays === "package") return "1 request";
  const microUsd = model?.imageSizes.find((each) => each.size === size)?.microUsd ?? null;
  return microUsd === null ? null : formatMicroUsd(microUsd);
}

/** What is wrong with what was typed; null: nothing. Empty means the model's own. */
export function wrongTemperature(typed: string): string | null {
  if (typed.trim() === "") return null;
  const value = /^\d*\.?\d+$/.test(typed.trim()) ? Number(typed) : Number.NaN;
  return value >= 0 && value <= TEMPERATURE_MAX ? null : `From 0 to ${TEMPERATURE_MAX}.`;
}

export function wrongMaxTokens(typed: string): string | null {
  return checkCount(typed, { min: 1, max: TOKENS_MAX, optional: true });
}

export function ChatFields() {
  const temperature = usePlayground((state) => state.temperature);
  const maxTokens = usePlayground((state) => state.maxTokens);
  const system = usePlayground((state) => state.system);
  return (
    <>
      <div className="grid grid-cols-2 gap-4">
        <Field label="Temperature" hint="0 to 2" error={wrongTemperature(temperature)}>
          <TextInput
            value={temperature}
            onValue={(next) => setPlayground({ temperature: next })}
            inputMode="decimal"
            placeholder="Default"
            className="figures"
          />
        </Field>
        <Field label="Max tokens" hint="Of the answer" error={wrongMaxTokens(maxTokens)}>
          <TextInput
            value={maxTokens}
            onValue={(next) => setPlayground({ maxTokens: next })}
            inputMode="numeric"
            placeholder="Default"
            className="figures"
          />
        </Field>
      </div>
      <Field label="System prompt" optional hint="Said before everything else.">
        <TextArea
          value={system}
          onValue={(next) => setPlayground({ system: next })}
          rows={4}
          maxLength={SYSTEM_CHARS_MAX}
          placeholder="You answer in one short paragraph."
        />
      </Field>
    </>
  );
}
