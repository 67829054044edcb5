import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { check } from "../../src/books/check.ts";
import { dropMonths } from "../../src/books/dropped_months_store.ts";
import { foldAll, foldAnew } from "../../src/books/folding_store.ts";
import { listReceiptMonths } from "../../src/books/months_store.ts";
import { whyNotKept } from "../../src/books/receipts_store.ts";
import { verifySeals } from "../../src/books/seal_check_store.ts";
import { listClosedMonths, sealDue } from "../../src/books/seals_store.ts";
import { runCli } from "../cli/cli_process.ts";
import { createWorld, type World } from "../world.ts";
import { fillMonths, inSlicesOf, type Months, tamper } from "./sealed_months.ts";

/** Months of receipts: sealed, exported, dropped, and what is found of changes. Source: RET-1, RET-2, RET-3, RET-4, RET-5, RET-6, RET-11. */

let world: World;
let past: Months;
let folder: string;
const MANY = 60;

beforeAll(async () => {
  world = await createWorld();
  past = await fillMonths(world, MANY);
  folder = await mkdtemp(join(tmpdir(), "tollgate-receipts-"));
});
afterAll(async () => {
  await rm(folder, { recursive: true });
  await world.close();
});

const slices = <T>(work: Parameters<typeof inSlicesOf<T>>[2], rows = 50) => inSlicesOf(world, rows, work);
const cli = (args: string) => runCli(`retention ${args}`, { env: { DATABASE_URL: world.url, REDIS_URL: "" } });
const seal = () => slices(sealDue);
const problems = async () => (await slices(verifySeals)).map(({ month, problem }) => `${month}: ${problem}`);
/** What a check finds; one that has to fold everything anew finds that rows were changed. */
const broken = async () => {
  let changed = 0;
  const results = await slices((all) => check(all, { onChanged: (pieces) => (changed += pieces) }), 5_000);
  return [...results.filter(({ rows }) => rows !== 0), ...(changed > 0 ? [{ changed }] : [])];
};
const doctor = async (args = "") => {
  const { out } = await runCli(`doctor --full --json ${args}`, { env: { DATABASE_URL: world.url, REDIS_URL: "" } });
  const findings: { what: string; state: string; detail: string }[] = JSON.parse(out).findings;
  return findings
    .filter(({ what }) => what.startsWith("seal"))
    .map(({ what, state, detail }) => `${state} ${what}: ${detail}`);
};

/** All sums that reports read, but the hashes of receipts. */
async function sums() {
  const { sql } = world;
  return {
    book: [
      ...(await sql`select kind, id, day::text, rows, units, tokens, nano_usd from book_sums where kind <> 'receipts' and kind <> 'entries' order by 1, 2, 3`),
    ],
    usage: [...(await sql`select * from usage_sums order by account_id, key_id, span, begins, kind_id`)],
    holders: [...(await sql`select * from usage_holders order by scope, span, begins, holder_id`)],
    crossings: [...(await sql`select * from usage_crossings order by account_id, begins, ends, kind_id`)],
  };
}

test("months are sealed one after another, in blocks, also by two replicas at once", async () => {
  expect(await slices(foldAll)).toBe(true);
  expect(await broken()).toEqual([]);
  expect(
    (await Promise.all([seal(), seal()]))
      .flat()
      .map(({ month }) => month)
      .sort(),
  ).toEqual([...past.months]);
  expect(await seal()).toEqual([]);
  const [first, second, third] = (await listClosedMonths(world.sql)).map(({ seal: sealed }) => sealed);
  expect(first).toMatchObject({ month: past.months[0], receipts: 3 * MANY, previous: "0".repeat(64) });
  expect([second?.previous, third?.previous]).toEqual([first?.seal, second?.seal]);
  const blocks =
    await world.sql`select month::text, count(*)::int as n, sum(receipts)::int as receipts from receipt_blocks group by 1`;
  expect(blocks.every(({ n, receipts }) => n === 4 && receipts === 3 * MANY)).toBe(true);
  expect(await problems()).toEqual([]);
});

