import { FormatRegistry, Type } from "@sinclair/typebox";
import { t } from "elysia";
import { INSTANT } from "../../http/checks.ts";
import { HOST_CHARS_MAX, LIMITED_MODELS_MAX, MODEL_ID_CHARS_MAX } from "../../limits.ts";

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

/** The id of a row in a JSON body: a number, never a string of digits. */
export const IdInBody = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** A query can carry NUL, which no Postgres text column accepts. */
export const NO_NUL = "^[^\\u0000]*$";

export const Instant = t.String(INSTANT);

export const RequestId = t.String({
  pattern: "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$",
  says: "a request id",
});

/** A host name as a filter. */
export const HostFilter = t.String({
  minLength: 1,
  maxLength: HOST_CHARS_MAX,
  pattern: "^[a-z0-9.-]+$",
  says: "a host name",
});

export const BillingMode = t.Union([t.Literal("package"), t.Literal("payg")]);

/** Nano-USD as digits: a JSON number would lose precision. */
export const NanoUsd = t.String({ maxLength: 16, pattern: "^[0-9]+$", says: "nano-USD, as a string of digits" });

/** Nano-USD above 0, as digits. */
export const PositiveNanoUsd = t.String({
  maxLength: 16,
  pattern: "^[1-9][0-9]{0,15}$",
  says: "nano-USD above 0, as a string of digits",
});

/** When a package starts: now, replacing the active one, or after all packages the account already has. */
export const PackageStart = t.Union([t.Literal("now"), t.Literal("after")]);

/** What pays for a package: the reseller's balance, its allotment, or nobody (`operator`, admins only). */
export const PackagePayment = t.Union([t.Literal("balance"), t.Literal("allotment"), t.Literal("operator")]);

const LIMIT_SET = {
  requestsPerMinute: t.Optional(orNull(Type.Integer())),
  tokensPerMinute: t.Optional(orNull(Type.Integer())),
  requestsAtOnce: t.Optional(orNull(Type.Integer())),
};

/** Limits of a key; missing or null: not limited. */
export const KeyLimits = orNull(t.Object(LIMIT_SET, { additionalProperties: false }));

/** Limits of an offering or an account, also of single models. */
export const RateLimits = orNull(
  t.Object(
    {
      ...LIMIT_SET,
      models: t.Optional(
        t.Record(t.String({ maxLength: MODEL_ID_CHARS_MAX }), t.Object(LIMIT_SET, { additionalProperties: false }), {
          maxProperties: LIMITED_MODELS_MAX,
        }),
      ),
    },
    { additionalProperties: false },
  ),
);

/** `shape`, or null to say that there is no value. */
export function orNull<Shape extends Parameters<typeof t.Union>[0][number]>(shape: Shape) {
  return t.Union([shape, t.Null()]);
}
