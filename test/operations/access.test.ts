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
    Object.entries(theirs).map(([name, id]) => [name, typeof id === "string" ? "ai.unknown.test" : UNKNOWN_ID]),
  );
}

/** The panel's endpoints that are doors to an operation. */
const PANEL_DOORS: Readonly<Record<string, string>> = {
  "accounts.list": "GET /people",
  "accounts.create": "POST /people",
  "accounts.get": "GET /people/:id",
  "accounts.update": "PATCH /people/:id",
  "accounts.suspend": "POST /people/:id/suspend",
  "accounts.activate": "POST /people/:id/activate",
  "accounts.link": "POST /people/:id/link",
  "accounts.limits": "PATCH /people/:id/limits",
  "accounts.export": "GET /people/:id/data",
  "accounts.erase": "POST /people/:id/erase",
  "accounts.payg": "PATCH /people/:id/payg",
  "accounts.payg_right": "PATCH /people/:id/payg-right",
  "members.list": "GET /members",
  "members.invite": "POST /members/invitations",
  "members.revoke": "DELETE /members/invitations/:id",
  "members.update": "PATCH /members/:id",
  "members.remove": "DELETE /members/:id",
  "keys.create": "POST /keys",
  "keys.update": "PATCH /keys/:id",
  "keys.enable": "POST /keys/:id/enable",
  "keys.disable": "POST /keys/:id/disable",
  "keys.rotate": "POST /keys/:id/rotate",
  "keys.revoke": "POST /keys/:id/revoke",
  "packages.holdings": "GET /people/:id/billing",
  "packages.assign": "POST /people/:id/packages",
  "packages.end": "POST /people/:id/packages/:packageId/end",
  "allotments.list": "GET /allotments",
  "allotments.grant": "POST /allotments",
  "allotments.withdraw": "POST /allotments/:id/withdraw",
  "balances.change": "POST /people/:id/balance",
  "balances.movements": "GET /people/:id/billing/movements",
  "offerings.create": "POST /admin/offerings",
  "offerings.update": "PATCH /admin/offerings/:id",
  "prices.set": "PUT /prices/:id",
  "prices.remove": "DELETE /prices/:id",
  "orders.list": "GET /orders/incoming",
  "orders.decline": "POST /orders/:id/decline",
  "orders.fulfil": "POST /orders/:id/fulfil",
  "payments.list": "GET /payments",
  "payments.refund": "POST /payments/:id/refunds",
  "payments.end_refund": "POST /refunds/:id/end",
  "incidents.list": "GET /incidents",
  "incidents.create": "POST /incidents",
  "incidents.get": "GET /incidents/:id",
  "incidents.update": "PATCH /incidents/:id",
  "incidents.remove": "DELETE /incidents/:id",
  "vouchers.list": "GET /vouchers",
  "vouchers.create": "POST /vouchers",
  "vouchers.get": "GET /vouchers/:id",
  "vouchers.uses": "GET /vouchers/:id",
  "vouchers.disable": "POST /vouchers/:id/disable",
  "models.get": "GET /admin/model",
  "models.create": "POST /admin/models",
  "models.update": "PATCH /admin/model",
  "models.prices": "PUT /admin/model/prices",
  "models.image_price": "PUT /admin/model/image-price",
  "routes.create": "POST /admin/routes",
  "routes.update": "PATCH /admin/routes/:id",
  "routes.remove": "DELETE /admin/routes/:id",
  "providers.list": "GET /admin/providers",
  "providers.get": "GET /admin/providers/:id",
  "providers.create": "POST /admin/providers",
  "providers.update": "PATCH /admin/providers/:id",
  "providers.test": "POST /admin/providers/:id/test",
  "provider_keys.create": "POST /admin/providers/:id/keys",
  "provider_keys.update": "PATCH /admin/provider-keys/:id",
  "provider_keys.remove": "DELETE /admin/provider-keys/:id",
  "webhooks.list": "GET /webhooks",
  "webhooks.create": "POST /webhooks",
  "webhooks.update": "PATCH /webhooks/:id",
  "webhooks.remove": "DELETE /webhooks/:id",
  "webhooks.rotate": "POST /webhooks/:id/rotate",
  "webhooks.test": "POST /webhooks/:id/test",
  "webhooks.deliveries": "GET /webhooks/:id/deliveries",
  "webhooks.delivery": "GET /webhooks/:id/deliveries/:deliveryId",
  "webhooks.send_again": "POST /webhooks/:id/deliveries/:deliveryId/send-again",
  "tokens.list": "GET /tokens",
  "tokens.create": "POST /tokens",
  "tokens.rotate": "POST /tokens/:id/rotate",
  "tokens.revoke": "POST /tokens/:id/revoke",
};

describe("doors", () => {
  test("an endpoint of the panel is for exactly the roles of its operation", () => {
    for (const [name, route] of Object.entries(PANEL_DOORS)) {
      const operation = OPERATIONS.find((one) => one.name === name);
      const who = ROUTE_TABLE[route]?.who;
      expect({ name, roles: [...(operation?.roles ?? [])].sort() }).toEqual({
        name,
        roles: Array.isArray(who) ? [...who].sort() : [],
      });
    }
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
