import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { minuteOf, pruneRefusals } from "../../src/accounts/refusal_counts_store.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, chatBody, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import type { Person, TestKey } from "../world.ts";
import { type PanelSession, signInTo } from "./panel_client.ts";
import { untilRefused } from "./stored.ts";

/** Source: END-5, USE-1, USE-3, PAN-4. */

const ACME = "ai.acme.test";
const BASE = "api.tollgate.test";

let shop: Shop;
let acme: Person;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  acme = await shop.world.addReseller(ACME);
});
afterAll(() => shop.close());

type Row = Record<string, unknown> & { requestId: string };
const rowsOf = (answer: Answer): Row[] => answer.json.rows;
const idsOf = (answer: Answer) => rowsOf(answer).map(({ requestId }) => requestId);
const idOf = (answer: Answer) => answer.headers.get("x-request-id") ?? "";

/** A minute may end while a test sends its refused requests. Then what both minutes counted is counted in the later one. */
async function inOneMinute({ accountId }: Person): Promise<void> {
  await shop.world.sql`
    with earlier as (
      delete from refusal_counts r using refusal_counts later
      where r.account_id = ${accountId} and (later.account_id, later.key_id, later.code, later.model_id) = (r.account_id, r.key_id, r.code, r.model_id)
        and later.minute > r.minute
      returning r.key_id, r.code, r.model_id, r.count, later.minute)
    update refusal_counts c set count = c.count + e.count from earlier e
    where c.account_id = ${accountId} and (c.key_id, c.code, c.model_id, c.minute) = (e.key_id, e.code, e.model_id, e.minute)`;
}

/** Inserts a receipt of some minutes ago. */
async function addReceipt(
  person: Person,
  key: TestKey,
  minutesAgo: number,
  over: Record<string, unknown> = {},
): Promise<string> {
  return addReceiptAt(person, key, Date.now() - minutesAgo * 60_000, over);
}

async function addReceiptAt(
  { accountId }: Person,
  key: TestKey,
  atMs: number,
  over: Record<string, unknown> = {},
): Promise<string> {
  const requestId = idAt(atMs);
  const row = {
    request_id: requestId,
    account_id: accountId,
    key_id: key.keyId,
    model_id: "chat-a",
    host: BASE,
    mode: "package",
    outcome: "settled",
    reason: "complete",
    units: 0,
    held_nano_usd: 0,
    charged_nano_usd: 0,
    shortfall_nano_usd: 0,
    prompt_tokens: 10,
    cached_tokens: 0,
    completion_tokens: 5,
    charged_tokens: 0,
    estimated: false,
    created_at: new Date(atMs),
    finished_at: new Date(atMs),
    ...over,
  };
  await shop.world.sql`insert into receipts ${shop.world.sql(row)}`;
  return requestId;
}

let ids = 0;
function idAt(ms: number): string {
  const hex = Math.trunc(ms).toString(16).padStart(12, "0");
  return `${hex.slice(0, 8)}-${hex.slice(8)}-7000-8000-${String(++ids).padStart(12, "0")}`;
}

