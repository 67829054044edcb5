import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import { type Answer, chatBody, imageBody, openShop, type Shop } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ok, PANEL, PASSWORD, type PanelSession, postHeldBack, signInTo } from "./panel_client.ts";

/**
 * Rules that all endpoints of the panel share: session, CSRF, rate, bodies, ids, queries, forms, changes a day.
 * Source: ERR-3, ACC-1, ACC-2, DOM-5.
 */
const PROFILE = "/settings/profile";
const ACME = "ai.acme.test";
const OTHER = "ai.other.test";

let shop: Shop;
let person: PanelSession;
let acme: Person;

beforeAll(async () => {
  // Without Redis the replicas share the database alone. Domains can only be added where SERVER_ADDRESSES is set.
  shop = await openShop({ redisUrl: "", replicas: 2, env: { SERVER_ADDRESSES: "203.0.113.7" } });
  const { world } = shop;
  acme = await world.addReseller(ACME);
  await world.addReseller(OTHER);
  person = await signInTo(shop, await shop.customer());
});
afterAll(() => shop.close());

/** A PATCH of the name, byte for byte. */
const send = (body: string | Uint8Array, headers: Record<string, string> = {}): Promise<Answer> =>
  person.call(PROFILE, { method: "PATCH", body, headers: { "content-type": "application/json", ...headers } });