test("a sealed month cannot change, but for what a restore writes; a new one is refused as a wrong value is", async () => {
  const { sql } = world;
  const [id = ""] = await past.idsOf(past.months[0]);
  const changes = [
    sql`update receipts set units = 7 where request_id = ${id}::text::uuid`,
    sql`delete from receipts where request_id = ${id}::text::uuid`,
    sql`insert into receipts select (left(${id}::text, 24) || 'ffffffffffff')::uuid, account_id, key_id, model_id, host, mode, package_id, day, key_day,
      outcome, reason, units, held_nano_usd, charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens,
      estimated, price_version_id, further_counts, reported_usage, tried, markup_basis_points, cost_nano_usd, route_id, first_ms,
      provider_cost_nano_usd, created_at, finished_at from receipts where request_id = ${id}::text::uuid`,
    sql.unsafe(`truncate receipts_${past.months[0].replace("-", "_")}`),
  ];
  const ends = await Promise.allSettled(changes);
  expect(ends.map((end) => (end.status === "rejected" ? end.reason.code : "done"))).toEqual(Array(4).fill("23514"));
  await sql`update receipts set written_in = default where request_id = ${id}::text::uuid`;
  expect(await slices(foldAll)).toBe(true);
  await slices(foldAnew);
  await slices(foldAll);
});

test("one changed byte of a receipt is found, with its month, its time and its account", async () => {
  const ids = await past.idsOf(past.months[1]);
  const [row] =
    await world.sql`select account_id::int as id, host from receipts where request_id = ${ids[70] ?? ""}::text::uuid`;
  await tamper(world.sql, (tx) => tx`update receipts set host = 'i' where request_id = ${ids[70] ?? ""}::text::uuid`);
  const found = await problems();
  expect(found).toHaveLength(1);
  expect(found[0]).toMatch(
    new RegExp(
      `^${past.months[1]}: block 2 was changed: there are 50 receipts, 50 were sealed, from ${past.months[1]}-`,
    ),
  );
  await tamper(
    world.sql,
    (tx) =>
      tx`update receipts set host = 'h', prompt_tokens = prompt_tokens + 1 where request_id = ${ids[70] ?? ""}::text::uuid`,
  );
  expect((await problems()).at(-1)).toBe(
    `${past.months[1]}: the totals of account ${row?.id} differ from the sealed ones`,
  );
  expect((await doctor())[0]).toMatch(new RegExp(`^wrong seal of ${past.months[1]}: block 2 was changed`));
  const verified = await cli("verify");
  expect([verified.code, verified.out]).toEqual([1, expect.stringContaining("block 2 was changed")]);
  await tamper(
    world.sql,
    (tx) => tx`update receipts set prompt_tokens = prompt_tokens - 1 where request_id = ${ids[70] ?? ""}::text::uuid`,
  );
  expect(await problems()).toEqual([]);
});

test("a changed total, block or seal is found, and so is a seal that is missing", async () => {
  const { sql } = world;
  const month = `${past.months[1]}-01`;
  const changes: [change: () => PromiseLike<unknown>, undo: () => PromiseLike<unknown>, says: string][] = [
    [
      () => sql`update receipt_totals set units = units + 1 where month = ${month}::text::date and mode = 'payg'`,
      () => sql`update receipt_totals set units = units - 1 where month = ${month}::text::date and mode = 'payg'`,
      "its totals are not the ones that were sealed",
    ],
    [
      () => sql`update receipt_blocks set receipts = receipts + 1 where month = ${month}::text::date and number = 1`,
      () => sql`update receipt_blocks set receipts = receipts - 1 where month = ${month}::text::date and number = 1`,
      "the list of its blocks is not the one that was sealed",
    ],
    [
      () => sql`update receipt_seals set previous = sha256('x') where month = ${month}::text::date`,
      () =>
        sql`update receipt_seals s set previous = (select seal from receipt_seals b where b.month < s.month order by month desc limit 1) where month = ${month}::text::date`,
      `its seal does not name the seal of ${past.months[0]}, which is the one before it`,
    ],
    [
      () =>
        sql`alter table receipts disable trigger all`.then(() =>
          sql.unsafe(`alter table receipts_${past.months[1].replace("-", "_")} disable trigger all`),
        ),
      () => sql.unsafe(`alter table receipts_${past.months[1].replace("-", "_")} enable trigger all`),
      "its table lacks the triggers that refuse changes",
    ],
  ];
  for (const [change, undo, says] of changes) {
    await change();
    expect(await problems()).toContain(`${past.months[1]}: ${says}`);
    await undo();
    expect(await problems()).toEqual([]);
  }
  const last = `${past.months[2]}-01`;
  await sql`create table aside as select * from receipt_seals where month = ${last}::text::date`;
  await sql`delete from receipt_seals where month = ${last}::text::date`;
  expect(await problems()).toContain(`${past.months[2]}: it was closed, and its seal is missing`);
  await sql`insert into receipt_seals select * from aside`;
  expect(await problems()).toEqual([]);
});

