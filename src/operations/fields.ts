import { FormatRegistry, type TSchema, Type } from "@sinclair/typebox";
import { INSTANT } from "../http/checks.ts";
import { LANGUAGE_TAGS, type LanguageTag } from "../languages/languages.ts";
import { LIMITED_MODELS_MAX, MODEL_ID_CHARS_MAX } from "../limits.ts";

/**
 * Field shapes that operations share. Limits on text here only stop oversized input: the store that writes a field has the exact limit, and
 * the message for people. `says` has the rule of a shape in words, if JSON Schema cannot express it.
 */

/** TypeBox knows no format by itself, and refuses every value of one that it does not know. */
const FORMATS: Readonly<Record<string, RegExp>> = {
  "date-time": /^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})$/,
  uuid: /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/i,
};
for (const [name, form] of Object.entries(FORMATS))
  if (!FormatRegistry.Has(name)) FormatRegistry.Set(name, (value) => form.test(value));

/** The id of a row. */
export const RowId = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** No Postgres text column accepts NUL. */
export const NO_NUL = "^[^\\u0000]*$";

export function text(maxLength: number, description?: string) {
  const says = `a string of at most ${maxLength} characters without NUL`;
  return Type.String({ maxLength, pattern: NO_NUL, says, ...(description !== undefined && { description }) });
}

/** `shape`, or null to say that there is no value. */
export function orNull<Shape extends TSchema>(shape: Shape) {
  return Type.Union([shape, Type.Null()]);
}

export const Instant = Type.String(INSTANT);
/** The member who made a key or a token. */
export const Maker = Type.Object({
  personId: RowId,
  name: Type.String(),
  isMember: Type.Boolean({ description: "Whether they are still a member of the account." }),
});

/** A moment in an answer. */
export const At = Type.String({ format: "date-time" });

/** Nano-USD as digits: a JSON number would lose precision. */
export const NANO_USD = { maxLength: 16, pattern: "^[0-9]+$", says: "nano-USD, as a string of digits" };
export const POSITIVE_NANO_USD = {
  maxLength: 16,
  pattern: "^[1-9][0-9]{0,15}$",
  says: "nano-USD above 0, as a string of digits",
};
const OTHER_THAN_ZERO_NANO_USD = {
  maxLength: 17,
  pattern: "^-?[1-9][0-9]{0,15}$",
  says: "nano-USD other than 0, as a string of digits",
};

/** Amounts in the input of an operation. They are read as bigint. */
export const NanoUsd = amount(NANO_USD);
export const PositiveNanoUsd = amount(POSITIVE_NANO_USD);
/** The same in the seller's currency. */
export const PositiveNano = amount({
  maxLength: 18,
  pattern: "^[1-9][0-9]{0,17}$",
  says: "billionths of the currency above 0, as a string of digits",
});
export const SignedNanoUsd = amount(OTHER_THAN_ZERO_NANO_USD);
/** An amount in an answer: nano-USD, or billionths of another currency. */
export const Amount = amount({ pattern: "^-?[0-9]+$", says: "a string of digits" });

/** The same with what it is of. */
export function amountOf(description: string) {
  return amount({ pattern: "^-?[0-9]+$", says: "a string of digits", description });
}

function amount(options: { maxLength?: number; pattern: string; says: string; description?: string }) {
  return Type.Transform(Type.String(options)).Decode(BigInt).Encode(String);
}

/** In lower case, as Stripe writes it. */
export const CurrencyCode = Type.String({ description: "ISO 4217, as in usd." });

export const BillingMode = Type.Union([Type.Literal("package"), Type.Literal("payg")]);
/** When a package starts: now, replacing the active one, or after all packages the account already has. */
export const PackageStart = Type.Union([Type.Literal("now"), Type.Literal("after")]);
/** What pays for a package: the reseller's balance, its allotment, or nobody (`operator`, admins only). */
export const PackagePayment = Type.Union([
  Type.Literal("balance"),
  Type.Literal("allotment"),
  Type.Literal("operator"),
]);

const LIMIT_SET = {
  requestsPerMinute: Type.Optional(orNull(Type.Integer())),
  tokensPerMinute: Type.Optional(orNull(Type.Integer())),
  requestsAtOnce: Type.Optional(orNull(Type.Integer())),
};

/** Limits of a key; missing or null: not limited. */
export const KeyLimits = orNull(Type.Object(LIMIT_SET, { additionalProperties: false }));

/** Limits of an offering or an account, also of single models. */
export const RateLimits = orNull(
  Type.Object(
    {
      ...LIMIT_SET,
      models: Type.Optional(
        Type.Record(
          Type.String({ maxLength: MODEL_ID_CHARS_MAX }),
          Type.Object(LIMIT_SET, { additionalProperties: false }),
          { maxProperties: LIMITED_MODELS_MAX },
        ),
      ),
    },
    { additionalProperties: false },
  ),
);

/** Limits in an answer. */
const SHOWN_SET = {
  requestsPerMinute: orNull(Type.Integer()),
  tokensPerMinute: orNull(Type.Integer()),
  requestsAtOnce: orNull(Type.Integer()),
};
export const ShownLimits = Type.Object(
  { ...SHOWN_SET, models: Type.Record(Type.String(), Type.Object(SHOWN_SET)) },
  { title: "Limits" },
);

/** A language of the panel. */
export const OneLanguage = Type.Unsafe<LanguageTag>(Type.Union(LANGUAGE_TAGS.map((tag) => Type.Literal(tag))));
