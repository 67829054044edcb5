import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Role } from "../../src/accounts/people_store.ts";
import { readConfig } from "../../src/config.ts";
import { createApp } from "../../src/http/app.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { startReplica } from "../../src/replica.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { PANEL, type PanelSession, signInTo } from "./panel_client.ts";
import { ROUTE_TABLE, type RouteRow, routeTable, type Things } from "./route_table.ts";

/** Every route of the panel × two tenants × each role × no session. Source: reliability › Threats (another tenant's data). */

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

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  const mine = await world.addReseller();
  sessions = {
    customer: await signInTo(shop, await shop.customer()),
    reseller: await signInTo(shop, mine),
    admin: await signInTo(shop, await world.addAdmin()),
  };
  await world.addCustomer(mine.accountId);
  theirs = await addOtherTenant();
}, 60_000);
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

/** A reseller with a customer, and one of everything; each name holds the mark. */
async function addOtherTenant(): Promise<Things> {
  const { world } = shop;
  const { sql } = world;
  const host = `ai.${MARK}.test`;
  const { accountId: resellerId } = await world.addReseller();
  await sql`insert into hosts (host, reseller_id, status) values (${host}, ${resellerId}, 'active')`;
  await sql`insert into brands (reseller_id, name, version) values (${resellerId}, ${MARK}, '1')`;
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
  return {
    ...{ resellerId, accountId: person.accountId, keyId: key.keyId, packageId, host },
    orderId: Number(order?.id),
    allotmentId: Number(allotment?.id),
    requestId: chat.headers.get("x-request-id") ?? "",
    deviceId: String(devices.json.devices[0].id),
  };
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

test("every route of the panel stands in the table, and no other", async () => {
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
  const known = routes
    .filter(({ path }) => path.startsWith(PREFIX))
    .map(({ method, path }) => `${method} ${path.slice(PREFIX.length)}`);
  expect(known.sort()).toEqual(Object.keys(ROUTE_TABLE).sort());
});

test("docs/panel/routes.md is this table", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/panel/routes.md"), "utf8");
  const cells = (text: string) => text.replace(/ +/g, " ").replace(/-+/g, "-");
  expect(cells(page)).toBe(cells(routeTable()));
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