test("the months are listed with their seals and totals, and with what the last comparison found", async () => {
  expect(await problems()).toEqual([]);
  const [last, middle, first, ...more] = await listReceiptMonths(world.sql);
  expect(more).toEqual([]);
  expect([first, middle, last].map((one) => [one?.month, one?.state, one?.problems])).toEqual(
    past.months.map((month) => [month, "sealed", []]),
  );
  expect([middle?.previous, last?.previous]).toEqual([first?.seal, middle?.seal]);
  expect([first, middle, last].map((one) => typeof one?.comparedAt)).toEqual(["string", "string", "string"]);
  const floor = (month: string) => world.sql`receipt_month_floor(${`${month}-01`}::text::date)`;
  const [sums] = await world.sql`
    select (count(*) filter (where outcome = 'settled'))::int as settled, sum(charged_tokens)::text as tokens, sum(charged_nano_usd)::text as nano
    from receipts where request_id >= ${floor(past.months[1])} and request_id < ${floor(past.months[2])}`;
  expect(middle?.totals).toEqual({
    settled: sums?.settled,
    ...{ chargedTokens: BigInt(sums?.tokens), chargedNanoUsd: BigInt(sums?.nano) },
  });
  const add = (units: number) =>
    world.sql`update receipt_totals set units = units + ${units}::int where month = ${`${past.months[1]}-01`}::text::date and mode = 'payg'`;
  await add(1);
  await problems();
  const changed = async () =>
    (await listReceiptMonths(world.sql)).flatMap((one) => one.problems.map((problem) => [one.month, problem]));
  expect(await changed()).toEqual([[past.months[1], "its totals are not the ones that were sealed"]]);
  await add(-1);
  expect(await changed()).toHaveLength(1);
  await problems();
  expect(await changed()).toEqual([]);
});

test("a month is exported to files that have every receipt; a changed byte of a file is found", async () => {
  const exported = await cli(`export --to ${folder}`);
  expect([exported.code, exported.err]).toEqual([0, ""]);
  const name = `receipts-${past.months[0]}.ndjson.gz`;
  expect((await readdir(folder)).sort()).toEqual(
    past.months.flatMap((month) => [`receipts-${month}.json`, `receipts-${month}.ndjson.gz`]).sort(),
  );
  const packed = await readFile(join(folder, name));
  const lines = gunzipSync(packed)
    .toString()
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line));
  expect(lines.map(({ request_id }) => request_id)).toEqual(await past.idsOf(past.months[0]));
  expect(lines[0]).toMatchObject({
    outcome: "settled",
    units: 1,
    host: "h",
    created_at: `${past.months[0]}-01T00:00:00.000000Z`,
  });
  expect((await cli(`verify --files ${folder}`)).code).toBe(0);
  const bad = Uint8Array.from(packed);
  bad[bad.length >> 1] = (bad[bad.length >> 1] ?? 0) ^ 1;
  await writeFile(join(folder, name), bad);
  const found = await cli(`verify --files ${folder}`);
  expect(found.code).toBe(1);
  expect(found.out).toMatch(new RegExp(`^${past.months[0]}: block \\d of ${name} is not what was sealed\n$`));
  expect((await cli(`drop --up-to ${past.months[0]} --files ${folder}`)).code).toBe(1);
  expect(await past.idsOf(past.months[0])).toHaveLength(3 * MANY);
  await writeFile(join(folder, name), packed);
});

