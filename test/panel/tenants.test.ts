import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Role } from "../../src/accounts/roles.ts";
import { readConfig } from "../../src/config.ts";
import { newApiKey, newRequestId } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { startReplica } from "../../src/replica.ts";
import { createApp } from "../../src/server/app.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { PANEL, type PanelSession, signInTo } from "./panel_client.ts";
import { OTHER_ROUTES, ROUTE_TABLE, type RouteRow, routesPage, type Things } from "./route_table.ts";

/**
 * Every route of the app × two tenants × each role × no session; for the API, two tenants' keys × no key.
 * Source: ACC-3, SEC-1.
 */

/** Stands in every name of the other tenant: no answer to anybody else may hold it. */
const MARK = "zebra";
const UNKNOWN: Things = {
  accountId: 999_999_999,
  resellerId: 999_999_999,
  keyId: 999_999_999,
  packageId: 999_999_999,
  orderId: 999_999_999,
  allotmentId: 999_999_999,
  requestId: newRequestId(),
  deviceId: "0123456789abcdef0123456789abcdef",
  host: "ai.unknown.test",
};
const PREFIX = "/api/panel";

let shop: Shop;
let sessions: Record<Role, PanelSession>;
let theirs: Things;
const OUR_HOST = "ai.ours.test";
/** Keys of customers: the operator's, a reseller's whose host is OUR_HOST, and the other tenant's. */
let keys: { operators: string; ours: string; theirs: string };

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  const mine = await world.addReseller();
  const customer = await shop.customer();
  sessions = {
    customer: await signInTo(shop, customer),
    reseller: await signInTo(shop, mine),
    admin: await signInTo(shop, await world.addAdmin()),
  };
  await world.sql`insert into hosts (host, reseller_id, status) values (${OUR_HOST}, ${mine.accountId}, 'active')`;
  const ours = await world.addCustomer(mine.accountId);
  await world.givePackage(ours);
  const other = await addOtherTenant();
  theirs = other.things;
  keys = { operators: customer.secret, ours: (await world.addKey(ours)).secret, theirs: other.secret };
}, 60_000);
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

/** A reseller with a customer, and one of everything; each name holds the mark. */
async function addOtherTenant(): Promise<{ things: Things; secret: string }> {
  const { world } = shop;
  const { sql } = world;
  const host = `ai.${MARK}.test`;
  const { accountId: resellerId } = await world.addReseller();
  await sql`insert into hosts (host, reseller_id, status) values (${host}, ${resellerId}, 'active')`;
  await sql`
    insert into brands (reseller_id, name, css, logo_light, icon, version)
    values (${resellerId}, ${MARK}, ${`/* ${MARK} */`}, ${Buffer.from(MARK)}, ${Buffer.from(MARK)}, '1')`;
  const person = await world.addCustomer(resellerId);
  await sql`update accounts set name = ${MARK}, email = id || ${`@${MARK}.test`} where id in (${resellerId}, ${person.accountId})`;
  const packageId = await world.givePackage(person);
  await sql`update packages set name = ${MARK} where id = ${packageId}`;
  await world.setBalance(person, 7_000_000_000n);
  const key = await world.addKey(person);
  await sql`update keys set name = ${MARK} where id = ${key.keyId}`;
  const chat = await shop.call("/v1/chat/completions", {
    secret: key.secret,
    host,
    body: { model: "chat-a", messages: [{ role: "user", content: MARK }] },
  });
  expect(chat.status).toBe(200);
  const [order] = await sql`
    insert into orders (account_id, kind, amount_nano_usd, note) values (${person.accountId}, 'top_up', 1000, ${MARK}) returning id`;
  const [allotment] = await sql`
    insert into allotments (reseller_id, offering_id, granted, reason)
    values (${resellerId}, (select min(id) from offerings), 5, ${MARK}) returning id`;
  const session = await signInTo(shop, person, { host });
  const devices = await session.get("/settings/devices");
  const things = {
    ...{ resellerId, accountId: person.accountId, keyId: key.keyId, packageId, host },
    orderId: Number(order?.id),
    allotmentId: Number(allotment?.id),
    requestId: chat.headers.get("x-request-id") ?? "",
    deviceId: String(devices.json.devices[0].id),
  };
  return { things, secret: key.secret };
}

