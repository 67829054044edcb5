import { expect, test } from "bun:test";
import { mkdir, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { Redis } from "ioredis";
import { openKeyLookup } from "../../src/accounts/key_lookup.ts";
import { boundsKey } from "../../src/catalog/bound_advice.ts";
import { redisBus } from "../../src/platform/bus.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { migrationState } from "../../src/platform/migrate.ts";
import { ownRedis, until } from "../platform/own_redis.ts";
import { cli, cliProcess, json, provider, refused, SECRET_KEY, SLOW_MS, startCliWorld, world } from "./cli_world.ts";

/** The installation: the words of the command line, the database, providers, Redis, and what `doctor` says of all of it. */

startCliWorld();

test.concurrent(
  "migrate applies every migration to an empty database; a second run changes nothing",
  async () => {
    const name = `tollgate_test_empty_${process.pid}`;
    await world.sql.unsafe(`create database ${name}`);
    const url = new URL(world.url);
    url.pathname = `/${name}`;
    const env = { DATABASE_URL: url.href };
    try {
      const { known } = await migrationState(url.href);
      expect(await json("migrate", { env })).toEqual({ before: 0, applied: known });
      expect(await json("migrate", { env })).toEqual({ before: known, applied: known });
      expect((await cliProcess("migrate", { env })).out).toBe("The database is up to date.\n");
    } finally {
      await world.sql.unsafe(`drop database ${name} with (force)`);
    }
  },
  SLOW_MS,
);

test.concurrent(
  "an unknown option or command exits with 2; help exits with 0 and names every command",
  async () => {
    expect(await cliProcess("account list --nope")).toMatchObject({ code: 2, out: "" });
    expect(await cli("acount")).toMatchObject({
      ...{ code: 2, out: "" },
      err: expect.stringContaining("Did you mean account?"),
    });
    const { code, out } = await cliProcess("--help");
    expect(code).toBe(0);
    for (const name of "migrate provider model account package allotment offering key payg balance host usage figures doctor".split(
      " ",
    ))
      expect(out).toContain(`\n  ${name}`);
    expect((await cli("key rotate --help")).out).toContain("--overlap");
    const add = await cli("offering add --help");
    expect(add.out.replace(/\s+/g, " ")).toContain("--name <name> --kind <kind> --daily <requests> --wholesale <usd>");
    expect(add.out.replace(/\s+/g, " ")).toContain("wholesale price: what a reseller pays (required)");
    expect(await cli("offering add --name x --kind custom --daily 5")).toMatchObject({
      code: 2,
      err: expect.stringContaining("--wholesale <usd>"),
    });
  },
  SLOW_MS,
);

test.concurrent(
  "an unreachable or empty database gives one sentence that says what to do",
  async () => {
    expect(await refused("account list", { env: { DATABASE_URL: "postgres://postgres@127.0.0.1:1/x" } })).toContain(
      "correct DATABASE_URL",
    );
    const absent = new URL(world.url);
    absent.pathname = "/tollgate_absent";
    expect(await refused("account list", { env: { DATABASE_URL: absent.href } })).toContain("does not exist");
    absent.pathname = "/postgres";
    expect(await refused("account list", { env: { DATABASE_URL: absent.href } })).toContain("run migrate first");
    expect((await cli("account list", { env: { DATABASE_URL: "" } })).err).toContain("DATABASE_URL is not set");
  },
  SLOW_MS,
);

test.concurrent(
  "a provider's key is encrypted and never shown; provider test shows the time, or the exact failure",
  async () => {
    const env = { SECRET_KEY };
    expect(
      (await cli(`provider add --name sim --url ${provider.url}/v1`, { env: { PROVIDER_KEY: "x" } })).err,
    ).toContain("SECRET_KEY is not set");
    expect(await refused(`provider add --name sim --url ${provider.url}/v1`, { env })).toContain("--key-stdin");
    const added = await cli(`provider add --name sim --url ${provider.url}/v1 --key-stdin`, {
      env,
      stdin: `${provider.apiKey}\n`,
    });
    expect(added).toMatchObject({ code: 0, err: "" });
    const [stored] =
      await world.sql`select encode(key_ciphertext, 'escape') as bytes from provider_keys join providers p on p.id = provider_id where p.name = 'sim'`;
    expect(added.out + (await cli("provider list --json")).out + stored?.bytes).not.toContain(provider.apiKey);
    const { providers } = await json("provider test sim", { env });
    expect(providers[0]).toMatchObject({ name: "sim", ok: true, problem: null });

    // A route to a model that the provider does not list; that of a model which is switched off does not count.
    for (const id of ["listed-1", "unlisted-1", "unlisted-2"]) await json(`model add ${id}`);
    await json("model route listed-1 --provider sim --upstream sim-small");
    await json("model route unlisted-1 --provider sim --upstream nowhere-1");
    await json("model route unlisted-2 --provider sim --upstream nowhere-2");
    await json("model set unlisted-2 --disable");
    expect((await json("provider test sim", { env })).providers[0]).toMatchObject({
      ok: true,
      unlisted: ["nowhere-1"],
    });
    expect((await cli("provider test sim", { env })).out).toContain("answers, but does not list nowhere-1");
    const doctor = await cli("doctor", { env });
    expect(doctor.out).toMatch(
      /warning\s+provider sim: answers in \d+ ms.*but does not list nowhere-1\n\s+→ .*--upstream/,
    );
    expect(doctor.out).not.toContain("Everything is fine");
    await json("model set unlisted-1 --disable");
    expect((await json("provider test sim", { env })).providers[0].unlisted).toEqual([]);

    const other = await cli("provider test", { env: { SECRET_KEY: "6f".repeat(32) } });
    expect(other.code).toBe(1);
    expect(other.out).toContain("another SECRET_KEY");
    await json("provider set sim --key wrong-key", { env });
    const wrong = await cli("provider test sim --json", { env });
    expect(wrong.code).toBe(1);
    expect(JSON.parse(wrong.out).providers[0]).toMatchObject({ ok: false, problem: expect.stringMatching(/key|401/i) });
    expect(wrong.out).not.toContain("wrong-key");
    await json(`provider set sim --key ${provider.apiKey}`, { env });
    expect(await refused("provider test nobody", { env })).toContain("There is no provider");
    expect(await refused("provider add --name bad --url http://127.0.0.1:9/v1 --key x", { env })).not.toContain(
      "Unexpected",
    );
  },
  SLOW_MS,
);

test.concurrent(
  "a provider's keys are added, listed with their states, changed and removed, and never shown",
  async () => {
    const env = { SECRET_KEY };
    await json(`provider add --name pool --url ${provider.url}/v1 --key sk-pool-first-1`, { env });
    const added = await cli("provider key add pool --name two --weight 3 --key-stdin", {
      env,
      stdin: "sk-pool-two-2\n",
    });
    expect(added).toMatchObject({ code: 0, err: "" });
    expect(added.out).toMatch(/two\s+3\s+yes\s+active/);
    expect(await refused("provider key add pool --name two --key sk-x", { env })).toContain('has a key "two" already');
    expect(await refused("provider key add pool --name three", { env })).toContain("--key-stdin");
    expect(await refused("provider key add nobody --name three --key x", { env })).toContain("There is no provider");
    expect(await refused("provider key set pool three --disable", { env })).toContain('has no key "three"');
    expect(await refused("provider key set pool two", { env })).toContain("Nothing to change");
    expect(await refused("provider set pool --key sk-x", { env })).toContain("has 2 keys");
    await world.sql`
      update provider_keys set state = 'quarantined', why = 'no_credit', until = now() + interval '1 minute' where name = 'two'`;
    expect((await cli("provider key list pool")).out).toMatch(/two\s+3\s+yes\s+quarantined\s+\S+Z\s+\S+Z\s+no_credit/);
    const { keys } = await json("provider key set pool two --rename second --weight 2 --disable --key sk-pool-3", {
      env,
    });
    expect(keys[1]).toMatchObject({ name: "second", weight: 2, enabled: false, state: "active", why: null });
    const removed = await json("provider key remove pool default");
    expect(removed.keys.map(({ name }: { name: string }) => name)).toEqual(["second"]);
    expect(await refused("provider key remove pool second")).toContain("only key");
    expect((await json("provider list")).providers.find((row: { name: string }) => row.name === "pool").keys).toBe(1);
    for (const text of [added.out, JSON.stringify(keys), (await cli("provider key list pool --json")).out])
      expect(text).not.toContain("sk-pool");
    await json("provider set pool --disable", { env });
  },
  SLOW_MS,
);

test.concurrent(
  "a provider's key comes from the environment only when one is added, so a variable left there replaces no key",
  async () => {
    const env = { SECRET_KEY, PROVIDER_KEY: "sk-of-another-provider" };
    const stored = async () =>
      await world.sql`
        select k.name, encode(key_ciphertext, 'hex') as bytes from provider_keys k join providers p on p.id = provider_id
        where p.name = 'kept' order by k.id`;
    await json(`provider add --name kept --url ${provider.url}/v1 --key sk-kept-1`, { env });
    const before = await stored();
    expect(await json("provider set kept --disable", { env })).toMatchObject({ providers: [{ enabled: false }] });
    expect(await json("provider key set kept default --weight 2", { env })).toMatchObject({ keys: [{ weight: 2 }] });
    expect(await refused("provider set kept", { env })).toContain("Nothing to change");
    expect(await refused("provider key set kept default", { env })).toContain("Nothing to change");
    expect(await stored()).toEqual(before);
    expect((await json("provider key add kept --name second", { env })).keys).toHaveLength(2);
    for (const command of ["set", "key set"])
      expect((await cli(`provider ${command} --help`)).out).not.toContain("PROVIDER_KEY");
    expect(await cli("provider key set kept second --key-stdin", { env, stdin: "sk-kept-2\n" })).toMatchObject({
      code: 0,
    });
    const after = await stored();
    expect(after[0]).toEqual(before[0]);
    expect(after).toHaveLength(2);
  },
  SLOW_MS,
);

test.concurrent(
  "a change takes effect on a running replica immediately, through Redis",
  async () => {
    const redis = await ownRedis();
    const bus = redisBus(redis.url, createLog("silent"));
    const db = world.openDb();
    try {
      await until(() => bus.healthy());
      const env = { REDIS_URL: redis.url };
      await json("account add --email live@example.com --name Live", { env });
      const { secret, keyId } = await json("key add --account live@example.com --name live", { env });
      // Nothing but the bus can drop this entry: it lives for an hour.
      const lookup = openKeyLookup({ db, bus, config: { cacheTtlMs: 3_600_000 }, nowMs: () => performance.now() });
      expect((await lookup.find(secret))?.status).toBe("enabled");
      expect(await cliProcess(`key revoke ${keyId}`, { env })).toMatchObject({ code: 0, err: "" });
      await until(async () => (await lookup.find(secret))?.status === "revoked");
      await redis.stop();
      const without = await cliProcess("account suspend live@example.com", { env });
      expect(without.code).toBe(0);
      expect(without.err).toContain("running replicas read it in the database");
    } finally {
      bus.close();
      await db.close();
      await redis.stop();
    }
  },
  SLOW_MS,
);

test.concurrent(
  "while Redis is silent a change is committed at once; only the notification waits for Redis, and not for ever",
  async () => {
    const READS = 10;
    const person = await world.addCustomer();
    const silent = createServer();
    const asking = new Set<Socket>();
    silent.on("connection", (socket) => {
      asking.add(socket);
      socket.on("error", () => socket.destroy()).on("close", () => asking.delete(socket));
      socket.resume();
    });
    await new Promise<void>((resolve) => silent.listen(0, "127.0.0.1", resolve));
    const { port } = silent.address() as AddressInfo;
    /** Whether some reads in a row showed the change while the command still waited for Redis. */
    const isSeenWaiting = async (command: string, was: string, is: string): Promise<boolean> => {
      const { keyId } = await world.addKey(person);
      await world.sql`update keys set status = ${was} where id = ${keyId}`;
      let over = false;
      const running = cliProcess(`key ${command} ${keyId}`, {
        env: { REDIS_URL: `redis://127.0.0.1:${port}` },
      }).finally(() => {
        over = true;
      });
      const isWritten = async () => (await world.sql`select status from keys where id = ${keyId}`)[0]?.status === is;
      let seen = 0;
      while (!over && seen < READS) {
        if ((await isWritten()) && asking.size > 0 && !over) seen++;
        await Bun.sleep(5);
      }
      const { code, out, err } = await running;
      expect({ code, out }).toEqual({ code: 0, out: expect.stringContaining(is) });
      expect(err).toContain("running replicas read it in the database");
      return seen === READS;
    };
    try {
      for (const [command, was, is] of [
        ["disable", "enabled", "disabled"],
        ["enable", "disabled", "enabled"],
        ["revoke", "enabled", "revoked"],
      ] as const) {
        // A machine that is busy for as long as the command waits does not show it: then again.
        const isShown = async () => await isSeenWaiting(command, was, is);
        expect((await isShown()) || (await isShown()) || (await isShown())).toBe(true);
      }
    } finally {
      silent.close();
    }
  },
  SLOW_MS,
);

test(
  "doctor reports a Redis that takes no writes, and one that may drop Idempotency-Keys",
  async () => {
    const redis = await ownRedis();
    const admin = new Redis(redis.url);
    const found = async () => (await cliProcess("doctor", { env: { SECRET_KEY, REDIS_URL: redis.url } })).out;
    try {
      await admin.config("SET", "maxmemory-policy", "allkeys-lru");
      expect(await found()).toMatch(/ok\s+Redis: answers\n/); // Without a limit it drops nothing.
      await admin.config("SET", "maxmemory", "100mb");
      expect(await found()).toMatch(/warning\s+Redis: .*allkeys-lru.*\n\s+→ Set maxmemory-policy to noeviction/);
      await admin.config("SET", "maxmemory-policy", "noeviction");
      await admin.config("SET", "maxmemory", "1");
      expect(await found()).toMatch(/wrong\s+Redis: it refuses to write \(OOM.*\n\s+→ If it is full/);
      await admin.config("SET", "maxmemory", "0");
      await admin.replicaof("127.0.0.1", 1);
      expect(await found()).toMatch(/wrong\s+Redis: it refuses to write \(READONLY.*\n\s+→ .* name the primary/);
    } finally {
      admin.disconnect();
      await redis.stop();
    }
  },
  SLOW_MS,
);

test(
  "doctor reports that everything is fine, or each problem with what to do, and then exits with 1",
  async () => {
    const env = { SECRET_KEY };
    const finding = (out: string, what: string) =>
      JSON.parse(out).findings.find((found: { what: string }) => found.what === what);
    await json("model add doctor-1");
    await json("model route doctor-1 --provider sim --upstream sim-small");
    const well = await cli("doctor --json", { env });
    expect(JSON.parse(well.out).findings.filter(({ state }: { state: string }) => state === "wrong")).toEqual([]);
    expect(well.code).toBe(0);
    for (const what of ["Postgres", "Redis", "migrations", "provider sim", "models", "books", "receipts", "spool"])
      expect(finding(well.out, what)?.state).toBe("ok");

    expect(finding(well.out, "bounds")?.state).toBe("ok");
    expect(finding(well.out, "receipt export")).toMatchObject({
      state: "ok",
      detail: expect.stringContaining("not used"),
    });
    await world.sql`update receipt_export set failures = 3, failure = 'status 500: full', receipts = 12`;
    const exporting = { ...env, RECEIPT_EXPORT_URL: "https://logs.example/v1/logs", RECEIPT_EXPORT_FORM: "otlp" };
    expect(finding((await cli("doctor --json", { env: exporting })).out, "receipt export")).toMatchObject({
      state: "warning",
      detail: expect.stringMatching(/^12 delivered, .*; 3 calls in a row failed, the last: status 500: full$/),
    });
    const { model, routes } = await json("model show doctor-1");
    const routeId = routes[0].id;
    expect(finding(well.out, "payments")?.state).toBe("ok");
    const sealed = (text: string) => encrypt(Buffer.from(SECRET_KEY, "hex"), text);
    await world.sql`insert into sellers (seller_id, stripe_key_ciphertext, stripe_webhook_ciphertext)
      values (0, ${sealed("sk_test_0123456789")}, ${sealed("whsec_0123456789")})`;
    await world.sql`insert into bound_uses values ('doctor-1', '2099-12-15', 'overhead', ${boundsKey(model)}, 20, 3, 1500)`;
    expect(finding(well.out, "margins")?.detail).toContain("not known: ");
    await json("model price doctor-1 --input 3 --output 15");
    await json(`model route doctor-1 --change ${routeId} --cost-input 30 --cost-output 150`);
    expect((await cli("model show doctor-1")).out).toMatch(
      /sim-small\s+yes\s+-900% \(set\)\nWARNING: .* costs 10 times the price of input, output/,
    );
    await world.sql`update balances set balance_nano_usd = balance_nano_usd + 1 where account_id = (select min(account_id) from balances)`;
    await world.setClock("2099-12-15T00:00:00Z");
    await world.sql`select make_receipt_months(1)`;
    await mkdir(world.spoolDir, { recursive: true });
    await writeFile(join(world.spoolDir, "000000000000001-000000.spool"), "{}\n");
    const ill = await cliProcess("doctor", { env: { ...env, REDIS_URL: "redis://127.0.0.1:1" } });
    expect(ill.code).toBe(1);
    expect(ill.out).toMatch(/wrong\s+books: do not balance: inv_balance_entries \(1\)/);
    expect(ill.out).toMatch(/warning\s+receipts: tables for only 1 months ahead/);
    expect(ill.out).toMatch(/warning\s+spool: 1 files/);
    expect(ill.out).toMatch(/warning\s+bounds doctor-1: .*used at most 150% of what was reserved; 3 used more/);
    expect(ill.out).toContain("model set doctor-1 --request-tokens ");
    expect(ill.out).toMatch(
      /warning\s+margin doctor-1: its route sim\/sim-small costs 10 times the price of input, output/,
    );
    expect(ill.out).toMatch(/ok\s+margins: .*doctor-1 -900%/);
    expect(ill.out).toMatch(/warning\s+payments: the operator can be paid in Stripe's test mode/);
    expect(ill.out).toMatch(/wrong\s+Redis: .*\n\s+→ Start it, or correct REDIS_URL/);
    await world.setClock(null);

    const gone = await cli("doctor --json", { env: { ...env, DATABASE_URL: "postgres://postgres@127.0.0.1:1/x" } });
    expect(gone.code).toBe(1);
    expect(finding(gone.out, "Postgres")).toMatchObject({
      state: "wrong",
      detail: "Postgres does not answer: start it, or correct DATABASE_URL.",
    });
  },
  SLOW_MS,
);