test("dropping says what to give, and refuses what is not sealed", async () => {
  expect((await cli("drop")).out).toBe(`Could be dropped: ${past.months.join(", ")}.\n`);
  expect((await cli(`drop --up-to ${past.months[0]}`)).err).toBe(
    "Say where the files of these months are, with --files, or --no-files.\n",
  );
  expect((await cli("drop --up-to 9999-01 --no-files")).err).toBe("9999-01 is not sealed: see retention status.\n");
  expect((await cli("drop --up-to 2030-13")).err).toContain("A month looks like 2030-01.");
});

test("receipts that the export of receipts has not delivered are not dropped", async () => {
  const found = await slices((all) => dropMonths(all, { isExportUsed: true, upTo: past.months[0] }));
  expect(found).toEqual({
    months: [],
    stoppedBy: {
      month: past.months[0],
      problem: `${3 * MANY} receipts are not delivered by the export of receipts yet`,
    },
  });
});

test("after a drop all sums are as before, also after everything was folded anew, and the books balance", async () => {
  await slices(foldAll);
  const before = await sums();
  expect(before.crossings.length).toBeGreaterThan(0);
  const dropped = await cli(`drop --up-to ${past.months[1]} --files ${folder}`);
  expect([dropped.out, dropped.err]).toEqual([`Dropped: ${past.months[0]}, ${past.months[1]}.\n`, ""]);
  expect([await past.idsOf(past.months[0]), await past.idsOf(past.months[1])]).toEqual([[], []]);
  expect(await sums()).toEqual(before);
  const again = async () => {
    expect(await broken()).toEqual([]);
    expect(await world.unbalanced()).toEqual([]);
    expect(await problems()).toEqual([]);
  };
  await again();
  await slices(foldAnew, 20);
  await slices(foldAll);
  expect(await sums()).toEqual(before);
  await again();
  // A crash in between leaves the rest to the next one.
  await world.sql`truncate book_sums, usage_sums, usage_holders, usage_crossings`;
  await world.sql`update book_closing set folded = '3:3:', receipts_to = -1, entries_to = -1`;
  await world.sql`update receipt_seals set recounted_to = -1 where dropped_at is not null`;
  await slices(foldAll);
  expect(await sums()).toEqual(before);
  await again();
  expect((await cli(`verify --files ${folder}`)).out).toBe("3 sealed months are unchanged.\n");
  expect(await doctor(`--files ${folder}`)).toEqual(["ok seals: 3 sealed months are unchanged"]);
  expect((await cli("status")).out).toContain(`${past.months[0]}  ${3 * MANY}       dropped`);
  const listed = (await listReceiptMonths(world.sql)).map(({ state, exportedAt, totals }) => [
    state,
    exportedAt !== null,
    (totals?.settled ?? 0) > 0,
  ]);
  expect(listed).toEqual([
    ["sealed", true, true],
    ["dropped", true, true],
    ["dropped", true, true],
  ]);
});

test("what was dropped stays closed: a settlement that comes again is refused, not charged twice", async () => {
  const [row] = await world.sql`select count(*)::int as n from receipt_seals where dropped_at is not null`;
  expect(row?.n).toBe(2);
  const late = world.sql`
    insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
      shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    values (receipt_month_floor(${`${past.months[0]}-01`}::text::date), 1, 1, 'm', 'h', 'payg', 'released', 'late', 0, 0, 0, 0, 0, 0, 0, 0, false, now(), now())`;
  await expect(Promise.resolve(late)).rejects.toThrow("are sealed");
});

test("a request of a dropped month is found as one that is not kept any more", async () => {
  const [row] =
    await world.sql`select receipt_month_floor(${`${past.months[1]}-01`}::text::date)::text as id, to_char(dropped_at at time zone 'UTC', 'YYYY-MM-DD') as day from receipt_seals limit 1`;
  const says = `Single requests of ${past.months[1]} are no longer kept since ${row?.day}. Sums of the month are.`;
  expect(await whyNotKept(world.sql, String(row?.id))).toBe(says);
  const asked = await runCli(`receipt ${row?.id}`, { env: { DATABASE_URL: world.url, REDIS_URL: "" } });
  expect(asked.err).toBe(`${says}\n`);
  const [kept = ""] = await past.idsOf(past.months[2]);
  expect([await whyNotKept(world.sql, kept), await whyNotKept(world.sql, "no id")]).toEqual([undefined, undefined]);
});
