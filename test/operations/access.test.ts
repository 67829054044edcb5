import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { Role } from "../../src/accounts/roles.ts";
import { scopesFor } from "../../src/accounts/scopes.ts";
import { SERVED } from "../../src/operations/management_api.ts";
import { OPERATIONS } from "../../src/operations/table.ts";
import { newApiToken } from "../../src/platform/crypto.ts";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { ROUTE_TABLE } from "../panel/route_table.ts";
import { type Management, managementOf, managementWith, requestFor, UNKNOWN_ID } from "./management_client.ts";
import { doorsOf, readPanelDoors } from "./panel_doors.ts";

/** Access to every operation: roles, scopes, tenants and doors. Generated from the table of operations. Source: MGT-3, ACC-3. */

const ROLES = ["customer", "reseller", "admin"] as const;
const TABLES =
  "accounts keys members member_invitations packages balances balance_entries orders allotments cards card_setups renewals auto_top_ups hosts offerings retail_prices markups vouchers voucher_batches incidents incident_updates payments refunds links api_tokens audit_entries models routes image_prices providers provider_keys webhook_endpoints identity_providers";

let shop: Shop;
/** A token of each role with everything that it may have, and one with nothing that fits. */
let full: Record<Role, Management>;
let other: (role: Role, scope: string) => Promise<Management>;
let people: Record<Role, { accountId: number }>;
/** Ids of another tenant, by the names of fields. */
let theirs: Record<string, number | string>;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  const { world } = shop;
  people = {
    customer: await world.addCustomer(),
    reseller: await world.addReseller("ai.ours.test"),
    admin: await world.addAdmin(),
  };
  full = {
    customer: await customersToken(),
    reseller: await managementOf(shop, people.reseller, "reseller"),
    admin: await managementOf(shop, people.admin, "admin"),
  };
  const narrow = new Map<string, Management>();
  other = async (role, scope) => {
    const known = narrow.get(role + scope);
    if (known !== undefined) return known;
    const scopes = scopesFor(role).filter((one) => !one.startsWith(scope.split(":")[0] ?? ""));
    const made = await managementOf(shop, people[role], role, { scopes });
    narrow.set(role + scope, made);
    return made;
  };
  theirs = await addOtherTenant();
});
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await shop.close();
});

/** A token that no customer can make. */
async function customersToken(): Promise<Management> {
  const { secret, digest, prefix } = newApiToken();
  const [row] = await shop.world.sql`
    insert into api_tokens (account_id, name, digest, prefix, scopes)
    values (${people.customer.accountId}, 'made up', ${digest}, ${prefix}, ${scopesFor("admin")}) returning id`;
  return managementWith(shop, secret, Number(row?.id));
}

async function addOtherTenant(): Promise<Record<string, number | string>> {
  const { world } = shop;
  const { sql } = world;
  const reseller = await world.addReseller("ai.zebra.test");
  const person = await world.addCustomer(reseller.accountId);
  const packageId = await world.givePackage(person);
  await world.setBalance(reseller, 5_000_000_000n);
  const { keyId } = await world.addKey(person);
  const [order] = await sql`
    insert into orders (account_id, kind, amount_nano_usd, seller_id) values (${person.accountId}, 'top_up', 10000000, ${reseller.accountId}) returning id`;
  const [allotment] = await sql`
    insert into allotments (reseller_id, offering_id, granted, reason)
    values (${reseller.accountId}, (select min(id) from offerings), 5, 'x') returning id`;
  const [batch] = await sql`
    insert into voucher_batches (seller_id, name, amount_nano_usd, pay_with, codes, uses_per_code, ends_at)
    values (${reseller.accountId}, 'x', 10000000, 'balance', 1, 1, now() + interval '1 day') returning id`;
  const [endpoint] = await sql`
    insert into webhook_endpoints (account_id, url, kinds, secret_ciphertext)
    values (${reseller.accountId}, 'https://zebra.test/', '{}', 'x') returning id`;
  const [incident] = await sql`
    insert into incidents (seller_id, kind, title, impact, status, components, begins_at)
    values (${reseller.accountId}, 'incident', 'zebra', 'degraded', 'investigating', '{api}', now()) returning id`;
  const [identityProvider] = await sql`
    insert into identity_providers (seller_id, kind, name, issuer, client_id, secret_ciphertext, scopes, proof_token)
    values (${reseller.accountId}, 'oidc', 'zebra', 'https://zebra.test', 'zebra', 'x', 'openid', 'zebra') returning id`;
  return {
    incidentId: Number(incident?.id),
    identityProviderId: Number(identityProvider?.id),
    ...{ endpointId: Number(endpoint?.id), deliveryId: UNKNOWN_ID },
    ...{ accountId: person.accountId, resellerId: reseller.accountId, sellerId: reseller.accountId },
    ...{ packageId, keyId, host: "ai.zebra.test" },
    orderId: Number(order?.id),
    allotmentId: Number(allotment?.id),
    batchId: Number(batch?.id),
    paymentId: UNKNOWN_ID,
    refundId: UNKNOWN_ID,
    offeringId: UNKNOWN_ID,
    requestId: crypto.randomUUID(),
  };
}

