import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { PANEL, type PanelSession, signInTo } from "./panel_client.ts";

/** What all routes of the panel have in common. Source: ERR-3. */

const PROFILE = "/settings/profile";

let shop: Shop;
let person: PanelSession;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  person = await signInTo(shop, await shop.customer());
}, 60_000);
afterAll(() => shop.close());

/** A PATCH of one's name, byte for byte. */
function send(body: string | Uint8Array, headers: Record<string, string> = {}, session = person): Promise<Answer> {
  return shop.call(`/api/panel${PROFILE}`, {
    host: PANEL,
    method: "PATCH",
    body,
    headers: {
      "content-type": "application/json",
      cookie: session.cookie,
      origin: `http://${PANEL}`,
      "x-csrf-token": session.csrf,
      ...headers,
    },
  });
}

describe("refusals come in their order", () => {
  const nonsense = "{";

  test("401 session_required before anything of the body, whatever it is", async () => {
    expectRefusal(await send(nonsense, { cookie: "" }), "session_required");
    expectRefusal(await send("x".repeat(3_000_000), { cookie: "" }), "session_required");
  });

  test("403 csrf_failed before the body: no token, a wrong one, no Origin, a foreign one", async () => {
    const wrong: [name: string, value: string][] = [
      ["x-csrf-token", ""],
      ["x-csrf-token", "x".repeat(43)],
      ["origin", ""],
      ["origin", "http://evil.test"],
      ["origin", "null"],
    ];
    for (const [name, value] of wrong) expectRefusal(await send(nonsense, { [name]: value }), "csrf_failed");
  });

  test("429 too_many_requests before the body, above a person's rate", async () => {
    const slow = await shop.start({ RATE_PER_MINUTE: "5" });
    try {
      const at = { origin: slow.origin };
      const session = await signInTo(shop, await shop.customer(), at);
      for (let i = 0; i < 5; i++) expect((await session.get("/home")).status).toBe(200);
      expectRefusal(await session.get("/home"), "too_many_requests");
      expectRefusal(await session.patch(PROFILE, "no JSON"), "too_many_requests");
    } finally {
      await slow.kill();
    }
  });
});

describe("bodies", () => {
  test("422 validation_failed names the field that is wrong", async () => {
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

  test("413 above a megabyte, 415 for what is no JSON or comes encoded", async () => {
    expectRefusal(await send(`{"name": "${"x".repeat(1_100_000)}"}`), "request_too_large");
    expectRefusal(
      await send("name=x", { "content-type": "application/x-www-form-urlencoded" }),
      "unsupported_media_type",
    );
    expectRefusal(await send("{}", { "content-encoding": "gzip" }), "unsupported_media_type");
  });

  test("script in a text is kept as text", async () => {
    const name = "<script>alert(1)</script> & 'quotes' \"too\" 👍";
    expect((await send(JSON.stringify({ name }))).status).toBe(200);
    expect((await person.get("/settings")).json.name).toBe(name);
    expect((await person.get("/me")).headers.get("content-type")).toMatch(/^application\/json/);
  });
});

describe("ids and queries", () => {
  test("404 not_found for an id that can be none, like for one that is not there", async () => {
    for (const id of ["0", "-1", "1.5", "abc", "99999999999999999999", "%00", "1e3", "999999999"])
      expectRefusal(await person.post(`/keys/${id}/disable`), "not_found");
  });

  test("422 validation_failed names the parameter that is wrong", async () => {
    for (const query of ["limit=0", "limit=-1", "limit=abc", "limit=100000", "limit=99999999999999999999"]) {
      expectRefusal(await person.get(`/usage?${query}`), "validation_failed", { param: "limit" });
      expectRefusal(await person.get(`/billing/entries?${query}`), "validation_failed", { param: "limit" });
    }
    expectRefusal(await person.get("/usage?nonsense=1"), "validation_failed", { param: "nonsense" });
    expectRefusal(await person.get("/billing/entries?before=0"), "validation_failed", { param: "before" });
  });
});

describe("a query parameter that stands twice", () => {
  test("422 validation_failed names it, on every route with a query", async () => {
    for (const path of ["/usage?limit=1&limit=2", "/billing/entries?limit=1&limit=1", "/usage.csv?limit=1&limit=2"])
      expectRefusal(await person.get(path), "validation_failed", { param: "limit" });
    for (const path of ["/keys?a=1&a=2", "/usage?%61=1&a=2"])
      expectRefusal(await person.get(path), "validation_failed", { param: "a" });
  });
});

describe("a form is done once", () => {
  const create = (formKey: string, session = person) =>
    session.post("/keys", { name: "double", mode: "package" }, { "idempotency-key": formKey });
  const count = async () =>
    (await person.get("/keys")).json.rows.filter((key: { name: string }) => key.name === "double").length;

  test("20 clicks at once make one key; the others are told 409 idempotency_conflict", async () => {
    const before = await count();
    const answers = await Promise.all(Array.from({ length: 20 }, () => create("form-1")));
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "idempotency_conflict");
    expect(await count()).toBe(before + 1);
  });

  test("another person's form with the same key is another form", async () => {
    const other = await signInTo(shop, await shop.customer());
    expect((await create("form-2")).status).toBe(200);
    expect((await create("form-2", other)).status).toBe(200);
  });

  test("a form that was refused may be sent again", async () => {
    const refused = await person.post("/keys", { name: "", mode: "package" }, { "idempotency-key": "form-3" });
    expectRefusal(refused, "validation_failed", { param: "name" });
    expect((await create("form-3")).status).toBe(200);
  });

  test("422 idempotency_mismatch for other contents, or another place; nothing is made", async () => {
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

  test("a form whose work failed may be changed and sent again", async () => {
    const headers = { "idempotency-key": "form-5" };
    const bad = await person.post("/keys", { name: "double", mode: "package", modelIds: ["none"] }, headers);
    expect(bad.status).toBe(422);
    expect((await create("form-5")).status).toBe(200);
  });

  test("422 for a key of the form that is none", async () => {
    for (const key of ["x".repeat(101), "a b"]) expectRefusal(await create(key), "validation_failed");
  });
});
