import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect, createServer, type Server, type Socket } from "node:net";
import { checkDns, type DnsReport } from "../../src/accounts/dns_check.ts";
import { type DomainChecks, startDomainChecks } from "../../src/accounts/domain_checks.ts";
import { finishCheck, type StartedCheck, startCheck, startDueChecks } from "../../src/accounts/domain_checks_store.ts";
import { instructionsFor, recordsOf } from "../../src/accounts/domain_records.ts";
import { afterCheck, type DomainState } from "../../src/accounts/domain_states.ts";
import { addHost, findHost, type HostRef, removeHost, setHostStatus } from "../../src/accounts/hosts_store.ts";
import { readConfig } from "../../src/config.ts";
import { createLog } from "../../src/platform/log.ts";
import { type DnsServer, deadResolver, startDnsServer } from "../dns_server.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** Source: DOM-1, DOM-2, DOM-3, DOM-4. */

const OURS = "203.0.113.7";
const THEIRS = "198.51.100.4";
const ZONE = "acme.test";
const WAIT_MS_MAX = 60_000;
const by = { accountId: 0, requestId: "01890a5d-ac96-774b-bcce-b302099a8057" };

let world: AccountsWorld;
let dns: DnsServer[];
let relay: CountingRelay;
const open: DomainChecks[] = [];
const records: string[] = [];

beforeAll(async () => {
  world = await createAccountsWorld();
  dns = await Promise.all([startDnsServer({ [ZONE]: [] }), startDnsServer({ [ZONE]: [] })]);
  relay = await startCountingRelay(dns[0]?.resolver ?? "");
  by.accountId = (await world.addAdmin()).accountId;
});
afterAll(async () => {
  await Promise.all(open.map((checks) => checks.close()));
  relay.close();
  await Promise.all(dns.map((server) => server.stop()));
  await world.close();
});

/** Adds records to the zone, on both servers. */
function setRecords(...more: string[]): void {
  records.push(...more);
  for (const server of dns) server.setRecords(ZONE, records);
}

/** Deletes the records of these labels. */
function dropRecords(...labels: string[]): void {
  const left = records.filter((record) => !labels.includes(record.split(" ")[0] ?? ""));
  records.splice(0, records.length, ...left);
  for (const server of dns) server.setRecords(ZONE, records);
}

function start(options: { tickMs?: number; resolvers?: string[] } = {}): DomainChecks {
  const dnsResolvers = options.resolvers ?? dns.map(({ resolver }) => resolver);
  const checks = startDomainChecks({
    db: world.deps.db,
    bus: world.deps.bus,
    config: { serverAddresses: [OURS], dnsResolvers },
    log: createLog("silent"),
    tickMs: options.tickMs ?? 0,
  });
  open.push(checks);
  return checks;
}

async function addDomain(host: string, status: "pending" | "active" = "pending"): Promise<HostRef> {
  const { accountId: resellerId } = await world.addReseller();
  await addHost(world.deps, { host, resellerId, status });
  return { host, resellerId };
}

async function look(ref: HostRef) {
  const found = await findHost(world.deps, ref);
  if (!found) throw new Error(`there is no ${ref.host}`);
  return found;
}

/** Moves the last check into the past. */
async function forgetLastCheck({ host }: HostRef): Promise<void> {
  await world.sql`update hosts set checked_at = null where host = ${host}`;
}

/** Requests a check, regardless of when the last one was. */
async function ask(checks: DomainChecks, ref: HostRef) {
  await forgetLastCheck(ref);
  return checks.now(ref, by);
}

/** Makes the next check due, and runs it as the job does. */
async function due(checks: DomainChecks, ref: HostRef) {
  await world.sql`update hosts set next_check_at = clock_timestamp() - interval '1 second'
    where host = ${ref.host} and reseller_id = ${ref.resellerId}`;
  return ask(checks, ref);
}

/** The database's clock, in ms. */
async function readClock(): Promise<number> {
  const [row] = await world.sql`select floor(extract(epoch from clock_timestamp()) * 1000)::float8 as ms`;
  return Number(row?.ms);
}

/** Does something, and returns what checks that an instant lies so many seconds after it, by the database's clock. */
async function timed<T>(act: () => Promise<T>) {
  const from = await readClock();
  const result = await act();
  const to = await readClock();
  const expectAfter = (instant: string | null, seconds: number) =>
    expect(Date.parse(instant ?? "") - seconds * 1000).toBeWithin(from, to + 1);
  return { result, expectAfter };
}