/** Everything that could have been changed, as text. */
async function everything(): Promise<string> {
  const tables = [
    "accounts",
    "keys",
    "packages",
    "balances",
    "balance_entries",
    "orders",
    "allotments",
    "hosts",
    "brands",
  ];
  const more = ["links", "offerings", "models", "image_prices", "providers", "routes", "sessions", "holds", "receipts"];
  const parts: string[] = [];
  for (const table of [...tables, ...more]) {
    const rows = await shop.world.sql.unsafe(`select to_jsonb(t) - 'seen_at' as row from ${table} t order by 1`);
    parts.push(`${table} ${JSON.stringify(rows)}`);
  }
  return parts.join("\n");
}

/** What one account has, as text. */
async function thingsOf(accountId: number): Promise<string> {
  const { sql } = shop.world;
  const rows = await Promise.all([
    sql`select * from receipts where account_id = ${accountId} order by request_id`,
    sql`select * from holds where account_id = ${accountId} order by request_id`,
    sql`select * from packages where account_id = ${accountId} order by id`,
    sql`select * from balances where account_id = ${accountId}`,
    sql`select * from balance_entries where account_id = ${accountId} order by id`,
  ]);
  return JSON.stringify(rows);
}

const call = (
  session: PanelSession,
  route: string,
  { path, body }: { path: string; body?: unknown },
): Promise<Answer> => {
  const method = route.split(" ")[0] ?? "";
  return shop.call(PREFIX + path, {
    host: PANEL,
    method,
    headers: { cookie: session.cookie, origin: `http://${PANEL}`, "x-csrf-token": session.csrf },
    ...(method !== "GET" && { body: body ?? {} }),
  });
};
/** The route's own path, with ids that nothing has. */
const anyPath = (route: string, { about }: RouteRow) =>
  about?.(UNKNOWN) ?? {
    path: (route.split(" ")[1] ?? "").replace(/:resellerId|:id/g, "999999999").replace(/:\w+/g, "none"),
  };
const told = ({ status, json, text }: Answer) => ({
  status,
  error: json?.error,
  text: json === undefined ? text : null,
});
const others = (who: readonly Role[]) =>
  (["customer", "reseller", "admin"] as const).filter((role) => !who.includes(role));

test("every route of the app stands in the tables, and no other", async () => {
  const config = readConfig({
    DATABASE_URL: shop.world.url,
    SECRET_KEY: TEST_SECRET_KEY,
    PORT: "0",
    SPOOL_DIR: `${shop.world.spoolDir}/routes`,
    LOG_LEVEL: "silent",
  });
  const clock = { nowMs: () => performance.now(), unixMs: () => Date.now() };
  const replica = await startReplica(config, clock, createLog("silent"));
  const { routes } = createApp(replica.deps);
  await replica.drain();
  const panel = Object.keys(ROUTE_TABLE).map((route) => route.replace(" ", ` ${PREFIX}`));
  expect(routes.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(
    [...panel, ...Object.keys(OTHER_ROUTES)].sort(),
  );
});

test("docs/routes.md is these tables", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/routes.md"), "utf8");
  const cells = (text: string) => text.replace(/ +/g, " ").replace(/-+/g, "-");
  expect(cells(page)).toBe(cells(routesPage()));
});

for (const [route, row] of Object.entries(ROUTE_TABLE)) {
  if (row.who === "open") continue;
  const { who, about } = row;
  describe(route, () => {
    test("401 without a session, 403 without the CSRF token, and nothing changes", async () => {
      const before = await everything();
      const target = anyPath(route, row);
      const nobody = { ...sessions.admin, cookie: "" };
      expectRefusal(await call(nobody, route, target), "session_required");
      const role = who[0] as Role;
      if (!route.startsWith("GET")) {
        expectRefusal(await call({ ...sessions[role], csrf: "x".repeat(43) }, route, target), "csrf_failed");
      }
      expect(await everything()).toBe(before);
    });

    if (others(who).length > 0) {
      test(`404 for ${others(who).join(" and ")}: to them it is not there`, async () => {
        for (const role of others(who))
          expectRefusal(await call(sessions[role], route, anyPath(route, row)), "not_found");
      });
    }

    if (about) {
      const roles = who.filter((role) => role !== "admin");
      test(`another tenant's reads like an unknown one for ${roles.join(" and ")}, and nothing changes`, async () => {
        const before = await everything();
        for (const role of roles) {
          const unknown = await call(sessions[role], route, about(UNKNOWN));
          const foreign = await call(sessions[role], route, about(theirs));
          expectRefusal(foreign, foreign.json?.error?.code, { param: foreign.json?.error?.param });
          expect(told(foreign)).toEqual(told(unknown));
        }
        expect(await everything()).toBe(before);
      });
    }

    if (route.startsWith("GET")) {
      test("nothing of another tenant is in the answer", async () => {
        for (const role of who.filter((one) => one !== "admin")) {
          const answer = await call(sessions[role], route, anyPath(route, row));
          expect(answer.text).not.toContain(MARK);
        }
      });
    }
  });
}

