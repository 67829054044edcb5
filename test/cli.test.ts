import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdir, writeFile } from "node:fs/promises";
import { type AddressInfo, createServer, type Socket } from "node:net";
import { join } from "node:path";
import { Redis } from "ioredis";
import { openKeyLookup } from "../src/accounts/key_lookup.ts";
import { addLosses } from "../src/accounts/losses_store.ts";
import { verifyPassword } from "../src/accounts/passwords.ts";
import { findSignIn } from "../src/accounts/sign_in_store.ts";
import { boundsKey } from "../src/catalog/bound_advice.ts";
import { redisBus } from "../src/platform/bus.ts";
import { encrypt } from "../src/platform/crypto.ts";
import { createLog } from "../src/platform/log.ts";
import { migrationState } from "../src/platform/migrate.ts";
import { type Run, runCli, runCliProcess } from "./cli_process.ts";
import { type FakeProvider, startFakeProvider } from "./fake_provider.ts";
import { MAIL } from "./panel/mailed_links.ts";
import { ownRedis, until } from "./platform/own_redis.ts";
import { createWorld, type World } from "./world.ts";

const SECRET_KEY = "5e".repeat(32);
/** The commands wait for each other. */
const SLOW_MS = 180_000;
/** Commands that a test machine runs well at once. */
const RUNS_AT_ONCE = 4;

let world: World;
let provider: FakeProvider;
beforeAll(async () => {
  world = await createWorld();
  provider = await startFakeProvider();
});
afterAll(async () => {
  await provider.stop();
  await world.close();
});

type RunOptions = { stdin?: string; env?: Record<string, string> };

let running = 0;
const waiting: (() => void)[] = [];

/** Runs one command with only the given environment, in this process. At most RUNS_AT_ONCE run at once. */
function cli(args: string, options?: RunOptions): Promise<Run> {
  return takeTurn(() => runCli(args, optionsOf(options)));
}

/** Runs one command as an operator would: a process, which must end by itself. */
function cliProcess(args: string, options?: RunOptions): Promise<Run> {
  return takeTurn(() => runCliProcess(args, optionsOf(options)));
}

async function takeTurn(run: () => Promise<Run>): Promise<Run> {
  if (running === RUNS_AT_ONCE) await new Promise<void>((resolve) => waiting.push(resolve));
  else running++;
  try {
    return await run();
  } finally {
    const next = waiting.shift();
    if (next) next();
    else running--;
  }
}

function optionsOf({ stdin = "", env = {} }: RunOptions = {}) {
  const own = {
    DATABASE_URL: world.url,
    SPOOL_DIR: world.spoolDir,
    PROVIDER_ALLOW_PRIVATE: new URL(provider.url).host,
  };
  return { stdin, env: { ...own, ...env } };
}

/** Runs a command that must succeed, and reads its JSON. */
async function json(args: string, options?: RunOptions) {
  const { code, out, err } = await cli(`${args} --json`, options);
  expect({ args, code, err }).toEqual({ args, code: 0, err: "" });
  return JSON.parse(out);
}

/** Runs a command that must fail with one line, and returns that line. */
async function refused(args: string, options?: RunOptions): Promise<string> {
  const { code, out, err } = await cli(args, options);
  expect({ args, code, out }).toEqual({ args, code: 1, out: "" });
  expect(err.trimEnd().split("\n")).toHaveLength(1);
  return err;
}

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
  "a package of a reseller's customer is paid by the reseller, or with --paid-by operator by nobody",
  async () => {
    const reseller = await json("account add --role reseller --email boss@acme.example --name Acme");
    const customer = await json("account add --email Ann@Example.com --name Ann --reseller boss@acme.example");
    expect(customer).toMatchObject({
      role: "customer",
      email: "ann@example.com",
      resellerId: reseller.accountId,
      balanceUsd: "0.00",
    });
    const offering = await json(
      'offering add --name "Pro 500" --kind custom --daily 500 --days 7 --carryover --wholesale 4.20',
    );
    expect(offering).toMatchObject({
      totalLimit: 3500,
      carryover: true,
      timeZone: "UTC",
      wholesaleNanoUsd: "4200000000",
      wholesaleUsd: "4.20",
    });

    expect(await refused('package assign ann@example.com --offering "Pro 500"')).toContain(
      "does not cover the wholesale price",
    );
    expect(await json(`package list ${customer.accountId}`)).toEqual({ packages: [] });

    expect(await json("balance add boss@acme.example 10.000000001 --reason deposit")).toMatchObject({
      balanceUsd: "10.000000001",
      balanceNanoUsd: "10000000001",
    });
    const bought = await json('package assign ann@example.com --offering "Pro 500"');
    expect(bought).toMatchObject({ state: "active", paidWith: "balance", dailyLimit: 500 });
    const given = await json(
      `package assign ann@example.com --offering ${offering.offeringId} --after --paid-by operator`,
    );
    expect(given).toMatchObject({ state: "queued", paidWith: "operator", startsAt: bought.endsAt });
    const own = await json(`package assign ${reseller.accountId} --offering ${offering.offeringId}`);
    expect(own.paidWith).toBe("balance");
    const { accounts } = await json("account list --role reseller");
    expect(accounts.find((row: { accountId: number }) => row.accountId === reseller.accountId).balanceUsd).toBe(
      "1.600000001",
    );

    expect(await refused(`package end boss@acme.example ${bought.packageId}`)).toContain("has no package");
    expect(await json(`package end ann@example.com ${bought.packageId}`)).toMatchObject({
      state: "ended",
      endedEarly: "ended",
      unitsDropped: 3500,
    });
    expect((await json("package list ann@example.com")).packages.map((row: { state: string }) => row.state)).toEqual([
      "active",
      "ended",
    ]);
    expect((await cli("package list ann@example.com")).out).toContain("ended, 3500 dropped");
    await json(`offering disable ${offering.offeringId}`);
    expect(await refused(`package assign ann@example.com --offering ${offering.offeringId}`)).toContain("for sale");
  },
  SLOW_MS,
);

