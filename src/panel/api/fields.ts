import { FormatRegistry } from "@sinclair/typebox";
import { t } from "elysia";
import { HOST_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../../limits.ts";
import { NANO_USD, POSITIVE_NANO_USD } from "../../operations/fields.ts";

export {
  BillingMode,
  Instant,
  KeyLimits,
  NO_NUL,
  OneLanguage as LanguageField,
  orNull,
  PackagePayment,
  PackageStart,
  RateLimits,
  RowId as IdInBody,
} from "../../operations/fields.ts";

/**
 * Field shapes that several endpoints share. Limits on text here only stop oversized input: the store that writes a field has the
 * exact limit, and the message for people. `says` has the rule of a shape in words, if JSON Schema cannot express it.
 */

/**
 * A whole number in a path or a query. Not `t.Integer`: for one out of range the framework loses the field's name and place, so
 * an invalid id in a path would not get the same 404 as an unknown one.
 */
export function whole(min: number, max: number) {
  const format = `whole:${min}:${max}`;
  FormatRegistry.Set(format, (text) => /^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max);
  const text = t.String({
    format,
    says: max < Number.MAX_SAFE_INTEGER ? `a whole number from ${min} to ${max}` : "a whole number",
  });
  return t.Transform(text).Decode(Number).Encode(String);
}

/** The id of a row in a path or query. As a page cursor: rows before this id. */
export const Id = whole(1, Number.MAX_SAFE_INTEGER);

/** The `:id` of a path. */
export const IdParam = t.Object({ id: Id });

export const RequestId = t.String({
  pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
  says: "a request id",
});

/** A model, in a query: its id has slashes, which proxies and clients encode differently in a path. */
export const ModelId = t.String({ minLength: 1, maxLength: MODEL_ID_CHARS_MAX });

/** A host name as a filter. */
export const HostFilter = t.String({
  minLength: 1,
  maxLength: HOST_CHARS_MAX,
  pattern: "^[a-z0-9.-]+$",
  says: "a host name",
});

/** Nano-USD as digits: a JSON number would lose precision. The pages send and read it as text. */
export const NanoUsd = t.String(NANO_USD);

/** Nano-USD above 0, as digits. */
export const PositiveNanoUsd = t.String(POSITIVE_NANO_USD);

/** Billionths of a currency above 0, as digits. */
export const PositiveNano = t.String({
  maxLength: 18,
  pattern: "^[1-9][0-9]{0,17}$",
  says: "billionths of the currency above 0, as a string of digits",
});