describe("session and CSRF", () => {
  const nonsense = "{";

  test("401 session_required without a session, before the body is read", async () => {
    const [name = "", value] = person.cookie.split("=");
    const wrong = ["", `${name}=`, `${name}=${"A".repeat(43)}`, `${name}=${"x".repeat(5_000)}`, `other=${value}`];
    await withoutEffect(shop, async () => {
      for (const cookie of wrong) {
        expectRefusal(await send(nonsense, { cookie }), "session_required");
        expectRefusal(await person.call("/me", { headers: { cookie } }), "session_required");
        expectRefusal(await person.post("/ai/chat", chatBody(), { cookie }), "session_required");
      }
    });
    expectRefusal(await send("x".repeat(3_000_000), { cookie: "" }), "session_required");
  });

  test("403 csrf_failed without the session's CSRF token or with a foreign Origin, before the body is read", async () => {
    const second = await signInTo(shop, person);
    expect(second.cookie).not.toBe(person.cookie);
    const wrong: [name: string, value: string][] = [
      ...["", "x".repeat(43), `${person.csrf}x`, second.csrf].map((token): [string, string] => ["x-csrf-token", token]),
      ...["", "null", "http://evil.test", `http://${ACME}`].map((origin): [string, string] => ["origin", origin]),
    ];
    await withoutEffect(shop, async () => {
      for (const [name, value] of wrong) {
        expectRefusal(await send(nonsense, { [name]: value }), "csrf_failed");
        expectRefusal(await person.post("/ai/chat", chatBody(), { [name]: value }), "csrf_failed");
      }
    });
    const reads = { headers: { "x-csrf-token": "", origin: "" } };
    expect((await person.call("/me", reads)).status).toBe(200);
  });

  test("signing out ends the session", async () => {
    const session = await signInTo(shop, await shop.customer());
    const out = await session.post("/sign-out");
    expect([out.status, out.headers.get("set-cookie")]).toEqual([200, expect.stringMatching(/Max-Age=0/i)]);
    expectRefusal(await session.get("/me"), "session_required");
    await withoutEffect(shop, async () =>
      expectRefusal(await session.post("/ai/chat", chatBody()), "session_required"),
    );
  });

  test("a session that ends while a body arrives changes nothing any more", async () => {
    const { world } = shop;
    const operator = await signInTo(shop, await world.addAdmin());
    const admin = await signInTo(shop, await world.addAdmin());
    const reseller = await world.addReseller();
    await world.sql`select add_balance(${reseller.accountId}, 5, 'top_up', 'test', null)`;
    const buyer = await world.addCustomer(reseller.accountId);
    const [seller, customer] = [await signInTo(shop, reseller), await signInTo(shop, await shop.customer())];
    await withoutEffect(shop, async () => {
      const held = [
        postHeldBack(admin, "/people", { email: "late@example.com", name: "Late", role: "admin" }),
        postHeldBack(seller, `/people/${buyer.accountId}/balance`, { kind: "top_up", amountNanoUsd: "5" }),
        postHeldBack(customer, "/keys", { name: "late", mode: "package" }),
        postHeldBack(customer, "/ai/chat", chatBody()),
      ];
      // Sent later and answered: the sessions of the held requests have been found valid before.
      for (const session of [admin, seller, customer]) ok(await session.get("/me"));
      ok(await operator.post(`/people/${admin.accountId}/suspend`));
      ok(await operator.post(`/people/${seller.accountId}/suspend`));
      ok(await customer.post("/sign-out-everywhere", { thisToo: true }));
      for (const { finish } of held) finish();
      for (const { answer } of held) expectRefusal(await answer, "session_required");
    });
    const [late] = await world.sql`
      select (select count(*)::int from accounts where email = 'late@example.com') as people,
        (select count(*)::int from keys where name = 'late') as keys,
        (select count(*)::int from balances where account_id = ${buyer.accountId} and balance_nano_usd > 0) as paid`;
    expect(late).toEqual({ people: 0, keys: 0, paid: 0 });
  });

  test("a session works on its own host only; hosts of the API have no panel", async () => {
    const there = await signInTo(shop, await shop.world.addCustomer(acme.accountId), { host: ACME });
    expect((await there.get("/me")).json.host).toBe(ACME);
    for (const host of [PANEL, OTHER, "localhost"])
      expectRefusal(await there.call("/me", { host }), "session_required");
    expectRefusal(await person.call("/me", { host: ACME }), "session_required");
    for (const host of ["api.tollgate.test", "tollgate.test", "foreign.test"]) {
      expectRefusal(await person.call("/me", { host }), "host_not_allowed");
      expectRefusal(await shop.call("/api/panel/sign-in", { host, body: {} }), "host_not_allowed");
    }
  });

  test("the API accepts no session and is not on the panel's host; the panel accepts no API key", async () => {
    const { secret } = await shop.customer();
    const headers = { cookie: person.cookie };
    expectRefusal(await shop.call("/v1/models", { secret, host: PANEL }), "host_not_allowed");
    expectRefusal(await shop.call("/v1/models", { host: "api.tollgate.test", headers }), "invalid_api_key");
    const withKey = { cookie: "", authorization: `Bearer ${secret}` };
    expectRefusal(await person.post("/ai/chat", chatBody(), withKey), "session_required");
  });

  test("429 too_many_requests above an account's rate, after CSRF and before the body is read", async () => {
    const slow = await shop.start({ RATE_PER_MINUTE: "2", REDIS_URL: "" });
    try {
      const session = await signInTo(shop, await shop.customer(), { origin: slow.origin });
      for (let i = 0; i < 2; i++) expect((await session.get("/home")).status).toBe(200);
      await withoutEffect(shop, async () => {
        expectRefusal(await session.get("/home"), "too_many_requests");
        expectRefusal(await session.patch(PROFILE, "no JSON"), "too_many_requests");
        expectRefusal(await session.post("/ai/chat", "{"), "too_many_requests");
        expectRefusal(await session.post("/ai/image", imageBody()), "too_many_requests");
        expectRefusal(await session.post("/ai/chat", chatBody(), { origin: "" }), "csrf_failed");
      });
    } finally {
      await slow.kill();
    }
  });
});

describe("bodies", () => {
  test("422 validation_failed names the wrong field", async () => {
    const cases: [body: string, param: string | null][] = [
      ["{", null],
      ["[]", null],
      ['"x"', null],
      ["{}", "name"],
      ['{"name": 5}', "name"],
      ['{"name": null}', "name"],
      ['{"name": "x", "role": "admin"}', "role"],
      ['{"name": "x", "name": "y"}', "name"],
      [`{"name": "${"x".repeat(401)}"}`, "name"],
      ['{"name": "   "}', "name"],
      ['{"name": "a\\u0000b"}', "name"],
      ['{"name": "a\\nb"}', "name"],
      ['{"name": "\\ud800"}', "name"],
    ];
    for (const [body, param] of cases) expectRefusal(await send(body), "validation_failed", { param });
  });

  test("413 above 1 MB, 415 for a body that is not JSON or is encoded", async () => {
    expectRefusal(await send(`{"name": "${"x".repeat(1_100_000)}"}`), "request_too_large");
    expectRefusal(
      await send("name=x", { "content-type": "application/x-www-form-urlencoded" }),
      "unsupported_media_type",
    );
    expectRefusal(await send("{}", { "content-encoding": "gzip" }), "unsupported_media_type");
  });

  test("HTML in a name is stored and returned as text", async () => {
    const name = "<script>alert(1)</script> & 'quotes' \"too\" 👍";
    expect((await send(JSON.stringify({ name }))).status).toBe(200);
    expect((await person.get("/settings")).json.name).toBe(name);
    expect((await person.get("/me")).headers.get("content-type")).toMatch(/^application\/json/);
  });
});

