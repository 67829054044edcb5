import { expect, test } from "bun:test";
import {
  DRAW_COLUMNS,
  FINISH_COLUMNS,
  KEEP_COLUMNS,
  REQUEST_COLUMNS,
  RUN_COLUMNS,
} from "../../src/ledger/ledger_store.ts";
import { readRows, rowsWriter } from "../../src/platform/row_literals.ts";
import { createWorld } from "../world.ts";

/** Batches send and receive arrays of composite types as text (src/platform/row_literals.ts). */

const world = await createWorld();

for (const [type, columns] of Object.entries({
  finish_row: FINISH_COLUMNS,
  keep_row: KEEP_COLUMNS,
  draw_row: DRAW_COLUMNS,
  run_row: RUN_COLUMNS,
  request_row: REQUEST_COLUMNS,
})) {
  test(`${type} has the columns that are sent, in their order`, async () => {
    const rows = await world.sql`
      select attname from pg_attribute where attrelid = ${type}::regclass and attnum > 0 and not attisdropped order by attnum`;
    expect(rows.map(({ attname }) => String(attname))).toEqual(Object.keys(columns));
  });
}

/** Texts that mean something in the literals of rows, arrays, JSON or dates. */
const HOSTILE = [
  ...[
    "",
    " ",
    "null",
    "NULL",
    '"',
    '""',
    "\\",
    "\\\\",
    '\\"',
    '"\\',
    ",",
    "(",
    ")",
    "{",
    "}",
    '{"a":"b,\\"c"}',
    "a,b",
    "(1,2)",
    "{1,2}",
  ],
  ...[
    "\n",
    "\r\n",
    "\t",
    "'",
    "''",
    "$1",
    "-infinity",
    "é",
    "漢字",
    "🙂",
    "\u{10ffff}",
    "\u0001",
    "x".repeat(10_000),
    '"'.repeat(1000),
    "\\".repeat(999),
  ],
];
type Row = { text: string | null; json: unknown; number: bigint | null; day: string | null; flag: boolean | null };

test("every text, NULL, date and number that is sent comes back as it was, alone and in nested rows", async () => {
  await world.sql`create type row_probe as (words text, facts jsonb, amount bigint, day date, flag boolean)`;
  await world.sql`create type row_probes as (number int, probes row_probe[])`;
  const write = rowsWriter<Row>({
    words: (r) => r.text,
    facts: (r) => JSON.stringify(r.json),
    amount: (r) => r.number,
    day: (r) => r.day,
    flag: (r) => r.flag,
  });
  const writeAll = rowsWriter<{ number: number; rows: Row[] }>({
    number: (r) => r.number,
    probes: (r) => write(r.rows),
  });
  const numbers = [0n, -1n, 9_223_372_036_854_775_807n, -9_223_372_036_854_775_808n, null];
  const days = ["2026-11-28", "-infinity", "infinity", null];
  const rows: Row[] = [...HOSTILE, null].map((text, i) => ({
    text,
    json: { [text ?? "none"]: [text, i, null] },
    number: numbers[i % numbers.length] ?? null,
    day: days[i % days.length] ?? null,
    flag: [true, false, null][i % 3] ?? null,
  }));
  const read = (literal: unknown) =>
    readRows(String(literal)).map(([text = null, json, number, day = null, flag]) => ({
      ...{
        text,
        json: JSON.parse(json ?? ""),
        number: number ? BigInt(number) : null,
        day,
        flag: flag ? flag === "t" : null,
      },
    }));
  const [sent] = await world.sql`select ${write(rows)}::text::row_probe[]::text as rows`;
  expect(read(sent?.rows)).toEqual(rows);
  const nested = [
    { number: 1, rows },
    { number: 2, rows: [] },
    { number: 3, rows: rows.slice(0, 2) },
  ];
  const [all] = await world.sql`select ${writeAll(nested)}::text::row_probes[]::text as rows`;
  expect(
    readRows(String(all?.rows)).map(([number, probes = null]) => ({ number: Number(number), rows: read(probes) })),
  ).toEqual(nested);
  // As Postgres itself reads them.
  const unnested = await world.sql`
    select words, amount::text, day::text from unnest(${write(rows)}::text::row_probe[]) with ordinality order by ordinality`;
  expect(unnested.map(({ words, amount, day }) => [words, amount, day])).toEqual(
    rows.map(({ text, number, day }) => [text, number === null ? null : String(number), day]),
  );
});

test("no rows are an empty array, and NULL is none", () => {
  expect(rowsWriter<Row>({ words: (r) => r.text, day: (r) => r.day })([])).toBe("{}");
  expect(readRows("{}")).toEqual([]);
  expect(readRows(null)).toEqual([]);
});
