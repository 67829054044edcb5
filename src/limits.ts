/**
 * Limits of what people type: lengths in characters (code points), counts, and money. The server enforces them; the panel checks the
 * same numbers before it sends a form. This file imports nothing, so that the browser can load it.
 */

type Range = { min: number; max: number };

/** The largest amount of money anywhere: nine million dollars. `balances_range` says why. */
export const MONEY_USD_MAX = 9_000_000;
export const MONEY_NANO_USD_MAX = 9_000_000_000_000_000n;
/** A cent. Prices that people pay are whole cents, and so are payments through Stripe or a shop. */
export const CENT_NANO_USD = 10_000_000n;

// People
export const PERSON_NAME_CHARS_MAX = 100;
export const EMAIL_CHARS_MAX = 254;
export const NEW_PASSWORD_CHARS: Range = { min: 10, max: 200 };
/** More than any password that can be set, so that the message about its length is shown. */
export const TYPED_PASSWORD_CHARS_MAX = 1_000;
/** A recovery code with its dashes, and room for spaces. */
export const TYPED_CODE_CHARS_MAX = 40;
export const NOTICE_PERCENT: Range = { min: 0, max: 100 };
export const NOTICE_DAYS: Range = { min: 0, max: 30 };

// Sign-up
/** Of each of a seller's two lists. */
export const MAIL_DOMAINS_MAX = 200;
export const MAIL_DOMAIN_CHARS_MAX = 253;
export const TERMS_URL_CHARS_MAX = 500;

// Identity providers
/** Of one seller. */
export const IDENTITY_PROVIDERS_MAX = 20;
export const IDENTITY_PROVIDER_NAME_CHARS_MAX = 60;
export const IDENTITY_ISSUER_CHARS_MAX = 500;
export const IDENTITY_CLIENT_ID_CHARS_MAX = 300;
export const IDENTITY_CLIENT_SECRET_CHARS_MAX = 1_000;
export const IDENTITY_SCOPES_CHARS_MAX = 300;
export const ROLE_CLAIM_CHARS_MAX = 200;
export const ROLE_VALUE_CHARS_MAX = 200;
/** Values of the role claim that are mapped to a role. */
export const ROLE_VALUES_MAX = 50;

// Members
/** Of one account, with those who are invited. */
export const MEMBERS_MAX = 50;

// API keys
export const KEY_NAME_CHARS_MAX = 100;
/** Tokens of the management API of one account, without revoked ones; networks of one. */
export const API_TOKENS_MAX = 50;
export const API_TOKEN_NETWORKS_MAX = 50;
export const API_TOKEN_NAME_CHARS_MAX = 100;
/** What `keys_ceilings` allows. */
/** What a key may spend from the balance, by the field of each period. A week begins on Monday; a total begins on the day it is set. Source: KEY-10. */
export const KEY_BUDGETS = [
  { field: "dailySpendMaxNanoUsd", period: "day" },
  { field: "weeklySpendMaxNanoUsd", column: "weekly_spend_max_nano_usd", period: "week" },
  { field: "monthlySpendMaxNanoUsd", column: "monthly_spend_max_nano_usd", period: "month" },
  { field: "totalSpendMaxNanoUsd", period: "total" },
] as const;
export type KeyBudgetField = (typeof KEY_BUDGETS)[number]["field"];
export const KEY_DAILY_REQUESTS: Range = { min: 1, max: 30_000_000 };

// Limits of requests, of an offering, an account or a key. The tables' CHECKs allow no more. Source: LIM-1.
export const REQUESTS_PER_MINUTE: Range = { min: 1, max: 1_000_000 };
export const TOKENS_PER_MINUTE: Range = { min: 1, max: 1_000_000_000 };
export const REQUESTS_AT_ONCE: Range = { min: 1, max: 100_000 };
/** Models with limits of their own. */
export const LIMITED_MODELS_MAX = 50;