describe("ids and queries", () => {
  test("404 not_found for a malformed id, as for one that does not exist", async () => {
    for (const id of ["0", "-1", "1.5", "abc", "99999999999999999999", "%00", "1e3", "999999999"])
      expectRefusal(await person.post(`/keys/${id}/disable`), "not_found");
  });

  test("422 validation_failed names the wrong query parameter", async () => {
    for (const query of ["limit=0", "limit=-1", "limit=abc", "limit=100000", "limit=99999999999999999999"]) {
      expectRefusal(await person.get(`/usage?${query}`), "validation_failed", { param: "limit" });
      expectRefusal(await person.get(`/billing/entries?${query}`), "validation_failed", { param: "limit" });
    }
    expectRefusal(await person.get("/usage?nonsense=1"), "validation_failed", { param: "nonsense" });
    expectRefusal(await person.get("/billing/entries?before=0"), "validation_failed", { param: "before" });
  });

  test("422 validation_failed names a query parameter that is given twice", async () => {
    for (const path of ["/usage?limit=1&limit=2", "/billing/entries?limit=1&limit=1", "/usage.csv?limit=1&limit=2"])
      expectRefusal(await person.get(path), "validation_failed", { param: "limit" });
    for (const path of ["/keys?a=1&a=2", "/usage?%61=1&a=2"])
      expectRefusal(await person.get(path), "validation_failed", { param: "a" });
  });
});