describe("usage records", () => {
  test("newest first, with the key's name, paged", async () => {
    const person = await shop.customer();
    const session = await signInTo(shop, person);
    const answers = [];
    for (let i = 0; i < 3; i++) answers.push(await shop.chat(person.secret));
    const all = await session.get("/usage");
    expect(idsOf(all)).toEqual(answers.map(idOf).reverse());
    expect(all.json.hasMore).toBe(false);
    expect(rowsOf(all)[0]).toEqual({
      kind: "charged",
      requestId: idOf(answers[2] as Answer),
      accountId: person.accountId,
      keyId: person.keyId,
      keyName: "key",
      modelId: "chat-a",
      host: "localhost",
      mode: "package",
      units: 1,
      promptTokens: expect.any(Number),
      cachedTokens: 0,
      completionTokens: expect.any(Number),
      chargedTokens: expect.any(Number),
      heldNanoUsd: "0",
      chargedNanoUsd: "0",
      shortfallNanoUsd: "0",
      estimated: expect.any(Boolean),
      reason: "complete",
      createdAt: expect.stringMatching(/^\d{4}-.*Z$/),
      finishedAt: expect.stringMatching(/^\d{4}-.*Z$/),
    });
    const first = await session.get("/usage?limit=2");
    expect([idsOf(first), first.json.hasMore]).toEqual([idsOf(all).slice(0, 2), true]);
    const second = await session.get(`/usage?limit=2&after=${idsOf(first)[1]}`);
    expect([idsOf(second), second.json.hasMore]).toEqual([idsOf(all).slice(2), false]);
  });

  test("filtered by key, model, host, mode and time", async () => {
    const person = await shop.customer();
    const other = await shop.world.addKey(person);
    const session = await signInTo(shop, person);
    const a = await addReceipt(person, person, 1);
    const b = await addReceipt(person, other, 2, { model_id: "vendor/chat-b", host: ACME });
    const c = await addReceipt(person, person, 90, { mode: "payg" });
    const find = async (query: string) => idsOf(await session.get(`/usage?${query}`));
    expect(await find("")).toEqual([a, b, c]);
    expect(await find(`keyId=${other.keyId}`)).toEqual([b]);
    expect(await find("model=vendor%2Fchat-b")).toEqual([b]);
    expect(await find(`host=${ACME}`)).toEqual([b]);
    expect(await find("mode=payg")).toEqual([c]);
    const at = (minutesAgo: number) => new Date(Date.now() - minutesAgo * 60_000).toISOString();
    expect(await find(`start=${at(60)}`)).toEqual([a, b]);
    expect(await find(`end=${at(60)}`)).toEqual([c]);
    expect(await find(`start=${at(60)}&end=${at(1.5)}&keyId=${other.keyId}`)).toEqual([b]);
    expect(await find("keyId=999999")).toEqual([]);
  });

  test("422 validation_failed for a wrong query", async () => {
    const session = await signInTo(shop, await shop.customer());
    for (const query of [
      "start=yesterday",
      "end=2026-02-30",
      "after=1",
      "limit=0",
      "limit=201",
      "limit=x",
      "mode=free",
      "kind=all",
      "keyId=x",
      "model=%00",
      "host=a_b",
      `model=${"x".repeat(201)}`,
      "unknown=1",
      "days=0",
      "days=93",
      "days=7&start=2026-11-01T00:00:00Z",
    ]) {
      for (const path of ["/usage", "/usage.csv"]) {
        if (path === "/usage.csv" && /^(after|limit)/.test(query)) continue;
        const answer = await session.get(`${path}?${query}`);
        expectRefusal(answer, "validation_failed", { param: answer.json.error?.param });
      }
    }
    for (const query of ["days=0", "days=93", "measure=all"])
      expect((await session.get(`/usage/days?${query}`)).status).toBe(422);
  });
});