// Offerings. Source: PAY-8.
export const OFFERING_NAME_CHARS_MAX = 100;
export const OFFERING_DAYS: Range = { min: 1, max: 30 };
export const OFFERING_DAILY_REQUESTS: { daily: Range; custom: Range } = {
  daily: { min: 100, max: 2_000 },
  custom: { min: 1, max: 1_000_000 },
};
export const OFFERING_TOTAL_REQUESTS: Range = { min: 1, max: 30_000_000 };
export const OFFERING_TOKENS: Range = { min: 1, max: 1_000_000_000_000 };

/** Prices for 1,000 requests of made-to-measure packages: how many steps, and what each may be. Source: MTM-1. */
export const MEASURED_STEPS_MAX = 10;
export const MEASURED_NANO_USD_MAX = 1_000_000_000_000n;

/** What one request of a package may ask for: one unit pays for it. Source: QUO-11. */
export type RequestBounds = {
  /** `n` of a chat. */
  choices: number;
  /** Texts of an embeddings request. */
  inputs: number;
  /** The prompt bound, or the embeddings' input. */
  promptTokens: number;
  /** The output cap of each choice; null: as many as the model gives. */
  outputTokens: number | null;
};
export const REQUEST_BOUNDS: { readonly [Name in keyof RequestBounds]: Range } = {
  choices: { min: 1, max: 128 },
  inputs: { min: 1, max: 2_048 },
  promptTokens: { min: 1, max: 100_000_000 },
  outputTokens: { min: 1, max: 1_000_000 },
};
/** Of an offering that sets none. The tables' default, too. */
export const REQUEST_BOUNDS_DEFAULT: RequestBounds = {
  choices: 4,
  inputs: 128,
  // A prompt of a million tokens, and what a file may cost.
  promptTokens: 2_000_000,
  outputTokens: null,
};

/** Models in the scope of an API key or an offering. */
export const SCOPE_MODELS_MAX = 200;

// Orders, allotments, and why money moved
export const ORDER_TEXT_CHARS_MAX = 500;
/** An order keeps its price, so it can be paid for this long only. */
/** Of one automatic top-up. */
export const AUTO_TOP_UP_NANO_USD_MIN = 1_000_000_000n;
export const ORDER_PAYABLE_DAYS = 14;
export const REASON_CHARS_MAX = 500;
export const PAY_INSTRUCTIONS_CHARS_MAX = 2_000;
export const SHOP_URL_CHARS_MAX = 500;
/** More than Stripe's keys and secrets have, so that the message about their form is shown. */
export const TYPED_STRIPE_SECRET_CHARS_MAX = 300;
export const ALLOTMENT_PIECES: Range = { min: 1, max: 100_000 };

// Vouchers. Source: VOU-1.
export const VOUCHER_NAME_CHARS_MAX = 100;
export const VOUCHER_CODES: Range = { min: 1, max: 10_000 };
/** Of one seller, within 24 hours, and altogether: batches that have ended count until they are deleted. */
export const VOUCHER_CODES_PER_DAY_MAX = 100_000;
export const VOUCHER_CODES_KEPT_MAX = 1_000_000;
export const VOUCHER_USES: Range = { min: 1, max: 100_000 };
export const VOUCHER_YEARS_MAX = 5;
/** More than a code with spaces between all its characters. */
export const TYPED_VOUCHER_CHARS_MAX = 100;

// Invoices
export const INVOICE_NAME_CHARS_MAX = 120;
export const INVOICE_ADDRESS_CHARS_MAX = 400;
export const INVOICE_ADDRESS_LINES_MAX = 8;
export const TAX_LINE_CHARS_MAX = 200;
export const TAX_NUMBER_CHARS_MAX = 40;
/** Lines of one invoice, and characters of each. */
export const INVOICE_LINES_MAX = 200;
export const INVOICE_LINE_CHARS_MAX = 200;

