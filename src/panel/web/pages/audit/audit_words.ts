import { decimalAmount } from "../../../../platform/currencies.ts";
import { limitsText } from "../../copy.ts";
import {
  formatCalendarDay,
  formatCount,
  formatInstant,
  formatMicroUsd,
  formatMoney,
  formatPrice,
} from "../../format.ts";

/** The audit log in words. The log has columns of tables, and values as JSON. Pure. */

/** Tables with entries in the log, and what one row of each is. */
export const SUBJECTS: Readonly<Record<string, string>> = {
  accounts: "account",
  keys: "API key",
  api_tokens: "API token",
  packages: "package",
  balance_entries: "transaction",
  balances: "pay-as-you-go",
  markups: "markup",
  orders: "order",
  payments: "payment",
  refunds: "refund",
  disputes: "dispute",
  allotments: "allotment",
  voucher_batches: "batch of vouchers",
  voucher_uses: "redeemed voucher",
  buyer_details: "buyer details",
  cards: "card on file",
  renewals: "renewal",
  auto_top_ups: "automatic top-ups",
  members: "member",
  member_invitations: "invitation of a member",
  links: "invitation or reset link",
  recovery_codes: "recovery codes",
  passkeys: "passkey",
  identity_providers: "identity provider",
  identities: "linked identity",
  webhook_endpoints: "webhook endpoint",
  mail_servers: "mail server",
  muted_mails: "choice of mails",
  email_changes: "change of e-mail",
  hosts: "domain",
  brands: "brand",
  offerings: "offering",
  retail_prices: "retail price",
  measured_prices: "prices of made-to-measure packages",
  sellers: "seller's settings",
  sign_up_settings: "settings of sign-up",
  signed_up: "account made by sign-up",
  incidents: "incident",
  incident_updates: "update of an incident",
  models: "model",
  image_prices: "image price",
  price_imports: "import of prices",
  routes: "route",
  providers: "provider",
  provider_keys: "provider key",
};

