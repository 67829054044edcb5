import { plural, t } from "@lingui/core/macro";
import { decimalAmount } from "../../../../platform/currencies.ts";
import { boundsText, limitsText } from "../../copy.ts";
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
  accounts: t`account`,
  keys: t`API key`,
  api_tokens: t`API token`,
  packages: t`package`,
  balance_entries: t`transaction`,
  balances: t`pay-as-you-go`,
  markups: t`markup`,
  orders: t({ message: "order", context: "of packages" }),
  payments: t`payment`,
  refunds: t`refund`,
  disputes: t`dispute`,
  allotments: t`allotment`,
  voucher_batches: t`batch of vouchers`,
  losses: t`losses of an hour`,
  voucher_uses: t`redeemed voucher`,
  buyer_details: t`buyer details`,
  cards: t`card on file`,
  renewals: t`renewal`,
  auto_top_ups: t`automatic top-ups`,
  members: t`member`,
  member_invitations: t`invitation of a member`,
  links: t`invitation or reset link`,
  recovery_codes: t`recovery codes`,
  passkeys: t`passkey`,
  identity_providers: t`identity provider`,
  identities: t`linked identity`,
  webhook_endpoints: t`webhook endpoint`,
  mail_servers: t`mail server`,
  muted_mails: t`choice of mails`,
  email_changes: t`change of e-mail`,
  hosts: t`domain`,
  brands: t`brand`,
  offerings: t`offering`,
  retail_prices: t`retail price`,
  measured_prices: t`prices of made-to-measure packages`,
  sellers: t`seller's settings`,
  sign_up_settings: t`settings of sign-up`,
  signed_up: t`account made by sign-up`,
  incidents: t`incident`,
  incident_updates: t`update of an incident`,
  models: t`model`,
  image_prices: t`image price`,
  price_imports: t`import of prices`,
  routes: t`route`,
  providers: t`provider`,
  provider_keys: t`provider key`,
};