const HOUR = 3600;

async function until(isSo: () => Promise<boolean>): Promise<void> {
  const endsAt = performance.now() + WAIT_MS_MAX;
  while (!(await isSo())) {
    if (performance.now() > endsAt) throw new Error("it does not come true");
    await Bun.sleep(20);
  }
}

describe("the state after a check", () => {
  const state = (over: Partial<DomainState> = {}): DomainState => ({
    status: "active",
    failures: 0,
    byHand: false,
    ...over,
  });

  test("verifying: checked every minute at first, then less often; failed after 72 hours of wrong answers", () => {
    let at = 0;
    let failures = 0;
    const pace: number[] = [];
    for (;;) {
      const step = afterCheck(state({ status: "verifying", failures }), "wrong", true);
      failures = step.failures;
      if (step.status === "failed") break;
      expect(step.status).toBe("verifying");
      pace.push(Number(step.nextSeconds));
      at += Number(step.nextSeconds);
    }
    expect(pace.slice(0, 10)).toEqual(Array(10).fill(60));
    expect(pace).toEqual([...pace].sort((a, b) => a - b));
    expect(pace.at(-1)).toBe(HOUR);
    expect(at).toBe(72 * HOUR);
    expect(afterCheck(state({ status: "verifying", failures: 5000 }), "unknown", true)).toMatchObject({
      status: "verifying",
      nextSeconds: HOUR,
    });
  });

  test("active: three wrong checks in a row, over a day, switch it off", () => {
    const once = afterCheck(state(), "wrong", true);
    const twice = afterCheck(state(once), "wrong", true);
    expect([once.status, twice.status]).toEqual(["active", "active"]);
    expect(Number(once.nextSeconds) + Number(twice.nextSeconds)).toBeGreaterThanOrEqual(24 * HOUR);
    expect(afterCheck(state(twice), "wrong", true)).toEqual({ status: "suspended", failures: 3, nextSeconds: HOUR });
    expect(afterCheck(state(twice), "ok", true)).toEqual({ status: "active", failures: 0, nextSeconds: 24 * HOUR });
  });

  test("an unknown result neither switches a domain off nor resets its wrong checks", () => {
    for (const failures of [0, 1, 2, 500])
      expect(afterCheck(state({ failures }), "unknown", true)).toEqual({
        status: "active",
        failures,
        nextSeconds: HOUR,
      });
  });

  test("a check that was not due counts only if it is right", () => {
    for (const status of ["verifying", "active", "suspended"] as const) {
      const before = state({ status, failures: 2 });
      const kept = { status, failures: 2, nextSeconds: "kept" as const };
      expect(afterCheck(before, "wrong", false)).toEqual(kept);
      expect(afterCheck(before, "unknown", false)).toEqual(kept);
      expect(afterCheck(before, "ok", false)).toEqual({ status: "active", failures: 0, nextSeconds: 24 * HOUR });
    }
  });

  test("suspended by checks: checked each hour, active when right; suspended by hand: never; activated by hand: active until a check is right", () => {
    const off = state({ status: "suspended", failures: 3 });
    expect(afterCheck(off, "wrong", true)).toEqual({ status: "suspended", failures: 3, nextSeconds: HOUR });
    expect(afterCheck(off, "ok", true)).toMatchObject({ status: "active", failures: 0 });
    for (const verdict of ["ok", "wrong", "unknown"] as const)
      expect(afterCheck({ ...off, byHand: true }, verdict, false)).toMatchObject({
        status: "suspended",
        nextSeconds: "kept",
      });
    expect(afterCheck(state({ byHand: true }), "wrong", false)).toMatchObject({
      status: "active",
      nextSeconds: "kept",
    });
    expect(afterCheck(state({ byHand: true }), "ok", false)).toMatchObject({
      status: "active",
      nextSeconds: 24 * HOUR,
    });
  });
});