test.concurrent(
  "an allotment is granted with a reason, assigned package by package instead of money, and withdrawn",
  async () => {
    const reseller = await json("account add --role reseller --email pieces@r.example --name Pieces");
    await json("account add --email cut@example.com --name Cut --reseller pieces@r.example");
    await json("account add --email own@example.com --name Own");
    const { offeringId } = await json("offering add --name Piece --kind daily --daily 100 --wholesale 4.20");
    const granted = await json('allotment grant pieces@r.example --offering Piece --pieces 3 --reason "launch offer"');
    expect(granted).toMatchObject({ resellerId: reseller.accountId, offeringId, granted: 3, left: 3 });
    const given = await json("package assign cut@example.com --offering Piece --allotment");
    expect(given).toMatchObject({ paidWith: "allotment" });
    expect((await cli("package list cut@example.com")).out).toContain("the reseller's allotment");
    const { accounts } = await json("account list --role reseller");
    expect(accounts.find((row: { accountId: number }) => row.accountId === reseller.accountId).balanceUsd).toBe("0.00");
    expect((await cli("allotment list --reseller pieces@r.example")).out).toMatch(
      /Pieces\s+Piece\s+3\s+1\s+2\s+\S+\s+launch offer/,
    );
    expect(await json("allotment list --limit 1")).toMatchObject({ allotments: [{ used: 1 }], hasMore: false });
    expect(await json(`allotment withdraw ${granted.allotmentId}`)).toMatchObject({
      withdrawn: 2,
      granted: 1,
      left: 0,
    });
    expect(await refused(`allotment withdraw ${granted.allotmentId}`)).toContain("withdrawn before");
    expect(await refused("allotment withdraw 999999")).toContain("There is no allotment 999999");
    expect(await refused("package assign cut@example.com --offering Piece --allotment")).toContain("allotment");
    expect(await refused("package assign own@example.com --offering Piece --allotment")).toContain(
      "belongs to no reseller",
    );
    expect(await refused("package assign cut@example.com --offering Piece --allotment --paid-by operator")).toContain(
      "--paid-by",
    );
    expect(await refused("allotment grant own@example.com --offering Piece --pieces 1 --reason x")).toContain(
      "no such reseller",
    );
    expect(await refused("allotment grant pieces@r.example --offering Piece --pieces 0 --reason x")).toContain("1 to");
    expect((await cli("allotment grant pieces@r.example --offering Piece --pieces 1")).code).toBe(2);
  },
  SLOW_MS,
);

test.concurrent(
  "package assign says what it drops; with --if-missing, commands that add change nothing the second time",
  async () => {
    const script = [
      "account add --email again@example.com --name Again --if-missing",
      "offering add --name Again --kind custom --days 30 --daily 500 --carryover --wholesale 1 --if-missing",
      "package assign again@example.com --offering Again --if-missing",
      "key add --account again@example.com --name ci --if-missing",
    ];
    for (const command of script) expect(await json(command)).not.toHaveProperty("exists");
    const state = async () => [
      await json("package list again@example.com"),
      await json("key list --account again@example.com"),
    ];
    const before = await state();
    for (const command of script) expect(await json(command)).toMatchObject({ exists: true });
    expect((await json("package list again@example.com")).packages).toEqual(before[0].packages);
    expect((await json("key list --account again@example.com")).keys).toHaveLength(1);
    expect(await refused("account add --email again@example.com --name Again")).toContain("already");
    // A wrong value stays an error.
    expect(await refused("account add --email nothing --name Again --if-missing")).not.toContain("Nothing is changed");

    const [first] = before[0].packages;
    const second = await json("package assign again@example.com --offering Again");
    expect(second.replaced).toMatchObject([{ packageId: first.packageId, unitsDropped: 15_000 }]);
    const { out } = await cli("package assign again@example.com --offering Again");
    expect(out).toContain(`It replaced package ${second.packageId} (Again): 15000 unused requests were dropped.`);
    expect(out).not.toContain(`package ${first.packageId} (`);
  },
  SLOW_MS,
);

test.concurrent(
  "a package of a customer without a reseller is paid by nobody",
  async () => {
    await json("account add --email direct@example.com --name Direct");
    await json("offering add --name Day --kind daily --daily 100 --wholesale 1 --time-zone Europe/Berlin");
    expect(await json("package assign direct@example.com --offering Day")).toMatchObject({
      paidWith: "operator",
      timeZone: "Europe/Berlin",
    });
    expect(await refused("package assign direct@example.com --offering Day --paid-by reseller")).toContain(
      "belongs to no reseller",
    );
    expect(await refused("offering add --name Two --kind daily --daily 99 --wholesale 1")).toContain("100 to 2000");
  },
  SLOW_MS,
);

