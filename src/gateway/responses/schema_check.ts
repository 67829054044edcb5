import { isRecord } from "../../platform/records.ts";
import { invalid } from "./refusals.ts";

/** Checks the JSON schemas of tools and of structured output. */

/** In characters of JSON. Every provider refuses larger schemas. */
const SCHEMA_CHARS_MAX = 256 * 1024;

/**
 * Throws invalid_request for a schema that is too large, or whose `$ref` leads only back to itself. A recursive schema,
 * such as that of a tree, is accepted.
 */
export function checkSchema(schema: Record<string, unknown>, path: string): void {
  if (JSON.stringify(schema).length > SCHEMA_CHARS_MAX)
    throw invalid(path, `must have at most ${SCHEMA_CHARS_MAX} characters of JSON`);
  // Each `$ref` is followed once, however many lead to it: a schema may have thousands, in chains of any length.
  const leadsOut = new Set<unknown>();
  for (const start of [schema, ...definitionsOf(schema)]) {
    const way = new Set<unknown>();
    let at: unknown = start;
    while (isRecord(at) && typeof at.$ref === "string" && !leadsOut.has(at)) {
      way.add(at);
      at = targetOf(schema, at.$ref);
      if (way.has(at)) throw invalid(path, "must not have a $ref that leads back to itself");
    }
    for (const passed of way) leadsOut.add(passed);
  }
}

function definitionsOf(schema: Record<string, unknown>): unknown[] {
  return [schema.$defs, schema.definitions].flatMap((defs) => (isRecord(defs) ? Object.values(defs) : []));
}

/** The target of a reference within the schema; undefined if there is none. */
function targetOf(schema: Record<string, unknown>, ref: string): unknown {
  if (ref === "#") return schema;
  if (!ref.startsWith("#/")) return undefined;
  let at: unknown = schema;
  for (const name of ref.slice(2).split("/"))
    at = isRecord(at) ? at[name.replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  return at;
}