test("records to set: an A record for each address, TXT only for a contested name, with labels relative to the zone", () => {
  const domain = { host: "ai.acme.co.uk", contested: false, token: "t0ken" };
  const two = { serverAddresses: [OURS, "203.0.113.8"] };
  expect(recordsOf(domain, two)).toEqual([
    { type: "A", name: "ai.acme.co.uk", label: "ai", value: OURS },
    { type: "A", name: "ai.acme.co.uk", label: "ai", value: "203.0.113.8" },
  ]);
  const contested = recordsOf({ ...domain, contested: true }, two);
  expect(contested[2]).toEqual({ type: "TXT", name: "_verify.ai.acme.co.uk", label: "_verify.ai", value: "t0ken" });
  const text = instructionsFor(domain.host, contested);
  for (const part of ["ai.acme.co.uk", OURS, "203.0.113.8", "_verify.ai", "t0ken", "AAAA", "CNAME"])
    expect(text).toContain(part);
  expect(text).toMatch(/^[\x20-\x7e\n]+$/);
  expect(text.toLowerCase()).not.toMatch(/tollgate|gateway|reseller/);
});

describe("checks", () => {
  test("only a domain that begins or ends to be served is a change for the caches, and of its reseller alone", async () => {
    const noted = async () => {
      const rows = await world.sql`delete from changes returning kind, ref`;
      return rows.map(({ kind, ref }) => `${kind}:${ref}`);
    };
    const checks = start();
    const ref = await addDomain("quiet.acme.test");
    await noted();
    setRecords(`quiet A ${THEIRS}`);
    for (let i = 0; i < 3; i++) await ask(checks, ref);
    expect(await look(ref)).toMatchObject({ status: "verifying" });
    expect(await noted()).toEqual([]);
    dropRecords("quiet");
    setRecords(`quiet A ${OURS}`);
    await ask(checks, ref);
    expect(await look(ref)).toMatchObject({ status: "active" });
    expect(await noted()).toEqual([`account:${ref.resellerId}`]);
    await due(checks, ref);
    expect(await noted()).toEqual([]);
    const { accountId: other } = await world.addReseller();
    await noted();
    await world.sql`update hosts set reseller_id = ${other} where host = ${ref.host}`;
    expect((await noted()).sort()).toEqual([`account:${ref.resellerId}`, `account:${other}`].sort());
    await world.sql`delete from hosts where host = ${ref.host}`;
    expect(await noted()).toEqual([`account:${other}`]);
  });

  test("a pending domain waits; a requested check verifies it: a wrong answer says what to do, a right one makes it active until tomorrow's check", async () => {
    const checks = start();
    const ref = await addDomain("first.acme.test");
    setRecords(`first A ${THEIRS}`);
    const first = await timed(() => checks.now(ref, by));
    const wrong = first.result;
    expect(wrong).toMatchObject({ status: "verifying", failures: 1, activatedAt: null });
    expect(wrong.report?.todo).toEqual([{ kind: "change_a", from: THEIRS, to: OURS }]);
    first.expectAfter(wrong.nextCheckAt, 60);
    dropRecords("first");
    setRecords(`first A ${OURS}`);
    const second = await timed(() => ask(checks, ref));
    const right = second.result;
    expect(right).toMatchObject({ status: "active", failures: 0, contested: false, byHand: false });
    expect(right.report?.verdict).toBe("ok");
    second.expectAfter(right.activatedAt, 0);
    second.expectAfter(right.nextCheckAt, 24 * HOUR);
    const log = await world.sql`select actor_id, before, after from audit_entries
      where subject = 'hosts' and subject_id = ${ref.host} order by id`;
    expect(log.map(({ actor_id, after }) => [actor_id === null ? null : Number(actor_id), after.status])).toEqual([
      [null, "pending"],
      [by.accountId, "verifying"],
      [by.accountId, "active"],
    ]);
  });

  test("an AAAA record beside the right A record: not active", async () => {
    const ref = await addDomain("six.acme.test");
    setRecords(`six A ${OURS}`, "six AAAA 2001:db8::1");
    const seen = await start().now(ref, by);
    expect(seen.status).toBe("verifying");
    expect(seen.report?.todo).toEqual([{ kind: "delete_aaaa", value: "2001:db8::1" }]);
  });

  test("checks of a domain are at least five seconds apart; another account's domain and an absent one are not found", async () => {
    const [checks, elsewhere] = [start(), start()];
    const ref = await addDomain("often.acme.test");
    const answers = await Promise.allSettled(
      Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? checks : elsewhere).now(ref, by)),
    );
    expect(answers.filter(({ status }) => status === "fulfilled").length).toBe(1);
    for (const answer of answers)
      if (answer.status === "rejected") expect(answer.reason).toMatchObject({ code: "too_many_requests" });
    await expect(checks.now(ref, by)).rejects.toMatchObject({
      code: "too_many_requests",
      facts: { retryAfterSeconds: 5 },
    });
    const stranger = { ...ref, resellerId: (await world.addReseller()).accountId };
    for (const absent of [stranger, { ...ref, host: "absent.acme.test" }, { ...ref, resellerId: Number.NaN }])
      await expect(checks.now(absent, by)).rejects.toMatchObject({ code: "not_found" });
  });

  test("after 72 hours without success a domain has failed and is not checked; a requested check starts again", async () => {
    const checks = start();
    const ref = await addDomain("never.acme.test");
    await checks.now(ref, by);
    await world.sql`update hosts set failures = 106 where host = ${ref.host}`;
    expect((await ask(checks, ref)).status).toBe("verifying");
    expect(await due(checks, ref)).toMatchObject({ status: "failed", nextCheckAt: null });
    expect(await ask(checks, ref)).toMatchObject({ status: "verifying", failures: 1 });
  });

  test("an active domain with wrong records is off after three scheduled checks, and active again when they are right", async () => {
    const checks = start();
    const ref = await addDomain("turn.acme.test");
    setRecords(`turn A ${OURS}`);
    const { activatedAt } = await checks.now(ref, by);
    dropRecords("turn");
    setRecords(`turn A ${THEIRS}`);
    for (let i = 0; i < 4; i++) expect((await ask(checks, ref)).failures).toBe(0);
    for (const failures of [1, 2]) {
      const { result: later, expectAfter } = await timed(() => due(checks, ref));
      expect(later).toMatchObject({ status: "active", failures });
      expectAfter(later.nextCheckAt, 12 * HOUR);
      const again = await ask(checks, ref);
      expect(again).toMatchObject({ status: "active", failures, nextCheckAt: later.nextCheckAt });
    }
    const lock = `select pg_advisory_xact_lock_shared(-${ref.resellerId})`;
    expect(await world.whileLocked(lock, () => due(checks, ref))).toMatchObject({ status: "suspended", failures: 3 });
    const { result: still, expectAfter } = await timed(() => due(checks, ref));
    expect(still).toMatchObject({ status: "suspended", contested: false });
    expectAfter(still.nextCheckAt, HOUR);
    // Another account's claim does not delay the owner.
    await addHost(world.deps, { host: ref.host, resellerId: (await world.addReseller()).accountId });
    dropRecords("turn");
    setRecords(`turn A ${OURS}`);
    const back = await due(checks, ref);
    expect(back).toMatchObject({ status: "active", failures: 0 });
    expect(Date.parse(back.activatedAt ?? "")).toBeGreaterThan(Date.parse(activatedAt ?? ""));
  });

  test("resolvers that do not answer never switch a domain off", async () => {
    const ref = await addDomain("calm.acme.test");
    setRecords(`calm A ${OURS}`);
    const checks = start();
    await checks.now(ref, by);
    dropRecords("calm");
    await due(checks, ref);
    await due(checks, ref);
    const blind = start({ resolvers: [await deadResolver(), await deadResolver()] });
    const { result: seen, expectAfter } = await timed(() => due(blind, ref));
    expect(seen).toMatchObject({ status: "active", failures: 2 });
    expect(seen.report?.verdict).toBe("unknown");
    expectAfter(seen.nextCheckAt, HOUR);
    expect(await due(checks, ref)).toMatchObject({ status: "suspended" });
  });

  test("set by hand: wrong answers change nothing; after a right one the checks decide", async () => {
    const checks = start();
    const ref = await addDomain("hand.acme.test", "active");
    expect(await ask(checks, ref)).toMatchObject({ status: "active", byHand: true, failures: 0, nextCheckAt: null });
    setRecords(`hand A ${OURS}`);
    await setHostStatus({ ...world.deps, by }, { ...ref, status: "suspended", reason: "unpaid <b>" });
    expect(await ask(checks, ref)).toMatchObject({ status: "suspended", byHand: true, nextCheckAt: null });
    await setHostStatus(world.deps, { ...ref, status: "active" });
    expect(await ask(checks, ref)).toMatchObject({ status: "active", byHand: false });
    const reasons = await world.sql`select actor_id, account_id, after from audit_entries
      where subject = 'hosts' and subject_id = ${ref.host} and after ? 'reason'`;
    expect(reasons.map((row) => [Number(row.actor_id), Number(row.account_id), row.after])).toEqual([
      [by.accountId, ref.resellerId, { reason: "unpaid <b>" }],
    ]);
    await expect(setHostStatus(world.deps, { ...ref, status: "suspended", reason: "a\nb" })).rejects.toThrow("plain");
  });

  test("without configured addresses nothing is checked, and a message says so", async () => {
    const config = { serverAddresses: [], dnsResolvers: dns.map(({ resolver }) => resolver) };
    const checks = startDomainChecks({ ...world.deps, config, log: createLog("silent"), tickMs: 10 });
    open.push(checks);
    const ref = await addDomain("nowhere.acme.test");
    await expect(checks.now(ref, by)).rejects.toThrow("SERVER_ADDRESSES");
    expect(await look(ref)).toMatchObject({ status: "pending", checkedAt: null });
  });
});

