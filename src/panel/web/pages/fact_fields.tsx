import {
  DIALECT_NAMES,
  DIALECTS,
  type DialectName,
  FACT_CHOICE_NAMES,
  FACT_CHOICES,
  type FactChoice,
  type Facts,
  type FactsOverride,
  FIRST_TOKEN_SECONDS,
} from "../../../catalog/dialects.ts";
import { formatCount } from "../format.ts";
import { CollapsedField } from "../ui/collapsed.tsx";
import { CountField, Field, NativeSelect } from "../ui/fields.tsx";
import { checkCount, readCount } from "./typed_numbers.ts";

/** The fields of facts that are different for one provider, or for one route. Parameters that are not sent have a field of their own. */

/** As typed; "": as the dialect says. */
export type TypedFacts = Record<FactChoice | "firstTokenSeconds", string>;

export function typedFacts(facts: FactsOverride): TypedFacts {
  const choices = FACT_CHOICE_NAMES.map((name) => [name, facts[name] ?? ""] as const);
  const seconds = facts.firstTokenSeconds ?? null;
  return {
    ...(Object.fromEntries(choices) as Record<FactChoice, string>),
    firstTokenSeconds: seconds === null ? "" : String(seconds),
  };
}

export function wrongFacts({ firstTokenSeconds }: TypedFacts): string | null {
  return checkCount(firstTokenSeconds, { ...FIRST_TOKEN_SECONDS, optional: true });
}

/** What is sent: null resets a fact. */
export function factsToSend(typed: TypedFacts): Record<string, string | number | null> {
  const choices = FACT_CHOICE_NAMES.map((name) => [name, typed[name] === "" ? null : typed[name]] as const);
  return { ...Object.fromEntries(choices), firstTokenSeconds: readCount(typed.firstTokenSeconds) };
}

/** `says`: the facts that apply where nothing is set; undefined: not known before it is saved. */
export function FactFields({
  typed,
  says,
  error,
  onChange,
}: {
  typed: TypedFacts;
  says: Facts | undefined;
  error: string | null;
  onChange: (typed: TypedFacts) => void;
}) {
  const set = Object.values(typed).filter((value) => value !== "").length;
  return (
    <CollapsedField
      label="What the provider takes"
      value={set === 0 ? "as its dialect says" : `${formatCount(set)} set here`}
      isWrong={error !== null}
    >
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {FACT_CHOICE_NAMES.map((name) => (
          <Field key={name} label={FACT_CHOICES[name].label} hint={FACT_CHOICES[name].hint}>
            <NativeSelect
              value={typed[name]}
              onValue={(value) => onChange({ ...typed, [name]: value })}
              options={[
                { value: "", label: says === undefined ? "As the dialect says" : `As the dialect says: ${says[name]}` },
                ...FACT_CHOICES[name].values.map((value) => ({ value, label: value })),
              ]}
            />
          </Field>
        ))}
        <CountField
          label="Silent before the first token"
          hint="In seconds. Reasoning models need minutes."
          optional
          value={typed.firstTokenSeconds}
          onValue={(firstTokenSeconds) => onChange({ ...typed, firstTokenSeconds })}
          error={error}
        />
      </div>
    </CollapsedField>
  );
}

/** Names separated by spaces or commas. */
export function namesIn(typed: string): string[] {
  return typed.split(/[\s,]+/).filter((name) => name !== "");
}

export function dialectTitle(dialect: DialectName): string {
  return DIALECTS[dialect].title;
}

export const DIALECT_OPTIONS = DIALECT_NAMES.map((value) => ({ value, label: DIALECTS[value].title }));