describe("requests that were not charged", () => {
  test("are each listed once: refusals as counts per minute, released holds one by one", async () => {
    const person = await shop.customer({ dailyLimit: 2, modelIds: ["chat-a", "chat-two-routes"] });
    const session = await signInTo(shop, person);
    const narrow = await shop.world.addKey(person, { modelIds: ["chat-a"], hosts: [BASE] });
    shop.provider.next({ status: 503 });
    const failed = await shop.chat(person.secret);
    expectRefusal(failed, "provider_unavailable");
    shop.provider.next({ status: 400, body: JSON.stringify({ error: { message: "Not that.", param: null } }) });
    const rejected = await shop.chat(person.secret);
    expect(rejected.status).toBe(400);
    for (let i = 0; i < 2; i++) expect((await shop.chat(person.secret)).status).toBe(200);
    const codes = [
      await shop.chat(person.secret),
      await shop.chat(person.secret),
      await shop.chat(person.secret, { model: "vendor/chat-b" }),
      await shop.chat(person.secret, { model: "nobody" }),
      await shop.chat(person.secret, { messages: [] }),
      await shop.chat(narrow.secret, {}, { host: "tollgate.test" }),
    ];
    expect(codes.map((answer) => answer.json.error.code)).toEqual([
      "daily_quota_exceeded",
      "daily_quota_exceeded",
      "model_not_in_package",
      "model_not_found",
      "invalid_request",
      "host_not_allowed",
    ]);
    // Without an account there is nothing to count.
    expectRefusal(await shop.chat("sk-nobody"), "invalid_api_key");
    await untilRefused(shop, person.accountId, 7);
    await inOneMinute(person);

    const rows = rowsOf(await session.get("/usage?kind=not_charged"));
    const told = rows.map(({ kind, code, reason, keyName, modelId, count }) =>
      kind === "refused" ? [code, keyName, modelId, count] : [reason, keyName, modelId],
    );
    expect(told).toEqual([
      ["host_not_allowed", "key", null, 1],
      ["invalid_request", "key", null, 1],
      ["model_not_found", "key", null, 1],
      ["model_not_in_package", "key", "vendor/chat-b", 1],
      ["daily_quota_exceeded", "key", "chat-a", 2],
      ["provider_rejected", "key", "chat-a"],
      ["provider_failed", "key", "chat-a"],
    ]);
    const [refused] = rows.filter(({ code }) => code === "daily_quota_exceeded");
    expect(refused).toEqual({
      kind: "refused",
      requestId: idOf(codes[1] as Answer),
      keyId: person.keyId,
      keyName: "key",
      modelId: "chat-a",
      host: "localhost",
      code: "daily_quota_exceeded",
      count: 2,
      minute: expect.stringMatching(/:00\.000Z$/),
    });
    expect(rows.at(-1)).toMatchObject({ kind: "released", requestId: idOf(failed), heldNanoUsd: "0", mode: "package" });

    const find = async (query: string) =>
      rowsOf(await session.get(`/usage?kind=not_charged&${query}`)).map(({ code, reason }) => code ?? reason);
    expect(await find(`keyId=${narrow.keyId}`)).toEqual(["host_not_allowed"]);
    expect(await find("model=vendor%2Fchat-b")).toEqual(["model_not_in_package"]);
    expect(await find("host=tollgate.test")).toEqual(["host_not_allowed"]);
    expect(await find("mode=payg")).toEqual([]);
    expect((await find("mode=package")).length).toBe(7);
    expect(await find("start=2999-01-01")).toEqual([]);
    expect(await find("end=2020-01-01")).toEqual([]);
    expect(idsOf(await session.get("/usage"))).toHaveLength(2);
  });

  test("300 refusals within a minute are one row", async () => {
    const person = await shop.customer(null);
    const answers = await Promise.all(Array.from({ length: 300 }, () => shop.chat(person.secret)));
    for (const answer of answers) expect(answer.json.error.code).toBe("package_required");
    await untilRefused(shop, person.accountId, 300);
    const rows = await shop.world.sql`select count from refusal_counts where account_id = ${person.accountId}`;
    const minutes = new Set(answers.map((answer) => minuteOf(idOf(answer))));
    expect(rows).toHaveLength(minutes.size);
  });

  test("refusals in the panel are counted, also without a key and above the rate", async () => {
    const person = await shop.world.addCustomer();
    const narrow = await shop.start({ RATE_PER_MINUTE: "2" });
    try {
      const session = await signInTo(shop, person, { origin: narrow.origin });
      expectRefusal(await session.post("/ai/chat", chatBody()), "no_active_key");
      await shop.world.addKey(person);
      expectRefusal(await session.post("/ai/image", imageBody()), "package_required");
      expectRefusal(await session.post("/ai/chat", chatBody()), "too_many_requests");
      // Draining stores the counts immediately.
      expect(await narrow.stop()).toBe(0);
    } finally {
      await narrow.kill();
    }
    const rows = rowsOf(await (await signInTo(shop, person)).get("/usage?kind=not_charged"));
    expect(rows.map(({ code, keyName, modelId, host }) => [code, keyName, modelId, host])).toEqual([
      ["too_many_requests", null, null, BASE],
      ["package_required", "key", "image-a", BASE],
      ["no_active_key", null, null, BASE],
    ]);
  });

  test("paging over refusals and released holds has no gap and no repeat", async () => {
    const person = await shop.customer();
    const session = await signInTo(shop, person);
    const now = Date.now();
    const wanted: string[] = [];
    for (let i = 0; i < 12; i++) {
      if (i % 3 === 0)
        wanted.push(await addReceipt(person, person, i / 3, { outcome: "released", reason: "replica_died" }));
      // Three keys in a minute, twenty seconds apart.
      const id = idAt(now - i * 20_000 - 1000);
      const minute = new Date(Math.floor((now - i * 20_000 - 1000) / 60_000) * 60_000);
      await shop.world
        .sql`insert into refusal_counts (account_id, key_id, code, model_id, minute, count, last_request_id, host)
        values (${person.accountId}, ${1000 + i}, 'too_many_requests', '', ${minute}, 1, ${id}, 'x.test')`;
      wanted.push(id);
    }
    wanted.sort().reverse();
    const found: string[] = [];
    for (let after = ""; ; ) {
      const page = await session.get(`/usage?kind=not_charged&limit=3${after}`);
      found.push(...idsOf(page));
      if (!page.json.hasMore) break;
      after = `&after=${found.at(-1)}`;
    }
    expect(found).toEqual(wanted);
  });

  test("refusals are kept for a week", async () => {
    const person = await shop.world.addCustomer();
    const db = shop.world.openDb();
    for (const days of [8, 6])
      await shop.world
        .sql`insert into refusal_counts (account_id, key_id, code, model_id, minute, count, last_request_id, host)
        values (${person.accountId}, 1, 'x', '', clock_timestamp() - make_interval(days => ${days}), 1, gen_random_uuid(), '')`;
    expect(await pruneRefusals({ db })).toBe(1);
    expect(await pruneRefusals({ db })).toBe(0);
    await db.close();
  });
});