describe("contested names", () => {
  const proof = (label: string, token: string) => `_verify.${label} TXT "${token}"`;

  test("a claimant who proves the name takes it over; the former owner's domain is off immediately and needs a new proof", async () => {
    const checks = start();
    const owner = await addDomain("prize.acme.test");
    setRecords(`prize A ${OURS}`);
    await checks.now(owner, by);
    const claimant = await addDomain("prize.acme.test");
    const wrong = await checks.now(claimant, by);
    expect(wrong).toMatchObject({ status: "verifying", contested: true });
    expect(wrong.report?.todo).toEqual([
      { kind: "add_txt", name: "_verify.prize.acme.test", value: (await look(claimant)).token },
    ]);
    expect(await look(owner)).toMatchObject({ status: "active", contested: false });

    setRecords(proof("prize", wrong.token), proof("prize", (await look(owner)).token));
    const lock = `select pg_advisory_xact_lock_shared(-${owner.resellerId})`;
    const won = await world.whileLocked(lock, () => ask(checks, claimant));
    expect(won).toMatchObject({ status: "active", contested: false });
    const lost = await look(owner);
    expect(lost).toMatchObject({ status: "suspended", contested: true, byHand: false });

    // Its old proof is still in the DNS, but is no longer valid.
    const again = await due(checks, owner);
    expect(again.status).toBe("suspended");
    expect(again.report?.todo).toMatchObject([{ kind: "add_txt", value: lost.token }]);
    expect((await look(claimant)).status).toBe("active");
    setRecords(proof("prize", lost.token));
    expect((await due(checks, owner)).status).toBe("active");
    expect((await look(claimant)).status).toBe("suspended");
  });

  test("a name that was given up must be proven by the next claimant", async () => {
    const checks = start();
    const former = await addDomain("given.acme.test");
    setRecords(`given A ${OURS}`);
    await checks.now(former, by);
    await removeHost(world.deps, former, false);
    const next = await addDomain("given.acme.test");
    const wrong = await checks.now(next, by);
    expect(wrong.status).toBe("verifying");
    setRecords(proof("given", wrong.token));
    expect((await ask(checks, next)).status).toBe("active");
  });

  const right: DnsReport = { verdict: "ok", resolvers: [], todo: [] };
  const claimOf = async (ref: HostRef): Promise<StartedCheck> => {
    const claim = await startCheck(world.deps, ref);
    if (!claim) throw new Error("too soon");
    return claim;
  };

  test("a second claim during the first one's check: not active without a proof, checked again immediately", async () => {
    const first = await addDomain("late.acme.test");
    const claim = await claimOf(first);
    expect(claim.contested).toBe(false);
    await addDomain("late.acme.test");
    expect(await finishCheck(world.deps, claim, right)).toBeUndefined();
    const seen = await look(first);
    expect(seen).toMatchObject({ status: "verifying", contested: true, activatedAt: null });
    expect(Date.parse(seen.nextCheckAt ?? "")).toBeLessThanOrEqual(await readClock());
  });

  test("a name that a wildcard record leads to us must be proven, because nobody has set it", async () => {
    const checks = start();
    setRecords(`*.wild A ${OURS}`);
    // The owner of the zone and a stranger, who knows that every name in it leads to us.
    const owner = await addDomain("shop.wild.acme.test");
    const stranger = await addDomain("login.wild.acme.test");
    for (const ref of [owner, stranger]) {
      const seen = await checks.now(ref, by);
      expect(seen).toMatchObject({ status: "verifying", contested: true, activatedAt: null });
      const { host, token } = seen;
      expect(seen.report?.todo).toEqual([{ kind: "add_txt", name: `_verify.${host}`, value: token }]);
      expect(recordsOf(seen, { serverAddresses: [OURS] })).toMatchObject([
        { type: "A" },
        { type: "TXT", value: token },
      ]);
      expect((await due(checks, ref)).status).toBe("verifying");
    }
    // With a record below it the name exists, and the wildcard no longer answers for it.
    setRecords(proof("shop.wild", (await look(owner)).token), `shop.wild A ${OURS}`);
    expect(await ask(checks, owner)).toMatchObject({ status: "active", contested: false });
    // An active domain is checked as before.
    dropRecords("_verify.shop.wild");
    expect(await due(checks, owner)).toMatchObject({ status: "active", failures: 0 });
    expect(await due(checks, stranger)).toMatchObject({ status: "verifying", contested: true });
    // Without the wildcard an A record is enough again.
    dropRecords("*.wild");
    setRecords(`login.wild A ${OURS}`, `*.wild A ${THEIRS}`);
    await ask(checks, stranger);
    expect(await ask(checks, stranger)).toMatchObject({ status: "active", contested: false });
  });

  test("two claimants prove a name at the same moment, for twenty names: each name has exactly one owner", async () => {
    const pairs: HostRef[][] = [];
    for (let i = 0; i < 20; i++)
      pairs.push([await addDomain(`race${i}.acme.test`), await addDomain(`race${i}.acme.test`)]);
    const claims = await Promise.all(pairs.flat().map(claimOf));
    expect(claims.every(({ contested }) => contested)).toBe(true);
    const settled = await Promise.all(claims.map((claim) => finishCheck(world.deps, claim, right)));
    expect(settled.filter((result) => result?.to === "active").length).toBe(20);
    const owners = await world.sql`select host, count(*)::int as owners from hosts
      where host like 'race%' and status = 'active' group by host`;
    expect(owners.map(({ owners: count }) => count)).toEqual(Array(20).fill(1));
  });

  test("two claimants, both proofs in the DNS, twenty concurrent checks: one owner, who stays the owner", async () => {
    const checks = [start(), start()] as const;
    const claimants = [await addDomain("both.acme.test"), await addDomain("both.acme.test")];
    const tokens = await Promise.all(claimants.map(async (ref) => (await look(ref)).token));
    setRecords(`both A ${OURS}`, ...tokens.map((token) => proof("both", token)));
    await Promise.allSettled(
      Array.from({ length: 20 }, (_, i) => checks[i < 10 ? 0 : 1].now(claimants[i % 2] as HostRef, by)),
    );
    const statuses = async () => (await Promise.all(claimants.map(look))).map(({ status }) => status).sort();
    expect(await statuses()).toEqual(["active", "verifying"]);
    for (const ref of claimants) await due(checks[0], ref);
    expect(await statuses()).toEqual(["active", "verifying"]);
  });

  test("a change of a domain during its check wins over the check", async () => {
    const removed = await addDomain("gone.acme.test");
    const claim = await claimOf(removed);
    await removeHost(world.deps, removed, false);
    expect(await finishCheck(world.deps, claim, right)).toBeUndefined();
    await addHost(world.deps, removed);
    expect(await finishCheck(world.deps, claim, right)).toBeUndefined();
    expect(await look(removed)).toMatchObject({ status: "pending", report: null });

    const overtaken = await addDomain("slow.acme.test");
    const slow = await claimOf(overtaken);
    await forgetLastCheck(overtaken);
    const quick = await claimOf(overtaken);
    expect(await finishCheck(world.deps, quick, { ...right, verdict: "wrong" })).toMatchObject({ to: "verifying" });
    expect(await finishCheck(world.deps, slow, right)).toBeUndefined();
    expect(await look(overtaken)).toMatchObject({ status: "verifying", report: { verdict: "wrong" } });

    const held = await addDomain("held.acme.test");
    const second = await claimOf(held);
    await setHostStatus(world.deps, { ...held, status: "suspended" });
    await finishCheck(world.deps, second, right);
    expect(await look(held)).toMatchObject({ status: "suspended", byHand: true });
  });
});

