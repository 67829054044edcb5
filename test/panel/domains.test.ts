import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { type DnsServer, startDnsServer } from "../dns_server.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { type OwnRedis, ownRedis, until } from "../platform/own_redis.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";
import { BEHIND_MS_MAX } from "./stored.ts";

/** Source: KEY-7, DOM-1, DOM-2, DOM-3, PAN-12. */

const OURS = "203.0.113.7";
const THEIRS = "198.51.100.4";
const ZONE = "acme.test";

let redis: OwnRedis;
let shop: Shop;
let dns: DnsServer[];
let acme: PanelSession;
let other: PanelSession;
let admin: PanelSession;
const records: string[] = [];

beforeAll(async () => {
  dns = await Promise.all([startDnsServer({ [ZONE]: [] }), startDnsServer({ [ZONE]: [] })]);
  redis = await ownRedis();
  shop = await openShop({
    redisUrl: redis.url,
    replicas: 2,
    // What a replica has in memory grows old in an hour: a change is seen because it is told.
    env: {
      SERVER_ADDRESSES: OURS,
      DNS_RESOLVERS: dns.map(({ resolver }) => resolver).join(","),
      CACHE_TTL_MS: "3600000",
    },
  });
  acme = await signInTo(shop, await shop.world.addReseller());
  other = await signInTo(shop, await shop.world.addReseller());
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterAll(async () => {
  await shop.close();
  await redis.stop();
  await Promise.all(dns.map((server) => server.stop()));
});

function setRecords(...more: string[]): void {
  const labels = more.map((record) => record.split(" ")[0]);
  const left = records.filter((record) => !labels.includes(record.split(" ")[0]));
  records.splice(0, records.length, ...left, ...more);
  for (const server of dns) server.setRecords(ZONE, records);
}

const origins = () => shop.replicas.map(({ origin }) => origin);

async function add(session: PanelSession, host: string): Promise<Answer> {
  const answer = await session.post("/domains", { host });
  expect([answer.status, answer.text]).toEqual([200, expect.any(String)]);
  return answer;
}
/** Checks at any time: without the limit of one check in five seconds. */
async function check(session: PanelSession, host: string): Promise<Answer> {
  await shop.world.sql`update hosts set checked_at = null where host = ${host} and reseller_id = ${session.accountId}`;
  return session.post(`/domains/${host}/check`);
}
/** Adds a domain and its records, and checks it: it is active. */
async function activate(session: PanelSession, host: string): Promise<void> {
  setRecords(`${host.split(".")[0]} A ${OURS}`);
  await add(session, host);
  expect((await check(session, host)).json.status).toBe("active");
}

/** A customer of a reseller, with a package and a key. */
async function customerOf({ accountId }: PanelSession) {
  const person = await shop.world.addCustomer(accountId);
  await shop.world.givePackage(person);
  return { ...person, ...(await shop.world.addKey(person)) };
}

/** The status of a chat on this host at each replica. */
async function chatsOn(host: string, secret: string): Promise<number[]> {
  return Promise.all(origins().map(async (origin) => (await shop.chat(secret, {}, { host, origin })).status));
}

describe("a reseller's domain", () => {
  const host = "live.acme.test";

  test("becomes active once it is verified; both replicas then serve the reseller's own customers on it immediately", async () => {
    const customer = await customerOf(acme);
    const stranger = await customerOf(other);
    expect(await chatsOn(host, customer.secret)).toEqual([403, 403]);
    const added = (await add(acme, host)).json;
    const url = `http://${host}`; // The scheme and port of PANEL_URL.
    expect(added).toMatchObject({ host, url, status: "pending", contested: false, report: null, nextCheckAt: null });
    expect(added.records).toEqual([{ type: "A", name: host, label: "live", value: OURS }]);
    expect(added.instructions).toContain(OURS);
    setRecords(`live A ${OURS}`);
    const checked = await acme.post(`/domains/${host}/check`);
    expect(checked.json).toMatchObject({ status: "active", report: { verdict: "ok", todo: [] } });
    await until(async () => (await chatsOn(host, customer.secret)).every((status) => status === 200));
    expect(await chatsOn(host, stranger.secret)).toEqual([403, 403]);
    const page = (await acme.get("/domains")).json;
    expect(page).toMatchObject({ serverAddresses: [OURS], resolvers: dns.map(({ resolver }) => resolver) });
    expect(page.domains.find((domain: { host: string }) => domain.host === host)).toEqual({
      host,
      status: "active",
      byHand: false,
      contested: false,
      failures: 0,
      createdAt: expect.stringMatching(/Z$/),
      checkedAt: expect.stringMatching(/Z$/),
      nextCheckAt: expect.stringMatching(/Z$/),
      activatedAt: expect.stringMatching(/Z$/),
    });
  });

  test("is suspended after three wrong checks in a row, and active again once the records are right", async () => {
    const customer = await customerOf(acme);
    const state = async () => (await acme.get(`/domains/${host}`)).json;
    const checkedByJob = async () => {
      const { checkedAt } = await state();
      await shop.world.sql`update hosts set next_check_at = clock_timestamp() where host = ${host}`;
      await until(
        async () => (await state()).checkedAt !== checkedAt && (await state()).report !== null,
        BEHIND_MS_MAX,
      );
      await until(async () => Date.parse((await state()).nextCheckAt) > Date.now() + 60_000);
    };
    setRecords(`live A ${THEIRS}`);
    for (const failures of [1, 2]) {
      await checkedByJob();
      expect(await state()).toMatchObject({ status: "active", failures });
      expect(await chatsOn(host, customer.secret)).toEqual([200, 200]);
    }
    await checkedByJob();
    expect(await state()).toMatchObject({
      status: "suspended",
      suspension: { since: expect.stringMatching(/Z$/), reason: null },
      report: { verdict: "wrong", todo: [{ kind: "change_a", from: THEIRS, to: OURS }] },
    });
    expect(await chatsOn(host, customer.secret)).toEqual([403, 403]);
    setRecords(`live A ${OURS}`);
    await checkedByJob();
    expect(await state()).toMatchObject({ status: "active", failures: 0, suspension: null });
    await until(async () => (await chatsOn(host, customer.secret)).every((status) => status === 200));
  });

  test("stays `verifying` while its records are wrong; the answer says what to delete and change", async () => {
    await add(acme, "amiss.acme.test");
    setRecords(`amiss A ${THEIRS}`, "amiss AAAA 2001:db8::1");
    const { json } = await check(acme, "amiss.acme.test");
    expect(json).toMatchObject({ status: "verifying", failures: 1, report: { verdict: "wrong" } });
    expect(json.report.todo).toEqual([
      { kind: "delete_aaaa", value: "2001:db8::1" },
      { kind: "change_a", from: THEIRS, to: OURS },
    ]);
    expect((await acme.get("/domains/amiss.acme.test")).json).toEqual(json);
  });

  test("is no longer served once it is removed; added again, it starts as pending", async () => {
    const customer = await customerOf(acme);
    await activate(acme, "short.acme.test");
    await until(
      async () => (await chatsOn("short.acme.test", customer.secret)).every((status) => status === 200),
      BEHIND_MS_MAX,
    );
    expect((await acme.delete("/domains/short.acme.test")).json).toEqual({ removed: true });
    expect(await chatsOn("short.acme.test", customer.secret)).toEqual([403, 403]);
    expectRefusal(await acme.get("/domains/short.acme.test"), "not_found");
    expectRefusal(await acme.delete("/domains/short.acme.test"), "not_found");
    expect((await add(acme, "short.acme.test")).json).toMatchObject({ status: "pending", report: null });
  });

  test("a second check within five seconds gets 429", async () => {
    await add(acme, "twice.acme.test");
    await check(acme, "twice.acme.test");
    expectRefusal(await acme.post("/domains/twice.acme.test/check"), "too_many_requests");
  });
});

describe("a contested name", () => {
  const host = "prize.acme.test";

  test("changes owner when the claimant proves it by TXT: the former owner's requests and sessions end, the new owner's are served", async () => {
    const [theirs, ours] = [await customerOf(other), await customerOf(acme)];
    await activate(other, host);
    await until(async () => (await chatsOn(host, theirs.secret)).every((status) => status === 200));
    const signedIn = await signInTo(shop, theirs, { host });
    expect((await signedIn.get("/me")).status).toBe(200);

    const claim = (await add(acme, host)).json;
    expect(claim).toMatchObject({ contested: true, status: "pending" });
    const [, txt] = claim.records;
    expect(txt).toMatchObject({ type: "TXT", name: `_verify.${host}`, label: "_verify.prize" });
    expect(claim.instructions).toContain(txt.value);
    const unproven = (await check(acme, host)).json;
    expect(unproven).toMatchObject({ status: "verifying", report: { todo: [{ kind: "add_txt", value: txt.value }] } });
    expect(await chatsOn(host, theirs.secret)).toEqual([200, 200]);
    // The claim changes nothing for the owner.
    expect((await check(other, host)).json).toMatchObject({ status: "active", contested: false });

    setRecords(`_verify.prize TXT "${txt.value}"`);
    // Meanwhile the former owner's customer keeps sending requests to both replicas.
    let isOver = false;
    const statuses: number[] = [];
    const asking = Array.from({ length: 8 }, async () => {
      while (!isOver) statuses.push(...(await chatsOn(host, theirs.secret)));
    });
    await until(async () => statuses.length >= 20);
    expect((await check(acme, host)).json).toMatchObject({ status: "active", contested: false });
    // Until the check returns, a replica may grant what it has drawn for the former owner's customers. Source: ESC-5
    const [returned] = await shop.world.sql`select clock_timestamp()::text as at`;
    expect(await chatsOn(host, theirs.secret)).toEqual([403, 403]);
    isOver = true;
    await Promise.all(asking);
    expect(new Set(statuses)).toEqual(new Set([200, 403]));
    const granted = await shop.world.sql`
      select count(*) filter (where created_at <= ${returned?.at}::timestamptz)::int as before,
        count(*) filter (where created_at > ${returned?.at}::timestamptz)::int as after
      from receipts where account_id = ${theirs.accountId} and host = ${host}`;
    expect(granted[0]?.before).toBeGreaterThanOrEqual(20);
    expect(granted[0]?.after).toBe(0);
    await until(async () => (await chatsOn(host, ours.secret)).every((status) => status === 200));
    expect((await signedIn.get("/me")).status).toBe(401);
    const lost = (await other.get(`/domains/${host}`)).json;
    expect(lost).toMatchObject({ status: "suspended", contested: true });
    expect(JSON.stringify(lost)).not.toContain(acme.email.split("@")[0]);
  });

  test("has exactly one owner after two resellers prove it in twenty concurrent checks", async () => {
    const raced = "raced.acme.test";
    const tokens = await Promise.all(
      [acme, other].map(async (session) => {
        await add(session, raced);
        const { json } = await session.get(`/domains/${raced}`);
        const [row] = await shop.world
          .sql`select token from hosts where host = ${raced} and reseller_id = ${session.accountId}`;
        return { json, token: String(row?.token) };
      }),
    );
    setRecords(`raced A ${OURS}`, ...tokens.map(({ token }) => `_verify.raced TXT "${token}"`));
    const sessions = Array.from({ length: 20 }, (_, i) => (i % 2 === 0 ? acme : other));
    const answers = await Promise.all(sessions.map((session) => session.post(`/domains/${raced}/check`)));
    expect(answers.map(({ status }) => status).sort((a, b) => a - b)).toEqual([200, 200, ...Array(18).fill(429)]);
    const rows = await shop.world.sql`select status from hosts where host = ${raced} order by status`;
    expect(rows.map(({ status }) => status)).toEqual(["active", "verifying"]);
  });
});

test("another reseller's domain gets the answer of one that does not exist, and is in no list", async () => {
  await add(acme, "mine.acme.test");
  for (const name of ["mine.acme.test", "absent.acme.test", "%00", "MINE.acme.test", "x".repeat(300)]) {
    expectRefusal(await other.get(`/domains/${name}`), "not_found");
    expectRefusal(await other.post(`/domains/${name}/check`), "not_found");
    expectRefusal(await other.delete(`/domains/${name}`), "not_found");
  }
  const seen = (await other.get("/domains")).json.domains.map((domain: { host: string }) => domain.host);
  expect(seen).not.toContain("mine.acme.test");
  expect((await acme.get("/domains/mine.acme.test")).status).toBe(200);
});

const WRONG_HOSTS = [
  "acme.test",
  "acme.co.uk",
  "test",
  "localhost",
  "",
  " ",
  "127.0.0.1",
  "0x7f.0.0.1",
  "2130706433",
  "[::1]",
  "203.0.113.7",
  "AI.acme.test",
  "ai.acme.test.",
  ".ai.acme.test",
  "ai..acme.test",
  "-ai.acme.test",
  "ai_x.acme.test",
  "*.acme.test",
  "ai.acme.test:443",
  "https://ai.acme.test",
  "ai.acme.test/v1",
  "user@ai.acme.test",
  "ai acme.test",
  "ai.acme.test\nx.acme.test",
  "ai.acme.test\0",
  "аi.acme.test",
  "ai。acme。test",
  "ai.acme.test\u200b",
  "münchen.acme.test",
  "xn--a.acme.test",
  `${"x".repeat(64)}.acme.test`,
  `${"x.".repeat(130)}acme.test`,
  "<script>alert(1)</script>.acme.test",
  "'; drop table hosts; --",
  "api.tollgate.test",
  "panel.tollgate.test",
  "tollgate.test",
  "ai.panel.tollgate.test",
  "login.tollgate.test",
];
test("422 validation_failed for a name that is not a subdomain, is malformed, or belongs to the service", async () => {
  for (const host of WRONG_HOSTS)
    expectRefusal(await acme.post("/domains", { host }), "validation_failed", { param: "host" });
  const stored = WRONG_HOSTS.map((host) => host.replaceAll("\0", ""));
  expect(await shop.world.sql`select host from hosts where host in ${shop.world.sql(stored)}`).toHaveLength(0);
});

test("punycode is accepted; other bodies are refused", async () => {
  expect((await add(acme, "xn--mnchen-3ya.acme.test")).json.host).toBe("xn--mnchen-3ya.acme.test");
  expectRefusal(await acme.post("/domains", { host: "xn--mnchen-3ya.acme.test" }), "validation_failed", {
    param: "host",
  });
  for (const body of [{}, { host: 7 }, { host: null }, { host: ["ai.acme.test"] }])
    expect((await acme.post("/domains", body)).status).toBe(422);
  expectRefusal(
    await acme.post("/domains", { host: "x.acme.test", resellerId: other.accountId }),
    "validation_failed",
    {
      param: "resellerId",
    },
  );
});

test("domains are refused while SERVER_ADDRESSES is not set, and the message names the variable", async () => {
  const bare = await shop.start({ SERVER_ADDRESSES: "" });
  try {
    const session = await signInTo(shop, await shop.world.addReseller(), { origin: bare.origin });
    expect((await session.get("/domains")).json).toMatchObject({ domains: [], serverAddresses: [] });
    const refused = await session.post("/domains", { host: "bare.acme.test" });
    expectRefusal(refused, "validation_failed");
    expect(refused.json.error.message).toContain("SERVER_ADDRESSES");
  } finally {
    await bare.stop();
  }
});

describe("an admin", () => {
  const path = (session: PanelSession, host: string) => `/admin/domains/${session.accountId}/${host}`;

  test("lists all resellers' domains, newest first, filtered by status and part of the name, paged", async () => {
    for (const name of ["list1", "list2", "list3"]) await add(other, `${name}.paged.test`);
    const first = (await admin.get("/admin/domains?q=paged&limit=2")).json;
    expect(first.hasMore).toBe(true);
    expect(first.domains.map((domain: { host: string }) => domain.host)).toEqual([
      "list3.paged.test",
      "list2.paged.test",
    ]);
    const [row] = await shop.world.sql`select name from accounts where id = ${other.accountId}`;
    expect(first.domains[0]).toMatchObject({ resellerId: other.accountId, resellerName: row?.name, status: "pending" });
    const last = `${other.accountId}/list2.paged.test`;
    const second = (await admin.get(`/admin/domains?q=paged&limit=2&before=${encodeURIComponent(last)}`)).json;
    expect([second.hasMore, second.domains.map((domain: { host: string }) => domain.host)]).toEqual([
      false,
      ["list1.paged.test"],
    ]);
    await other.delete("/domains/list1.paged.test");
    expect((await admin.get("/admin/domains?q=list1")).json.domains).toEqual([]);
    expect((await admin.get("/admin/domains?q=list1&status=removed")).json.domains).toMatchObject([
      { host: "list1.paged.test", status: "removed" },
    ]);
    const active = (await admin.get("/admin/domains?status=active&limit=200")).json.domains;
    expect(new Set(active.map(({ status }: { status: string }) => status))).toEqual(new Set(["active"]));
    expect((await admin.get("/admin/domains?q=%25")).json.domains).toEqual([]);
    for (const query of ["status=gone", "limit=0", "limit=201", "before=x", "before=0/ai.acme.test", "q=%00"])
      expect([query, (await admin.get(`/admin/domains?${query}`)).status]).toEqual([query, 422]);
  });

  test("suspends a domain with a reason and activates it by hand; the reseller cannot undo either; the audit log has actor and reason", async () => {
    const customer = await customerOf(acme);
    const host = "held.acme.test";
    await activate(acme, host);
    await until(async () => (await chatsOn(host, customer.secret)).every((status) => status === 200));
    const off = await admin.post(`${path(acme, host)}/suspend`, { reason: "Abuse <b>reported</b>" });
    const suspension = { since: expect.stringMatching(/Z$/), reason: "Abuse <b>reported</b>" };
    expect(off.json).toMatchObject({ status: "suspended", byHand: true, nextCheckAt: null, suspension });
    expect((await acme.get(`/domains/${host}`)).json).toMatchObject({ suspension });
    expect(await chatsOn(host, customer.secret)).toEqual([403, 403]);
    expect((await check(acme, host)).json).toMatchObject({ status: "suspended", report: { verdict: "ok" } });
    expectRefusal(await acme.delete(`/domains/${host}`), "validation_failed", { param: "host" });
    expect((await admin.post(`${path(acme, host)}/activate`)).json).toMatchObject({ status: "active", byHand: true });
    await until(async () => (await chatsOn(host, customer.secret)).every((status) => status === 200));
    const { entries } = (await admin.get(`/audit?subject=hosts&accountId=${acme.accountId}&limit=200`)).json;
    const mine = entries.filter(
      (entry: { subjectId: string; actor: { accountId: number } | null }) =>
        entry.subjectId === host && entry.actor?.accountId === admin.accountId,
    );
    expect(mine.map(({ after }: { after: Record<string, unknown> }) => after)).toEqual([
      expect.objectContaining({ status: "active" }),
      { reason: "Abuse <b>reported</b>" },
      { status: "suspended" },
    ]);
    expect(JSON.stringify(mine)).not.toMatch(/[0-9a-f]{32}/);
  });

  test("activates a name that no resolver knows, and no check suspends it; a name that another reseller has is refused", async () => {
    const host = "inside.acme.test";
    const customer = await customerOf(acme);
    await add(acme, host);
    await add(other, host);
    await admin.post(`${path(acme, host)}/activate`);
    await until(async () => (await chatsOn(host, customer.secret)).every((status) => status === 200));
    await shop.world.sql`update hosts set checked_at = null where host = ${host}`;
    expect((await admin.post(`${path(acme, host)}/check`)).json).toMatchObject({
      status: "active",
      byHand: true,
      failures: 0,
      report: { verdict: "wrong" },
    });
    const refused = await admin.post(`${path(other, host)}/activate`);
    expectRefusal(refused, "validation_failed", { param: "host" });
    expect(refused.json.error.message).toContain("Another reseller");
  });

  test("removes a domain; 404 for one that does not exist", async () => {
    await activate(other, "taken.acme.test");
    expect((await admin.delete(path(other, "taken.acme.test"))).json).toEqual({ removed: true });
    expectRefusal(await other.get("/domains/taken.acme.test"), "not_found");
    for (const absent of [
      path(acme, "taken.acme.test"),
      "/admin/domains/999999999/ai.acme.test",
      "/admin/domains/x/y",
    ]) {
      expectRefusal(await admin.get(absent), "not_found");
      for (const what of ["check", "suspend", "activate"])
        expectRefusal(await admin.post(`${absent}/${what}`), "not_found");
      expectRefusal(await admin.delete(absent), "not_found");
    }
    expectRefusal(
      await admin.post(`${path(acme, "mine.acme.test")}/suspend`, { reason: "a\nb" }),
      "validation_failed",
      {
        param: "reason",
      },
    );
  });
});