test.concurrent(
  "amounts are parsed exactly and within their range, and a correction needs a reason",
  async () => {
    await json("account add --email money@example.com --name Money");
    expect(await json("balance add money@example.com 0.123456789")).toMatchObject({ balanceUsd: "0.123456789" });
    expect(await json("balance add money@example.com -0.000000789 --reason typo")).toMatchObject({
      addedUsd: "-0.000000789",
      balanceUsd: "0.123456",
    });
    expect((await cli("balance add money@example.com 1")).out).toContain("$1.123456");
    for (const amount of ["1.0000000001", "9000001", "1e3", "1,50", "NaN", "0", "1.250", "1,250"]) {
      expect(await refused(`balance add money@example.com ${amount}`)).not.toContain("Unexpected");
    }
    expect(await refused("balance add money@example.com -1")).toContain("--reason");
    expect(await refused("balance add money@example.com -100 --reason much")).toContain("smaller than that");
    expect(await refused("balance add money@example.com 9000000")).toContain("at most $9,000,000");
    expect(await json("payg enable money@example.com")).toMatchObject({ paygEnabled: true });
    expect(await refused("payg grant money@example.com")).toContain("Only a reseller");
    const { accountId: resellerId } = await json("account add --role reseller --email shop@example.com --name Shop");
    for (const [command, granted] of [
      ["payg grant", true],
      ["payg withdraw", false],
    ] as const) {
      expect(await json(`${command} shop@example.com`)).toEqual({ accountId: resellerId, granted });
      const [row] = await world.sql`select may_switch_payg from accounts where id = ${resellerId}`;
      expect(row?.may_switch_payg).toBe(granted);
    }
    expect((await cli("account list")).out).toMatch(/money@example\.com\s+Money\s+active\s+\$1\.123456\s+yes/);
  },
  SLOW_MS,
);

test.concurrent(
  "limits of a key are at most those of its account; a wrong limit is refused with one sentence",
  async () => {
    await json("account add --email limits@example.com --name Limits");
    const own = { requestsPerMinute: 60, tokensPerMinute: null, requestsAtOnce: 5, models: {} };
    expect(await json("account limits limits@example.com --requests-per-minute 60 --requests-at-once 5")).toMatchObject(
      {
        limits: { own, package: null, reseller: null, applied: own },
      },
    );
    const { keyId } = await json("key add --account limits@example.com --name k --tokens-per-minute 1000");
    expect((await cli(`key limits ${keyId} --requests-per-minute 30`)).out).toMatch(/limits\s+30 requests a minute/);
    expect(await refused(`key limits ${keyId} --requests-per-minute 61`)).toContain("must be at most 60");
    expect(await refused("account limits limits@example.com --requests-per-minute 0")).toContain("from 1 to 1000000");
    expect(await refused("account limits limits@example.com --model-limits no-such=requests:5")).toContain("no model");
    expect((await cli("account limits limits@example.com --model-limits x=speed:5")).err).toContain("at-once:5");
  },
  SLOW_MS,
);

test.concurrent(
  "limits are shown without an option, and removed only with --none",
  async () => {
    const { accountId } = await json("account add --email shown@example.com --name Shown");
    const set = await json("account limits shown@example.com --requests-per-minute 60");
    expect(set.limits.own).toMatchObject({ requestsPerMinute: 60 });
    expect(await json("account limits shown@example.com")).toEqual(set);
    const { keyId } = await json("key add --account shown@example.com --name k --requests-at-once 5");
    expect(await json(`key limits ${keyId}`)).toMatchObject({ keyId, limits: { requestsAtOnce: 5 } });
    const written = async () =>
      await world.sql`
        select a.limits is null as account, k.limits is null as key from accounts a join keys k on k.account_id = a.id
        where a.id = ${accountId}`;
    expect(await written()).toMatchObject([{ account: false, key: false }]);
    for (const command of ["account limits shown@example.com", `key limits ${keyId}`])
      expect(await cli(`${command} --none --requests-per-minute 5`)).toMatchObject({ code: 2, out: "" });
    expect(await json(`key limits ${keyId} --none`)).toMatchObject({ keyId, limits: null });
    expect((await json("account limits shown@example.com --none")).limits.own).toBeNull();
    expect(await written()).toMatchObject([{ account: true, key: true }]);
    await json(`key revoke ${keyId}`);
    expect(await json(`key limits ${keyId}`)).toMatchObject({ status: "revoked", limits: null });
    expect(await refused("account limits absent@example.com")).toContain("no account");
    expect(await refused("key limits 999999")).toContain("no key");
  },
  SLOW_MS,
);

test.concurrent(
  "account markup sets, shows and removes a reseller's markup, and refuses one that would sell below cost",
  async () => {
    const { accountId } = await json("account add --role reseller --email markup@r.example --name R");
    const shown = { resellerId: accountId, everyModel: 1_250, models: [] };
    expect(await json("account markup markup@r.example --percent 12.5")).toEqual(shown);
    expect(await json("account markup markup@r.example")).toEqual(shown);
    for (const percent of ["-1", "1000.01", "1e9", "NaN", "0.001", "x"])
      expect((await cli(`account markup markup@r.example --percent=${percent}`)).err).toContain("0 to 1000 percent");
    expect(await refused("account markup markup@r.example --percent 5 --model no-such")).toContain("no model no-such");
    expect(await refused("account markup markup@r.example --model no-such")).toContain("--percent");
    await json("account add --email markup@c.example --name C");
    expect(await refused("account markup markup@c.example --percent 5")).toContain("is no reseller");
    expect(await json("account markup markup@r.example --percent none")).toEqual({ ...shown, everyModel: 0 });
  },
  SLOW_MS,
);