test("addresses and resolvers are checked at start; there must be two resolvers", () => {
  const env = { DATABASE_URL: world.url, SECRET_KEY: "11".repeat(32) };
  expect(readConfig(env)).toMatchObject({ serverAddresses: [], dnsResolvers: ["1.1.1.1", "9.9.9.9"] });
  expect(
    readConfig({
      ...env,
      NODE_ENV: "production",
      SERVER_ADDRESSES: "203.0.113.7, 203.0.113.8",
      DNS_RESOLVERS: "[2620:fe::fe]:53,127.0.0.1:5353",
    }),
  ).toMatchObject({
    serverAddresses: ["203.0.113.7", "203.0.113.8"],
    dnsResolvers: ["[2620:fe::fe]:53", "127.0.0.1:5353"],
  });
  const many = Array.from({ length: 11 }, (_, i) => `203.0.113.${i}`).join(",");
  for (const wrong of ["2001:db8::1", "203.0.113.7:80", "ai.acme.test", "203.0.113", many])
    expect(() => readConfig({ ...env, SERVER_ADDRESSES: wrong })).toThrow("SERVER_ADDRESSES must be");
  for (const wrong of ["1.1.1.1", "1.1.1.1,1.1.1.1:53", "1.1.1.1,one.one.one.one", "1.1.1.1,9.9.9.9:0", many])
    expect(() => readConfig({ ...env, DNS_RESOLVERS: wrong })).toThrow("DNS_RESOLVERS must be");
});