describe("the Idempotency-Key of a form", () => {
  const create = (formKey: string, session = person) =>
    session.post("/keys", { name: "double", mode: "package" }, { "idempotency-key": formKey });
  const count = async () =>
    (await person.get("/keys")).json.rows.filter((key: { name: string }) => key.name === "double").length;

  test("20 concurrent submits create one key; the others get 409 idempotency_conflict", async () => {
    const before = await count();
    const answers = await Promise.all(Array.from({ length: 20 }, () => create("form-1")));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "idempotency_conflict");
    expect(await count()).toBe(before + 1);
  });

  test("the same key from another account is independent", async () => {
    const other = await signInTo(shop, await shop.customer());
    expect((await create("form-2")).status).toBe(200);
    expect((await create("form-2", other)).status).toBe(200);
  });

  test("a refused form can be corrected and sent again with the same key", async () => {
    const refused = await person.post("/keys", { name: "", mode: "package" }, { "idempotency-key": "form-3" });
    expectRefusal(refused, "validation_failed", { param: "name" });
    const unknownModel = { name: "double", mode: "package", modelIds: ["none"] };
    expect((await person.post("/keys", unknownModel, { "idempotency-key": "form-3" })).status).toBe(422);
    expect((await create("form-3")).status).toBe(200);
  });

  test("422 idempotency_mismatch for another body or endpoint; nothing is created", async () => {
    const headers = { "idempotency-key": "form-4" };
    expect((await create("form-4")).status).toBe(200);
    const before = await count();
    const changed = await person.post("/keys", { name: "double", mode: "payg" }, headers);
    expectRefusal(changed, "idempotency_mismatch", { status: 422 });
    const elsewhere = await person.post(
      `/keys/${(await person.get("/keys")).json.rows[0].keyId}/rotate`,
      { overlapSeconds: 3600 },
      headers,
    );
    expectRefusal(elsewhere, "idempotency_mismatch", { status: 422 });
    expectRefusal(await create("form-4"), "idempotency_conflict");
    expect(await count()).toBe(before);
  });

  test("422 validation_failed for a malformed Idempotency-Key", async () => {
    for (const key of ["x".repeat(101), "a b"]) expectRefusal(await create(key), "validation_failed");
  });

  test("every form that creates something does so once for three concurrent submits", async () => {
    const { world, provider } = shop;
    const [admin, reseller] = [await signInTo(shop, await world.addAdmin()), await signInTo(shop, acme)];
    const customer = await world.addCustomer(acme.accountId);
    const at = `/people/${customer.accountId}`;
    const offeringId = await world.addOffering();
    const { keyId } = await world.addKey(person);
    const [upstream] = await world.sql`select id::int from providers where name = 'second'`;
    const route = { modelId: "chat-a", providerId: upstream?.id, upstreamModel: "spare" };
    const offering = { name: "Week", kind: "custom", days: 7, dailyLimit: 5, wholesaleNanoUsd: "1" };
    const newPerson = { email: "twice@example.com", name: "Twice" };
    const allotment = { resellerId: acme.accountId, offeringId, pieces: 2, reason: "x" };
    const upstreamKey = { name: "third", baseUrl: provider.baseUrl, apiKey: "sk-x" };
    const forms: [session: PanelSession, path: string, body: object, table: string][] = [
      [person, "/keys", { name: "double", mode: "package" }, "keys"],
      [person, `/keys/${keyId}/rotate`, { overlapSeconds: 3600 }, "keys"],
      [person, "/orders", { kind: "top_up", amountNanoUsd: "50000000" }, "orders"],
      [reseller, "/people", newPerson, "accounts"],
      [reseller, `${at}/link`, {}, "links"],
      [reseller, `${at}/packages`, { offeringId, when: "after" }, "packages"],
      [reseller, "/domains", { host: "form.acme.test" }, "hosts"],
      [admin, `${at}/balance`, { kind: "top_up", amountNanoUsd: "5", reason: "x" }, "balance_entries"],
      [admin, "/allotments", allotment, "allotments"],
      [admin, "/admin/offerings", offering, "offerings"],
      [admin, "/admin/models", { id: "new-model" }, "models"],
      [admin, "/admin/routes", route, "routes"],
      [admin, "/admin/providers", upstreamKey, "providers"],
    ];
    const sizeOf = async (table: string) =>
      Number((await world.sql.unsafe(`select count(*)::int as n from ${table}`))[0]?.n);
    for (const [session, path, body, table] of forms) {
      const headers = { "idempotency-key": crypto.randomUUID() };
      const before = await sizeOf(table);
      const answers = await Promise.all([1, 2, 3].map(() => session.post(path, body, headers)));
      const statuses = answers.map(({ status }) => status).sort();
      expect({ path, statuses, added: (await sizeOf(table)) - before }).toEqual({
        path,
        statuses: [200, 409, 409],
        added: 1,
      });
    }
    expect(ok(await admin.get(`${at}/billing`)).balance.balanceNanoUsd).toBe("5");
  });
});

