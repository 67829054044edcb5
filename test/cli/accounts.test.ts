import { expect, test } from "bun:test";
import { addLosses } from "../../src/accounts/losses_store.ts";
import { verifyPassword } from "../../src/accounts/passwords.ts";
import { findSignIn } from "../../src/accounts/sign_in_store.ts";
import { MAIL } from "../panel/mailed_links.ts";
import { cli, cliProcess, json, refused, SECRET_KEY, SLOW_MS, startCliWorld, world } from "./cli_world.ts";

/** Accounts as an operator manages them: who signs in, members, keys, limits, markups, domains and losses. */

startCliWorld();

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