describe("the job", () => {
  test("domains that are due are checked, others are not", async () => {
    const [verifying, pending] = [await addDomain("self.acme.test"), await addDomain("idle.acme.test")];
    setRecords(`self A ${OURS}`, `idle A ${OURS}`);
    await world.sql`update hosts set status = 'verifying', next_check_at = clock_timestamp() where host = ${verifying.host}`;
    const checks = start({ tickMs: 50 });
    await until(async () => (await look(verifying)).status === "active");
    await checks.close();
    expect(await look(pending)).toMatchObject({ status: "pending", checkedAt: null });
    const [entry] = await world.sql`select actor_id, request_id, before, after from audit_entries
      where subject_id = ${verifying.host} order by id desc limit 1`;
    expect(entry).toMatchObject({ actor_id: null, request_id: null, before: { status: "verifying" } });
  });

  test("three replicas, forty domains due at once: each is checked once", async () => {
    const refs: HostRef[] = [];
    const { accountId: resellerId } = await world.addReseller();
    for (let i = 0; i < 40; i++) refs.push({ host: `many${i}.acme.test`, resellerId });
    setRecords(...refs.map((_, i) => `many${i} A ${OURS}`));
    await world.sql`insert into hosts (host, reseller_id, status, next_check_at)
      select 'many' || i || '.acme.test', ${resellerId}, 'verifying', clock_timestamp() from generate_series(0, 39) i`;
    relay.asked.clear();
    const replicas = [1, 2, 3].map(() => start({ tickMs: 20, resolvers: [relay.resolver, dns[1]?.resolver ?? ""] }));
    await until(async () => {
      const [row] =
        await world.sql`select count(*)::int as left from hosts where host like 'many%' and status <> 'active'`;
      return row?.left === 0;
    });
    await Promise.all(replicas.map((checks) => checks.close()));
    // Domains of other tests may be due as well.
    const asked = [...relay.asked].filter(([host]) => host.startsWith("many")).sort();
    expect(asked).toEqual(refs.map(({ host }): [string, number] => [host, 1]).sort());
  });

  test("two callers never claim the same domain; after a replica died its domain is due again in half a minute", async () => {
    const ref = await addDomain("dead.acme.test");
    await world.sql`update hosts set status = 'verifying', next_check_at = clock_timestamp() where host = ${ref.host}`;
    const { result, expectAfter } = await timed(() =>
      Promise.all([1, 2, 3, 4].map(() => startDueChecks(world.deps, 5))),
    );
    const claims = result.flat();
    expect(claims.filter(({ host }) => host === ref.host).length).toBe(1);
    const left = await look(ref);
    expect(left).toMatchObject({ status: "verifying", failures: 0 });
    expectAfter(left.nextCheckAt, 30);
  });

  test("a claim never makes a check due earlier", async () => {
    const ref = await addDomain("far.acme.test", "active");
    await world.sql`update hosts set next_check_at = clock_timestamp() + interval '1 day' where host = ${ref.host}`;
    const { nextCheckAt } = await look(ref);
    expect(await startCheck(world.deps, ref)).toMatchObject({ isDue: false });
    expect((await look(ref)).nextCheckAt).toBe(nextCheckAt);
  });

  test("closing waits for the running check, and starts no other", async () => {
    const ref = await addDomain("close.acme.test");
    await world.sql`update hosts set status = 'verifying', next_check_at = clock_timestamp() where host = ${ref.host}`;
    const checks = start({ tickMs: 10 });
    await until(async () => (await look(ref)).checkedAt !== null);
    await checks.close();
    expect((await look(ref)).report).not.toBeNull();
    await world.sql`update hosts set report = null, next_check_at = clock_timestamp() where host = ${ref.host}`;
    await Bun.sleep(100);
    expect((await look(ref)).report).toBeNull();
  });
});

