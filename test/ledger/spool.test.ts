import { afterEach, expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { mkdtemp, readdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { denoProgram } from "../../scripts/test_deno.ts";
import type { Finish } from "../../src/ledger/ledger_store.ts";
import { openSpool } from "../../src/ledger/spool.ts";
import { a, startNameServer } from "../name_server.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";

/** The spool alone: waiting settlements are counted, and a full disk loses and delays nothing. */

const folders: string[] = [];
afterEach(async () => {
  for (const folder of folders.splice(0)) await rm(folder, { recursive: true, force: true });
});
async function folder(): Promise<string> {
  const made = await mkdtemp(join(tmpdir(), "tollgate-spool-"));
  folders.push(made);
  return made;
}
const open = (directory: string, { life = 2, bytesMax = 1_000_000 } = {}) =>
  openSpool({ directory, bytesMax, startedMs: life, log: quietLog().log });

const settlement = (requestId: string): Finish => ({
  requestId,
  accountId: 1,
  ...{
    keyId: 2,
    host: "h",
    modelId: "m",
    priceVersionId: null,
    markupBasisPoints: 0,
    leaseId: "lease",
    packageId: 0,
    day: null,
    keyDay: null,
  },
  ...{
    heldNanoUsd: 1n,
    heldTokens: null,
    capTokens: 10,
    reservedAtUs: 1_700_000_000_000_000,
    reportedUsage: null,
    furtherCounts: null,
    costNanoUsd: null,
    tried: null,
    routeId: 7,
    firstMs: 40,
    providerCostNanoUsd: 3n,
  },
  settles: true,
  reason: "complete",
  promptTokens: 1,
  cachedTokens: 0,
  completionTokens: 1,
  chargeNanoUsd: 12_345_678_901_234_567n,
  strict: false,
  estimated: false,
});

test("waiting settlements are counted in bytes and number, also those from before a restart; after a replay none wait", async () => {
  const directory = await folder();
  const first = await open(directory, { life: 1 });
  expect([first.waiting(), first.empty()]).toEqual([{ bytes: 0, settlements: 0 }, true]);
  await Promise.all(["a", "b", "c"].map((id) => first.add(settlement(id))));
  const { bytes } = first.waiting();
  expect([first.waiting().settlements, first.empty()]).toEqual([3, false]);
  const next = await open(directory, { bytesMax: bytes });
  expect([next.waiting(), next.ready()]).toEqual([{ bytes, settlements: 3 }, false]);
  const seen: Finish[] = [];
  expect(await next.replay(async (finish) => void seen.push(finish))).toBe(3);
  expect(seen).toEqual(["a", "b", "c"].map(settlement));
  expect([next.waiting(), next.empty(), next.ready()]).toEqual([{ bytes: 0, settlements: 0 }, true, true]);
  expect(await readdir(directory)).toEqual([]);
});

test("a replica of an older release finds the files, and this one finds those of every release", async () => {
  const directory = await folder();
  await (await open(directory)).add(settlement("a"));
  const names = await readdir(directory);
  expect(names).toEqual([expect.stringMatching(/^\d{15}-\d+\.spool$/)]);
  const line = await readFile(join(directory, String(names[0])), "utf8");
  await writeFile(join(directory, "000000000000001-000000.spool"), line);
  await writeFile(join(directory, "000000000000001-1f2e3d4c-000000.spool"), line);
  expect((await open(directory)).waiting().settlements).toBe(3);
});

test("a settlement with a markup is replayed with all its amounts; a line from before there were markups has none", async () => {
  const directory = await folder();
  const marked: Finish = { ...settlement("a"), markupBasisPoints: 250, costNanoUsd: 12_044_564_781_692_260n };
  await (await open(directory, { life: 1 })).add(marked);
  const [file] = await readdir(directory);
  const path = join(directory, String(file));
  const { furtherCounts, markupBasisPoints, costNanoUsd, ...former } = JSON.parse(await readFile(path, "utf8"));
  await writeFile(path, `${JSON.stringify({ ...former, requestId: "b" })}\n`, { flag: "a" });
  const seen: Finish[] = [];
  await (await open(directory)).replay(async (finish) => void seen.push(finish));
  expect(seen).toEqual([marked, settlement("b")]);
});

test("a replay that fails keeps exactly the settlements that were not applied", async () => {
  const spool = await open(await folder());
  await spool.add(settlement("a"));
  await spool.add(settlement("b"));
  const failing = spool.replay(async ({ requestId }) => {
    if (requestId === "b") throw new Error("the database is away");
  });
  await expect(failing).rejects.toThrow("away");
  await spool.add(settlement("c"));
  const seen: string[] = [];
  await spool.replay(async ({ requestId }) => void seen.push(requestId));
  expect(seen).toEqual(["b", "c"]);
  expect(spool.empty()).toBe(true);
});

test("two processes on one folder: the one that starts takes over what it finds, and what the other writes meanwhile is not lost", async () => {
  const directory = await folder();
  const old = await open(directory, { life: 1 });
  await old.add(settlement("a"));
  const next = await open(directory, { life: 1 });
  const seen: string[] = [];
  const { promise: mayEnd, resolve: end } = Promise.withResolvers<void>();
  const { promise: begun, resolve: begin } = Promise.withResolvers<void>();
  const replay = next.replay(async ({ requestId }) => {
    begin();
    await mayEnd;
    seen.push(requestId);
  });
  await begun; // It has read the file.
  await old.add(settlement("b"));
  end();
  expect(await replay).toBe(1);
  expect(old.waiting().settlements).toBe(1);
  await old.replay(async ({ requestId }) => void seen.push(requestId));
  expect(seen).toEqual(["a", "b"]);
  expect(await readdir(directory)).toEqual([]);
});

test("the replay after a failed one sends only the failed settlements: none is set aside twice", async () => {
  const spool = await open(await folder());
  for (const id of ["a", "b", "c"]) await spool.add(settlement(id));
  const seen: string[] = [];
  const apply = async (finish: Finish) => {
    seen.push(finish.requestId);
    if (finish.requestId === "b" && seen.length < 5) throw new Error("its account is locked");
    if (finish.requestId === "c") await spool.setAside(finish);
  };
  for (let i = 0; i < 2; i++) await expect(spool.replay(apply)).rejects.toThrow("locked");
  expect(await spool.replay(apply)).toBe(1);
  expect(seen).toEqual(["a", "b", "c", "b", "b"]);
  expect([spool.aside(), spool.empty()]).toEqual([1, true]);
});

test("a full disk: the spool is not ready, settlements wait in memory, a replay still works and makes room, nothing is lost", async () => {
  const directory = await folder();
  await (await open(directory, { life: 1 })).add(settlement("old"));
  const spool = await open(directory);
  const [taken = ""] = await readdir(directory);
  // Any file to which it will write is on a full disk.
  const wanted = Array.from({ length: 60 }, (_, i) =>
    taken.replace("000000.spool", `${String(i + 1).padStart(6, "0")}.spool`),
  );
  for (const name of wanted) await symlink("/dev/full", join(directory, name));
  const adding = spool.add(settlement("new"));
  await until(() => !spool.ready());
  expect([spool.empty(), spool.waiting().settlements]).toEqual([false, 2]);
  const seen: string[] = [];
  const apply = async ({ requestId }: Finish) => void seen.push(requestId);
  // Settlements that the disk refuses go to the ledger from memory.
  await spool.replay(apply);
  await adding;
  expect([seen, spool.empty(), spool.ready()]).toEqual([["old", "new"], true, false]);
  // After more than one attempt the disk is still full, and no partial file is left.
  await sleep(2_500);
  expect([spool.ready(), spool.waiting()]).toEqual([false, { bytes: 0, settlements: 0 }]);
  for (const name of wanted) await rm(join(directory, name), { force: true });
  await until(() => spool.ready());
  await spool.add(settlement("next"));
  expect(spool.waiting().settlements).toBe(1);
  await spool.replay(apply);
  expect(seen).toEqual(["old", "new", "next"]);
  expect([spool.empty(), await readdir(directory)]).toEqual([true, []]);
});

test("settlements are spooled and names are looked up while all threads of the runtime's pool are stuck, on both runtimes", async () => {
  const dns = await startNameServer((name, type) => (type === "A" ? [a(name, "192.0.2.1")] : []));
  const made = await folder();
  const pipe = join(made, "pipe");
  expect(spawnSync("mkfifo", [pipe]).status).toBe(0);
  const { chargeNanoUsd, heldNanoUsd, providerCostNanoUsd, ...plain } = settlement("stuck");
  const program = join(import.meta.dirname, "stuck_pool.ts");
  const deno = [denoProgram(), "run", "--no-prompt", "--no-lock", "--node-modules-dir=manual", "--allow-all", program];
  for (const [i, command] of [[process.execPath, program], deno].entries()) {
    const args = [join(made, `spool${i}`), pipe, dns.address, JSON.stringify(plain)];
    const child = Bun.spawn([...command, ...args], { stdout: "pipe", stderr: "inherit" });
    expect(JSON.parse(await new Response(child.stdout).text())).toEqual({
      ...{ opened: 0, settlements: 2, replayed: 2 },
      found: [{ address: "192.0.2.1", family: 4 }],
    });
  }
  dns.close();
});