describe("the daily limit of changes, which keeps the audit log small", () => {
  // Copied from the code on purpose.
  const CUSTOMER_MAX = 300;
  const RESELLER_MAX = 5_000;
  /** Concurrent changes do not see each other. */
  const AT_ONCE = 8;

  async function entriesOf({ accountId }: Person): Promise<number> {
    const [row] = await shop.world.sql`select count(*)::int as n from audit_entries where actor_id = ${accountId}`;
    return Number(row?.n);
  }

  /** Adds audit entries as `count` changes made `hoursAgo` would have left them. */
  async function addEntries({ accountId }: Person, count: number, hoursAgo = 1): Promise<void> {
    await shop.world.sql`
      insert into audit_entries (actor_id, action, subject, subject_id, account_id, created_at)
      select ${accountId}, 'changed', 'accounts', ${String(accountId)}, ${accountId}, clock_timestamp() - make_interval(hours => ${hoursAgo})
      from generate_series(1, ${count}::int)`;
  }

  /** Signs in on each replica; one after the other, since each sign-in sets the password. */
  async function onReplicas(person: Person): Promise<PanelSession[]> {
    const sessions: PanelSession[] = [];
    for (const { origin } of shop.replicas) sessions.push(await signInTo(shop, person, { origin }));
    return sessions;
  }

  function expectTooMany(answer: Answer): void {
    expectRefusal(answer, "too_many_requests");
    expect(answer.json.error.message).toContain("changes within 24 hours");
    expect(Date.parse(answer.json.error.resets_at)).toBeGreaterThan(Date.parse(answer.headers.get("date") ?? ""));
    expect(Number(answer.headers.get("retry-after"))).toBeLessThan(60);
  }

  test("429 too_many_requests after 300 changes of one customer, counted over both replicas; no more is written", async () => {
    const person = await shop.world.addCustomer();
    const sessions = await onReplicas(person);
    const refused: Answer[] = [];
    let sent = 0;
    const send = async (session: PanelSession) => {
      while (sent < CUSTOMER_MAX + 60) {
        const answer = await session.patch("/settings/profile", { name: `Name ${sent++}` });
        if (answer.status !== 200) refused.push(answer);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, (_, i) => send(sessions[i % 2] as PanelSession)));
    for (const answer of refused) expectTooMany(answer);
    const written = await entriesOf(person);
    expect(written).toBeGreaterThanOrEqual(CUSTOMER_MAX);
    expect(written).toBeLessThanOrEqual(CUSTOMER_MAX + AT_ONCE);
    for (const session of sessions) expectTooMany(await session.patch("/settings/profile", { name: "One more" }));
    expect(await entriesOf(person)).toBe(written);
  });

  test("keys, orders and settings count together; revoking, disabling, withdrawing and a new password are still allowed", async () => {
    const person = await shop.world.addCustomer();
    const keys = [await shop.world.addKey(person), await shop.world.addKey(person)];
    const [session] = await onReplicas(person);
    if (!session) throw new Error("nobody signed in");
    const order = (await session.post("/orders", { kind: "top_up", amountNanoUsd: "1000000000" })).json.order;
    await addEntries(person, CUSTOMER_MAX);
    for (const change of [
      () => session.post("/keys", { name: "ci", mode: "package" }),
      () => session.post(`/keys/${keys[0]?.keyId}/rotate`, { overlapSeconds: 0 }),
      () => session.patch(`/keys/${keys[0]?.keyId}`, { name: "other" }),
      () => session.post("/orders", { kind: "top_up", amountNanoUsd: "1000000000" }),
      () => session.patch("/settings/notices", { days: 4 }),
    ])
      expectTooMany(await change());
    expect((await session.post(`/keys/${keys[0]?.keyId}/disable`)).status).toBe(200);
    expect((await session.post(`/keys/${keys[1]?.keyId}/revoke`)).status).toBe(200);
    expect((await session.post(`/orders/${order.orderId}/withdraw`)).status).toBe(200);
    const passwords = { next: `${PASSWORD}, anew`, proof: { password: PASSWORD } };
    expect((await session.post("/settings/password", passwords)).status).toBe(200);
    // These have a limit too, since each adds an entry.
    await addEntries(person, CUSTOMER_MAX);
    expectTooMany(await session.post(`/keys/${keys[0]?.keyId}/revoke`));
    // A day later all are allowed again.
    await shop.world.sql`
      update audit_entries set created_at = created_at - interval '24 hours' where actor_id = ${person.accountId}`;
    expect((await session.post(`/keys/${keys[0]?.keyId}/revoke`)).status).toBe(200);
    expect((await session.post("/keys", { name: "ci", mode: "package" })).status).toBe(200);
  });

  test("a reseller may make 5,000 changes, people and domains included; an admin has no limit", async () => {
    const [reseller, admin] = [await shop.world.addReseller(), await shop.world.addAdmin()];
    const invite = { email: "new@example.com", name: "New" };
    const [session] = await onReplicas(reseller);
    await addEntries(reseller, RESELLER_MAX - 1);
    expect((await session?.post("/people", invite))?.status).toBe(200);
    for (const [path, body] of [
      ["/people", { ...invite, email: "next@example.com" }],
      ["/domains", { host: "ai.many.example" }],
    ] as const)
      expectTooMany((await session?.post(path, body)) as Answer);
    const [operator] = await onReplicas(admin);
    await addEntries(admin, 2 * RESELLER_MAX);
    expect((await operator?.post("/people", { ...invite, email: "admins@example.com" }))?.status).toBe(200);
  });
});