async function rows(): Promise<unknown> {
  const all = TABLES.split(" ").map(
    (table) =>
      `(select jsonb_agg(row order by row) from (select to_jsonb(t) - '{last_used_at}'::text[] as row from ${table} t) rows) as ${table}`,
  );
  return await shop.world.sql.unsafe(`select ${all.join(", ")}`);
}

const ask = (who: Management, { method, path, body }: ReturnType<typeof requestFor>) => who.call(method, path, body);

for (const operation of SERVED) {
  const { name, roles, scope } = operation;
  describe(name, () => {
    for (const role of ROLES) {
      const own = () => requestFor(operation, {});
      if (!roles.includes(role) || role === "customer") {
        test(`404 for a token of ${role === "admin" ? "an" : "a"} ${role}`, async () => {
          const answer = await ask(full[role], own());
          expectRefusal(answer, role === "customer" && roles.includes(role) ? "insufficient_scope" : "not_found");
        });
        continue;
      }
      test(`403 insufficient_scope without ${scope}, for ${role}; nothing changes`, async () => {
        const who = await other(role, scope ?? "");
        const before = await rows();
        expectRefusal(await ask(who, own()), "insufficient_scope");
        expect(await rows()).toEqual(before);
      });
      test(`served with the scope, for ${role}`, async () => {
        const { status, json } = await ask(full[role], own());
        expect([401, 403, 405, 500]).not.toContain(status);
        if (status === 404) expect(own().hasIds || own().body !== undefined, JSON.stringify(json)).toBe(true);
      });
    }

    if (roles.includes("reseller") && requestFor(operation, theirs ?? IDS).hasIds) {
      test("another tenant's ids get the answer of unknown ones, and nothing changes", async () => {
        const before = await rows();
        const foreign = await ask(full.reseller, requestFor(operation, theirs));
        const unknown = await ask(full.reseller, requestFor(operation, unknownIds()));
        const shown = ({ status, json }: typeof foreign) => ({ status, json: { ...json, request_id: null } });
        expect(shown(foreign)).toEqual(shown(unknown));
        expect(foreign.text).not.toContain("zebra");
        expect(await rows()).toEqual(before);
      });
    }

    test("401 invalid_token without a token", async () => {
      const { method, path, body } = requestFor(operation, {});
      const answer = await shop.call(`/api/v1${path}`, { method, body, host: "panel.tollgate.test" });
      expectRefusal(answer, "invalid_token");
    });
  });
}

/** Names of fields, before the database has ids. */
const IDS = {
  accountId: 1,
  keyId: 1,
  packageId: 1,
  orderId: 1,
  batchId: 1,
  incidentId: 1,
  endpointId: 1,
  host: "x",
  sellerId: 1,
  resellerId: 1,
};

function unknownIds(): Record<string, number | string> {
  return Object.fromEntries(
    Object.entries(theirs).map(([name, id]) => [
      name,
      typeof id === "number" ? UNKNOWN_ID : name === "host" ? "ai.unknown.test" : crypto.randomUUID(),
    ]),
  );
}