describe("whose usage is shown", () => {
  test("an account's own, and that of accounts it manages; all others get 404", async () => {
    const mine = await shop.world.addCustomer(acme.accountId);
    const stranger = await shop.world.addCustomer((await shop.world.addReseller()).accountId);
    const house = await shop.customer();
    const key = await shop.world.addKey(mine);
    const id = await addReceipt(mine, key, 1);
    const strangerKey = await shop.world.addKey(stranger);
    const strangerId = await addReceipt(stranger, strangerKey, 1);
    const sessions = {
      customer: await signInTo(shop, mine, { host: ACME }),
      reseller: await signInTo(shop, acme),
      admin: await signInTo(shop, await shop.world.addAdmin()),
      house: await signInTo(shop, house),
    };
    const see = async (session: PanelSession, { accountId }: Person, requestId: string) => {
      const of = `accountId=${accountId}`;
      const answers = [
        await session.get(`/usage?${of}`),
        await session.get(`/usage?kind=not_charged&${of}`),
        await session.get(`/usage/days?${of}`),
        await session.get(`/usage.csv?${of}`),
        await session.get(`/receipts/${requestId}?${of}`),
      ];
      return answers.map(({ status }) => status);
    };
    const [seen, hidden] = [Array(5).fill(200), Array(5).fill(404)];
    expect(await see(sessions.customer, mine, id)).toEqual(seen);
    expect(await see(sessions.reseller, mine, id)).toEqual(seen);
    expect(await see(sessions.admin, mine, id)).toEqual(seen);
    expect(await see(sessions.admin, stranger, strangerId)).toEqual(seen);
    expect(await see(sessions.reseller, stranger, strangerId)).toEqual(hidden);
    expect(await see(sessions.reseller, house, strangerId)).toEqual(hidden);
    expect(await see(sessions.customer, acme, id)).toEqual(hidden);
    expect(await see(sessions.house, mine, id)).toEqual(hidden);
    for (const session of [sessions.reseller, sessions.admin])
      expect(await see(session, { accountId: 999_999 }, id)).toEqual(hidden);
    expect(idsOf(await sessions.reseller.get(`/usage?accountId=${mine.accountId}`))).toEqual([id]);
    // Without accountId it is one's own usage, and a request is found if it is of an account that one manages.
    for (const session of [sessions.reseller, sessions.admin, sessions.house])
      expect(idsOf(await session.get("/usage"))).not.toContain(id);
    for (const session of [sessions.reseller, sessions.admin])
      expect((await session.get(`/receipts/${id}`)).json).toMatchObject({ accountId: mine.accountId });
    expectRefusal(await sessions.house.get(`/receipts/${id}`), "not_found");
    for (const session of [sessions.reseller, sessions.customer])
      expectRefusal(await session.get(`/receipts/${strangerId}`), "not_found");
    // The request must belong to the account in the query.
    expectRefusal(await sessions.admin.get(`/receipts/${strangerId}?accountId=${mine.accountId}`), "not_found");
    expectRefusal(await sessions.reseller.get(`/receipts/${strangerId}?accountId=${mine.accountId}`), "not_found");
  });
});

