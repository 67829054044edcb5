import type { Role } from "../../src/accounts/people_store.ts";

/**
 * Every route of the panel: who has it, and how it is called about somebody else's things. A new route without a row here
 * fails `tenants.test.ts`. `bun test/panel/route_table.ts > docs/panel/routes.md` writes the table for people.
 */

/** Ids of one tenant's things, or ids that nothing has. */
export type Things = {
  accountId: number;
  resellerId: number;
  keyId: number;
  packageId: number;
  orderId: number;
  allotmentId: number;
  requestId: string;
  deviceId: string;
  host: string;
};

export type RouteRow = {
  /** `open`: without a session. */
  who: "open" | readonly Role[];
  /** The call about those things; without it the route speaks of one's own alone. */
  about?: (things: Things) => { path: string; body?: unknown };
};

const everyone = ["customer", "reseller", "admin"] as const;
const upward = ["reseller", "admin"] as const;
const admin = ["admin"] as const;
const reseller = ["reseller"] as const;
const assignment = { offeringId: 1, when: "now" };

const person = (path: string, body?: unknown): RouteRow => ({
  who: upward,
  about: ({ accountId }) => ({ path: `/people/${accountId}${path}`, body }),
});
const ownKey = (path: string, body?: unknown): RouteRow => ({
  who: everyone,
  about: ({ keyId }) => ({ path: `/keys/${keyId}${path}`, body }),
});
const ownDomain = (path: string): RouteRow => ({
  who: reseller,
  about: ({ host }) => ({ path: `/domains/${host}${path}` }),
});
const ofAccount = (path: string): RouteRow => ({
  who: everyone,
  about: ({ accountId }) => ({ path: `${path}?accountId=${accountId}` }),
});