for (const [route, { who, call: good, about }] of Object.entries(OTHER_ROUTES)) {
  const method = route.split(" ")[0] ?? "";
  const ask = (options: { secret?: string; host?: string; cookie?: string }, { path, body }: typeof good = good) =>
    shop.call(path, {
      method,
      body,
      ...(options.secret !== undefined && { secret: options.secret }),
      ...(options.host !== undefined && { host: options.host }),
      ...(options.cookie !== undefined && { headers: { cookie: options.cookie } }),
    });

  if (who === "key") {
    describe(route, () => {
      test("401 without a key, with a session of any role in its place, and with a key of nobody's; nothing changes", async () => {
        const before = await everything();
        expectRefusal(await ask({}), "invalid_api_key");
        for (const { cookie } of Object.values(sessions)) expectRefusal(await ask({ cookie }), "invalid_api_key");
        expectRefusal(await ask({ secret: newApiKey().secret }), "invalid_api_key");
        expect(await everything()).toBe(before);
      });

      test("403 on another tenant's host; nothing changes", async () => {
        const before = await everything();
        expectRefusal(await ask({ secret: keys.operators, host: theirs.host }), "host_not_allowed");
        expectRefusal(await ask({ secret: keys.ours, host: theirs.host }), "host_not_allowed");
        expectRefusal(await ask({ secret: keys.theirs, host: OUR_HOST }), "host_not_allowed");
        expect(await everything()).toBe(before);
      });

      test("with one's own key nothing of another tenant is in the answer, and nothing of theirs changes", async () => {
        const before = await thingsOf(theirs.accountId);
        for (const call of [{ secret: keys.operators }, { secret: keys.ours, host: OUR_HOST }]) {
          const answer = await ask(call);
          expect(answer.status).toBe(200);
          expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(MARK);
          expect(answer.text).not.toContain(theirs.requestId);
        }
        expect(await thingsOf(theirs.accountId)).toBe(before);
      });

      if (about) {
        test("another tenant's reads like an unknown one", async () => {
          const unknown = await ask({ secret: keys.operators }, about(UNKNOWN));
          const foreign = await ask({ secret: keys.operators }, about(theirs));
          expect(foreign.text).not.toContain(MARK);
          expect(foreign.text).not.toContain(theirs.requestId);
          expect(foreign.status).toBe(unknown.status);
        });
      }
    });
  } else {
    describe(route, () => {
      test("without a session and with one of each role: nothing of another tenant, and nothing changes", async () => {
        const before = await everything();
        const cookies = [undefined, ...Object.values(sessions).map(({ cookie }) => cookie)];
        const texts = new Set<string>();
        for (const cookie of cookies) {
          const answer = await ask({ host: PANEL, ...(cookie !== undefined && { cookie }) });
          texts.add(`${answer.status} ${answer.text.replaceAll(answer.json?.request_id ?? "-", "-")}`);
          expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(MARK);
        }
        expect(texts.size).toBe(1);
        expect(await everything()).toBe(before);
      });
    });
  }
}

describe("what shows a host's brand", () => {
  const shown = ["/brand.css", "/brand/logo-light", "/brand/icon"];

  test("shows it on that host, and on no other", async () => {
    for (const path of shown) {
      expect((await shop.call(path, { host: theirs.host })).text, path).toContain(MARK);
      for (const host of [PANEL, "api.tollgate.test", "ai.unknown.test"]) {
        expect((await shop.call(path, { host })).text, path).not.toContain(MARK);
      }
    }
  });

  test("a page names the brand of its host alone, whoever is signed in", async () => {
    for (const cookie of ["", ...Object.values(sessions).map((session) => session.cookie)]) {
      const at = (host: string) => shop.call("/keys", { host, headers: { accept: "text/html", cookie } });
      expect((await at(theirs.host)).text).toContain(MARK);
      const page = await at(PANEL);
      expect(page.status).toBe(200);
      expect(page.text).not.toContain(MARK);
    }
  });
});
