import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Columns2, SlidersHorizontal } from "lucide-react";
import { type ReactNode, useId, useState } from "react";
import { formatPicoUsd } from "../../format.ts";
import { checkCount } from "../../shared/typed_numbers.ts";
import { Button } from "../../ui/buttons.tsx";
import { Combobox } from "../../ui/combobox.tsx";
import { cx } from "../../ui/cx.ts";
import { CountField, Field, NativeSelect, TextArea } from "../../ui/fields.tsx";
import { ENDPOINTS } from "./exchanges.ts";
import { type Choice, KINDS, type Kind, type Offer, type Offers } from "./models.ts";
import { setPlayground, usePlayground } from "./state.ts";

/** The settings of the playground: model and key; for a chat also endpoint, temperature, max tokens and system prompt. */

const TEMPERATURE_MAX = 2;
const TOKENS_MAX = 2_000_000_000;
const SYSTEM_CHARS_MAX = 100_000;

/** Beside the conversation on a wide window; behind a button above it on a narrow one. */
export function SettingsPanel({ summary, children }: { summary: string; children: ReactNode }) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  return (
    <section
      aria-label={t`Settings`}
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
      <Field label={t`Model`} hint={model && <BillingHint model={model} kind={kind} />}>
        <Combobox
          value={model?.id ?? null}
          onValue={(id) => setPlayground({ [KINDS[kind].saved]: id })}
          options={models.map(optionOf)}
          placeholder={models.length === 0 ? t`None available` : t`Choose…`}
        />
      </Field>
      {kind === "chat" && <OtherModel choice={choice} />}
      <Field label={t`Key`}>
        <NativeSelect
          value={keyId}
          onValue={(next) => setPlayground({ keyId: next })}
          options={[
            { value: "", label: t`The newest key that can be used` },
            ...offers.keys.map((key) => ({
              value: String(key.keyId),
              label: key.name,
              hint: key.mode === "payg" ? t`balance` : t`package`,
            })),
          ]}
        />
      </Field>
    </>
  );
}

function optionOf({ id, name }: Offer) {
  return { value: id, label: id, ...(name !== id && { hint: name }) };
}

/** A second model, whose answers stand beside those of the first. */
function OtherModel({ choice: { models, other } }: { choice: Choice }) {
  const [isChoosing, setChoosing] = useState(false);
  if (other === undefined && !isChoosing) {
    return (
      <Button
        icon={Columns2}
        disabled={models.length === 0}
        onClick={() => setChoosing(true)}
        className="justify-self-start"
      >
        <Trans>Compare with another model</Trans>
      </Button>
    );
  }
  const end = () => {
    setChoosing(false);
    setPlayground({ otherModel: "" });
  };
  return (
    <Field
      label={t`Second model`}
      hint={other && <BillingHint model={other} kind="chat" />}
      aside={
        <button type="button" onClick={end} className="min-h-6 text-accent-text underline underline-offset-2">
          {t`Do not compare`}
        </button>
      }
    >
      <Combobox
        value={other?.id ?? null}
        onValue={(id) => setPlayground({ otherModel: id })}
        options={models.map(optionOf)}
      />
    </Field>
  );
}

/** "1 request each, from Starter." */
function BillingHint({ model: { pays, packageName, prices }, kind }: { model: Offer; kind: Kind }) {
  if (pays === "package")
    return packageName === null ? t`1 request each, from the package.` : t`1 request each, from ${packageName}.`;
  if (kind === "images") return t`Charged to the balance, by size.`;
  if (prices === null) return t`The balance cannot pay for this model: it has no price.`;
  const [input, output] = [formatPicoUsd(prices.inputPicoUsd), formatPicoUsd(prices.outputPicoUsd)];
  return kind === "embeddings"
    ? t`${input}/M in, charged to the balance.`
    : t`${input}/M in, ${output}/M out, charged to the balance.`;
}

/** The error of a typed temperature, or null. Empty: the model's default. */
export function wrongTemperature(typed: string): string | null {
  if (typed.trim() === "") return null;
  const value = /^\d*\.?\d+$/.test(typed.trim()) ? Number(typed) : Number.NaN;
  return value >= 0 && value <= TEMPERATURE_MAX ? null : t`Enter a number from 0 to ${{ max: TEMPERATURE_MAX }}.`;
}

/** The error of a typed limit, or null. Empty: the model's default. */
export function wrongMaxTokens(typed: string): string | null {
  return checkCount(typed, { min: 1, max: TOKENS_MAX, optional: true });
}

export function ChatFields() {
  const temperature = usePlayground((state) => state.temperature);
  const maxTokens = usePlayground((state) => state.maxTokens);
  const system = usePlayground((state) => state.system);
  const endpoint = usePlayground((state) => state.endpoint);
  return (
    <>
      <Field label={t`Endpoint`} hint={t`The same answer and cost by either.`}>
        <NativeSelect
          value={endpoint}
          onValue={(next) => setPlayground({ endpoint: ENDPOINTS.find((one) => one === next) ?? "chat" })}
          options={[
            { value: "chat", label: t`Chat completions` },
            { value: "responses", label: t`Responses` },
          ]}
        />
      </Field>
      <div className="grid grid-cols-2 gap-4">
        <CountField
          label={t`Temperature`}
          hint={t`0 to ${{ max: TEMPERATURE_MAX }}`}
          value={temperature}
          onValue={(next) => setPlayground({ temperature: next })}
          error={wrongTemperature(temperature)}
          inputMode="decimal"
          placeholder={t`Default`}
        />
        <CountField
          label={t`Max tokens`}
          hint={t`Of the answer`}
          value={maxTokens}
          onValue={(next) => setPlayground({ maxTokens: next })}
          error={wrongMaxTokens(maxTokens)}
          placeholder={t`Default`}
        />
      </div>
      <Field label={t`System prompt`} optional hint={t`Sent before the conversation.`}>
        <TextArea
          value={system}
          onValue={(next) => setPlayground({ system: next })}
          rows={4}
          maxLength={SYSTEM_CHARS_MAX}
          placeholder={t`Answer in one short paragraph.`}
        />
      </Field>
    </>
  );
}