/** Operations whose page asks the stores itself, for more in one answer than the operation gives: its endpoints. */
const OWN_READS: Readonly<Record<string, readonly string[]>> = {
  "accounts.list": ["GET /people"],
  "keys.list": ["GET /keys", "GET /people/:id/keys"],
  "keys.get": ["GET /keys", "GET /people/:id/keys"],
  "keys.use": ["GET /keys", "GET /people/:id/keys"],
  "packages.holdings": ["GET /people/:id/billing"],
  "balances.movements": ["GET /people/:id/billing/movements"],
  "usage.list": ["GET /usage"],
  "offerings.list": ["GET /offerings"],
  "markups.get": ["GET /markup"],
  "domains.list": ["GET /domains", "GET /admin/domains"],
  "domains.get": ["GET /admin/domains/:resellerId/:host"],
  "models.list": ["GET /admin/models"],
  "providers.list": ["GET /admin/providers"],
  "providers.get": ["GET /admin/providers/:id"],
};

/** What an admin does for a reseller at the command line, or with a token: in the panel it is the reseller's. */
const RESELLERS_OWN = ["markups.get", "markups.set", "domains.add"];

const rolesOf = (route: string): readonly Role[] => {
  const who = ROUTE_TABLE[route]?.who;
  return who === undefined || who === "open" ? [] : who;
};

describe("doors", () => {
  test("every operation has a door in the panel for exactly its roles", async () => {
    const { doors } = await readPanelDoors();
    for (const { name, roles } of OPERATIONS) {
      const read = doors.flatMap(({ operation, route }) => (operation.name === name ? [route] : []));
      const wanted = roles.filter((role) => role !== "admin" || !RESELLERS_OWN.includes(name));
      // A customer has no token, and asks for its own alone.
      const shown = (routes: readonly string[]) =>
        [...new Set(routes.flatMap(rolesOf))].filter((role) => role !== "customer" || wanted.includes(role)).sort();
      const own = OWN_READS[name] ?? [];
      expect({ name, roles: shown([...read, ...own]) }).toEqual({ name, roles: [...wanted].sort() });
      for (const route of read)
        expect({ route, roles: [...roles] }).toMatchObject({ roles: expect.arrayContaining([...rolesOf(route)]) });
      if (own.length > 0)
        expect({ name, isNeeded: shown(read).length < wanted.length }).toEqual({ name, isNeeded: true });
    }
  });

  test("no file of the panel imports an operation and hides its door from this test", async () => {
    const { doors, imported } = await readPanelDoors();
    const seen = new Set(doors.map(({ operation }) => operation.name));
    const hidden = imported.map(({ name }) => name).filter((name) => !seen.has(name));
    expect(hidden.filter((name) => OWN_READS[name] === undefined)).toEqual([]);
  });

  test("doors are found in chained endpoints, each with its own path", async () => {
    const { doors } = await doorsOf(`
      import { getKey as oneKey, listKeys } from "../../operations/keys.ts";
      const endpoints = signedIn(deps)
        .get("/keys", async (asked) => toJson(await perform(deps, listKeys, callBy(deps, asked), {})))
        .get("/keys/:id", operate(deps, oneKey, { path: { id: "keyId" } }), { params });`);
    expect(doors.map(({ operation, route }) => [operation.name, route]).sort()).toEqual([
      ["keys.get", "GET /keys/:id"],
      ["keys.list", "GET /keys"],
    ]);
  });

  test("names and routes are unique, and every scope exists", () => {
    expect(new Set(OPERATIONS.map(({ name }) => name)).size).toBe(OPERATIONS.length);
    expect(new Set(OPERATIONS.map(({ route }) => route.replace(/\{\w+\}/g, "{}"))).size).toBe(OPERATIONS.length);
    for (const { name, scope, roles } of SERVED)
      for (const role of roles.filter((one) => one !== "customer"))
        expect(
          scopesFor(role).some((one) => one === scope),
          `${name}: ${role}`,
        ).toBe(true);
  });

  test("an operation that makes tokens is served to no token", async () => {
    for (const { route } of OPERATIONS.filter(({ scope }) => scope === null)) {
      const [method = "", path = ""] = route.split(" ");
      const answer = await full.admin.call(method, path.replace(/\{\w+\}/g, "1"), method === "GET" ? undefined : {});
      expectRefusal(answer, "not_found");
    }
  });
});