/** What each column of an audited table is called in the panel. A test holds that none is missing. */
export const FIELDS: Readonly<Record<string, string>> = {
  accent: t`colour`,
  accepted_at: t({ message: "accepted", context: "a time" }),
  account_id: t`account`,
  activated_at: t`active since`,
  actor_id: t({ message: "by", context: "who did it" }),
  address: t`address`,
  allotment_id: t`allotment`,
  allowed_domains: t`allowed mail domains`,
  allowed_params: t`further parameters`,
  amount: t`amount`,
  amount_nano: t`amount`,
  amount_nano_usd: t`amount`,
  answer: t({ message: "answer", context: "to an order" }),
  architecture: t`architecture`,
  ask_at: t`next check`,
  asked: t({ message: "asked", context: "how often" }),
  asked_at: t`last checked`,
  balance_nano_usd: t`balance`,
  base_url: t`base URL`,
  basis_points: t`markup, in hundredths of a percent`,
  batch_id: t`batch`,
  begins_at: t({ message: "begins", context: "a time" }),
  below_nano_usd: t`when less than`,
  below_wholesale_confirmed: t`price below wholesale confirmed`,
  body: t({ message: "text", context: "of a message" }),
  brand: t`brand`,
  cached_input_micro_usd: t`cached input price`,
  carryover: t`carryover`,
  checked_at: t({ message: "checked", context: "a time" }),
  client_id: t`client id`,
  cloned_at: t`copy seen at`,
  codes: t`codes`,
  components: t`affects`,
  confirmed_at: t({ message: "confirmed", context: "a time" }),
  context_length: t`context, in tokens`,
  continues: t`renews further`,
  cost_image_micro_usd: t`cost of an image`,
  cost_input_micro_usd: t`cost of input`,
  cost_output_micro_usd: t`cost of output`,
  counter: t`counter`,
  counterpart_id: t`from or to`,
  created_at: t({ message: "created", context: "a time" }),
  created_by: t`created by`,
  credential_id: t`id of the passkey`,
  credit_note: t`credit note`,
  css: t`style`,
  currency: t`currency`,
  customer_id: t`customer at Stripe`,
  daily_limit: t`requests a day`,
  daily_max: t`requests a day at most`,
  daily_min: t`requests a day at least`,
  daily_spend_max_nano_usd: t`daily spending limit`,
  daily_units_max: t`daily request limit`,
  days: t`days`,
  days_max: t`days at most`,
  days_min: t`days at least`,
  decided_at: t({ message: "decided", context: "a time" }),
  decided_by: t`decided by`,
  default_cap_tokens: t`output without max_tokens`,
  dialect: t`dialect`,
  digest: t`secret`,
  disabled_at: t({ message: "disabled", context: "a time" }),
  disposable_allowed: t`disposable addresses allowed`,
  dropped_params: t`parameters not sent`,
  due_at: t`answer by`,
  email: t`e-mail`,
  enabled: t`switched on`,
  ended_at: t({ message: "ended", context: "a time" }),
  ended_early: t`ended early`,
  ends_at: t({ message: "ends", context: "a time" }),
  entry_id: t`transaction`,
  erased_at: t({ message: "erased", context: "a time" }),
  expires_at: t({ message: "expires", context: "a time" }),
  expires_month: t`expires, month`,
  expires_year: t`expires, year`,
  external_id: t`number at the payment service`,
  facts: t`what the provider takes`,
  failing_since: t`failing since`,
  failures: t`failures`,
  file_most_tokens: t`tokens of files at most`,
  first_day: t`first day`,
  forbidden_domains: t`forbidden mail domains`,
  from_address: t`sender's address`,
  from_name: t`sender's name`,
  further_prices: t`further prices`,
  granted: t`pieces granted`,
  held_nano_usd: t`reserved`,
  hides_tokens: t`hides tokens`,
  holder: t`account or reseller`,
  holder_id: t`account`,
  host: t({ message: "host", context: "of a domain" }),
  hosts: t`hosts`,
  hour_amount: t`amount in the hour`,
  hour_began_at: t`beginning of the hour`,
  icon: t`icon`,
  icon_own: t`own icon`,
  id: t({ message: "number", context: "of a record" }),
  identity_provider_id: t`identity provider`,
  image_base_tokens: t`tokens of an image`,
  image_most_tokens: t`tokens of an image at most`,
  image_tile_pixels: t`size of an image tile`,
  image_tile_tokens: t`tokens of an image tile`,
  impact: t`impact`,
  incident_id: t`incident`,
  input_micro_usd: t`input price`,
  instructions: t`payment instructions`,
  invoice_address: t`address on invoices`,
  invoice_name: t`name on invoices`,
  is_open: t`people can sign up`,
  is_own: t`asked for by the person`,
  issuer: t`issuer`,
  key_ciphertext: t({ message: "key", context: "of an API" }),
  kind: t`kind`,
  kinds: t`events`,
  language: t`language`,
  last_at: t`last time`,
  last_four: t`last digits`,
  last_used_at: t`last used`,
  limits: t`limits`,
  logo_dark: t`logo on dark`,
  logo_light: t`logo on light`,
  made_by: t`made by`,
  mail_domains: t`mail domains`,
  margin_permille: t`reserve margin, in thousandths`,
  markup_percent: t`markup, in percent`,
  may_switch_payg: t`may switch pay-as-you-go`,
  measured: t`made to measure`,
  message_tokens: t`tokens added to a message`,
  met_account_id: t`met by account`,
  met_payer_id: t`met by payer`,
  method: t`way to pay`,
  micro_usd: t`price`,
  modality: t`kind`,
  mode: t`billing`,
  model_id: t`model`,
  model_ids: t`models`,
  month_max_nano_usd: t`at most in a month`,
  monthly_spend_max_nano_usd: t`monthly spending limit`,
  name: t`name`,
  net_nano: t`price without tax`,
  networks: t`networks`,
  new_confirmed_at: t`confirmed at the new address`,
  new_digest: t`link to the new address`,
  new_email: t`new e-mail`,
  new_package_id: t`new package`,
  next_at: t`next look`,
  next_check_at: t`next check`,
  next_invoice: t`next invoice`,
  note: t`note`,
  notice_balance_nano_usd: t`notice when the balance is below`,
  notice_days: t`notice before the package ends, in days`,
  notice_units_percent: t`notice when the package has left, in percent`,
  offering_id: t`offering`,
  old_confirmed_at: t`confirmed at the old address`,
  old_digest: t`link to the old address`,
  old_email: t`old e-mail`,
  old_secret_ciphertext: t`old signing secret`,
  old_secret_until: t`old secret until`,
  only_person: t`person without an account`,
  order_id: t({ message: "order", context: "of packages" }),
  origin: t`made by`,
  outcome: t`outcome`,
  output_micro_usd: t`output price`,
  own_responses: t`has /responses`,
  owned_by: t`owned by`,
  owned_domain: t`mail domain`,
  package_id: t`package`,
  package_tax: t`tax on packages`,
  paid_at: t({ message: "paid", context: "a time" }),
  paid_by_account_id: t`paid by`,
  paid_nano_usd: t`paid`,
  password_hash: t`password`,
  paused_why: t`switched off because`,
  pay_with: t`paid from`,
  payg_enabled: t`pay-as-you-go`,
  payment_id: t`payment`,
  payment_method_id: t`card at Stripe`,
  person_digest: t`person`,
  person_id: t`person`,
  port: t({ message: "port", context: "of a server" }),
  prefix: t({ message: "begins with", context: "of a key" }),
  price_nano: t`price`,
  price_nano_usd: t`price`,
  prices_public: t`prices shown without sign-in`,
  prices_with_tax: t`prices with tax`,
  priority: t`priority`,
  privacy_url: t`privacy policy`,
  probed_at: t`last probe`,
  problem: t`problem`,
  proof_token: t`TXT record`,
  proved_domains: t`proved domains`,
  provider_id: t`provider`,
  public_key: t`public key`,
  quality: t`quality`,
  reason: t`reason`,
  reference: t`reference`,
  report: t`report`,
  request_bounds: t`limits of one request`,
  request_id: t`request`,
  request_key: t`key of the request`,
  request_tokens: t`tokens added to a request`,
  reseller_id: t`reseller`,
  return_entry_id: t`transaction of the return`,
  revoked_at: t({ message: "revoked", context: "a time" }),
  role: t`role`,
  role_claim: t`role claim`,
  roles: t`roles`,
  route_choice: t`routes chosen by`,
  saved_at: t({ message: "saved", context: "a time" }),
  scopes: t`scopes`,
  secret_ciphertext: t`signing secret`,
  seller_id: t`seller`,
  session_digest: t`session that asked`,
  shop_secret_ciphertext: t`the shop's signing secret`,
  shop_url: t`address of the shop`,
  shortfall_nano_usd: t`already spent`,
  since: t({ message: "since", context: "a time" }),
  size: t`size`,
  smtp_password_ciphertext: t`password`,
  source: t`paid from`,
  starts_at: t({ message: "starts", context: "a time" }),
  state: t`state`,
  status: t`state`,
  steps: t`prices for 1,000 requests`,
  stripe_key_ciphertext: t`Stripe's secret key`,
  stripe_webhook_ciphertext: t`Stripe's signing secret`,
  subject: t({ message: "subject", context: "of an identity" }),
  suffix: t({ message: "ends with", context: "of a key" }),
  support: t`support contact`,
  suspended_by_operator: t`suspended by the operator`,
  synced: t`kept by a password manager`,
  tax: t`tax`,
  tax_country: t`country of the tax`,
  tax_line: t`tax line`,
  tax_nano: t`tax`,
  tax_number: t`tax number`,
  terms_url: t`terms`,
  time_zone: t`time zone`,
  times: t`number of requests`,
  to_detach: t`removed cards`,
  title: t({ message: "title", context: "of an incident" }),
  token: t`DNS token`,
  token_limit: t`token allowance`,
  tokens_taken: t`tokens used`,
  tokens_used: t`tokens used`,
  told_at: t({ message: "told", context: "a time" }),
  told_currency: t`currency told`,
  told_nano: t`price told`,
  top_up_tax: t`tax on top-ups`,
  total_limit: t`requests in total`,
  total_spend_from: t`first day of the total`,
  total_spend_max_nano_usd: t`total spending limit`,
  totp_ciphertext: t`secret of the second factor`,
  totp_enabled_at: t`second factor since`,
  totp_last_step: t`last code used`,
  transports: t`transports`,
  trial: t`trial`,
  trial_given_at: t`trial given`,
  trial_nano_usd: t`amount of the trial`,
  trial_offering_id: t`offering of the trial`,
  trial_pay_with: t`trial paid from`,
  trial_try_at: t`next attempt at the trial`,
  trial_why: t`trial waits for`,
  tries: t`tries`,
  try_at: t`next attempt`,
  unit_cost_nano_usd: t`operator's share of a request`,
  unit_nano_usd: t`worth of a request`,
  units_dropped: t`requests dropped`,
  units_taken: t`requests used`,
  until: t({ message: "until", context: "a time" }),
  updated_at: t({ message: "changed", context: "a time" }),
  upstream_model: t`name at the provider`,
  url: t`URL`,
  usd_rate_nano: t`price of one US dollar`,
  used: t({ message: "used", context: "how often" }),
  user_name: t`user name`,
  uses_per_code: t`uses of each code`,
  vat_number: t`VAT number`,
  version: t`version`,
  viewing: t`viewing`,
  voucher_id: t`voucher`,
  waits_for: t`waits for`,
  weekly_spend_max_nano_usd: t`weekly spending limit`,
  weight: t`weight`,
  wholesale_nano_usd: t`wholesale price`,
  why: t`reason`,
  worth_nano_usd: t`worth`,
  written_in: t`written by`,
};

