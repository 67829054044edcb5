import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Role } from "../../src/accounts/roles.ts";
import { readConfig } from "../../src/config.ts";
import { responseIdOf } from "../../src/gateway/responses/item_ids.ts";
import { newApiKey, newRequestId } from "../../src/platform/crypto.ts";
import { createLog } from "../../src/platform/log.ts";
import { startReplica } from "../../src/replica.ts";
import { createApp } from "../../src/server/app.ts";
import { expectRefusal, untilNothingIsDrawn } from "../gateway/checks.ts";
import { type Answer, openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { PANEL, type PanelSession, signInTo } from "./panel_client.ts";
import { MANAGEMENT_ROUTES, OTHER_ROUTES, ROUTE_TABLE, type RouteRow, routesPage, type Things } from "./route_table.ts";

/**
 * Access to every endpoint: the panel's with two tenants, each role, no session and an admin's view of an account; the API's with
 * two tenants' keys and no key. Source: ACC-3, ACC-8, SEC-1.
 */

/** Part of every name of the other tenant: no response to anyone else may contain it. */
const MARK = "zebra";
const UNKNOWN: Things = {
  accountId: 999_999_999,
  resellerId: 999_999_999,
  keyId: 999_999_999,
  packageId: 999_999_999,
  orderId: 999_999_999,
  allotmentId: 999_999_999,
  batchId: 999_999_999,
  invoiceId: 999_999_999,
  incidentId: 999_999_999,
  requestId: newRequestId(),
  responseId: responseIdOf(newRequestId()),
  deviceId: "0123456789abcdef0123456789abcdef",
  passkeyId: 999_999_999,
  identityId: 999_999_999,
  identityProviderId: 999_999_999,
  endpointId: 999_999_999,
  tokenId: 999_999_999,
  deliveryId: 999_999_999,
  host: "ai.unknown.test",
};
const PREFIX = "/api/panel";

let shop: Shop;
let sessions: Record<Role, PanelSession>;
let theirs: Things;
const OUR_HOST = "ai.ours.test";
/** Keys of three customers: the operator's, the one of the reseller with OUR_HOST, and the other tenant's. */
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
  await world.addHost(mine, OUR_HOST);
  const ours = await world.addCustomer(mine.accountId);
  await world.givePackage(ours);
  const other = await addOtherTenant();
  theirs = other.things;
  keys = { operators: customer.secret, ours: (await world.addKey(ours)).secret, theirs: other.secret };
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

/** A reseller with a customer and one of everything; each name contains MARK. */
async function addOtherTenant(): Promise<{ things: Things; secret: string }> {
  const { world } = shop;
  const { sql } = world;
  const host = `ai.${MARK}.test`;
  const { accountId: resellerId } = await world.addReseller(host);
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
  const [batch] = await sql`
    insert into voucher_batches (seller_id, name, amount_nano_usd, pay_with, codes, uses_per_code, ends_at)
    values (${resellerId}, ${MARK}, 10000000, 'balance', 1, 1, now() + interval '1 day') returning id`;
  const [invoice] = await sql`
    insert into invoices (seller_id, number, kind, account_id, seller_name, buyer_name, buyer_email, lines, total_nano)
    values (${resellerId}, 1, 'invoice', ${person.accountId}, ${MARK}, ${MARK}, ${MARK},
      ${sql.json([{ text: MARK, quantity: 1, amountNanoUsd: "1" }])}, 1) returning id`;
  await sql`insert into buyer_details (account_id, name) values (${person.accountId}, ${MARK})`;
  await sql`insert into sellers (seller_id, invoice_name) values (${resellerId}, ${MARK})`;
  const [incident] = await sql`
    insert into incidents (seller_id, kind, title, impact, status, components, begins_at)
    values (${resellerId}, 'incident', ${MARK}, 'degraded', 'investigating', '{api}', now()) returning id`;
  const [endpoint] = await sql`
    insert into webhook_endpoints (account_id, url, kinds, secret_ciphertext)
    values (${person.accountId}, ${`https://${MARK}.test/`}, '{balance_low}', ${Buffer.from(MARK)}) returning id`;
  const [delivery] = await sql`
    with message as (
      insert into outbox_messages (kind, account_id, data, routed_at)
      values ('balance_low', ${person.accountId}, ${sql.json({ name: MARK })}, now()) returning id
    ),
    recipient as (
      insert into outbox_recipients (tenant_id, account_id, channel, address) values (${resellerId}, ${person.accountId}, 'mail', ${`${MARK}@${MARK}.test`}) returning id
    )
    insert into outbox_deliveries (message_id, recipient_id, account_id, tenant_id, status, error, created_at, deadline_at, ended_at)
    select message.id, recipient.id, ${person.accountId}, ${resellerId}, 'failed', ${MARK}, now(), now(), now() from message, recipient
    returning id`;
  const input = { model: "chat-a", input: MARK };
  const response = await shop.call("/v1/responses", { secret: key.secret, host, body: input });
  const session = await signInTo(shop, person, { host });
  const devices = await session.get("/settings/devices");
  const [passkey] = await sql`
    insert into passkeys (account_id, host, credential_id, public_key, counter, transports, name, synced)
    values (${person.accountId}, ${PANEL}, ${Buffer.from(MARK)}, ${Buffer.from(MARK)}, 0, '{}', ${MARK}, false) returning id`;
  const [identityProvider] = await sql`
    insert into identity_providers (seller_id, kind, name, issuer, client_id, secret_ciphertext, scopes, proof_token)
    values (${resellerId}, 'oidc', ${MARK}, ${`https://${MARK}.test`}, ${MARK}, ${Buffer.from(MARK)}, 'openid', ${MARK}) returning id`;
  const [identity] = await sql`
    insert into identities (identity_provider_id, subject, account_id, email)
    values (${Number(identityProvider?.id)}, ${MARK}, ${person.accountId}, ${`${MARK}@${MARK}.test`}) returning id`;
  const [token] = await sql`
    insert into api_tokens (account_id, name, digest, prefix, scopes)
    values (${resellerId}, ${MARK}, ${Buffer.from(MARK)}, 'mt-', '{keys:read}') returning id`;
  const things = {
    ...{ resellerId, accountId: person.accountId, keyId: key.keyId, packageId, host },
    orderId: Number(order?.id),
    endpointId: Number(endpoint?.id),
    deliveryId: Number(delivery?.id),
    allotmentId: Number(allotment?.id),
    batchId: Number(batch?.id),
    invoiceId: Number(invoice?.id),
    incidentId: Number(incident?.id),
    requestId: chat.headers.get("x-request-id") ?? "",
    responseId: String(response.json.id),
    deviceId: String(devices.json.devices[0].id),
    passkeyId: Number(passkey?.id),
    identityId: Number(identity?.id),
    identityProviderId: Number(identityProvider?.id),
    tokenId: Number(token?.id),
  };
  return { things, secret: key.secret };
}

const TABLES = [
  ...[
    "accounts",
    "keys",
    "packages",
    "balances",
    "balance_entries",
    "orders",
    "allotments",
    "hosts",
    "brands",
    "links",
  ],
  ...["offerings", "models", "image_prices", "providers", "routes", "sessions", "escrows", "receipts", "audit_entries"],
  ...[
    "sent_forms",
    "passkeys",
    "identity_providers",
    "identities",
    "email_changes",
    "outbox_messages",
    "voucher_batches",
    "vouchers",
    "voucher_uses",
    "invoices",
    "buyer_details",
    "sellers",
    "incidents",
    "incident_updates",
    "cards",
    "renewals",
    "auto_top_ups",
  ],
];
/** Without what replicas write by themselves: heartbeats, and the numbers of draws. */
const EVERYTHING = `select ${TABLES.map((table) => `(select jsonb_agg(row order by row) from (select to_jsonb(t) - '{seen_at,draw_number}'::text[] as row from ${table} t) rows) as ${table}`).join(", ")}`;

/** Runs `work`, which must change no row and call no provider. */
async function unchanged(work: () => Promise<void>): Promise<void> {
  const state = async () => ({
    rows: await shop.world.sql.unsafe(EVERYTHING),
    calls: shop.provider.callCount() + shop.second.callCount(),
  });
  // What was drawn ahead goes back by itself.
  await untilNothingIsDrawn(shop);
  const before = await state();
  await work();
  expect(await state()).toEqual(before);
}

/** What one account has, as text. */
async function thingsOf(accountId: number): Promise<string> {
  const { sql } = shop.world;
  const rows = await Promise.all([
    sql`select * from receipts where account_id = ${accountId} order by request_id`,
    sql`select * from escrows where account_id = ${accountId} order by lease_id, package_id`,
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
/** The route's path, with ids that do not exist. */
const anyPath = (route: string, { about }: RouteRow) =>
  about?.(UNKNOWN) ?? {
    path: (route.split(" ")[1] ?? "").replace(/:resellerId|:id/g, "999999999").replace(/:\w+/g, "none"),
  };
/** An answer without what differs from call to call. */
const shown = ({ status, json, text }: Answer) => ({
  status,
  body: json === undefined ? text : { ...json, request_id: null, serverTime: null, exportedAt: null },
});
const others = (who: readonly Role[]) =>
  (["customer", "reseller", "admin"] as const).filter((role) => !who.includes(role));

test("the tables list every route of the app, and no other", async () => {
  const config = readConfig({
    DATABASE_URL: shop.world.url,
    SECRET_KEY: TEST_SECRET_KEY,
    PORT: "0",
    SPOOL_DIR: `${shop.world.spoolDir}/routes`,
    LOG_LEVEL: "silent",
  });
  const clock = { nowMs: () => performance.now(), wallMs: () => Date.now() };
  const replica = await startReplica(config, clock, createLog("silent"));
  const { routes } = createApp(replica.deps);
  await replica.drain();
  const panel = Object.keys(ROUTE_TABLE).map((route) => route.replace(" ", ` ${PREFIX}`));
  expect(routes.map(({ method, path }) => `${method} ${path}`).sort()).toEqual(
    [...panel, ...MANAGEMENT_ROUTES, ...Object.keys(OTHER_ROUTES)].sort(),
  );
});

test("docs/routes.md is generated from these tables", () => {
  const page = readFileSync(join(import.meta.dirname, "../../docs/routes.md"), "utf8");
  const cells = (text: string) => text.replace(/ +/g, " ").replace(/-+/g, "-");
  expect(cells(page)).toBe(cells(routesPage()));
});

for (const [route, row] of Object.entries(ROUTE_TABLE)) {
  if (row.who === "open") continue;
  const { who, about, isPersonal } = row;
  const fenced = who.filter((role) => role !== "admin" || isPersonal);
  describe(route, () => {
    test("401 without a session, 403 without the CSRF token, and nothing changes", () =>
      unchanged(async () => {
        const target = anyPath(route, row);
        expectRefusal(await call({ ...sessions.admin, cookie: "" }, route, target), "session_required");
        const withoutToken = { ...sessions[who[0] as Role], csrf: "x".repeat(43) };
        if (!route.startsWith("GET")) expectRefusal(await call(withoutToken, route, target), "csrf_failed");
      }));

    if (others(who).length > 0) {
      test(`404 for ${others(who).join(" and ")}`, async () => {
        for (const role of others(who))
          expectRefusal(await call(sessions[role], route, anyPath(route, row)), "not_found");
      });
    }

    if (about) {
      test(`another tenant's data gets the answer of absent data for ${fenced.join(" and ")}, and nothing changes`, () =>
        unchanged(async () => {
          for (const role of fenced) {
            const foreign = await call(sessions[role], route, about(theirs));
            expectRefusal(foreign, foreign.json?.error?.code, { param: foreign.json?.error?.param });
            expect(shown(foreign)).toEqual(shown(await call(sessions[role], route, about(UNKNOWN))));
          }
        }));
    }

    if (route.startsWith("GET")) {
      test("the response holds nothing of another tenant", async () => {
        for (const role of fenced) {
          const answer = await call(sessions[role], route, anyPath(route, row));
          expect(answer.text).not.toContain(MARK);
        }
      });
    }
  });
}

describe("an admin who views an account", () => {
  const ownSession = ["GET /me", "GET /settings/devices", "POST /view/leave", "POST /sign-out"];
  const rows = Object.entries(ROUTE_TABLE).filter(([route, { who }]) => who !== "open" && !ownSession.includes(route));
  const reads = rows.filter(([route]) => route.startsWith("GET"));

  for (const role of ["customer", "reseller"] as const) {
    test(`gets what that ${role} gets from every endpoint; every change answers 403 read_only and changes nothing`, async () => {
      const owner = sessions[role];
      const own: Things = { ...UNKNOWN, accountId: owner.accountId, resellerId: owner.accountId, host: OUR_HOST };
      const viewer = await signInTo(shop, await shop.world.addAdmin());
      expect((await viewer.post(`/people/${owner.accountId}/view`)).status).toBe(200);
      await unchanged(async () => {
        for (const [route, row] of reads) {
          const target = row.about?.(own) ?? anyPath(route, row);
          const seen = shown(await call(viewer, route, target));
          expect({ route, ...seen }).toEqual({ route, ...shown(await call(owner, route, target)) });
          if (row.about) expect((await call(viewer, route, row.about(theirs))).status, route).toBe(404);
        }
        for (const [route, row] of rows.filter((one) => !reads.includes(one)))
          expectRefusal(await call(viewer, route, row.about?.(own) ?? anyPath(route, row)), "read_only");
      });
      expect((await viewer.post("/sign-out")).status).toBe(200);
    });
  }
});

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
      test("401 without a key, with a session of any role instead, and with an unknown key; nothing changes", () =>
        unchanged(async () => {
          expectRefusal(await ask({}), "invalid_api_key");
          for (const { cookie } of Object.values(sessions)) expectRefusal(await ask({ cookie }), "invalid_api_key");
          expectRefusal(await ask({ secret: newApiKey().secret }), "invalid_api_key");
        }));

      test("403 on another tenant's host; nothing changes", () =>
        unchanged(async () => {
          expectRefusal(await ask({ secret: keys.operators, host: theirs.host }), "host_not_allowed");
          expectRefusal(await ask({ secret: keys.ours, host: theirs.host }), "host_not_allowed");
          expectRefusal(await ask({ secret: keys.theirs, host: OUR_HOST }), "host_not_allowed");
        }));

      test("with one's own key the response holds nothing of another tenant, and nothing of theirs changes", async () => {
        const before = await thingsOf(theirs.accountId);
        for (const call of [{ secret: keys.operators }, { secret: keys.ours, host: OUR_HOST }]) {
          const answer = await ask(call);
          expect(answer.status).toBe(good.status ?? 200);
          expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(MARK);
          expect(answer.text).not.toContain(theirs.requestId);
        }
        expect(await thingsOf(theirs.accountId)).toBe(before);
      });

      if (about) {
        test("another tenant's data gets the answer of absent data", async () => {
          const unknown = await ask({ secret: keys.operators }, about(UNKNOWN));
          const foreign = await ask({ secret: keys.operators }, about(theirs));
          expect(foreign.text).not.toContain(MARK);
          expect(foreign.text).not.toContain(theirs.requestId);
          expect(foreign.status).toBe(unknown.status);
        });
      }
    });
  } else {
    test(`${route}: the same response without a session and with one of each role, with nothing of another tenant; nothing changes`, () =>
      unchanged(async () => {
        const texts = new Set<string>();
        for (const cookie of [undefined, ...Object.values(sessions).map(({ cookie }) => cookie)]) {
          const answer = await ask({ host: PANEL, ...(cookie !== undefined && { cookie }) });
          texts.add(`${answer.status} ${answer.text.replaceAll(answer.json?.request_id ?? "-", "-")}`);
          expect(answer.text + JSON.stringify([...answer.headers])).not.toContain(MARK);
        }
        expect(texts.size).toBe(1);
      }));
  }
}

describe("brands", () => {
  const shown = ["/brand.css", "/brand/logo-light", "/brand/icon"];

  test("a brand is shown on its own host, and on no other", async () => {
    for (const path of shown) {
      expect((await shop.call(path, { host: theirs.host })).text, path).toContain(MARK);
      for (const host of [PANEL, "api.tollgate.test", "ai.unknown.test"]) {
        expect((await shop.call(path, { host })).text, path).not.toContain(MARK);
      }
    }
  });

  test("a page names only its host's brand, whoever is signed in", async () => {
    for (const cookie of ["", ...Object.values(sessions).map((session) => session.cookie)]) {
      const at = (host: string) => shop.call("/keys", { host, headers: { accept: "text/html", cookie } });
      expect((await at(theirs.host)).text).toContain(MARK);
      const page = await at(PANEL);
      expect(page.status).toBe(200);
      expect(page.text).not.toContain(MARK);
    }
  });
});