test.concurrent(
  "an account is found by id or e-mail address; an address that two accounts have needs the id",
  async () => {
    await json("account add --role reseller --email twin@r.example --name R");
    const one = await json("account add --email twin@example.com --name One");
    const two = await json("account add --email twin@example.com --name Two --reseller twin@r.example");
    expect(await refused("account suspend twin@example.com")).toContain(`${two.accountId}, ${one.accountId}`);
    expect(await json(`account suspend ${one.accountId}`)).toMatchObject({ status: "suspended" });
    expect(await json(`account activate ${one.accountId}`)).toMatchObject({ status: "active" });
    expect(await refused("account suspend nobody@example.com")).toContain("There is no account");
    expect(await refused("account add --email twin@example.com --name Three")).toContain("already in use");
  },
  SLOW_MS,
);

test.concurrent(
  "a lost second factor is removed and the sessions end; removing it again is refused",
  async () => {
    const { accountId } = await json("account add --role admin --email phone@example.com --name Phone");
    await world.sql`update accounts set totp_ciphertext = 'x', totp_enabled_at = now() where id = ${accountId}`;
    await world.sql`insert into recovery_codes (account_id, digest) values (${accountId}, 'x')`;
    expect(await json("account remove-second-factor phone@example.com")).toEqual({
      accountId,
      secondFactorRemoved: true,
      passkeysRemoved: 0,
    });
    const [left] = await world.sql`
      select totp_enabled_at, (select count(*)::int from recovery_codes where account_id = ${accountId}) as codes
      from accounts where id = ${accountId}`;
    expect({ ...left }).toEqual({ totp_enabled_at: null, codes: 0 });
    expect(await refused("account remove-second-factor phone@example.com")).toContain("has no second factor");
    await world.sql`
      insert into passkeys (account_id, host, credential_id, public_key, counter, transports, name, synced)
      values (${accountId}, 'panel.example', 'x', 'x', 0, '{}', 'phone', false)`;
    expect(await refused("account remove-second-factor phone@example.com")).toContain("has no second factor");
    expect(await json("account remove-second-factor phone@example.com --passkeys")).toEqual({
      accountId,
      secondFactorRemoved: false,
      passkeysRemoved: 1,
    });
    expect(await refused("account remove-second-factor phone@example.com --passkeys")).toContain("and no passkeys");
  },
  SLOW_MS,
);

test.concurrent(
  "identity providers are added, listed, changed, switched off and removed; a secret is not printed",
  async () => {
    const env = { SECRET_KEY, IDENTITY_CLIENT_SECRET: "a-secret-of-github" };
    const add = "identity-provider add GitHub --kind github --client-id Iv1.42";
    expect(await refused(add, { env: { SECRET_KEY } })).toContain("Give the client secret");
    const added = await json(`${add} --domains example.com`, { env });
    expect(added).toMatchObject({
      ...{ name: "GitHub", kind: "github", issuer: "https://github.com", sellerId: 0, enabled: true },
      mailDomains: [{ domain: "example.com", isProved: true }],
    });
    expect(await refused(add, { env })).toContain("with this name already");
    expect(await refused("identity-provider add X --client-id 1 --issuer https://127.0.0.1", { env })).toContain(
      "issuer",
    );
    const { accountId } = await json("account add --email sso@example.com --name SSO");
    const roles = "--account sso@example.com --role-claim groups --role staff=developer boss=owner";
    expect(await refused(`identity-provider set GitHub ${roles}`, { env })).toContain("has no claims");
    expect(await refused("identity-provider set GitHub --role staff=admin", { env })).toContain(
      "as in staff=developer",
    );
    expect((await cli("identity-provider list")).out).toMatch(
      /GitHub +github +https:\/\/github\.com +example\.com +0 +on/,
    );
    expect((await cli("identity-provider set GitHub --off --domains all", { env })).out).toContain("off");
    expect((await json("identity-provider list")).identityProviders).toMatchObject([
      { enabled: false, mailDomains: [] },
    ]);
    expect(await refused("identity-provider remove Gitlab")).toContain("There is no identity provider");
    expect((await cli("identity-provider remove GitHub")).out).toBe("The identity provider is removed.\n");
    const [row] =
      await world.sql`select jsonb_agg(to_jsonb(a))::text as all from audit_entries a where subject = 'identity_providers'`;
    expect(row?.all).not.toContain("a-secret-of-github");
    expect(accountId).toBeGreaterThan(0);
  },
  SLOW_MS,
);

