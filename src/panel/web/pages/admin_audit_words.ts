import { limitsText } from "../copy.ts";
import { formatCalendarDay, formatCount, formatInstant, formatMicroUsd, formatMoney, formatPrice } from "../format.ts";

/** The audit log in words. The log has columns of tables, and values as JSON. Pure. */

/** Tables with entries in the log, and what one row of each is. */
export const SUBJECTS: Readonly<Record<string, string>> = {
  accounts: "account",
  keys: "API key",
  packages: "package",
  balance_entries: "transaction",
  balances: "pay-as-you-go",
  markups: "markup",
  orders: "order",
  payments: "payment",
  refunds: "refund",
  allotments: "allotment",
  voucher_batches: "batch of vouchers",
  voucher_uses: "redeemed voucher",
  buyer_details: "buyer details",
  links: "invitation or reset link",
  recovery_codes: "recovery codes",
  passkeys: "passkey",
  email_changes: "change of e-mail",
  hosts: "domain",
  brands: "brand",
  offerings: "offering",
  retail_prices: "retail price",
  sellers: "seller's settings",
  models: "model",
  image_prices: "image price",
  price_imports: "import of prices",
  routes: "route",
  providers: "provider",
  provider_keys: "provider key",
};

const FIELDS: Readonly<Record<string, string>> = {
  password_hash: "password",
  totp_ciphertext: "secret of the second factor",
  totp_enabled_at: "second factor since",
  key_ciphertext: "key",
  credential_id: "id of the passkey",
  cloned_at: "copy seen at",
  synced: "kept by a password manager",
  old_digest: "link of the old address",
  new_digest: "link of the new address",
  session_digest: "session that asked",
  digest: "secret",
  amount_nano_usd: "amount",
  invoice_name: "name on invoices",
  invoice_address: "address on invoices",
  tax_line: "tax line",
  tax_number: "tax number",
  uses_per_code: "uses of each code",
  price_nano_usd: "price",
  stripe_key_ciphertext: "Stripe's key",
  stripe_webhook_ciphertext: "Stripe's signing secret",
  shop_secret_ciphertext: "the shop's signing secret",
  basis_points: "markup, basis points",
  wholesale_nano_usd: "wholesale price",
  below_wholesale_confirmed: "below wholesale, confirmed",
  prices_public: "prices without sign-in",
  notice_balance_nano_usd: "warned below",
  daily_spend_max_nano_usd: "spends a day at most",
  limits: "limits",
  daily_units_max: "requests a day at most",
  micro_usd: "price",
  input_micro_usd: "input price",
  cached_input_micro_usd: "cached input price",
  further_prices: "further prices",
  output_micro_usd: "output price",
  payg_enabled: "pay-as-you-go",
  may_switch_payg: "may switch pay-as-you-go",
  owned_by: "owned by",
  base_url: "base URL",
  dialect: "dialect",
  facts: "what the provider takes",
  own_responses: "has /responses",
  allowed_params: "more parameters",
  dropped_params: "parameters not sent",
  upstream_model: "name at the provider",
  default_cap_tokens: "output without max_tokens",
  request_tokens: "added to a request",
  message_tokens: "added to a message",
  image_base_tokens: "image, base",
  image_tile_tokens: "image, each tile",
  image_tile_pixels: "image, tile size",
  image_most_tokens: "image, at most",
  file_most_tokens: "files, at most",
  margin_permille: "reserved, permille",
  hides_tokens: "hides tokens",
  route_choice: "routes chosen by",
  cost_input_micro_usd: "cost of input",
  cost_output_micro_usd: "cost of output",
  cost_image_micro_usd: "cost of an image",
  model_ids: "models",
  markup_percent: "markup, percent",
  units_dropped: "requests dropped",
};
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

/** The fields of an entry, in reading order. `now` in unix milliseconds. */
export function changesOf({ action, subject, before, after }: Written, now: number): Change[] {
  const names = [...new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})])];
  // The account and the id of an added or removed row are shown beside it.
  const shown = action === "changed" ? names : names.filter((name) => !isSaid(name, subject));
  return shown.sort(inReadingOrder).map((name) => {
    const [was, is] = [before?.[name], after?.[name]];
    const field = FIELDS[name] ?? name.replace(/_id$|_at$/, "").replaceAll("_", " ");
    if (was === HIDDEN || is === HIDDEN) {
      return { field, secret: was === undefined ? "set" : is === undefined ? "removed" : "changed" };
    }
    const say = (value: unknown) => sayValue(value, { name, subject, now });
    // An unchanged field identifies the row, such as the size of an image price.
    return { field, before: was === is ? null : say(was), after: say(is) };
  });
}

/** The name of the subject in the entry; null if the entry has none. */
export function nameIn({ before, after }: Pick<Written, "before" | "after">): string | null {
  for (const field of ["name", "host", "model_id"]) {
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
  { name, subject, now }: { name: string; subject: string; now: number },
): string | null {
  if (value === undefined || value === null) return null;
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return sayNumber(value, name, subject);
  if (typeof value === "string") {
    if (INSTANT.test(value)) return formatInstant(value, { seconds: true, now });
    return DAY.test(value) ? formatCalendarDay(value) : value;
  }
  if (name === "limits" && isLimits(value)) return limitsText(value);
  return Array.isArray(value) ? value.map(String).join(", ") || "none" : JSON.stringify(value);
}

function isLimits(value: object): value is Parameters<typeof limitsText>[0] {
  return "models" in value && "requestsPerMinute" in value;
}

function sayNumber(value: number, name: string, subject: string): string {
  if (!Number.isSafeInteger(value)) return String(value);
  if (name.endsWith("nano_usd")) return formatMoney(BigInt(value));
  if (name.endsWith("micro_usd")) return subject === "models" ? formatPrice(value) : formatMicroUsd(value);
  return name === "id" || name.endsWith("_id") ? String(value) : formatCount(value);
}