test("one reseller's slow domains leave room for the checks of others", async () => {
  // Accepts questions and never answers: each check takes its whole time limit.
  const silent = createServer(() => {});
  await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
  const address = silent.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  const checks = start({ resolvers: [`127.0.0.1:${port}`] });
  const { accountId: resellerId } = await world.addReseller();
  const slow = Array.from({ length: 8 }, (_, i) => ({ host: `slow${i}.acme.test`, resellerId }));
  for (const ref of slow) await addHost(world.deps, ref);
  const other = await addDomain("quick.acme.test");
  const asked = slow.map((ref) => checks.now(ref, by));
  const others = [checks.now(other, by)];
  const results = await Promise.allSettled(asked);
  expect(results.filter(({ status }) => status === "fulfilled").length).toBe(2);
  for (const result of results)
    if (result.status === "rejected") expect(result.reason).toMatchObject({ code: "too_many_requests" });
  expect(await Promise.all(others)).toMatchObject([{ status: "verifying" }]);
  silent.close();
});

type CountingRelay = { resolver: string; asked: Map<string, number>; close(): void };

/** Forwards questions to a DNS server, and counts the A questions by name. */
async function startCountingRelay(resolver: string): Promise<CountingRelay> {
  const asked = new Map<string, number>();
  const server: Server = createServer((client: Socket) => {
    const upstream = connect({ host: "127.0.0.1", port: Number(resolver.split(":")[1]) });
    let seen = Buffer.alloc(0);
    client.on("data", (bytes: Buffer) => {
      seen = Buffer.concat([seen, bytes]);
      while (seen.length >= 2 && seen.length >= 2 + seen.readUInt16BE(0)) {
        count(seen.subarray(2, 2 + seen.readUInt16BE(0)));
        seen = seen.subarray(2 + seen.readUInt16BE(0));
      }
      upstream.write(bytes);
    });
    upstream.on("data", (bytes: Buffer) => client.write(bytes));
    for (const [one, other] of [
      [client, upstream],
      [upstream, client],
    ] as const) {
      one.on("error", () => other.destroy());
      one.on("close", () => other.destroy());
    }
  });
  const count = (question: Buffer) => {
    if (question.readUInt16BE(question.length - 4) !== 1) return;
    const labels: string[] = [];
    for (let at = 12; question.readUInt8(at) > 0; at += 1 + question.readUInt8(at))
      labels.push(question.toString("latin1", at + 1, at + 1 + question.readUInt8(at)));
    const name = labels.join(".");
    asked.set(name, (asked.get(name) ?? 0) + 1);
  };
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const address = server.address();
  const port = address !== null && typeof address === "object" ? address.port : 0;
  const counting = { resolver: `127.0.0.1:${port}`, asked, close: () => void server.close() };
  const { verdict } = await checkDns({
    host: `ns.${ZONE}`,
    addresses: ["127.0.0.1"],
    txt: null,
    resolvers: [counting.resolver],
  });
  if (verdict !== "ok" || asked.get(`ns.${ZONE}`) !== 1) throw new Error("the relay does not relay, or does not count");
  return counting;
}
