import type { Role } from "../../src/accounts/roles.ts";

/**
 * Every route of the app: who has it, and how it is called about somebody else's things. A new route without a row here
 * fails `tenants.test.ts`. `bun test/panel/route_table.ts > docs/routes.md` writes the tables for people.
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

/**
 * For every route of the panel whose body has a shape: a body of that shape. What its fields say need not exist; other fields than
 * the shape's are refused, whatever they say.
 */
export const FORMS: Readonly<Record<string, Record<string, unknown>>> = {
  "POST /sign-out-everywhere": {},
  "PATCH /settings/profile": { name: "Ann" },
  "PATCH /settings/notices": { days: 3 },
  "POST /settings/password": { current: "a wrong password", next: "another long password" },
  "POST /settings/totp": { password: "a wrong password" },
  "POST /settings/totp/confirm": { code: "000000" },
  "POST /settings/recovery-codes": { password: "a wrong password", code: "000000" },
  "POST /settings/totp/remove": { password: "a wrong password", code: "000000" },
  "POST /keys": { name: "k", mode: "package" },
  "PATCH /keys/:id": { name: "k" },
  "POST /keys/:id/rotate": { overlapSeconds: 0 },
  "POST /orders": { kind: "top_up", amountNanoUsd: "1000", note: "x" },
  "POST /orders/:id/decline": {},
  "POST /orders/:id/fulfil": {},
  "POST /people": { email: "ann@example.com", name: "Ann" },
  "PATCH /people/:id": { name: "Ann" },
  "POST /people/:id/packages/preview": assignment,
  "POST /people/:id/packages": assignment,
  "POST /people/:id/balance": { kind: "top_up", amountNanoUsd: "1000", reason: "x" },
  "PATCH /people/:id/payg": { enabled: true },
  "PATCH /people/:id/payg-right": { granted: true },
  "POST /allotments": { resellerId: 1, offeringId: 1, pieces: 1, reason: "x" },
  "POST /admin/offerings": { name: "O", kind: "daily", dailyLimit: 5, wholesaleNanoUsd: "0" },
  "PATCH /admin/offerings/:id": { enabled: true },
  "POST /admin/models": { id: "new-model" },
  "PATCH /admin/model": { name: "M" },
  "PUT /admin/model/prices": { prices: null },
  "PUT /admin/model/image-price": { size: "512x512", microUsd: null },
  "POST /admin/routes": { modelId: "new-model", providerId: 1 },
  "PATCH /admin/routes/:id": { weight: 1 },
  "POST /admin/providers": { name: "p", baseUrl: "https://p.example/v1", apiKey: "sk-p" },
  "PATCH /admin/providers/:id": { name: "p" },
  "POST /admin/providers/:id/test": {},
  "POST /domains": { host: "ai.example.com" },
  "POST /admin/domains/:resellerId/:host/suspend": {},
  "PUT /brand": { name: "B", accent: null, support: null },
  "PUT /brand/logo": { theme: "light", image: null },
  "PUT /brand/icon": { image: null },
};

/** Routes outside the panel's API: for whoever has a key, or for anybody. */
export type OtherRoute = {
  who: "key" | "anyone";
  /** What the answer may tell, in a sentence for people. */
  tells: string;
  /** A good call. */
  call: { path: string; body?: unknown };
  /** The call about somebody else's things, where one can be made. */
  about?: (things: Things) => { path: string };
};

