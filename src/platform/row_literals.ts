/**
 * Rows of a composite type of Postgres as text. A statement takes and returns arrays of rows in one value each: to unnest one array of
 * rows costs a third of what an array for each column does, and a new column is one line.
 */

type Field = string | number | bigint | boolean | null;
/** The columns of a composite type, in its order. */
export type Columns<T> = { readonly [column: string]: (row: T) => Field };

/** A row inside of an array: quotes and backslashes of a text are escaped for both. */
const ESCAPED: Record<string, string> = { '"': '\\"\\"', "\\": "\\\\\\\\" };
const TO_ESCAPE = /["\\]/g;

/** Writes arrays of such rows. */
export function rowsWriter<T>(columns: Columns<T>): (rows: readonly T[]) => string {
  const picks = Object.values(columns);
  return (rows) => {
    let literal = "{";
    for (const [i, row] of rows.entries()) {
      literal += i === 0 ? '"(' : ',"(';
      for (const [column, pick] of picks.entries()) {
        if (column > 0) literal += ",";
        const field = pick(row);
        if (typeof field === "string") literal += `\\"${field.replace(TO_ESCAPE, (char) => ESCAPED[char] ?? char)}\\"`;
        // Nothing between two commas is NULL.
        else if (field !== null) literal += field;
      }
      literal += ')"';
    }
    return `${literal}}`;
  };
}

/** An array of Postgres as text, of ids and other values that need no quotes. */
export function arrayOf(values: readonly (string | number | bigint)[]): string {
  return `{${values.join(",")}}`;
}

const ELEMENT = /"((?:[^"\\]|\\.)*)"/gs;
const FIELD = /(?:"((?:[^"\\]|""|\\.)*)"|([^",]*))(?:,|$)/sy;

/** The fields of each row of an array of rows with at least two columns, as text; an empty list for NULL. */
export function readRows(literal: string | null): (string | null)[][] {
  if (literal === null) return [];
  return Array.from(literal.matchAll(ELEMENT), ([, element = ""]) => fieldsOf(element));
}

function fieldsOf(element: string): (string | null)[] {
  const row = (element.includes("\\") ? element.replace(/\\(.)/gs, "$1") : element).slice(1, -1);
  if (!row.includes('"')) return row.split(",").map((field) => (field === "" ? null : field));
  const fields: (string | null)[] = [];
  FIELD.lastIndex = 0;
  for (let hasNext = true; hasNext; ) {
    const match = FIELD.exec(row);
    if (match === null) throw new Error(`not a row of Postgres: ${row}`);
    const [found, quoted, plain] = match;
    fields.push(quoted === undefined ? plain || null : quoted.replace(/""|\\(.)/gs, (pair, char) => char ?? pair[0]));
    hasNext = found.endsWith(",");
  }
  return fields;
}
