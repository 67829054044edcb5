import { type TSchema, Type } from "@sinclair/typebox";
import { ValueErrorType } from "@sinclair/typebox/errors";

/**
 * Explains in one sentence why a value does not match its schema. The sentence says what the field must be. A schema whose rule
 * cannot be put into words has `says`, as in `{ pattern: "^[0-9]+$", says: "a string of digits" }`.
 */

/** An error of TypeBox: the fields that are read here. */
export type FieldError = {
  path: string;
  type: ValueErrorType;
  schema: TSchema;
  /** For a union: the errors of each variant. */
  errors: Iterable<Iterable<FieldError>>;
};

/** The sentence, and the path of the field as in `messages.0.role`; null for the whole value. */
export type FieldProblem = { message: string; param: string | null };

/** Errors that are read of one variant of a union: a value may have a million. */
const ERRORS_MAX = 20;
/** Bounds beyond this are limits of arithmetic, not rules of the field. */
const INTEGER_MAX = Number.MAX_SAFE_INTEGER;

/** The sentence for the first error of a value. */
export function problemOf(first: FieldError | undefined): FieldProblem {
  const error = first && deepest(first);
  if (error === undefined) return { message: "The request is invalid.", param: null };
  const param = error.path.slice(1).replaceAll("/", ".").replaceAll("~1", "/").replaceAll("~0", "~");
  const subject = param === "" ? "The request" : `The field ${param}`;
  return { message: `${subject} ${predicateOf(error)}.`, param: param || null };
}

const UNKNOWN: ReadonlySet<ValueErrorType> = new Set([
  ValueErrorType.ObjectAdditionalProperties,
  ValueErrorType.IntersectUnevaluatedProperties,
  ValueErrorType.Never,
]);

function predicateOf({ type, schema }: FieldError): string {
  if (type === ValueErrorType.ObjectRequiredProperty) return "is required";
  if (UNKNOWN.has(type)) return "is not known here";
  if (type === ValueErrorType.ArrayUniqueItems) return "must not have the same element twice";
  const phrase = phraseOf(schema);
  return phrase === undefined ? "is not valid" : `must be ${phrase}`;
}

/**
 * A union fails as a whole, but the error inside the intended variant is clearer. The intended variant is the one that fails
 * deeper, and not at a constant, because constants tell the variants apart.
 */
function deepest(error: FieldError): FieldError {
  if (error.type !== ValueErrorType.Union) return error;
  const variants = [...error.errors].map((errors) => firstOf(errors).map(deepest));
  const further = variants.filter(([first]) => first !== undefined && first.path.length > error.path.length);
  const isConstant = ({ type }: FieldError) => type === ValueErrorType.Literal;
  const [meant] = further.find((errors) => !errors.some(isConstant)) ?? [];
  if (meant !== undefined) return meant;
  const constants = further.flatMap((errors) => errors.find(isConstant) ?? []);
  const [first] = constants;
  if (first === undefined) return error;
  const same = constants.filter(({ path }) => path === first.path);
  return { ...first, schema: Type.Union(same.map(({ schema }) => schema)) };
}

function firstOf(errors: Iterable<FieldError>): FieldError[] {
  const first: FieldError[] = [];
  for (const error of errors) if (first.push(error) >= ERRORS_MAX) break;
  return first;
}

/** "a whole number from 1 to 5"; undefined for a schema that no JSON value matches. */
function phraseOf(schema: TSchema): string | undefined {
  if (typeof schema.says === "string") return schema.says;
  if ("const" in schema) return String(schema.const);
  if (Array.isArray(schema.anyOf)) return unionPhrase(schema.anyOf);
  if (Array.isArray(schema.allOf)) return "an object";
  switch (schema.type) {
    case "string":
      return stringPhrase(schema);
    case "integer":
      return numberPhrase("a whole number", schema);
    case "number":
      return numberPhrase("a number", schema);
    case "boolean":
      return "true or false";
    case "null":
      return "null";
    case "array":
      return `an array${sizes(schema.minItems, schema.maxItems, "element")}`;
    case "object":
      return `an object${sizes(schema.minProperties, schema.maxProperties, "field")}`;
    default:
      return undefined;
  }
}

/** Does not mention null, which means that the field is not set. */
function unionPhrase(variants: readonly TSchema[]): string | undefined {
  const others = variants.flatMap((one): TSchema[] => (Array.isArray(one.anyOf) ? one.anyOf : [one]));
  // Numbers in a query are text: the framework accepts both.
  const said = others.filter(({ type, format }) => type !== "null" && format !== "integer" && format !== "numeric");
  if (said.length > 1 && said.every((one) => "const" in one))
    return `one of ${said.map((one) => String(one.const)).join(", ")}`;
  const phrases = [...new Set(said.map(phraseOf))].filter((phrase) => phrase !== undefined);
  return phrases.length === 0 ? undefined : phrases.join(" or ");
}

const FORMATS: Readonly<Record<string, string>> = {
  date: "a date, as in 2030-01-31",
  "date-time": "a time with its zone, as in 2030-01-31T12:00:00Z",
  email: "an e-mail address",
  uri: "a URL",
  uuid: "a UUID",
};

function stringPhrase({ format, minLength, maxLength }: TSchema): string {
  return FORMATS[String(format)] ?? `a string${sizes(minLength, maxLength, "character")}`;
}

function numberPhrase(what: string, schema: TSchema): string {
  const { minimum, maximum, exclusiveMinimum, exclusiveMaximum, multipleOf } = schema;
  const [min, max] = [finite(minimum), finite(maximum)];
  const words = [what];
  if (min !== undefined && max !== undefined) words.push(`from ${grouped(min)} to ${grouped(max)}`);
  else if (min !== undefined) words.push(`of at least ${grouped(min)}`);
  else if (max !== undefined) words.push(`of at most ${grouped(max)}`);
  if (exclusiveMinimum !== undefined) words.push(`above ${grouped(exclusiveMinimum)}`);
  if (exclusiveMaximum !== undefined) words.push(`below ${grouped(exclusiveMaximum)}`);
  if (multipleOf !== undefined) words.push(`that is a multiple of ${grouped(multipleOf)}`);
  return words.join(" ");
}

function finite(bound: unknown): number | undefined {
  return typeof bound === "number" && Math.abs(bound) < INTEGER_MAX ? bound : undefined;
}

/** " of 1 to 200 characters"; "" without bounds. */
function sizes(min: unknown, max: unknown, unit: string): string {
  const [least, most] = [finite(min) || undefined, finite(max)];
  if (least === undefined && most === undefined) return "";
  if (least === undefined) return ` of at most ${counted(most ?? 0, unit)}`;
  if (most === undefined) return ` of at least ${counted(least, unit)}`;
  return least === most ? ` of ${counted(most, unit)}` : ` of ${grouped(least)} to ${counted(most, unit)}`;
}

function counted(count: number, unit: string): string {
  return `${grouped(count)} ${unit}${count === 1 ? "" : "s"}`;
}

function grouped(value: number): string {
  return Math.abs(value) < 10_000 ? String(value) : value.toLocaleString("en-US");
}