export const OTHER_ROUTES: Readonly<Record<string, OtherRoute>> = {
  "GET /v1/models": { who: "key", tells: "models that the key may name", call: { path: "/v1/models" } },
  "GET /v1/models/*": { who: "key", tells: "one of them", call: { path: "/v1/models/chat-a" } },
  "GET /v1/balance": { who: "key", tells: "the key's own account", call: { path: "/v1/balance" } },
  "GET /v1/usage": {
    who: "key",
    tells: "usage of the key's own account",
    call: { path: "/v1/usage" },
    about: ({ requestId }) => ({ path: `/v1/usage?after=${requestId}` }),
  },
  "POST /v1/chat/completions": {
    who: "key",
    tells: "the model's answer, paid by the key's own account",
    call: {
      path: "/v1/chat/completions",
      body: { model: "chat-a", messages: [{ role: "user", content: "Tell me about tolls." }] },
    },
  },
  "POST /v1/images/generations": {
    who: "key",
    tells: "the model's image, paid by the key's own account",
    call: { path: "/v1/images/generations", body: { model: "image-a", prompt: "A toll gate at dawn" } },
  },
  "GET /healthz": { who: "anyone", tells: "that the process is alive", call: { path: "/healthz" } },
  "GET /readyz": { who: "anyone", tells: "ready, or one word why not", call: { path: "/readyz" } },
  "GET /assets/:name": {
    who: "anyone",
    tells: "scripts, styles and fonts, alike on every host of the panel",
    call: { path: "/assets/none.js" },
  },
  "GET /brand.css": { who: "anyone", tells: "the colours of the host's own brand", call: { path: "/brand.css" } },
  "GET /brand/:picture": {
    who: "anyone",
    tells: "the pictures of the host's own brand",
    call: { path: "/brand/logo-light" },
  },
  "GET /docs/api": {
    who: "anyone",
    tells: "what the API is, as a page in the host's own brand",
    call: { path: "/docs/api" },
  },
  "GET /docs/api.css": {
    who: "anyone",
    tells: "the looks of that page, alike on every host of the panel",
    call: { path: "/docs/api.css" },
  },
  "GET /docs/openapi.json": {
    who: "anyone",
    tells: "what the API is, as OpenAPI 3.1, with the host's own addresses",
    call: { path: "/docs/openapi.json" },
  },
};

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
  "GET /requests/:requestId": { who: everyone, about: ({ requestId }) => ({ path: `/requests/${requestId}` }) },
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
  "PATCH /people/:id/payg": person("/payg", { enabled: true }),
  "PATCH /people/:id/payg-right": { who: admin },
  "POST /allotments": { who: admin },
  "POST /allotments/:id/withdraw": { who: admin },
  "GET /audit": { who: admin },
  "GET /admin/overview": { who: admin },
  "GET /admin/requests": { who: admin },
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
  "DELETE /admin/routes/:id/overhead": { who: admin },
  "GET /admin/providers": { who: admin },
  "POST /admin/providers": { who: admin },
  "GET /admin/providers/:id": { who: admin },
  "PATCH /admin/providers/:id": { who: admin },
  "POST /admin/providers/:id/test": { who: admin },
};

/** The tables as Markdown. */
export function routesPage(): string {
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
  const others = Object.entries(OTHER_ROUTES).map(([route, { who, tells }]) => {
    const [method, path] = route.split(" ");
    return `| ${method} | \`${path}\` | ${who === "key" ? "401" : "yes"} | yes | ${tells} |`;
  });
  return [
    "# Endpoints",
    "",
    "Every endpoint and who may call it. `test/panel/tenants.test.ts` calls each one with two tenants, each role and no session, two tenants' keys",
    "and no key. An endpoint that is missing here fails that test.",
    "",
    "## The panel",
    "",
    "Another tenant's data reads like data that does not exist. An endpoint that changes something needs the session's CSRF token and Origin, and",
    "answers 403 `read_only` while an admin views an account. For a reseller, “own” includes its customers where the path names an account.",
    "",
    "| | endpoint | no session | customer | reseller | admin |",
    "| --- | --- | --- | --- | --- | --- |",
    ...rows,
    "",
    "## All others",
    "",
    "A key gets 403 `host_not_allowed` on another tenant's host. A session has no effect here. Any other path on a host of the panel is a page of",
    "the panel, in that host's brand, unless the client prefers JSON; then, and below `/v1/` and `/api/`, it is 404 with the error envelope.",
    "",
    "| | endpoint | no key | with a key | what it returns |",
    "| --- | --- | --- | --- | --- |",
    ...others,
    "",
  ].join("\n");
}

if (import.meta.main) process.stdout.write(routesPage());