/** What the values of columns with few values are called. Others are shown as they are, with spaces. */
const VALUES: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  method: { instructions: t`by your instructions`, stripe: /* not a text */ "Stripe", shop: t`own shop` },
  mode: { payg: t`balance`, package: t`package` },
  pay_with: { operator: t`the operator`, balance: t`balance`, allotment: t`allotment` },
  source: { card: t`card`, balance: t`balance` },
  status: {
    active: t`active`,
    cancelled: t`cancelled`,
    declined: t`declined`,
    deprecated: t`deprecated`,
    disabled: t({ message: "off", context: "a state" }),
    done: t({ message: "done", context: "a state" }),
    enabled: t({ message: "on", context: "a state" }),
    failed: t({ message: "failed", context: "a state" }),
    fulfilled: t`fulfilled`,
    identified: t`identified`,
    investigating: t`investigating`,
    lost: t({ message: "lost", context: "a dispute" }),
    monitoring: t`monitoring`,
    needs_response: t`needs response`,
    on: t({ message: "on", context: "a state" }),
    open: t({ message: "waiting", context: "a state" }),
    ordered: t({ message: "ordered", context: "a state" }),
    paid: t({ message: "paid", context: "a state" }),
    paused: t({ message: "paused", context: "a state" }),
    pending: t`pending`,
    preview: t`preview`,
    refunded: t`refunded`,
    removed: t({ message: "removed", context: "a state" }),
    resolved: t`resolved`,
    revoked: t({ message: "revoked", context: "a state" }),
    suspended: t`suspended`,
    under_review: t`under review`,
    verifying: t`verifying`,
    withdrawn: t`withdrawn`,
    won: t({ message: "won", context: "a dispute" }),
  },
  origin: { seller: t`the seller`, stripe: /* not a text */ "Stripe", dispute: t`a dispute` },
  dialect: {},
  kind: {
    correction: t`correction`,
    custom: t`custom`,
    daily: t`daily`,
    earning: t`earning`,
    incident: t`incident`,
    invitation: t`invitation`,
    maintenance: t`maintenance`,
    package: t`package`,
    refund: t`refund`,
    reset: t({ message: "reset", context: "a link for a new password" }),
    retail: t`retail`,
    top_up: t({ message: "top up", context: "a transaction" }),
    transfer: t({ message: "transfer", context: "a transaction" }),
    wholesale: t`wholesale`,
  },
  impact: { degraded: t`degraded`, outage: t`outage` },
  modality: {
    embedding: t({ message: "embedding", context: "what a model makes" }),
    image: t({ message: "image", context: "what a model makes" }),
    multimodal: t({ message: "multimodal", context: "what a model makes" }),
    rerank: t({ message: "rerank", context: "what a model makes" }),
    text: t({ message: "text", context: "what a model makes" }),
  },
  outcome: {
    accepted: t({ message: "accepted", context: "an outcome" }),
    cancelled: t`cancelled`,
    changed: t({ message: "changed", context: "an outcome" }),
    replaced: t`replaced`,
    revoked: t({ message: "revoked", context: "a state" }),
  },
  problem: {
    order_closed: t`order closed`,
    paid_twice: t`paid twice`,
    test_money: t`test money`,
    wrong_amount: t`wrong amount`,
    wrong_currency: t`wrong currency`,
  },
  role: {
    admin: t`admin`,
    billing: t({ message: "billing", context: "a role" }),
    customer: t`customer`,
    developer: t`developer`,
    owner: t`owner`,
    reseller: t`reseller`,
    viewer: t`viewer`,
  },
  route_choice: {
    latency: t({ message: "latency", context: "how a route is chosen" }),
    order: t({ message: "order", context: "how a route is chosen" }),
    price: t({ message: "price", context: "how a route is chosen" }),
    weight: t({ message: "weight", context: "how a route is chosen" }),
  },
  waits_for: { seller_balance: t`the seller's balance`, seller: t`the seller` },
  ended_early: { ended: t({ message: "ended", context: "a state" }), replaced: t`replaced` },
  trial: {
    domain: t({ message: "domain", context: "why there is no trial" }),
    given: t({ message: "given", context: "a trial" }),
    none: t({ message: "none", context: "a trial" }),
    taken: t`had one before`,
    waits: t({ message: "waits", context: "a trial" }),
  },
  trial_pay_with: { allotment: t`allotment`, balance: t`balance` },
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
const OPERATOR = t`the operator`;

