import type { TSchema } from "@sinclair/typebox";
import { isRecord } from "../platform/records.ts";

/** What an operation's result is in JSON: exactly the fields of its schema. */

type Json = null | boolean | number | string | Json[] | { [key: string]: Json };

/**
 * The JSON of a value: an amount becomes a string of digits, and a field that the schema does not have is left out, so that no answer has
 * more than its description says. Throws an Error for what has no JSON.
 */
export function toJson(schema: TSchema | typeof NO_SCHEMA, value: unknown): Json {
  if (typeof value === "bigint") return String(value);
  if (value === null || typeof value === "boolean" || typeof value === "number" || typeof value === "string")
    return value;
  const shape = shapeFor(schema, value);
  if (Array.isArray(value)) return value.map((one) => toJson(shape?.items ?? NO_SCHEMA, one));
  if (typeof value !== "object") throw new Error(`a ${typeof value} has no JSON`);
  const fields = Object.entries(value).filter(([, field]) => field !== undefined);
  if (shape?.properties === undefined) {
    const [anyField] = Object.values<TSchema>(shape?.patternProperties ?? {});
    return Object.fromEntries(fields.map(([name, field]) => [name, toJson(anyField ?? NO_SCHEMA, field)]));
  }
  const known: Record<string, TSchema> = shape.properties;
  return Object.fromEntries(
    fields.flatMap(([name, field]) => {
      const schemaOfField = known[name];
      return schemaOfField === undefined ? [] : [[name, toJson(schemaOfField, field)]];
    }),
  );
}

const NO_SCHEMA = {} as const;

/** Of a union, the variant for an array or an object: the first whose constants the object has. */
function shapeFor(schema: TSchema | typeof NO_SCHEMA, value: unknown): TSchema | undefined {
  if (!("anyOf" in schema) || !Array.isArray(schema.anyOf)) return "type" in schema ? schema : undefined;
  const type = Array.isArray(value) ? "array" : "object";
  return schema.anyOf.find((one: TSchema) => one.type === type && hasConstants(one, value));
}

function hasConstants({ properties = {} }: TSchema, value: unknown): boolean {
  const fields = Object.entries<TSchema>(properties).filter(([, field]) => "const" in field);
  return fields.every(([name, field]) => isRecord(value) && value[name] === field.const);
}
