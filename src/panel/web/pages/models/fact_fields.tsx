import { plural, t } from "@lingui/core/macro";
import { i18n } from "#language";
import {
  DIALECT_NAMES,
  DIALECTS,
  type DialectName,
  dialectOfUrl,
  FACT_CHOICE_NAMES,
  FACT_CHOICES,
  type FactChoice,
  type FactName,
  type Facts,
  type FactsOverride,
  FIRST_TOKEN_SECONDS,
  factsOf,
} from "../../../../catalog/dialects.ts";
import { checkCount, readCount } from "../../shared/typed_numbers.ts";
import { CollapsedField } from "../../ui/collapsed.tsx";
import { CountField, Field, FieldError, NativeSelect } from "../../ui/fields.tsx";

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

/** The errors of a form with `facts`, by the server's names. `facts` itself: facts that contradict each other, which the server finds. */
export function wrongFacts({ firstTokenSeconds }: TypedFacts) {
  return {
    facts: null,
    "facts.firstTokenSeconds": checkCount(firstTokenSeconds, { ...FIRST_TOKEN_SECONDS, optional: true }),
  };
}

/** What is sent: null resets a fact. */
export function factsToSend(typed: TypedFacts): Record<string, string | number | null> {
  const choices = FACT_CHOICE_NAMES.map((name) => [name, typed[name] === "" ? null : typed[name]] as const);
  return { ...Object.fromEntries(choices), firstTokenSeconds: readCount(typed.firstTokenSeconds) };
}

/**
 * `says`: the facts that apply where nothing is set; undefined: not known before it is saved. `from`: who says so. `errorOf`: of the form
 * whose `wrong` has `wrongFacts`.
 */
export function FactFields({
  typed,
  from,
  says,
  errorOf,
  onChange,
}: {
  typed: TypedFacts;
  from: "dialect" | "provider";
  says: Facts | undefined;
  errorOf: (name: keyof ReturnType<typeof wrongFacts>) => string | null;
  onChange: (typed: TypedFacts) => void;
}) {
  const set = Object.values(typed).filter((value) => value !== "").length;
  const words = WORDS[from];
  const [error, secondsError] = [errorOf("facts"), errorOf("facts.firstTokenSeconds")];
  return (
    <CollapsedField
      label={t`What the provider takes`}
      value={set === 0 ? words.asSaid : plural(set, { one: "# set here", other: "# set here" })}
      isWrong={error !== null || secondsError !== null}
    >
      <div role="alert" className={error === null ? "" : "pb-4"}>
        {error !== null && <FieldError>{error}</FieldError>}
      </div>
      <div className="grid items-start gap-4 sm:grid-cols-2">
        {FACT_CHOICE_NAMES.map((name) => (
          <Field key={name} label={factLabel(name)} hint={i18n._(FACT_CHOICES[name].hint)}>
            <NativeSelect
              value={typed[name]}
              onValue={(value) => onChange({ ...typed, [name]: value })}
              options={[
                // The value first: it must not be cut off.
                says === undefined
                  ? { value: "", label: words.likeIt }
                  : { value: "", label: says[name], hint: words.byIt },
                ...FACT_CHOICES[name].values.map((value) => ({ value, label: value })),
              ]}
            />
          </Field>
        ))}
        <CountField
          label={SECONDS_LABEL}
          hint={words.seconds}
          optional
          value={typed.firstTokenSeconds}
          onValue={(firstTokenSeconds) => onChange({ ...typed, firstTokenSeconds })}
          error={secondsError}
          placeholder={says?.firstTokenSeconds == null ? "" : String(says.firstTokenSeconds)}
        />
      </div>
    </CollapsedField>
  );
}

/** By who says what applies where nothing is set. */
const WORDS = {
  dialect: {
    asSaid: t`as the dialect says`,
    likeIt: t`As the dialect says`,
    byIt: t`by the dialect`,
    seconds: t`How long a stream may wait for it, in seconds. Reasoning models need minutes. Empty: as the dialect says.`,
  },
  provider: {
    asSaid: t`as the provider says`,
    likeIt: t`As the provider says`,
    byIt: t`by the provider`,
    seconds: t`How long a stream may wait for it, in seconds. Reasoning models need minutes. Empty: as the provider says.`,
  },
} as const;

const SECONDS_LABEL = t`Silence before the first token`;
const DROPPED_LABEL = t`Parameters not sent`;

/** A fact's name for people. */
export function factLabel(name: FactName): string {
  if (name === "firstTokenSeconds") return SECONDS_LABEL;
  return name === "droppedParams" ? DROPPED_LABEL : i18n._(FACT_CHOICES[name].label);
}

/** A fact's value for people: "none" is an empty list, or no limit of its own. */
export function factValue(value: Facts[FactName] | undefined): string {
  return [value ?? []].flat().join(" ") || NO_NAMES;
}

/** What is typed for an empty list, where an empty field means "as the dialect says". */
const NO_NAMES = "none";

/** The provider's list of parameters that are not sent, as typed; "": as the dialect says. */
export function typedDropped({ droppedParams }: FactsOverride): string {
  return droppedParams === undefined ? "" : factValue(droppedParams);
}

/** What is sent of it; null: as the dialect says. */
export function droppedToSend(typed: string): string[] | null {
  const names = namesIn(typed);
  if (names.length === 0) return null;
  return names.join() === NO_NAMES ? [] : names;
}

/** Names separated by spaces or commas. */
export function namesIn(typed: string): string[] {
  return typed.split(/[\s,]+/).filter((name) => name !== "");
}

export function dialectTitle(dialect: DialectName): string {
  return i18n._(DIALECTS[dialect].title);
}

export const DIALECT_OPTIONS = DIALECT_NAMES.map((value) => ({ value, label: dialectTitle(value) }));

/** The facts of a typed dialect; "": that of the typed address. */
export function typedDialect(dialect: string, baseUrl: string): { name: DialectName; says: Facts } {
  const name = DIALECT_NAMES.find((known) => known === dialect) ?? dialectOfUrl(baseUrl.trim());
  return { name, says: factsOf(name) };
}