describe("days", () => {
  test("sums by model and by day in the package's time zone, the most used model first", async () => {
    const person = await shop.world.addCustomer();
    await shop.world.givePackage(person, { timeZone: "Pacific/Kiritimati" });
    const key = await shop.world.addKey(person);
    const session = await signInTo(shop, person);
    await addReceipt(person, key, 0, { prompt_tokens: 100, charged_nano_usd: 5, mode: "payg" });
    await addReceipt(person, key, 0, { prompt_tokens: 100, charged_nano_usd: 6, mode: "payg" });
    await addReceipt(person, key, 24 * 60, { model_id: "vendor/chat-b", completion_tokens: 9000 });
    await addReceipt(person, key, 24 * 60 * 5);
    await addReceipt(person, key, 0, { outcome: "released" });
    const { json } = await session.get("/usage/days?days=3");
    const [clock] = await shop.world.sql`
      select array_agg(((clock_timestamp() at time zone 'Pacific/Kiritimati')::date - ago)::text order by ago desc) as days
      from generate_series(0, 2) as ago`;
    expect(json).toEqual({
      timeZone: "Pacific/Kiritimati",
      days: clock?.days,
      rows: [
        {
          day: clock?.days[1],
          modelId: "vendor/chat-b",
          requests: 1,
          promptTokens: 10,
          completionTokens: 9000,
          chargedNanoUsd: "0",
        },
        {
          day: clock?.days[2],
          modelId: "chat-a",
          requests: 2,
          promptTokens: 200,
          completionTokens: 10,
          chargedNanoUsd: "11",
        },
      ],
      models: [
        { modelId: "chat-a", place: 0, requests: 2, promptTokens: 200, completionTokens: 10, chargedNanoUsd: "11" },
        {
          modelId: "vendor/chat-b",
          place: expect.any(Number),
          requests: 1,
          promptTokens: 10,
          completionTokens: 9000,
          chargedNanoUsd: "0",
        },
      ],
    });
    // The chart's colour follows `place`, so it must be the same for every query.
    for (const query of ["days=3&measure=tokens", "days=3&measure=charged", "days=1"])
      for (const { modelId, place } of (await session.get(`/usage/days?${query}`)).json.models)
        expect(place).toBe(json.models.find((model: { modelId: string }) => model.modelId === modelId).place);
    const models = async (query: string) =>
      (await session.get(`/usage/days?${query}`)).json.models.map(({ modelId }: { modelId: string }) => modelId);
    expect(await models("days=3&measure=tokens")).toEqual(["vendor/chat-b", "chat-a"]);
    expect(await models("days=3&measure=charged")).toEqual(["chat-a", "vendor/chat-b"]);
    expect(await models("days=3&mode=package")).toEqual(["vendor/chat-b"]);
    expect(await models("days=1")).toEqual(["chat-a"]);
  });

  test("a list and a file of some days begin with the first of them, at its midnight in the package's time zone", async () => {
    const person = await shop.world.addCustomer();
    const timeZone = "Pacific/Kiritimati";
    await shop.world.givePackage(person, { timeZone });
    const key = await shop.world.addKey(person);
    const session = await signInTo(shop, person);
    const [row] = await shop.world.sql`
      select ((clock_timestamp() at time zone ${timeZone})::date - 6)::timestamp at time zone ${timeZone} as midnight`;
    const midnightMs = Date.parse(String(row?.midnight));
    await addReceiptAt(person, key, midnightMs - 1);
    const first = await addReceiptAt(person, key, midnightMs);
    const last = await addReceipt(person, key, 0);
    const listed = idsOf(await session.get("/usage?days=7"));
    expect(listed).toEqual([last, first]);
    const { models } = (await session.get("/usage/days?days=7")).json;
    expect(models).toMatchObject([{ requests: listed.length }]);
    const [, ...rows] = (await session.get("/usage.csv?days=7")).text.trimEnd().split("\r\n");
    expect(rows.map((line) => line.split(",")[0])).toEqual([last, first]);
    expect(idsOf(await session.get("/usage?days=8"))).toHaveLength(3);
  });

  test("without a package the days are in the service's time zone; days without usage have no row", async () => {
    const { json } = await (await signInTo(shop, await shop.world.addCustomer())).get("/usage/days?days=92");
    expect(json).toMatchObject({ timeZone: "UTC", rows: [], models: [] });
    expect(json.days).toHaveLength(92);
    expect(json.days.at(-1)).toBe(new Date().toISOString().slice(0, 10));
  });
});

