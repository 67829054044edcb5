import { afterAll, beforeAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { access, appendFile, mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { check } from "../../src/books/check.ts";
import { verifySeals } from "../../src/books/seal_check_store.ts";
import { listClosedMonths } from "../../src/books/seals_store.ts";
import { connect, type Sql } from "../../src/platform/db.ts";
import { runCli } from "../cli/cli_process.ts";
import { createWorld, type World } from "../world.ts";
import { fillMonths, inSlicesOf, type Months } from "./sealed_months.ts";

/**
 * Processes that are killed while they seal, export and drop: the next one goes on, and nothing is lost or counted twice. Each slice locks
 * the row of the closing, so a test that holds that lock lets a process do one slice after another. Source: RET-3, RET-4, RET-6.
 */

let world: World;
let past: Months;
let folder: string;
let holder: Sql;
const MANY = 4_000;

beforeAll(async () => {
  world = await createWorld();
  past = await fillMonths(world, MANY);
  folder = await mkdtemp(join(tmpdir(), "tollgate-receipts-"));
  holder = connect({ databaseUrl: world.url, dbPrepare: true }, 2);
});
afterAll(async () => {
  await rm(folder, { recursive: true });
  await holder.end();
  await world.close();
});

const env = () => ({ PATH: process.env.PATH ?? "", DATABASE_URL: world.url, REDIS_URL: "" });
const cli = (args: string) => runCli(`retention ${args}`, { env: env() });

/** A process waits for the lock that a slice takes. */
async function isWaiting(child: ChildProcess): Promise<boolean> {
  for (;;) {
    if (child.exitCode !== null) return false;
    const [row] = await world.sql`
      select 1 from pg_locks l join pg_class c on c.oid = l.relation
      where c.relname = 'book_closing' and l.mode = 'ExclusiveLock' and not l.granted and l.pid <> pg_backend_pid()`;
    if (row) return true;
  }
}

/** Lets a command do so many slices, and kills it while it waits to begin the next one. False: it had ended before. */
async function killAfter(slices: number, args: string): Promise<boolean> {
  const hold = () => {
    const held = Promise.withResolvers<void>();
    const locked = Promise.withResolvers<void>();
    const ended = holder.begin(async (tx) => {
      await tx`lock table book_closing in exclusive mode`;
      locked.resolve();
      await held.promise;
    });
    return {
      locked: locked.promise,
      async free() {
        held.resolve();
        await ended;
      },
    };
  };
  let at = hold();
  await at.locked;
  const child = spawn(
    process.execPath,
    [join(import.meta.dirname, "../../src/cli.ts"), "retention", ...args.split(" ")],
    { env: env(), stdio: "ignore" },
  );
  const over = new Promise((resolve) => child.on("exit", resolve));
  let waits = await isWaiting(child);
  for (let done = 0; waits && done < slices; done++) {
    // Queued behind the process, and before its next slice.
    const next = hold();
    await at.free();
    at = next;
    await next.locked;
    waits = await isWaiting(child);
  }
  child.kill("SIGKILL");
  await over;
  await at.free();
  return waits;
}

async function isSound(): Promise<void> {
  expect(await inSlicesOf(world, 20_000, verifySeals)).toEqual([]);
  const results = await inSlicesOf(world, 20_000, check);
  expect(results.filter(({ rows }) => rows !== 0)).toEqual([]);
}

test("killed while it seals, at each slice of the first month: the next one makes the same seal as if nothing had happened", async () => {
  for (const slices of [0, 1, 2, 3]) expect(await killAfter(slices, "seal")).toBe(true);
  expect((await cli("seal")).code).toBe(0);
  const sealed = await listClosedMonths(world.sql);
  expect(sealed.map(({ month, receipts }) => ({ month, receipts }))).toEqual(
    past.months.map((month) => ({ month, receipts: 3 * MANY })),
  );
  await isSound();
});

test("killed while it exports: the next one goes on with the next block, also behind a torn line", async () => {
  const name = join(folder, `receipts-${past.months[0]}`);
  expect(await killAfter(2, `export --to ${folder} --month ${past.months[0]}`)).toBe(true);
  await access(`${name}.ndjson.gz.part`);
  await appendFile(`${name}.json.part`, '{"number":');
  await appendFile(`${name}.ndjson.gz.part`, "torn");
  expect((await cli(`export --to ${folder} --month ${past.months[0]}`)).out).toContain(
    `Exported to ${folder}: ${past.months[0]}.`,
  );
  expect((await cli(`verify --files ${folder}`)).code).toBe(0);
});

test("killed while it compares and drops: the month is there as a whole, or dropped as a whole", async () => {
  let dropped = 0;
  for (let slices = 0; dropped === 0; slices += 3) {
    await killAfter(slices, `drop --up-to ${past.months[0]} --files ${folder}`);
    dropped = (await listClosedMonths(world.sql)).filter(({ droppedAt }) => droppedAt !== null).length;
    expect((await past.idsOf(past.months[0])).length).toBe(dropped === 0 ? 3 * MANY : 0);
  }
  await isSound();
  expect(await world.unbalanced()).toEqual([]);
});