/** What each column of an audited table is called in the panel. A test holds that none is missing. */
export const FIELDS: Readonly<Record<string, string>> = {
  accent: "colour",
  accepted_at: "accepted",
  account_id: "account",
  activated_at: "active since",
  actor_id: "by",
  address: "address",
  allotment_id: "allotment",
  allowed_domains: "allowed mail domains",
  allowed_params: "further parameters",
  amount_nano: "amount",
  amount_nano_usd: "amount",
  answer: "answer",
  architecture: "architecture",
  ask_at: "next check",
  asked: "asked",
  asked_at: "last checked",
  balance_nano_usd: "balance",
  base_url: "base URL",
  basis_points: "markup, in hundredths of a percent",
  batch_id: "batch",
  begins_at: "begins",
  below_nano_usd: "when less than",
  below_wholesale_confirmed: "price below wholesale confirmed",
  body: "text",
  brand: "brand",
  cached_input_micro_usd: "cached input price",
  carryover: "carryover",
  checked_at: "checked",
  client_id: "client id",
  cloned_at: "copy seen at",
  codes: "codes",
  components: "affects",
  confirmed_at: "confirmed",
  context_length: "context, in tokens",
  continues: "renews further",
  cost_image_micro_usd: "cost of an image",
  cost_input_micro_usd: "cost of input",
  cost_output_micro_usd: "cost of output",
  counter: "counter",
  counterpart_id: "from or to",
  created_at: "created",
  created_by: "created by",
  credential_id: "id of the passkey",
  credit_note: "credit note",
  css: "style",
  currency: "currency",
  customer_id: "customer at Stripe",
  daily_limit: "requests a day",
  daily_max: "requests a day at most",
  daily_min: "requests a day at least",
  daily_spend_max_nano_usd: "daily spending limit",
  daily_units_max: "daily request limit",
  days: "days",
  days_max: "days at most",
  days_min: "days at least",
  decided_at: "decided",
  decided_by: "decided by",
  default_cap_tokens: "output without max_tokens",
  dialect: "dialect",
  digest: "secret",
  disabled_at: "disabled",
  disposable_allowed: "disposable addresses allowed",
  dropped_params: "parameters not sent",
  due_at: "answer by",
  email: "e-mail",
  enabled: "switched on",
  ended_at: "ended",
  ended_early: "ended early",
  ends_at: "ends",
  entry_id: "transaction",
  erased_at: "erased",
  expires_at: "expires",
  expires_month: "expires, month",
  expires_year: "expires, year",
  external_id: "number at the payment service",
  facts: "what the provider takes",
  failing_since: "failing since",
  failures: "failures",
  file_most_tokens: "tokens of files at most",
  first_day: "first day",
  forbidden_domains: "forbidden mail domains",
  from_address: "sender's address",
  from_name: "sender's name",
  further_prices: "further prices",
  granted: "pieces granted",
  held_nano_usd: "reserved",
  hides_tokens: "hides tokens",
  host: "host",
  hosts: "hosts",
  icon: "icon",
  icon_own: "own icon",
  id: "number",
  identity_provider_id: "identity provider",
  image_base_tokens: "tokens of an image",
  image_most_tokens: "tokens of an image at most",
  image_tile_pixels: "size of an image tile",
  image_tile_tokens: "tokens of an image tile",
  impact: "impact",
  incident_id: "incident",
  input_micro_usd: "input price",
  instructions: "payment instructions",
  invoice_address: "address on invoices",
  invoice_name: "name on invoices",
  is_open: "people can sign up",
  is_own: "asked for by the person",
  issuer: "issuer",
  key_ciphertext: "key",
  kind: "kind",
  kinds: "events",
  last_four: "last digits",
  last_used_at: "last used",
  limits: "limits",
  logo_dark: "logo on dark",
  logo_light: "logo on light",
  made_by: "made by",
  mail_domains: "mail domains",
  margin_permille: "reserve margin, in thousandths",
  markup_percent: "markup, in percent",
  may_switch_payg: "may switch pay-as-you-go",
  measured: "made to measure",
  message_tokens: "tokens added to a message",
  met_account_id: "met by account",
  met_payer_id: "met by payer",
  method: "way to pay",
  micro_usd: "price",
  modality: "kind",
  mode: "billing",
  model_id: "model",
  model_ids: "models",
  month_max_nano_usd: "at most in a month",
  monthly_spend_max_nano_usd: "monthly spending limit",
  name: "name",
  net_nano: "price without tax",
  networks: "networks",
  new_confirmed_at: "confirmed at the new address",
  new_digest: "link to the new address",
  new_email: "new e-mail",
  new_package_id: "new package",
  next_at: "next look",
  next_check_at: "next check",
  next_invoice: "next invoice",
  note: "note",
  notice_balance_nano_usd: "notice when the balance is below",
  notice_days: "notice before the package ends, in days",
  notice_units_percent: "notice when the package has left, in percent",
  offering_id: "offering",
  old_confirmed_at: "confirmed at the old address",
  old_digest: "link to the old address",
  old_email: "old e-mail",
  old_secret_ciphertext: "old signing secret",
  old_secret_until: "old secret until",
  only_person: "person without an account",
  order_id: "order",
  origin: "made by",
  outcome: "outcome",
  output_micro_usd: "output price",
  own_responses: "has /responses",
  owned_by: "owned by",
  owned_domain: "mail domain",
  package_id: "package",
  package_tax: "tax on packages",
  paid_at: "paid",
  paid_by_account_id: "paid by",
  paid_nano_usd: "paid",
  password_hash: "password",
  paused_why: "switched off because",
  pay_with: "paid from",
  payg_enabled: "pay-as-you-go",
  payment_id: "payment",
  payment_method_id: "card at Stripe",
  person_digest: "person",
  person_id: "person",
  port: "port",
  prefix: "begins with",
  price_nano: "price",
  price_nano_usd: "price",
  prices_public: "prices shown without sign-in",
  prices_with_tax: "prices with tax",
  priority: "priority",
  privacy_url: "privacy policy",
  probed_at: "last probe",
  problem: "problem",
  proof_token: "TXT record",
  proved_domains: "proved domains",
  provider_id: "provider",
  public_key: "public key",
  quality: "quality",
  reason: "reason",
  reference: "reference",
  report: "report",
  request_bounds: "limits of one request",
  request_id: "request",
  request_key: "key of the request",
  request_tokens: "tokens added to a request",
  reseller_id: "reseller",
  return_entry_id: "transaction of the return",
  revoked_at: "revoked",
  role: "role",
  role_claim: "role claim",
  roles: "roles",
  route_choice: "routes chosen by",
  saved_at: "saved",
  scopes: "scopes",
  secret_ciphertext: "signing secret",
  seller_id: "seller",
  session_digest: "session that asked",
  shop_secret_ciphertext: "the shop's signing secret",
  shop_url: "address of the shop",
  shortfall_nano_usd: "already spent",
  since: "since",
  size: "size",
  smtp_password_ciphertext: "password",
  source: "paid from",
  starts_at: "starts",
  state: "state",
  status: "state",
  steps: "prices for 1,000 requests",
  stripe_key_ciphertext: "Stripe's secret key",
  stripe_webhook_ciphertext: "Stripe's signing secret",
  subject: "subject",
  suffix: "ends with",
  support: "support contact",
  suspended_by_operator: "suspended by the operator",
  synced: "kept by a password manager",
  tax: "tax",
  tax_country: "country of the tax",
  tax_line: "tax line",
  tax_nano: "tax",
  tax_number: "tax number",
  terms_url: "terms",
  time_zone: "time zone",
  to_detach: "removed cards",
  title: "title",
  token: "DNS token",
  token_limit: "token allowance",
  tokens_taken: "tokens used",
  tokens_used: "tokens used",
  told_at: "told",
  told_currency: "currency told",
  told_nano: "price told",
  top_up_tax: "tax on top-ups",
  total_limit: "requests in total",
  total_spend_from: "first day of the total",
  total_spend_max_nano_usd: "total spending limit",
  totp_ciphertext: "secret of the second factor",
  totp_enabled_at: "second factor since",
  totp_last_step: "last code used",
  transports: "transports",
  trial: "trial",
  trial_given_at: "trial given",
  trial_nano_usd: "amount of the trial",
  trial_offering_id: "offering of the trial",
  trial_pay_with: "trial paid from",
  trial_try_at: "next attempt at the trial",
  trial_why: "trial waits for",
  tries: "tries",
  try_at: "next attempt",
  unit_cost_nano_usd: "operator's share of a request",
  unit_nano_usd: "worth of a request",
  units_dropped: "requests dropped",
  units_taken: "requests used",
  until: "until",
  updated_at: "changed",
  upstream_model: "name at the provider",
  url: "URL",
  usd_rate_nano: "price of one US dollar",
  used: "used",
  user_name: "user name",
  uses_per_code: "uses of each code",
  vat_number: "VAT number",
  version: "version",
  viewing: "viewing",
  voucher_id: "voucher",
  waits_for: "waits for",
  weekly_spend_max_nano_usd: "weekly spending limit",
  weight: "weight",
  wholesale_nano_usd: "wholesale price",
  why: "reason",
  worth_nano_usd: "worth",
  written_in: "written by",
};