// Domains and brands
export const HOST_CHARS_MAX = 253;
/** Of a reseller's domain: leaves room for the label of the TXT record. */
export const DOMAIN_CHARS_MAX = 240;
export const DOMAIN_REASON_CHARS_MAX = 300;
export const BRAND_NAME_CHARS_MAX = 60;
export const BRAND_SUPPORT_CHARS_MAX = 300;
export const BRAND_PICTURE_BYTES_MAX = 256 * 1024;

// Incidents and maintenance. The tables' CHECKs allow no more components. Source: STA-5.
export const INCIDENT_TITLE_CHARS_MAX = 120;
export const INCIDENT_BODY_CHARS_MAX = 2_000;
export const INCIDENT_COMPONENTS_MAX = 50;
/** Of one seller: those that are not over, and altogether. */
export const INCIDENTS_OPEN_MAX = 20;
export const INCIDENTS_MAX = 500;
/** Of one incident. */
export const INCIDENT_UPDATES_MAX = 100;
/** An incident may have begun this long ago; maintenance may be planned this far ahead, and takes this long at most. */
export const INCIDENT_PAST_DAYS_MAX = 90;
export const MAINTENANCE_AHEAD_DAYS_MAX = 365;
export const MAINTENANCE_DAYS_MAX = 7;

// The catalog
export const MODEL_ID_CHARS_MAX = 128;
/** Names of models, their owners, providers, and models at a provider. */
export const CATALOG_NAME_CHARS_MAX = 200;
export const PROVIDER_URL_CHARS_MAX = 500;
export const PROVIDER_KEY_CHARS_MAX = 4_000;
export const MODEL_CAP_TOKENS: Range = { min: 1, max: 1_000_000 };
export const MODEL_CONTEXT_TOKENS: Range = { min: 1, max: 100_000_000 };
export const MODEL_MARGIN_PERMILLE: Range = { min: 1_000, max: 100_000 };
/** Per million tokens, or per image. The tables' CHECKs say the same. */
export const PRICE_USD_MAX = 1_000;
export const PRICE_MICRO_USD: Range = { min: 0, max: 1_000_000_000 };
/** Tiers of one model's prices. Providers have one or two. */
export const PRICE_TIERS_MAX = 8;
/** Added to the prices of a price list. Source: IMP-2. */
export const MARKUP_PERCENT: Range = { min: 0, max: 1_000 };
/** A reseller's markup on balance prices; one is 0.01 %. The table's CHECK says the same. Source: MRK-1. */
export const MARKUP_BASIS_POINTS: Range = { min: 0, max: 100_000 };
/** Models with a markup of their own, by reseller: each key in memory refers to them. */
export const MARKED_UP_MODELS_MAX = 1_000;
/** Source: EMB-2. */
export const EMBEDDING_INPUTS_MAX = 2_048;
export const EMBEDDING_INPUT_TOKENS_MAX = 8_192;
export const EMBEDDING_TOKENS_MAX = 300_000;
export const EMBEDDING_DIMENSIONS: Range = { min: 1, max: 65_536 };
/** Source: API-7, IMG-3. */
export const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"] as const;
/** In code points. Source: API-7, IMG-3. */
export const IMAGE_PROMPT_CHARS: Range = { min: 3, max: 4_000 };
export const ROUTE_PRIORITY: Range = { min: -1_000, max: 1_000 };
export const ROUTE_WEIGHT: Range = { min: 1, max: 1_000 };

// Passkeys. Source: SGN-9.
export const PASSKEYS_MAX = 10;
export const PASSKEY_NAME_CHARS_MAX = 60;
// Mail and webhooks. Source: MSG-8, MSG-9.
export const MAIL_PORTS: readonly number[] = [25, 465, 587, 2525];
export const MAIL_USER_CHARS_MAX = 200;
export const MAIL_PASSWORD_CHARS_MAX = 500;
export const WEBHOOK_URL_CHARS_MAX = 500;
export const WEBHOOKS_MAX = 10;
/** How long the old secret signs too, after a rotation. */
export const WEBHOOK_OVERLAP_HOURS: Range = { min: 0, max: 168 };