describe("the CSV file", () => {
  const lines = (text: string) => text.trimEnd().split("\r\n");

  test("a filtered download named after the host, with UTC times and raw units", async () => {
    const person = await shop.world.addCustomer(acme.accountId);
    const key = await shop.world.addKey(person);
    const session = await signInTo(shop, person, { host: ACME });
    const id = await addReceipt(person, key, 1, { mode: "payg", charged_nano_usd: 12_345, held_nano_usd: 20_000 });
    await addReceipt(person, key, 2, { model_id: "vendor/chat-b" });
    const answer = await session.get("/usage.csv?model=chat-a");
    expect(answer.status).toBe(200);
    expect(answer.headers.get("content-type")).toBe("text/csv; charset=utf-8");
    expect(answer.headers.get("content-disposition")).toMatch(
      /^attachment; filename="usage-ai\.acme\.test-\d{4}-\d{2}-\d{2}\.csv"$/,
    );
    expect(answer.headers.get("cache-control")).toBe("no-store");
    expect(answer.headers.get("x-request-id")).toMatch(/^[0-9a-f-]{36}$/);
    const [header, first, ...rest] = lines(answer.text);
    expect(header).toBe(
      "request_id,at,finished_at,outcome,reason,count,key_id,key,model,host,mode,units,prompt_tokens,cached_tokens,completion_tokens,held_nano_usd,charged_nano_usd,estimated",
    );
    const at = "\\d{4}-\\d{2}-\\d{2}T[\\d:.]+Z";
    expect(first).toMatch(
      new RegExp(
        `^${id},${at},${at},charged,complete,1,${key.keyId},key,chat-a,${BASE},payg,0,10,0,5,20000,12345,false$`,
      ),
    );
    expect(rest).toEqual([]);
  });

  test("names that look like formulas are escaped; commas and quotes are quoted", async () => {
    const person = await shop.world.addCustomer();
    const session = await signInTo(shop, person);
    const cells: [name: string, cell: string][] = [
      ["=1+1", "'=1+1"],
      ["+1", "'+1"],
      // A plain number is no formula.
      ["-1", "-1"],
      ["@sum", "'@sum"],
      ["\uff1d1+1", "'\uff1d1+1"],
      ['=HYPERLINK("x", "y")', `"'=HYPERLINK(""x"", ""y"")"`],
      // Where the comma is the decimal sign, spreadsheets divide lines at semicolons, and do not see the quotes.
      ["a;=1+1;b; -2;3-1", "a;'=1+1;b;' -2;3-1"],
      ["a, b;@sum;", `"a, b;'@sum;"`],
      ["a\n=1+1", `"a\n'=1+1"`],
      ['a, "b"', '"a, ""b"""'],
    ];
    for (const [name] of cells) {
      const key = await shop.world.addKey(person);
      await shop.world.sql`update keys set name = ${name} where id = ${key.keyId}`;
      await addReceipt(person, key, 1);
      const [, line = ""] = lines((await session.get(`/usage.csv?keyId=${key.keyId}`)).text);
      expect(line).toContain(`,${key.keyId},${cells.find((cell) => cell[0] === name)?.[1]},chat-a,`);
    }
  });

  test("files of both kinds are complete beyond one page", async () => {
    const person = await shop.customer();
    const session = await signInTo(shop, person);
    await shop.world.sql`
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated,
        created_at, finished_at)
      select (substr(request_id_floor(clock_timestamp() - n * interval '1 second')::text, 1, 24) || lpad(n::text, 12, '0'))::uuid,
        ${person.accountId}, ${person.keyId}, 'chat-a', 'h', 'package', case when n % 2 = 0 then 'settled' else 'released' end,
        'complete', 0, 0, 0, 0, 0, 0, 0, 0, false, clock_timestamp(), clock_timestamp()
      from generate_series(1, 4600) as n`;
    for (const [kind, name] of [
      ["charged", "usage"],
      ["not_charged", "not-charged"],
    ]) {
      const answer = await session.get(`/usage.csv?kind=${kind}`);
      expect(answer.headers.get("content-disposition")).toContain(`filename="${name}-panel.tollgate.test-`);
      const rows = lines(answer.text).slice(1);
      expect(rows).toHaveLength(2300);
      expect(new Set(rows).size).toBe(2300);
      expect([...rows].sort().reverse()).toEqual(rows);
    }
  });

  test("a file is cut after 100,000 rows, and its last line says so", async () => {
    const person = await shop.customer();
    const session = await signInTo(shop, person);
    await shop.world.sql`
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated,
        created_at, finished_at)
      select (substr(request_id_floor(clock_timestamp() - n * interval '1 millisecond')::text, 1, 24) || lpad(n::text, 12, '0'))::uuid,
        ${person.accountId}, ${person.keyId}, 'chat-a', 'h', 'package', 'settled', 'complete', 0, 0, 0, 0, 0, 0, 0, 0, false,
        clock_timestamp(), clock_timestamp()
      from generate_series(1, 100001) as n`;
    const rows = lines((await session.get("/usage.csv")).text).slice(1);
    expect(rows).toHaveLength(100_001);
    expect(rows.at(-1)).toContain("Cut after 100000 rows");
  });
});

test("the books balance at the end, without the receipts that this file inserted", async () => {
  // The closing rewrites rows of large transactions. Its lock keeps it from locking the same rows in another order.
  await shop.world.sql.begin(async (tx) => {
    await tx`lock table book_closing in exclusive mode`;
    await tx`delete from receipts where charged_tokens = 0 and units = 0 and outcome = 'settled'`;
  });
  expect(await shop.world.unbalanced()).toEqual([]);
});