/** What the values of columns with few values are called. Others are shown as they are, with spaces. */
const VALUES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  method: { instructions: "by your instructions", stripe: "Stripe", shop: "own shop" },
  mode: { payg: "balance" },
  pay_with: { operator: "the operator" },
  status: { enabled: "on", disabled: "off", open: "waiting" },
  origin: { seller: "the seller", stripe: "Stripe", dispute: "a dispute" },
  dialect: {},
  kind: {},
  modality: {},
  outcome: {},
  problem: {},
  role: {},
  route_choice: {},
  waits_for: { seller_balance: "the seller's balance", seller: "the seller" },
  ended_early: {},
  trial: { taken: "had one before" },
  trial_pay_with: {},
};

/** Whose name an id stands for. */
const NAMED: Readonly<Record<string, keyof AuditNames>> = {
  account_id: "accounts",
  reseller_id: "accounts",
  seller_id: "accounts",
  actor_id: "accounts",
  created_by: "accounts",
  person_id: "accounts",
  made_by: "accounts",
  decided_by: "accounts",
  paid_by_account_id: "accounts",
  counterpart_id: "accounts",
  offering_id: "offerings",
  trial_offering_id: "offerings",
  provider_id: "providers",
};
/** The seller that is no account. */
const OPERATOR = "the operator";

type AuditNames = Readonly<Record<"accounts" | "offerings" | "providers", Readonly<Record<string, string>>>>;
const NO_NAMES: AuditNames = { accounts: {}, offerings: {}, providers: {} };

/** Fields to show first; the others follow by name. */
const FIRST = ["name", "kind", "status", "enabled", "size", "quality", "amount_nano_usd", "reason"];
/** Fields of an added or removed row that are shown beside it, or that no reader needs. */
const LEFT_OUT = new Set(["id", "created_at", "request_id", "actor_id", "account_id"]);
const HIDDEN = "(hidden)";
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;
const DAY = /^\d{4}-\d\d-\d\d$/;