type AuditNames = Readonly<Record<"accounts" | "offerings" | "providers", Readonly<Record<string, string>>>>;
const NO_NAMES: AuditNames = { accounts: {}, offerings: {}, providers: {} };

/** Fields to show first; the others follow by name. */
const FIRST = ["name", "kind", "status", "enabled", "size", "quality", "amount_nano_usd", "reason"];
/** Fields of an added or removed row that are shown beside it, or that no reader needs. */
const LEFT_OUT = new Set(["id", "created_at", "request_id", "actor_id", "account_id"]);
const HIDDEN = "(hidden)";
const INSTANT = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d/;
const DAY = /^\d{4}-\d\d-\d\d$/;

/** One field of an entry, the text and the column: its values before and after (null if empty); of a secret only what happened to it. */
export type Change = { column: string; field: string } & (
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
  return shown.sort(inReadingOrder).map((column) => {
    const [was, is] = [before?.[column], after?.[column]];
    const field = FIELDS[column] ?? plain(column.replace(/_id$|_at$/, ""));
    if (was === HIDDEN || is === HIDDEN) {
      return { column, field, secret: was === undefined ? "set" : is === undefined ? "removed" : "changed" };
    }
    const say = (value: unknown) => sayValue(value, { name: column, subject, now, names });
    // An unchanged field identifies the row, such as the size of an image price.
    return { column, field, before: was === is ? null : say(was), after: say(is) };
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
    return names[named][String(value)] ?? t`number ${{ number: String(value) }}`;
  }
  if (typeof value === "boolean") return value ? t`yes` : t`no`;
  if (typeof value === "number") return sayNumber(value, name, subject);
  if (typeof value === "string") {
    if (INSTANT.test(value)) return formatInstant(value, { seconds: true, now });
    if (DAY.test(value)) return formatCalendarDay(value);
    const values = VALUES[name];
    return values === undefined ? value : (values[value] ?? plain(value));
  }
  if (name === "limits" && isLimits(value)) return limitsText(value);
  if (name === "request_bounds" && isBounds(value)) return boundsText(value);
  if (name === "steps" && Array.isArray(value)) return value.map(sayStep).join(", ");
  return Array.isArray(value)
    ? value.map(String).join(", ") || t({ message: "none", context: "an empty list" })
    : JSON.stringify(value);
}

/** A name of the database in words: "payg_enabled" as "payg enabled". */
function plain(name: string): string {
  return name.replaceAll("_", " ");
}

/** A price for 1,000 requests, from a number of requests on. */
function sayStep(step: unknown): string {
  const { fromRequests, nano }: { fromRequests?: unknown; nano?: unknown } = Object(step);
  if (typeof fromRequests !== "number" || typeof nano !== "string") return JSON.stringify(step);
  const price = decimalAmount(BigInt(nano));
  return plural(fromRequests, { one: `${price} from # request`, other: `${price} from # requests` });
}

function isLimits(value: object): value is Parameters<typeof limitsText>[0] {
  return "models" in value && "requestsPerMinute" in value;
}

function isBounds(value: object): value is Parameters<typeof boundsText>[0] {
  return "choices" in value && "inputs" in value && "promptTokens" in value && "outputTokens" in value;
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