test.concurrent(
  "members are listed, invited, given another role and removed; an invitation is revoked, and the last owner stays",
  async () => {
    const { accountId } = await json("account add --email studio@example.com --name Studio");
    const of = "--account studio@example.com";
    expect((await cli(`member list ${of}`)).out).toMatch(/studio@example\.com +owner +member/);
    const env = { SECRET_KEY, PANEL_URL: "https://panel.example", ...MAIL };
    const invite = `member invite ${of} --email nina@example.com --role developer`;
    expect(await refused(invite, { env: { SECRET_KEY } })).toContain("No mail is sent from here");
    const { invitationId } = await json(invite, { env });
    const { invitations } = await json(`member list ${of}`);
    expect(invitations).toMatchObject([{ invitationId, email: "nina@example.com", role: "developer" }]);
    expect((await cli(`member list ${of}`)).out).toMatch(/nina@example\.com +developer +invited until /);
    expect((await cli(`member revoke ${invitationId} ${of}`)).out).toBe(
      "The invitation of nina@example.com is revoked.\n",
    );
    expect(await refused(`member revoke ${invitationId} ${of}`)).not.toBe("");
    expect((await cli(`${invite}s`)).code).toBe(2);

    const member = await world.addMember({ accountId }, "viewer");
    const changed = await json(`member role ${member.accountId} ${of} --role billing`);
    expect(changed).toMatchObject({ personId: member.accountId, role: "billing" });
    expect(await refused(`member role studio@example.com ${of} --role viewer`)).toContain("owner");
    expect(await refused(`member role ${member.accountId + 1} ${of} --role viewer`)).toContain("There is no member");
    expect((await cli(`member remove ${changed.email} ${of}`)).out).toBe("The viewer is no longer a member.\n");
    expect((await json(`member list ${of}`)).members).toMatchObject([{ personId: accountId, role: "owner" }]);
    expect(await refused(`member remove ${accountId} ${of}`)).toContain("owner");
    const audit = await world.sql`
      select action, actor_id from audit_entries where account_id = ${accountId} and subject = 'members' order by id`;
    expect(audit.map(({ action, actor_id }) => [action, actor_id])).toEqual([
      ["added", null],
      ["changed", null],
      ["removed", null],
    ]);
  },
  SLOW_MS,
);

test.concurrent(
  "a password comes from standard input, the environment or an option, and is never printed",
  async () => {
    const password = "correct horse battery";
    const added = await cliProcess("account add --email pass@example.com --name Pass --password-stdin", {
      stdin: `${password}\n`,
    });
    expect(added).toMatchObject({ code: 0, err: "" });
    expect(added.out).not.toContain(password);
    const db = world.openDb();
    const matches = async (tried: string) =>
      verifyPassword((await findSignIn({ db }, { email: "pass@example.com", resellerId: null }))?.passwordHash, tried);
    expect(await matches(password)).toBe(true);
    await json("account password pass@example.com", { env: { ACCOUNT_PASSWORD: "another password" } });
    expect(await matches("another password")).toBe(true);
    await db.close();
    expect(await refused("account password pass@example.com")).toContain("--password-stdin");
    expect(await refused("account password pass@example.com --password-stdin", { stdin: "short" })).toContain(
      "10 to 200",
    );
    expect(await refused("account password pass@example.com --password-stdin")).toContain("empty");
  },
  SLOW_MS,
);

test.concurrent(
  "a full key is shown once; disable, enable, rotate and revoke change its status",
  async () => {
    await json("account add --email keys@example.com --name Keys");
    const added = await cli("key add --account keys@example.com --name ci --mode payg");
    const secret = added.out.split("\n")[0] ?? "";
    expect(secret).toMatch(/^sk-/);
    const { keys } = await json("key list --account keys@example.com");
    expect(keys).toHaveLength(1);
    expect((await cli("key list")).out).not.toContain(secret);
    const { keyId } = keys[0];
    expect(await json(`key disable ${keyId}`)).toMatchObject({ status: "disabled", mode: "payg" });
    expect(await json(`key enable ${keyId}`)).toMatchObject({ status: "enabled" });
    const rotated = await json(`key rotate ${keyId} --overlap 0`);
    expect(rotated).toMatchObject({ name: "ci", mode: "payg", status: "enabled", old: { keyId, status: "expired" } });
    expect(rotated.secret).toMatch(/^sk-/);
    expect(await json(`key revoke ${rotated.keyId}`)).toMatchObject({ status: "revoked" });
    expect(await refused(`key enable ${rotated.keyId}`)).toContain("cannot be undone");
    expect(await refused("key revoke 999999")).toContain("There is no key");
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    for (const [given, expiresAt] of [
      [tomorrow, `${tomorrow}T23:59:59.000Z`],
      [`${tomorrow}T12:00:00+02:00`, `${tomorrow}T10:00:00.000Z`],
    ])
      expect(await json(`key add --account keys@example.com --name x --expires ${given}`)).toMatchObject({ expiresAt });
    for (const given of ["yesterday", "2030-02-31", "01/02/2030", `${tomorrow}T12:00:00`])
      expect(await refused(`key add --account keys@example.com --name x --expires ${given}`)).toContain(
        "with its zone",
      );
  },
  SLOW_MS,
);