export const ROUTE_TABLE: Readonly<Record<string, RouteRow>> = {
  "POST /sign-in": { who: "open" },
  "GET /links/:token": { who: "open" },
  "POST /links/:token": { who: "open" },
  "GET /brand/public": { who: "open" },
  "POST /sign-out": { who: everyone },
  "POST /sign-out-everywhere": { who: everyone },
  "POST /view/leave": { who: everyone },
  "GET /me": { who: everyone },

  "GET /home": { who: everyone },
  "GET /keys": { who: everyone },
  "GET /keys/options": { who: everyone },
  "POST /keys": { who: everyone },
  "PATCH /keys/:id": ownKey("", { name: "other" }),
  "POST /keys/:id/disable": ownKey("/disable"),
  "POST /keys/:id/enable": ownKey("/enable"),
  "POST /keys/:id/revoke": ownKey("/revoke"),
  "POST /keys/:id/rotate": ownKey("/rotate", { overlapSeconds: 0 }),
  "GET /playground/models": { who: everyone },
  "POST /ai/chat": { who: everyone },
  "POST /ai/image": { who: everyone },
  "GET /usage": ofAccount("/usage"),
  "GET /usage/days": ofAccount("/usage/days"),
  "GET /usage.csv": ofAccount("/usage.csv"),
  "GET /receipts/:requestId": { who: everyone, about: ({ requestId }) => ({ path: `/receipts/${requestId}` }) },
  "GET /billing": { who: everyone },
  "GET /billing/entries": { who: everyone },
  "GET /offerings": { who: everyone },
  "GET /orders": { who: everyone },
  "POST /orders": { who: everyone },
  "POST /orders/:id/withdraw": { who: everyone, about: ({ orderId }) => ({ path: `/orders/${orderId}/withdraw` }) },

  "GET /settings": { who: everyone },
  "PATCH /settings/profile": { who: everyone },
  "PATCH /settings/notices": { who: everyone },
  "POST /settings/password": { who: everyone },
  "GET /settings/devices": { who: everyone },
  "DELETE /settings/devices/:id": {
    who: everyone,
    about: ({ deviceId }) => ({ path: `/settings/devices/${deviceId}` }),
  },
  "POST /settings/totp": { who: everyone },
  "POST /settings/totp/confirm": { who: everyone },
  "POST /settings/totp/remove": { who: everyone },
  "POST /settings/recovery-codes": { who: everyone },

  "GET /people": { who: upward },
  "POST /people": { who: upward },
  "GET /people/:id": person(""),
  "PATCH /people/:id": person("", { name: "other" }),
  "POST /people/:id/suspend": person("/suspend"),
  "POST /people/:id/activate": person("/activate"),
  "POST /people/:id/link": person("/link"),
  "POST /people/:id/remove-second-factor": person("/remove-second-factor"),
  "GET /people/:id/keys": person("/keys"),
  "POST /people/:id/keys/:keyId/disable": {
    who: upward,
    about: ({ accountId, keyId }) => ({ path: `/people/${accountId}/keys/${keyId}/disable` }),
  },
  "GET /people/:id/billing": person("/billing"),
  "GET /people/:id/billing/entries": person("/billing/entries"),
  "POST /people/:id/packages/preview": person("/packages/preview", assignment),
  "POST /people/:id/packages": person("/packages", assignment),
  "POST /people/:id/packages/:packageId/end": {
    who: upward,
    about: ({ accountId, packageId }) => ({ path: `/people/${accountId}/packages/${packageId}/end` }),
  },
  "POST /people/:id/balance": person("/balance", { kind: "top_up", amountNanoUsd: "1000", reason: "x" }),
  "GET /orders/incoming": { who: upward },
  "POST /orders/:id/decline": {
    who: upward,
    about: ({ orderId }) => ({ path: `/orders/${orderId}/decline`, body: {} }),
  },
  "POST /orders/:id/fulfil": { who: upward, about: ({ orderId }) => ({ path: `/orders/${orderId}/fulfil`, body: {} }) },
  "GET /allotments": { who: upward },
  "GET /statement": {
    who: upward,
    about: ({ resellerId }) => ({ path: `/statement?month=2026-01&resellerId=${resellerId}` }),
  },
  "GET /statement.csv": {
    who: upward,
    about: ({ resellerId }) => ({ path: `/statement.csv?month=2026-01&resellerId=${resellerId}` }),
  },

  "GET /domains": { who: reseller },
  "POST /domains": { who: reseller },
  "GET /domains/:host": ownDomain(""),
  "POST /domains/:host/check": ownDomain("/check"),
  "DELETE /domains/:host": ownDomain(""),
  "GET /brand": { who: reseller },
  "PUT /brand": { who: reseller },
  "PUT /brand/logo": { who: reseller },
  "PUT /brand/icon": { who: reseller },

  "POST /people/:id/view": { who: admin },
  "PATCH /people/:id/payg": { who: admin },
  "POST /allotments": { who: admin },
  "POST /allotments/:id/withdraw": { who: admin },
  "GET /audit": { who: admin },
  "GET /admin/overview": { who: admin },
  "GET /admin/replicas": { who: admin },
  "GET /admin/books": { who: admin },
  "POST /admin/books/check": { who: admin },
  "GET /admin/books/:name/rows": { who: admin },
  "GET /admin/domains": { who: admin },
  "GET /admin/domains/:resellerId/:host": { who: admin },
  "DELETE /admin/domains/:resellerId/:host": { who: admin },
  "POST /admin/domains/:resellerId/:host/check": { who: admin },
  "POST /admin/domains/:resellerId/:host/suspend": { who: admin },
  "POST /admin/domains/:resellerId/:host/activate": { who: admin },
  "GET /admin/offerings": { who: admin },
  "POST /admin/offerings": { who: admin },
  "PATCH /admin/offerings/:id": { who: admin },
  "GET /admin/models": { who: admin },
  "POST /admin/models": { who: admin },
  "GET /admin/model": { who: admin },
  "PATCH /admin/model": { who: admin },
  "PUT /admin/model/prices": { who: admin },
  "PUT /admin/model/image-price": { who: admin },
  "POST /admin/routes": { who: admin },
  "PATCH /admin/routes/:id": { who: admin },
  "DELETE /admin/routes/:id": { who: admin },
  "GET /admin/providers": { who: admin },
  "POST /admin/providers": { who: admin },
  "GET /admin/providers/:id": { who: admin },
  "PATCH /admin/providers/:id": { who: admin },
  "POST /admin/providers/:id/test": { who: admin },
};

/** The table as Markdown. */
export function routeTable(): string {
  const rows = Object.entries(ROUTE_TABLE).map(([route, { who, about }]) => {
    const cell = (role: Role) => {
      if (who === "open") return "yes";
      if (!who.includes(role)) return "404";
      if (about === undefined || role === "admin") return "yes";
      return "own; another's: 404";
    };
    const [method, path] = route.split(" ");
    return `| ${method} | \`/api/panel${path}\` | ${who === "open" ? "yes" : "401"} | ${everyone.map(cell).join(" | ")} |`;
  });
  return [
    "# Routes of the panel",
    "",
    "Who has which route, checked route by route by `test/panel/tenants.test.ts`: with two tenants, each role and no session. What is",
    "another tenant's answers like what does not exist. Whatever changes something needs the session's CSRF token and Origin, and is",
    "refused (403 `read_only`) while an admin looks at somebody's panel. “Own” of a reseller takes in its customers where the path",
    "names an account.",
    "",
    "| | route | no session | customer | reseller | admin |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows,
    "",
  ].join("\n");
}

if (import.meta.main) process.stdout.write(routeTable());