/** One field of an entry: its values before and after (null if empty); of a secret only what happened to it. */
export type Change = { field: string } & (
  | { before: string | null; after: string | null }
  | { secret: "set" | "changed" | "removed" }
);

type Fields = Record<string, unknown> | null;
export type Written = { action: string; subject: string; before: Fields; after: Fields };

/** The fields of an entry, in reading order. `now` in unix milliseconds; `names` stand for ids. */
export function changesOf(
  { action, subject, before, after }: Written,
  now: number,
  names: AuditNames = NO_NAMES,
): Change[] {
  const columns = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  // The account and the id of an added or removed row are shown beside it.
  const shown = action === "changed" ? columns : columns.filter((name) => !isSaid(name, subject));
  return shown.sort(inReadingOrder).map((name) => {
    const [was, is] = [before?.[name], after?.[name]];
    const field = FIELDS[name] ?? plain(name.replace(/_id$|_at$/, ""));
    if (was === HIDDEN || is === HIDDEN) {
      return { field, secret: was === undefined ? "set" : is === undefined ? "removed" : "changed" };
    }
    const say = (value: unknown) => sayValue(value, { name, subject, now, names });
    // An unchanged field identifies the row, such as the size of an image price.
    return { field, before: was === is ? null : say(was), after: say(is) };
  });
}

/** The name of the subject in the entry; null if the entry has none. */
export function nameIn({ before, after }: Pick<Written, "before" | "after">): string | null {
  for (const field of ["name", "host", "model_id", "title"]) {
    const name = after?.[field] ?? before?.[field];
    if (typeof name === "string") return name;
  }
  return null;
}

function isSaid(name: string, subject: string): boolean {
  // A domain's or a brand's reseller is the account it concerns; a customer's is not.
  return LEFT_OUT.has(name) || (name === "reseller_id" && subject !== "accounts");
}

function inReadingOrder(a: string, b: string): number {
  const place = (name: string) => (FIRST.includes(name) ? FIRST.indexOf(name) : FIRST.length);
  return place(a) - place(b) || a.localeCompare(b);
}

function sayValue(
  value: unknown,
  { name, subject, now, names }: { name: string; subject: string; now: number; names: AuditNames },
): string | null {
  if (value === undefined || value === null) return null;
  const named = NAMED[name];
  if (named !== undefined) {
    if (name === "seller_id" && value === 0) return OPERATOR;
    return names[named][String(value)] ?? `number ${String(value)}`;
  }
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return sayNumber(value, name, subject);
  if (typeof value === "string") {
    if (INSTANT.test(value)) return formatInstant(value, { seconds: true, now });
    if (DAY.test(value)) return formatCalendarDay(value);
    const values = VALUES[name];
    return values === undefined ? value : (values[value] ?? plain(value));
  }
  if (name === "limits" && isLimits(value)) return limitsText(value);
  if (name === "steps" && Array.isArray(value)) return value.map(sayStep).join(", ");
  return Array.isArray(value) ? value.map(String).join(", ") || "none" : JSON.stringify(value);
}

/** A name of the database in words: "payg_enabled" as "payg enabled". */
function plain(name: string): string {
  return name.replaceAll("_", " ");
}

/** A price for 1,000 requests, from a number of requests on. */
function sayStep(step: unknown): string {
  const { fromRequests, nano }: { fromRequests?: unknown; nano?: unknown } = Object(step);
  if (typeof fromRequests !== "number" || typeof nano !== "string") return JSON.stringify(step);
  return `${decimalAmount(BigInt(nano))} from ${formatCount(fromRequests)} requests`;
}

function isLimits(value: object): value is Parameters<typeof limitsText>[0] {
  return "models" in value && "requestsPerMinute" in value;
}

function sayNumber(value: number, name: string, subject: string): string {
  if (!Number.isSafeInteger(value)) return String(value);
  if (name.endsWith("nano_usd")) return formatMoney(BigInt(value));
  // Of a currency that another column names.
  if (name.endsWith("_nano")) return decimalAmount(BigInt(value));
  if (name === "package_tax" || name === "top_up_tax") return `${value / 1000} %`;
  if (name.endsWith("micro_usd")) return subject === "models" ? formatPrice(value) : formatMicroUsd(value);
  return name === "id" || name.endsWith("_id") ? String(value) : formatCount(value);
}