test.concurrent(
  "a reseller's domain is added as active, suspended and activated again",
  async () => {
    await json("account add --role reseller --email hosts@r.example --name Hosts");
    expect(await json("host add ai.hosts.example --reseller hosts@r.example")).toMatchObject({
      host: "ai.hosts.example",
      status: "active",
    });
    expect(await json("host suspend ai.hosts.example")).toMatchObject({ status: "suspended" });
    expect(await json("host activate ai.hosts.example")).toMatchObject({ status: "active" });
    expect((await cli("host list --reseller hosts@r.example")).out).toContain("ai.hosts.example");
    expect(await refused("host add hosts.example --reseller hosts@r.example")).toContain("subdomain");
    expect(await refused("host add x.localhost --reseller hosts@r.example")).toContain("subdomain");
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
  "prices in USD are stored exactly; a route names its provider",
  async () => {
    const added = await json(
      "model add chat-1 --input 0.15 --cached-input 0.075 --output 0.6 --image 1024x1024=0.04 --modality multimodal",
    );
    expect(added.models[0]).toMatchObject({
      id: "chat-1",
      prices: { inputMicroUsd: 150_000, cachedInputMicroUsd: 75_000, outputMicroUsd: 600_000 },
      imagePrices: [{ size: "1024x1024", quality: "standard", microUsd: 40_000 }],
    });
    const better = await json("model price chat-1 --image 1024x1024/high=0.17");
    expect(better.models[0].imagePrices[1]).toMatchObject({ size: "1024x1024", quality: "high", microUsd: 170_000 });
    expect(await refused("model price chat-1 --image 1024x1024/High=0.17")).toContain("1024x1024/high");
    await json(`provider add --name upstream --url ${provider.url}/v1 --key ${provider.apiKey}`, {
      env: { SECRET_KEY },
    });
    await changesFacts();
    const routed = await json("model route chat-1 --provider upstream --upstream sim-chat --priority 2");
    expect(routed.models[0].routes).toMatchObject([
      { providerName: "upstream", upstreamModel: "sim-chat", priority: 2, weight: 1, facts: {} },
    ]);
    expect((await cli("model list")).out).toMatch(
      /chat-1\s+multimodal\s+active\s+yes\s+\$0\.15\s+\$0\.075\s+\$0\.60\s+1024x1024 \$0\.04, 1024x1024\/high \$0\.17/,
    );
    const tiered = await json(
      "model price chat-1 --input 0.15 --cached-input 0.075 --output 0.6 --cache-write 0.2 --request 0.001 --tier 200000:input=0.3,output=1.2,cached-input=0.1",
    );
    const tier = { above_input_tokens: 200_000, input: 300_000, output: 1_200_000, cached_input: 100_000 };
    expect(tiered.models[0].prices.further).toEqual({ cache_write: 200_000, tiers: [tier], request: 1_000 });
    expect((await cli("model list")).out).toContain(
      "cache_write $0.20, above 200000: input $0.30 output $1.20 cached_input $0.10, request $0.001",
    );
    expect(await refused("model price chat-1 --input 1 --output 1 --tier 9:input=1,output=1,inptu=1")).toContain(
      "inptu",
    );
    expect((await cli("model price chat-1 --input 1 --output 1 --tier 9:input=1,input=2,output=1")).err).toContain(
      "twice",
    );
    const plain = await json("model price chat-1 --input 0.15 --cached-input 0.075 --output 0.6");
    expect(plain.models[0].prices.further).toEqual({});
    const routeId = routed.models[0].routes[0].id;
    await probesFacts();
    const allowed = await json(`model route chat-1 --change ${routeId} --allow-param documents,reasoning.max_tokens`);
    expect(allowed.models[0].routes).toMatchObject([
      { priority: 2, facts: {}, allowedParams: ["documents", "reasoning.max_tokens"] },
    ]);
    expect((await cli("model list")).out).toContain(`${routeId}: upstream/sim-chat + documents reasoning.max_tokens`);
    const factual = await json(`model route chat-1 --change ${routeId} --fact capField=max_completion_tokens`);
    expect(factual.models[0].routes[0]).toMatchObject({
      facts: { capField: "max_completion_tokens" },
      takes: { capField: "max_completion_tokens", developerRole: "system" },
    });
    for (const [wrong, says] of [
      ["capField=limit", "max_tokens, max_completion_tokens"],
      ["mood=good", "mood"],
      ["droppedParams=seed", "droppedParams"],
      ["contentForm=text", "contradict"],
      ["firstTokenSeconds=0", "1 to 3600"],
    ] as const)
      expect(await refused(`model route chat-1 --change ${routeId} --fact ${wrong}`)).toContain(says);
    const reset = await json(`model route chat-1 --change ${routeId} --fact capField=default`);
    expect(reset.models[0].routes[0]).toMatchObject({ facts: {}, takes: { capField: "max_tokens" } });
    expect(await refused(`model route chat-1 --change ${routeId} --allow-param n_predict`)).toContain("n_predict");
    const none = await json(`model route chat-1 --change ${routeId} --allow-param none`);
    expect(none.models[0].routes[0].allowedParams).toEqual([]);
    const less = await json(
      `model route chat-1 --change ${routeId} --drop-param reasoning_effort,seed --allow-param documents`,
    );
    expect(less.models[0].routes[0]).toMatchObject({
      allowedParams: ["documents"],
      droppedParams: ["reasoning_effort", "seed"],
    });
    expect((await cli("model list")).out).toContain(
      `${routeId}: upstream/sim-chat + documents - reasoning_effort seed`,
    );
    for (const name of ["max_tokens", "messages", "stream_options", "documents"])
      expect(await refused(`model route chat-1 --change ${routeId} --drop-param ${name}`)).toMatch(
        /cannot (both )?.*drop/,
      );
    const all = await json(`model route chat-1 --change ${routeId} --drop-param none --allow-param none`);
    expect(all.models[0].routes[0]).toMatchObject({ allowedParams: [], droppedParams: [] });
    const priced = await json("model price chat-1 --package-only --image 1024x1024=none --image 1024x1024/high=none");
    expect(priced.models[0]).toMatchObject({ prices: null, imagePrices: [] });
    expect(await refused("model price chat-1 --input 1")).toContain("both --input and --output");
    expect(await refused("receipt 12")).toContain("X-Request-Id");
    expect(await refused("receipt 0190a5b2-6c1e-7d3f-8a4b-5c6d7e8f9a0b")).toContain("no finished request");
    expect((await cli("model price chat-1 --input 0.0000001 --output 1")).err).toContain("at most 6 decimals");
    expect((await cli("model price chat-1 --input 1.250 --output 4")).err).toContain("write 1250 or 1.25.");
    expect(await refused("model set chat-1 --image-most-tokens -1")).toContain("imageMostTokens");
    const bounds = "--request-tokens 12 --message-tokens 4 --image-base-tokens 85 --image-tile-tokens 170";
    await json(`model set chat-1 ${bounds} --image-tile-pixels 256 --image-most-tokens 1445 --file-most-tokens 9000`);
    const { model } = await json("model show chat-1");
    expect(model).toMatchObject({ requestTokens: 12, messageTokens: 4, imageBaseTokens: 85, imageTileTokens: 170 });
    expect(model).toMatchObject({ imageTilePixels: 256, imageMostTokens: 1445, fileMostTokens: 9000 });
    const key = boundsKey(model);
    await world.sql`insert into bound_uses values ('chat-1', now()::date, 'images', ${key}, 12400, 0, 610)`;
    const shown = (await cli("model show chat-1")).out;
    expect(shown).toContain("Image, at most: 1445 tokens");
    expect(shown).toContain("12,400 requests that were mostly images used at most 61% of what was reserved.");
    expect(shown).toContain("model set chat-1 --image-base-tokens 64 --image-tile-tokens 127 --image-most-tokens 1078");
    expect(await refused("model show chat-9")).toContain("no model chat-9");
    const removed = await json(`model route chat-1 --remove ${routed.models[0].routes[0].id}`);
    expect(removed.models[0].routes).toEqual([]);
    expect(await json("model set chat-1 --disable")).toMatchObject({ models: [{ enabled: false }] });
    for (const [word, hidesTokens] of [
      ["yes", true],
      ["no", false],
      ["unknown", null],
    ] as const)
      expect(await json(`model set chat-1 --hides-tokens ${word}`)).toMatchObject({ models: [{ hidesTokens }] });
    expect(await refused("model route chat-2 --provider upstream")).toContain("no model chat-2");
  },
  SLOW_MS,
);

test.concurrent(
  "model price sets everything that it is given, or refuses it and changes nothing",
  async () => {
    const { models } = await json("model add priced-1 --input 3 --output 15 --image 512x512=0.02");
    for (const [given, says] of [
      ["--input 9 --output 45 --image 1024x1024=0.04 --image 1024x=0.05", "size must be one of"],
      ["--input 9 --output 45 --image 1024x1024=0.04 --image 1024x1024/standard=0.05", "1024x1024 stands twice"],
      ["--input 9 --output 45 --image 512x512=none --image 1024x1024/High=0.17", "1024x1024/high"],
    ] as const)
      expect(await refused(`model price priced-1 ${given}`)).toContain(says);
    for (const [given, says] of [
      ["--input 9 --output 45 --tier 200000:input=6,output=22.5:cached-input=0.6", "one colon"],
      ["--input 9 --output 45 --tier 200000:input=6,output=22.5=7", "one colon"],
      ["--image 1024x1024=0.04=9", "1024x1024=0.04"],
      ["--image 1024x1024", "1024x1024=0.04"],
    ] as const)
      expect(await cli(`model price priced-1 ${given}`)).toMatchObject({ code: 2, err: expect.stringContaining(says) });
    const { models: all } = await json("model list");
    expect(models[0]).toMatchObject(all.find(({ id }: { id: string }) => id === "priced-1"));
    expect(await refused("model price absent-1 --image 512x512=none")).toContain("no model absent-1");
    const changed = await json(
      "model price priced-1 --input 9 --output 45 --image 512x512=none --image 1024x1024=0.04",
    );
    expect(changed.models[0]).toMatchObject({
      prices: { inputMicroUsd: 9_000_000 },
      imagePrices: [{ size: "1024x1024", microUsd: 40_000 }],
    });
    await json("model set priced-1 --disable");
  },
  SLOW_MS,
);

test.concurrent(
  "limits of one model are collected over the options of a command, and none stands twice",
  async () => {
    await json("account add --email models@example.com --name Models");
    await json("model add limited-1");
    const set = (given: string) => `account limits models@example.com ${given}`;
    const { limits } = await json(
      set("--model-limits limited-1=requests:60,at-once:2 --model-limits limited-1=tokens:500"),
    );
    const all = { requestsPerMinute: 60, tokensPerMinute: 500, requestsAtOnce: 2 };
    expect(limits.own.models).toEqual({ "limited-1": all });
    await json("model set limited-1 --disable");
    for (const [given, says] of [
      ["--model-limits limited-1=requests:60 --model-limits limited-1=requests:5", "requests stands twice"],
      ["--model-limits limited-1=tokens:500,tokens:600", "tokens stands twice"],
      ["--model-limits limited-1=constructor:5", "at-once:5"],
    ] as const)
      expect(await cli(set(given))).toMatchObject({ code: 2, err: expect.stringContaining(says) });
  },
  SLOW_MS,
);

test.concurrent(
  "usage lists records by account and time, and figures sums them, in exact USD",
  async () => {
    const { accountId } = await world.addCustomer();
    await world.sql`insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
      shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select id, ${accountId}, 7, 'chat-1', 'api.example', 'payg', 'settled', 'complete', 0, 500, 123, 0, 10, 0, 20, 30, true, now(), now()
    from (select request_id_floor(now()) as id) as r`;
    const { usage } = await json(`usage --account ${accountId}`);
    expect(usage).toMatchObject([
      { modelId: "chat-1", chargedNanoUsd: "123", chargedUsd: "0.000000123", promptTokens: 10, completionTokens: 20 },
    ]);
    expect((await cli(`usage --account ${accountId}`)).out).toContain("$0.000000123");
    expect((await json(`usage --account ${accountId} --until 2020-01-01`)).usage).toEqual([]);
    expect(await refused("usage --since yesterday")).toContain("ISO 8601");
    const figures = await json(`figures --account ${accountId} --by model`);
    const summed = { requests: 1, usageRevenueNanoUsd: "123", costNanoUsd: "0", marginNanoUsd: "123", costUnknown: 1 };
    expect(figures).toMatchObject({
      total: summed,
      before: { requests: 0 },
      lines: [{ modelId: "chat-1", ...summed }],
    });
    expect((await cli(`figures --account ${accountId}`)).out).toMatch(
      /total +1 +30 +\$0\.000000123 +\$0\.00 +\$0\.000000123 +1 /,
    );
    expect(await refused(`figures --account ${accountId} --since 2020-01-02 --until 2020-01-01`)).toContain(
      "must begin before",
    );
    expect((await cli("figures --by nothing")).code).toBe(2);
    expect(await refused("figures --by key")).toContain("account");
    await world.sql`delete from receipts where account_id = ${accountId}`;
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

test(
  "account losses shows what nobody paid and who is refused; --forget ends the hour; doctor says that somebody is refused",
  async () => {
    const { accountId } = await world.addCustomer();
    const db = world.openDb(1);
    await addLosses({ db }, [{ accountId, tenantId: 0, kind: "provider_time", amount: 90_000n, times: 3 }], []);
    await db.close();
    const env = { UNPAID_ACCOUNT_MINUTES: "1" };
    const shown = await json(`account losses ${accountId}`, { env });
    expect(shown.losses).toMatchObject([
      { holder: "account", holderId: accountId, hourAmount: "90000", amount: "90000", times: 3, stopped: true },
    ]);
    expect((await cli(`account losses ${accountId}`, { env })).out).toMatch(/provider_time +2 min .* yes +2 min +3 /);
    expect((await json(`account losses ${accountId}`)).losses).toMatchObject([{ stopped: false }]);
    expect((await cli("doctor", { env })).out).toContain("an account or reseller is refused");
    expect(await refused("account losses --forget")).toContain("Name the account");
    expect((await json(`account losses ${accountId} --forget`, { env })).losses).toMatchObject([
      { hourAmount: "0", amount: "90000", stopped: false },
    ]);
  },
  SLOW_MS,
);

/** The dialect and the facts of the provider `upstream`: set, shown, refused, and as its dialect says again. */
async function changesFacts(): Promise<void> {
  const env = { env: { SECRET_KEY } };
  const shown = async () => (await json("provider show upstream")).provider;
  expect(await shown()).toMatchObject({ dialect: "generic", takes: { capField: "max_tokens", streamOptions: "sent" } });
  await json("provider set upstream --dialect mistral --fact firstTokenSeconds=90 --fact droppedParams=seed,user", env);
  const { dialect, takes, facts } = await shown();
  expect([dialect, takes.streamOptions, takes.firstTokenSeconds, takes.droppedParams]).toEqual([
    "mistral",
    "left_out",
    90,
    ["seed", "user"],
  ]);
  expect(facts.find(({ fact }: { fact: string }) => fact === "streamOptions").from).toContain("github.com");
  expect((await cli("provider show upstream")).out).toMatch(
    /Mistral \(mistral\)[\s\S]+firstTokenSeconds\s+90\s+set here/,
  );
  expect(await refused("provider set upstream --dialect klingon", env)).toContain("generic, openai");
  expect(await refused("provider set upstream --fact mood=good", env)).toContain("mood");
  expect(await refused("provider set upstream --fact usage=asked", env)).toContain("contradict");
  expect(await refused("provider set upstream --fact droppedParams=messages", env)).toContain("messages");
  expect((await cli("provider set upstream --fact capField", env)).err).toContain("capField=max_completion_tokens");
  await json(
    "provider set upstream --dialect generic --fact firstTokenSeconds=default --fact droppedParams=default",
    env,
  );
  expect((await shown()).takes).toMatchObject({ streamOptions: "sent", firstTokenSeconds: null, droppedParams: [] });
  expect(await refused("provider test --apply", env)).toContain("Name the provider");
}

/** A probe of the provider `upstream`, which takes everything. */
async function probesFacts(): Promise<void> {
  const env = { env: { SECRET_KEY } };
  await json("provider set upstream --fact embeddings=float", env);
  const probed = await json("provider test upstream --probe", env);
  expect(probed.providers[0].probe).toMatchObject({ proposed: {}, unknown: [] });
  expect((await cli("provider test upstream --apply", env)).out).toContain("its facts hold");
  await json("provider set upstream --fact embeddings=default", env);
}
