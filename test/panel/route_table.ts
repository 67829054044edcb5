import type { Role } from "../../src/accounts/roles.ts";
import { MANAGEMENT_PREFIX, routeOf, SERVED } from "../../src/operations/management_api.ts";
import { PASSWORD } from "./panel_client.ts";

/**
 * Every endpoint of the app: who may call it, and how it is called for another account's data. A new endpoint without a row here
 * fails `tenants.test.ts`. `bun test/panel/route_table.ts > docs/routes.md` writes the tables for people.
 */

/** Ids of one tenant's data, or ids that do not exist. */
export type Things = {
  accountId: number;
  resellerId: number;
  keyId: number;
  packageId: number;
  orderId: number;
  allotmentId: number;
  batchId: number;
  invoiceId: number;
  incidentId: number;
  requestId: string;
  responseId: string;
  deviceId: string;
  passkeyId: number;
  identityId: number;
  identityProviderId: number;
  endpointId: number;
  tokenId: number;
  deliveryId: number;
  host: string;
};

export type RouteRow = {
  /** `open`: without a session. */
  who: "open" | readonly Role[];
  /** The call for those ids; without it the endpoint returns only the caller's own data. */
  about?: (things: Things) => { path: string; body?: unknown };
  /** Admins, too, reach only their own. */
  isPersonal?: true;
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
/** An admin's are the operator's. */
const ownIdentityProvider = (path: string, body?: unknown): RouteRow => ({
  who: upward,
  isPersonal: true,
  about: ({ identityProviderId }) => ({ path: `/identity-providers/${identityProviderId}${path}`, body }),
});
const ownWebhook = (path: string, body?: unknown): RouteRow => ({
  who: everyone,
  isPersonal: true,
  about: ({ endpointId }) => ({ path: `/webhooks/${endpointId}${path}`, body }),
});
const ofAccount = (path: string): RouteRow => ({
  who: everyone,
  about: ({ accountId }) => ({ path: `${path}?accountId=${accountId}` }),
});

/** A well-formed body for every endpoint of the panel whose body has a schema. Its ids need not exist. */
export const FORMS: Readonly<Record<string, Record<string, unknown>>> = {
  "POST /sign-out-everywhere": {},
  "PATCH /settings/profile": { name: "Ann" },
  "PATCH /settings/language": { language: null },
  "PATCH /settings/notices": { days: 3 },
  "POST /settings/password": { next: "another long password", proof: { password: "a wrong password" } },
  "POST /settings/erase": { email: "ann@example.com", proof: { password: "a wrong password" } },
  "POST /people/:id/erase": { email: "ann@example.com", proof: { password: "a wrong password" } },
  "POST /settings/totp": { proof: { password: "a wrong password" } },
  "POST /settings/totp/confirm": { code: "000000" },
  "POST /settings/recovery-codes": { proof: { password: "a wrong password", code: "000000" } },
  "POST /settings/totp/remove": { proof: { password: "a wrong password", code: "000000" } },
  "POST /settings/email": { email: "ann@example.com", proof: { password: "a wrong password" } },
  "POST /settings/passkeys": {
    name: "k",
    response: {
      ...{ id: "AAAA", rawId: "AAAA", type: "public-key", clientExtensionResults: {} },
      response: { clientDataJSON: "AAAA", attestationObject: "AAAA" },
    },
  },
  "POST /settings/passkeys/begin": { proof: { password: "a wrong password" } },
  "PATCH /settings/passkeys/:id": { name: "k" },
  "POST /settings/passkeys/:id/remove": { proof: { password: "a wrong password" } },
  "POST /settings/identities/begin": { identityProviderId: 1, proof: { password: "a wrong password" } },
  "POST /settings/identities/:id/remove": { proof: { password: "a wrong password" } },
  "POST /identity-providers": {
    ...{ kind: "google", name: "Google", clientId: "id", clientSecret: "secret" },
    proof: { password: "a wrong password" },
  },
  "PATCH /identity-providers/:id": { name: "Google", proof: { password: "a wrong password" } },
  "POST /identity-providers/:id/prove": {},
  "POST /keys": { name: "k", mode: "package" },
  "PATCH /keys/:id": { name: "k" },
  "POST /keys/:id/rotate": { overlapSeconds: 0 },
  "POST /orders": { kind: "top_up", amountNanoUsd: "10000000", note: "x" },
  "POST /incidents": {
    kind: "incident",
    title: "Slow answers",
    body: "We look into it.",
    components: ["api"],
  },
  "PATCH /incidents/:id": { version: 1, title: "Slow answers" },
  "POST /vouchers": {
    name: "x",
    amountNanoUsd: "10000000",
    codes: 1,
    usesPerCode: 1,
    endsAt: new Date(Date.now() + 86_400_000).toISOString(),
  },
  "POST /vouchers/redeem": { code: "x" },
  "PUT /settings/invoices": { name: null, address: null, taxNumber: null, vatNumber: null },
  "PUT /seller/invoice-details": { name: null, address: null, taxLine: null },
  "POST /orders/:id/pay": { method: "instructions" },
  "POST /payments/:id/refunds": { amountNano: "10000000" },
  "POST /refunds/:id/end": { isMade: true },
  "PUT /auto-top-up": { belowNanoUsd: "5000000000", amountNanoUsd: "20000000000", monthMaxNanoUsd: "100000000000" },
  "POST /renewals/cancel": { packageId: 1 },
  "PUT /packages/:id/renewal": { source: "balance" },
  "PUT /payment-settings/instructions": { instructions: "x" },
  "PUT /payment-settings/stripe": { stripe: null },
  "PUT /payment-settings/shop": { shopUrl: null },
  "POST /orders/:id/decline": {},
  "POST /orders/:id/fulfil": {},
  "POST /people": { email: "ann@example.com", name: "Ann" },
  "PATCH /people/:id": { name: "Ann" },
  "POST /people/:id/packages/preview": assignment,
  "POST /people/:id/packages": assignment,
  "POST /people/:id/balance": { kind: "top_up", amountNanoUsd: "1000", reason: "x" },
  "PATCH /people/:id/payg": { enabled: true },
  "PATCH /people/:id/payg-right": { granted: true },
  "PATCH /people/:id/limits": { limits: { requestsPerMinute: 5 } },
  "POST /allotments": { resellerId: 1, offeringId: 1, pieces: 1, reason: "x" },
  "POST /admin/offerings": { name: "O", kind: "daily", dailyLimit: 5, wholesaleNanoUsd: "0" },
  "PATCH /admin/offerings/:id": { enabled: true },
  "PATCH /selling-terms": { topUpTax: 0 },
  "PUT /prices/:id": { priceNano: "5000000000" },
  "PATCH /prices": { pricesPublic: false },
  "PATCH /sign-up/settings": { disposableAllowed: false },
  "PUT /measured-prices": {
    ...{ isOpen: false, daysMin: 1, daysMax: 30, dailyMin: 1, dailyMax: 1000 },
    steps: [{ fromRequests: 0, nanoUsd: "1000000000" }],
  },
  "POST /admin/models": { id: "new-model" },
  "PATCH /admin/model": { name: "M" },
  "PUT /admin/model/prices": { prices: null },
  "PUT /admin/model/image-price": { size: "512x512", microUsd: null },
  "POST /admin/model-import": {
    providers: ["openai"],
    markup: "20",
    confirmed: [{ modelId: "m", digest: "0".repeat(32) }],
  },
  "POST /admin/routes": { modelId: "new-model", providerId: 1 },
  "PATCH /admin/routes/:id": { weight: 1 },
  "POST /admin/providers": { name: "p", baseUrl: "https://p.example/v1", apiKey: "sk-p" },
  "PATCH /admin/providers/:id": { name: "p" },
  "POST /admin/providers/:id/test": {},
  "POST /admin/providers/:id/keys": { name: "k", apiKey: "sk-p" },
  "PATCH /admin/provider-keys/:id": { weight: 2 },
  "POST /domains": { host: "ai.example.com" },
  "POST /admin/domains/:resellerId/:host/suspend": {},
  "PUT /markup": { modelId: null, basisPoints: 100 },
  "PUT /mail-server": {
    host: "mail.example.com",
    port: 587,
    userName: null,
    fromAddress: "a@example.com",
    fromName: "A",
  },
  "PUT /settings/mails": { kind: "balance_low", mailed: true },
  "POST /members/invitations": { email: "a@example.com", role: "viewer", proof: { password: "a wrong password" } },
  "POST /members/leave": {},
  "PATCH /members/:id": { role: "viewer", proof: { password: "a wrong password" } },
  "POST /work-in": { accountId: 1 },
  "POST /tokens": { name: "t", scopes: ["keys:read"], proof: { password: "a wrong password" } },
  "POST /tokens/:id/rotate": { overlapSeconds: 0, proof: { password: "a wrong password" } },
  "POST /webhooks": { url: "https://hooks.example.com/", kinds: ["balance_low"] },
  "PATCH /webhooks/:id": { enabled: true },
  "POST /webhooks/:id/rotate": { overlapHours: 1 },
  "PUT /brand": { name: "B", accent: null, support: null },
  "PUT /brand/logo": { theme: "light", image: null },
  "PUT /brand/icon": { image: null },
};

/** Endpoints outside the panel's API: with a key, or for anyone. */
export type OtherRoute = {
  who: "key" | "anyone";
  /** What the response contains, for docs/routes.md. */
  tells: string;
  /** A call that succeeds, or ends with `status`. */
  call: { path: string; body?: unknown; status?: number };
  /** The call for another account's data, where there is one. */
  about?: (things: Things) => { path: string };
};

const NO_REQUEST = "00000000-0000-7000-8000-000000000000";
const NO_RESPONSE = `/v1/responses/resp_${"0".repeat(32)}`;

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
  "GET /v1/usage/:requestId": {
    who: "key",
    tells: "the usage record of one request of the key's own account",
    call: { path: `/v1/usage/${NO_REQUEST}`, status: 404 },
    about: ({ requestId }) => ({ path: `/v1/usage/${requestId}` }),
  },
  "POST /v1/chat/completions": {
    who: "key",
    tells: "the model's answer, paid by the key's own account",
    call: {
      path: "/v1/chat/completions",
      body: { model: "chat-a", messages: [{ role: "user", content: "Tell me about tolls." }] },
    },
  },
  "POST /v1/responses": {
    who: "key",
    tells: "the model's response, paid by the key's own account",
    call: { path: "/v1/responses", body: { model: "chat-a", input: "Hi" } },
  },
  "GET /v1/responses/:id": {
    who: "key",
    tells: "a stored response of the key's own account",
    call: { path: NO_RESPONSE, status: 404 },
    about: ({ responseId }) => ({ path: `/v1/responses/${responseId}` }),
  },
  "DELETE /v1/responses/:id": {
    who: "key",
    tells: "that a stored response of the key's own account is deleted",
    call: { path: NO_RESPONSE, status: 404 },
    about: ({ responseId }) => ({ path: `/v1/responses/${responseId}` }),
  },
  "GET /v1/responses/:id/input_items": {
    who: "key",
    tells: "what a stored response of the key's own account was made from",
    call: { path: `${NO_RESPONSE}/input_items`, status: 404 },
    about: ({ responseId }) => ({ path: `/v1/responses/${responseId}/input_items` }),
  },
  "POST /v1/completions": {
    who: "key",
    tells: "the model's text, charged to the key's own account",
    call: { path: "/v1/completions", body: { model: "chat-a", prompt: "A toll gate is" } },
  },
  "POST /v1/rerank": {
    who: "key",
    tells: "scores, charged to the key's own account",
    call: { path: "/v1/rerank", body: { model: "rerank-a", query: "A toll gate", documents: ["A road"] } },
  },
  "POST /v1/embeddings": {
    who: "key",
    tells: "embeddings, charged to the key's own account",
    call: { path: "/v1/embeddings", body: { model: "embed-a", input: "A toll gate at dawn" } },
  },
  "POST /v1/images/generations": {
    who: "key",
    tells: "the model's image, paid by the key's own account",
    call: { path: "/v1/images/generations", body: { model: "image-a", prompt: "A toll gate at dawn" } },
  },
  "GET /v1/images/files/:token": {
    who: "anyone",
    tells: "an image, to whoever has its address",
    call: { path: "/v1/images/files/none" },
  },
  "POST /api/pay/stripe/:sellerId": {
    who: "anyone",
    tells: "that an event was received, if Stripe signed it for that seller",
    call: { path: "/api/pay/stripe/0", body: {} },
  },
  "POST /api/pay/shop/:sellerId": {
    who: "anyone",
    tells: "what became of a payment, if that seller's shop signed it",
    call: { path: "/api/pay/shop/0", body: {} },
  },
  "POST /unsubscribe/:token": {
    who: "anyone",
    tells: "that a kind of mail is off, to whoever has the link that was mailed",
    call: { path: "/unsubscribe/none", body: {} },
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
  "GET /status.json": {
    who: "anyone",
    tells: "the status page of the host's own brand",
    call: { path: "/status.json" },
  },
  "GET /status.atom": {
    who: "anyone",
    tells: "the incidents of the host's own brand, as a feed",
    call: { path: "/status.atom" },
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
  "GET /docs/management": {
    who: "anyone",
    tells: "what the management API is, as a page in the host's own brand",
    call: { path: "/docs/management" },
  },
  "GET /api/v1/openapi.json": {
    who: "anyone",
    tells: "what the management API is, as OpenAPI 3.1, with the host's own address",
    call: { path: "/api/v1/openapi.json" },
  },
  "GET /docs/openapi.json": {
    who: "anyone",
    tells: "what the API is, as OpenAPI 3.1, with the host's own addresses",
    call: { path: "/docs/openapi.json" },
  },
};

export const ROUTE_TABLE: Readonly<Record<string, RouteRow>> = {
  "POST /sign-in": { who: "open" },
  "POST /sign-in/forgot": { who: "open" },
  "GET /sign-in/passkey": { who: "open" },
  "POST /sign-in/passkey": { who: "open" },
  "POST /sign-in/identity": { who: "open" },
  "POST /sign-in/identity/finish": { who: "open" },
  "GET /email-changes/:token": { who: "open" },
  "POST /email-changes/:token": { who: "open" },
  "GET /unsubscribe/:token": { who: "open" },
  "POST /unsubscribe/:token": { who: "open" },
  "GET /join/:token": { who: "open" },
  "POST /join/:token": { who: "open" },
  "GET /links/:token": { who: "open" },
  "POST /links/:token": { who: "open" },
  "GET /brand/public": { who: "open" },
  "GET /measured": { who: ["customer"] },
  "GET /measured-prices": { who: upward },
  "PUT /measured-prices": { who: upward },
  "GET /sign-up": { who: "open" },
  "GET /sign-up/challenge": { who: "open" },
  "POST /sign-up": { who: "open" },
  "GET /sign-up/settings": { who: upward },
  "PATCH /sign-up/settings": { who: upward },
  "GET /sign-up/accounts": { who: upward },
  "POST /sign-out": { who: everyone },
  "POST /sign-out-everywhere": { who: everyone },
  "POST /view/leave": { who: everyone },
  "GET /me": { who: everyone },

  "GET /home": { who: everyone },
  "GET /home/first-steps": { who: everyone },
  "GET /home/selling": { who: reseller },
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
  "POST /ai/responses": { who: everyone },
  "POST /ai/image": { who: everyone },
  "POST /ai/embeddings": { who: everyone },
  "GET /usage": ofAccount("/usage"),
  "GET /usage/days": ofAccount("/usage/days"),
  "GET /usage.csv": ofAccount("/usage.csv"),
  "GET /usage/figures": {
    who: everyone,
    about: ({ accountId }) => ({ path: `/usage/figures?by=key&accountId=${accountId}` }),
  },
  "GET /receipts/:requestId": { who: everyone, about: ({ requestId }) => ({ path: `/receipts/${requestId}` }) },
  "GET /requests/:requestId": { who: everyone, about: ({ requestId }) => ({ path: `/requests/${requestId}` }) },
  "GET /billing": { who: everyone },
  "GET /billing/entries": { who: everyone },
  "GET /billing/movements": { who: everyone },
  "GET /billing/months": { who: everyone },
  "GET /offerings": { who: everyone },
  "GET /status": { who: "open" },
  "GET /model-prices": { who: "open" },
  "GET /model-prices/model": { who: "open" },
  "GET /orders": { who: everyone },
  "POST /orders": { who: everyone },
  "POST /orders/:id/withdraw": { who: everyone, about: ({ orderId }) => ({ path: `/orders/${orderId}/withdraw` }) },
  "GET /ways-to-pay": { who: everyone },
  "GET /orders/:id": { who: everyone, about: ({ orderId }) => ({ path: `/orders/${orderId}` }) },
  "POST /orders/:id/look": { who: everyone, about: ({ orderId }) => ({ path: `/orders/${orderId}/look` }) },
  "POST /orders/:id/pay": {
    who: everyone,
    about: ({ orderId }) => ({ path: `/orders/${orderId}/pay`, body: { method: "instructions" } }),
  },

  "GET /settings": { who: everyone },
  "PATCH /settings/profile": { who: everyone },
  "PATCH /settings/language": { who: everyone },
  "PATCH /settings/notices": { who: everyone },
  "POST /settings/password": { who: everyone },
  "GET /settings/devices": { who: everyone },
  "DELETE /settings/devices/:id": {
    who: everyone,
    isPersonal: true,
    about: ({ deviceId }) => ({ path: `/settings/devices/${deviceId}` }),
  },
  "GET /settings/data": { who: everyone },
  "POST /settings/erase": { who: everyone },
  "POST /settings/totp": { who: everyone },
  "POST /settings/totp/confirm": { who: everyone },
  "POST /settings/totp/remove": { who: everyone },
  "POST /settings/recovery-codes": { who: everyone },

  "POST /settings/email": { who: everyone },
  "POST /settings/email/cancel": { who: everyone },
  "GET /settings/passkeys": { who: everyone },
  "POST /settings/passkeys": { who: everyone },
  "POST /settings/passkeys/begin": { who: everyone },
  "POST /settings/passkeys/challenge": { who: everyone },
  "PATCH /settings/passkeys/:id": {
    who: everyone,
    isPersonal: true,
    about: ({ passkeyId }) => ({ path: `/settings/passkeys/${passkeyId}`, body: { name: "other" } }),
  },
  "POST /settings/passkeys/:id/remove": {
    who: everyone,
    isPersonal: true,
    about: ({ passkeyId }) => ({
      path: `/settings/passkeys/${passkeyId}/remove`,
      body: { proof: { password: PASSWORD } },
    }),
  },
  "GET /settings/identities": { who: everyone },
  "POST /settings/identities/begin": { who: everyone },
  "POST /settings/identities/:id/remove": {
    who: everyone,
    isPersonal: true,
    about: ({ identityId }) => ({
      path: `/settings/identities/${identityId}/remove`,
      body: { proof: { password: PASSWORD } },
    }),
  },
  "GET /identity-providers": { who: upward },
  "POST /identity-providers": { who: upward },
  "PATCH /identity-providers/:id": ownIdentityProvider("", { name: "Other", proof: { password: PASSWORD } }),
  "POST /identity-providers/:id/prove": ownIdentityProvider("/prove", {}),
  "DELETE /identity-providers/:id": ownIdentityProvider(""),

  "GET /people": { who: upward },
  "GET /people.csv": { who: upward },
  "GET /prices": { who: upward },
  "PUT /prices/:id": { who: upward },
  "DELETE /prices/:id": { who: upward },
  "PATCH /prices": { who: upward },
  "GET /selling-terms": { who: upward },
  "PATCH /selling-terms": { who: upward },
  "POST /people": { who: upward },
  "GET /people/:id": person(""),
  "PATCH /people/:id": person("", { name: "other" }),
  "POST /people/:id/suspend": person("/suspend"),
  "POST /people/:id/activate": person("/activate"),
  "POST /people/:id/link": person("/link"),
  "GET /people/:id/data": person("/data"),
  "POST /people/:id/losses/forget": {
    who: admin,
    about: ({ accountId }) => ({ path: `/people/${accountId}/losses/forget` }),
  },
  "POST /people/:id/erase": person("/erase", { email: "ann@example.com", proof: { password: PASSWORD } }),
  "POST /people/:id/remove-second-factor": person("/remove-second-factor"),
  "GET /people/:id/keys": person("/keys"),
  "POST /people/:id/keys/:keyId/disable": {
    who: upward,
    about: ({ accountId, keyId }) => ({ path: `/people/${accountId}/keys/${keyId}/disable` }),
  },
  "GET /people/:id/billing": person("/billing"),
  "GET /people/:id/billing/entries": person("/billing/entries"),
  "GET /people/:id/billing/movements": person("/billing/movements"),
  "GET /people/:id/billing/months": person("/billing/months"),
  "POST /people/:id/packages/preview": person("/packages/preview", assignment),
  "POST /people/:id/packages": person("/packages", assignment),
  "POST /people/:id/packages/:packageId/end": {
    who: upward,
    about: ({ accountId, packageId }) => ({ path: `/people/${accountId}/packages/${packageId}/end` }),
  },
  "POST /people/:id/balance": person("/balance", { kind: "top_up", amountNanoUsd: "1000", reason: "x" }),
  "POST /vouchers/redeem": { who: ["customer", "reseller"] },
  "GET /invoices": { who: everyone },
  "GET /invoices/:id/pdf": { who: everyone, about: ({ invoiceId }) => ({ path: `/invoices/${invoiceId}/pdf` }) },
  "GET /settings/invoices": { who: everyone },
  "PUT /settings/invoices": { who: everyone },
  "GET /incidents": { who: upward },
  "POST /incidents": { who: upward },
  "GET /incidents/:id": { who: upward, about: ({ incidentId }) => ({ path: `/incidents/${incidentId}` }) },
  "PATCH /incidents/:id": {
    who: upward,
    about: ({ incidentId }) => ({ path: `/incidents/${incidentId}`, body: { version: 1, title: "Taken over" } }),
  },
  "DELETE /incidents/:id": { who: upward, about: ({ incidentId }) => ({ path: `/incidents/${incidentId}` }) },
  "GET /vouchers": { who: upward },
  "POST /vouchers": { who: upward },
  "GET /vouchers/guesses": { who: upward },
  "GET /vouchers/:id": { who: upward, about: ({ batchId }) => ({ path: `/vouchers/${batchId}` }) },
  "POST /vouchers/:id/disable": { who: upward, about: ({ batchId }) => ({ path: `/vouchers/${batchId}/disable` }) },
  "GET /seller/invoices": { who: upward },
  "GET /seller/invoices.csv": { who: upward },
  "GET /seller/invoices/:id/pdf": {
    who: upward,
    about: ({ invoiceId }) => ({ path: `/seller/invoices/${invoiceId}/pdf` }),
  },
  "GET /seller/invoice-details": { who: upward },
  "PUT /seller/invoice-details": { who: upward },
  "GET /orders/incoming": { who: upward },
  "POST /orders/:id/decline": {
    who: upward,
    about: ({ orderId }) => ({ path: `/orders/${orderId}/decline`, body: {} }),
  },
  "POST /orders/:id/fulfil": { who: upward, about: ({ orderId }) => ({ path: `/orders/${orderId}/fulfil`, body: {} }) },
  "GET /payments": { who: upward },
  "POST /payments/:id/refunds": { who: upward },
  "POST /refunds/:id/end": { who: upward },
  "GET /card": { who: ["customer", "reseller"] },
  "POST /card": { who: ["customer", "reseller"] },
  "POST /card/look": { who: ["customer", "reseller"] },
  "DELETE /card": { who: ["customer", "reseller"] },
  "GET /auto-top-up": { who: ["customer", "reseller"] },
  "PUT /auto-top-up": { who: ["customer", "reseller"] },
  "DELETE /auto-top-up": { who: ["customer", "reseller"] },
  "GET /renewals": ofAccount("/renewals"),
  "GET /renewals/customers": { who: upward },
  "POST /renewals/cancel": {
    who: everyone,
    about: ({ accountId, packageId }) => ({ path: "/renewals/cancel", body: { accountId, packageId } }),
  },
  "PUT /packages/:id/renewal": {
    who: ["customer"],
    about: ({ packageId }) => ({ path: `/packages/${packageId}/renewal`, body: { source: "balance" } }),
  },
  "GET /payment-settings": { who: upward },
  "PUT /payment-settings/instructions": { who: upward },
  "PUT /payment-settings/stripe": { who: upward },
  "PUT /payment-settings/shop": { who: upward },
  "GET /allotments": { who: upward },
  "GET /markup": { who: reseller },
  "PUT /markup": { who: reseller },
  "GET /figures": {
    who: upward,
    about: ({ accountId }) => ({ path: `/figures?accountId=${accountId}` }),
  },
  "GET /requests": { who: upward, about: ({ accountId }) => ({ path: `/requests?accountId=${accountId}` }) },
  "GET /requests.csv": { who: upward, about: ({ accountId }) => ({ path: `/requests.csv?accountId=${accountId}` }) },
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
  "GET /messages": { who: upward },
  "POST /messages/:id/send-again": {
    who: upward,
    about: ({ deliveryId }) => ({ path: `/messages/${deliveryId}/send-again` }),
  },
  "GET /mail-server": { who: upward },
  "PUT /mail-server": { who: upward },
  "DELETE /mail-server": { who: upward },
  "POST /mail-server/test": { who: upward },
  "GET /settings/mails": { who: everyone },
  "PUT /settings/mails": { who: everyone },
  "GET /members": { who: everyone },
  "POST /members/invitations": { who: everyone },
  "DELETE /members/invitations/:id": {
    who: everyone,
    isPersonal: true,
    about: ({ tokenId }) => ({ path: `/members/invitations/${tokenId}` }),
  },
  "POST /members/leave": { who: everyone },
  "PATCH /members/:id": {
    who: everyone,
    isPersonal: true,
    about: ({ accountId }) => ({
      path: `/members/${accountId}`,
      body: { role: "viewer", proof: { password: PASSWORD } },
    }),
  },
  "DELETE /members/:id": {
    who: everyone,
    isPersonal: true,
    about: ({ accountId }) => ({ path: `/members/${accountId}` }),
  },
  "POST /work-in": {
    who: everyone,
    isPersonal: true,
    about: ({ accountId }) => ({ path: "/work-in", body: { accountId } }),
  },
  "GET /tokens": { who: upward },
  "POST /tokens": { who: upward },
  "POST /tokens/:id/rotate": {
    who: upward,
    isPersonal: true,
    about: ({ tokenId }) => ({
      path: `/tokens/${tokenId}/rotate`,
      body: { overlapSeconds: 0, proof: { password: PASSWORD } },
    }),
  },
  "POST /tokens/:id/revoke": {
    who: upward,
    isPersonal: true,
    about: ({ tokenId }) => ({ path: `/tokens/${tokenId}/revoke` }),
  },
  "GET /webhooks": { who: everyone },
  "POST /webhooks": { who: everyone },
  "PATCH /webhooks/:id": ownWebhook("", { enabled: true }),
  "DELETE /webhooks/:id": ownWebhook(""),
  "POST /webhooks/:id/rotate": ownWebhook("/rotate", { overlapHours: 1 }),
  "POST /webhooks/:id/test": ownWebhook("/test"),
  "GET /webhooks/:id/deliveries": ownWebhook("/deliveries"),
  "GET /webhooks/:id/deliveries/:deliveryId": ownWebhook("/deliveries/1"),
  "POST /webhooks/:id/deliveries/:deliveryId/send-again": ownWebhook("/deliveries/1/send-again"),
  "GET /brand": { who: reseller },
  "PUT /brand": { who: reseller },
  "PUT /brand/logo": { who: reseller },
  "PUT /brand/icon": { who: reseller },

  "POST /people/:id/view": { who: admin },
  "PATCH /people/:id/payg": person("/payg", { enabled: true }),
  "PATCH /people/:id/payg-right": { who: admin },
  "PATCH /people/:id/limits": person("/limits", { limits: { requestsPerMinute: 5 } }),
  "POST /allotments": { who: admin },
  "POST /allotments/:id/withdraw": { who: admin },
  "GET /audit": { who: admin },
  "GET /audit.csv": { who: admin },
  "GET /admin/overview": { who: admin },
  "GET /admin/replicas": { who: admin },
  "GET /admin/books": { who: admin },
  "POST /admin/books/check": { who: admin },
  "GET /admin/books/:name/rows": { who: admin },
  "GET /admin/retention": { who: admin },
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
  "GET /admin/margins": { who: admin },
  "GET /admin/price-list": { who: admin },
  "GET /admin/losses": { who: admin },
  "GET /admin/model-import": { who: admin },
  "POST /admin/model-import": { who: admin },
  "GET /admin/routes": { who: admin },
  "POST /admin/routes": { who: admin },
  "PATCH /admin/routes/:id": { who: admin },
  "DELETE /admin/routes/:id": { who: admin },
  "GET /admin/providers": { who: admin },
  "POST /admin/providers": { who: admin },
  "GET /admin/providers/:id": { who: admin },
  "PATCH /admin/providers/:id": { who: admin },
  "POST /admin/providers/:id/test": { who: admin },
  "POST /admin/providers/:id/keys": { who: admin },
  "PATCH /admin/provider-keys/:id": { who: admin },
  "DELETE /admin/provider-keys/:id": { who: admin },
};

/** The routes of the management API, as the app has them. Who may call each: `test/operations/access.test.ts`. */
export const MANAGEMENT_ROUTES = SERVED.map((operation) => {
  const { method, path } = routeOf(operation);
  return `${method.toUpperCase()} ${MANAGEMENT_PREFIX}${path.replace(/\{(\w+)\}/g, ":$1")}`;
});

/** The tables as Markdown. */
export function routesPage(): string {
  const rows = Object.entries(ROUTE_TABLE).map(([route, { who, about, isPersonal }]) => {
    const cell = (role: Role) => {
      if (who === "open") return "yes";
      if (!who.includes(role)) return "404";
      if (about === undefined || (role === "admin" && !isPersonal)) return "yes";
      return "own; another's: 404";
    };
    const [method, path] = route.split(" ");
    return `| ${method} | \`/api/panel${path}\` | ${who === "open" ? "yes" : "401"} | ${everyone.map(cell).join(" | ")} |`;
  });
  const others = Object.entries(OTHER_ROUTES).map(([route, { who, tells }]) => {
    const [method, path] = route.split(" ");
    return `| ${method} | \`${path}\` | ${who === "key" ? "401" : "yes"} | yes | ${tells} |`;
  });
  const managed = SERVED.map(({ name, scope, roles }, i) => {
    const [method, path] = (MANAGEMENT_ROUTES[i] ?? "").split(" ");
    const forAdmin = name.startsWith("webhooks.") ? "own; another's: 404" : "yes";
    return `| ${method} | \`${path}\` | \`${scope}\` | ${roles.includes("reseller") ? "own; another's: 404" : "404"} | ${forAdmin} |`;
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
    "## The management API",
    "",
    "Without a token it is 401 `invalid_token`, and 403 `insufficient_scope` if the token lacks the scope. `test/operations/access.test.ts` calls",
    "each one with tokens of each role and with each scope.",
    "",
    "| | endpoint | scope | reseller | admin |",
    "| --- | --- | --- | --- | --- |",
    ...managed,
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
