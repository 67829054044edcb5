/**
 * Every table that has something of a person: what an export has of it, and what an erasure does with it. In SQL, $1 is the person's id and
 * $2 the e-mail address in lower case. A test compares the list with the schema, and docs/retention.md is made from it.
 * Source: RET-7, RET-8.
 */

import { PERSONS_KINDS } from "./kinds.ts";

export type PersonalTable = {
  table: string;
  /** Its columns in an export; null: it is not exported, because it has nothing that a person could read. */
  exported: string | null;
  /** Which rows are the person's. */
  of: string;
  /** What an erasure does. `kept`: nothing. A text: the assignments of an UPDATE. */
  erased: "deleted" | "kept" | { set: string };
  /** Which of its rows are those of the person alone, and not of the account: they are erased too if the account goes on. Missing: none. */
  alone?: string;
  /** For people: what happens, and why. */
  says: string;
};

const OWN = "account_id = $1";
const SELLER = "(select coalesce(reseller_id, 0) from accounts where id = $1)";
const MAILED_BY_SELLER = `(account_id = ${SELLER} and lower(data ->> 'address') = $2)`;
const MAILED_THERE = `(tenant_id = ${SELLER} and channel = 'mail' and lower(address) = $2)`;
const UNUSED = "not exists (select from outbox_deliveries where recipient_id = outbox_recipients.id)";
const NUMBERS = "kept: numbers, without a name";
const BOOKS = "kept: the books count it";

export const PERSONAL_TABLES: readonly PersonalTable[] = [
  {
    table: "accounts",
    exported:
      "id, role, reseller_id, email, name, status, created_at, notice_units_percent, notice_balance_nano_usd, notice_days, limits",
    of: "id = $1",
    erased: {
      set: `email = 'erased-' || id || '@erased.invalid', name = 'Erased ' || id, password_hash = null, totp_ciphertext = null,
        totp_enabled_at = null, status = 'suspended', suspended_by_operator = true, erased_at = ledger_now()`,
    },
    alone: "id = $1",
    says: "name and address are replaced, password and second factor deleted, the account is suspended for good",
  },
  {
    ...gone(
      "sessions",
      "host, user_agent, address, created_at, seen_at, expires_at",
      "$1 in (account_id, work_account_id)",
    ),
    alone: OWN,
  },
  ofPerson(gone("recovery_codes", null)),
  ofPerson(gone("links", "kind, created_at, expires_at")),
  ofPerson(gone("passkeys", "name, host, transports, created_at, last_used_at")),
  ofPerson(gone("identities", "email, created_at, last_used_at")),
  ofPerson(gone("email_changes", "old_email, new_email, outcome, created_at")),
  {
    ...gone("members", "account_id, role, created_at", "person_id = $1 and account_id <> $1"),
    alone: "person_id = $1",
  },
  {
    ...gone(
      "member_invitations",
      "account_id, email, role, outcome, created_at",
      "account_id = $1 or lower(email) = $2",
    ),
    alone: "lower(email) = $2",
  },
  ofPerson(gone("sign_ups", "seller_id, email, name, accepted_at", `lower(email) = $2 and seller_id = ${SELLER}`)),
  {
    table: "signed_up",
    exported: "seller_id, accepted_at, confirmed_at, terms_url, privacy_url, trial",
    of: OWN,
    erased: "kept",
    says: "kept: when terms were accepted; a hash of the address, so that a trial is given once",
  },
  {
    table: "keys",
    exported: "id, name, prefix, suffix, mode, status, expires_at, created_at, revoked_at",
    of: OWN,
    erased: { set: "name = 'erased', status = 'revoked', revoked_at = coalesce(revoked_at, clock_timestamp())" },
    says: "revoked, and their names replaced; deleted with other revoked keys",
  },
  gone("key_uses", "key_id, last_used_at, host", "key_id in (select id from keys where account_id = $1)"),
  {
    table: "api_tokens",
    exported: "id, name, prefix, scopes, networks, status, created_at, last_used_at, revoked_at",
    of: "account_id = $1 or made_by = $1",
    erased: {
      set: "name = 'erased', networks = null, status = 'revoked', revoked_at = coalesce(revoked_at, clock_timestamp())",
    },
    alone: "made_by = $1",
    says: "revoked, and their names replaced",
  },
  gone("api_writes", null),
  gone("sent_forms", null),
  gone("stored_responses", "id, created_at"),
  gone("webhook_endpoints", "url, kinds, enabled, created_at"),
  gone("mail_servers", "host, port, from_address, from_name", "reseller_id = $1"),
  ofPerson(gone("muted_mails", "kind")),
  {
    ...gone("outbox_deliveries", "status, attempts, created_at, ended_at"),
    alone: `${OWN} and endpoint_id is null`,
  },
  // A mail to an address that has no account yet is the seller's.
  {
    ...gone("outbox_messages", "kind, created_at", `${OWN} or ${MAILED_BY_SELLER}`),
    alone: `${OWN} and kind in ('${PERSONS_KINDS.join("', '")}') or ${MAILED_BY_SELLER}`,
  },
  {
    table: "outbox_recipients",
    exported: "channel, address",
    of: `(${OWN} or ${MAILED_THERE}) and ${UNUSED}`,
    alone: `${MAILED_THERE} and ${UNUSED}`,
    erased: "deleted",
    says: "deleted, unless another account is mailed there too",
  },
  gone("notice_hours", null),
  gone("told_low_balances", null),
  gone("buyer_details", "name, address, tax_number, vat_number"),
  {
    table: "cards",
    exported: "brand, last_four, expires_month, expires_year, saved_at",
    of: OWN,
    erased: {
      set: `to_detach = case when payment_method_id is null then to_detach else array_append(to_detach, payment_method_id) end, try_at = clock_timestamp(),
        payment_method_id = null, brand = null, last_four = null, expires_month = null, expires_year = null`,
    },
    says: "removed, and Stripe is told to forget them",
  },
  {
    table: "card_setups",
    exported: null,
    of: `${OWN} and status = 'open'`,
    erased: { set: "status = 'closed'" },
    says: "closed",
  },
  {
    table: "orders",
    exported:
      "id, kind, status, note, answer, amount_nano_usd, price_nano_usd, currency, paid_at, created_at, decided_at",
    of: OWN,
    erased: { set: "note = null" },
    says: "kept, without the note: what was bought is part of the books",
  },
  {
    table: "invoices",
    exported:
      "number, kind, seller_name, buyer_name, buyer_email, buyer_address, buyer_tax_number, lines, currency, tax_nano, total_nano, issued_at",
    of: OWN,
    erased: "kept",
    says: "kept as they are, with name and address: sellers must keep invoices for years, and may not change them",
  },
  kept("payments", "order_id, method, currency, amount_nano, created_at", BOOKS),
  kept("refunds", "order_id, amount_nano, reason, status, created_at", BOOKS),
  kept("disputes", "order_id, currency, amount_nano, reason, status, created_at", BOOKS),
  kept("card_charges", "order_id, purpose, status, created_at", BOOKS),
  kept("packages", "id, name, starts_at, ends_at, daily_limit, total_limit, units_taken, created_at", BOOKS),
  kept("renewals", "package_id, source, status, created_at", BOOKS),
  gone("auto_top_ups", "below_nano_usd, amount_nano_usd, month_max_nano_usd, status"),
  kept("balances", "balance_nano_usd, held_nano_usd, payg_enabled", BOOKS),
  {
    ...kept("balance_entries", "id, amount_nano_usd, kind, reason, created_at", BOOKS),
    of: `${OWN} and kind <> 'charge'`,
  },
  kept("voucher_uses", "voucher_id, created_at", BOOKS),
  kept("voucher_guesses", "day, wrong, refused", `${NUMBERS}; deleted after 90 days`),
  {
    ...kept("usage_sums", "begins, requests, prompt_tokens, completion_tokens, charged_nano_usd", NUMBERS),
    of: `${OWN} and key_id = 0 and span = 0`,
  },
  kept("refusal_counts", "minute, code, model_id, count", `${NUMBERS}; deleted after 7 days`),
  {
    table: "audit_entries",
    exported: "created_at, action, subject, subject_id, before, after",
    of: "actor_id = $1 or account_id = $1",
    erased: "kept",
    says: "kept, with names, addresses and numbers of cards replaced in the values: it must stay provable what was done",
  },
  {
    table: "identity_providers",
    exported: "name, kind, issuer, mail_domains, created_at",
    of: "account_id = $1 or seller_id = $1",
    erased: { set: "enabled = false, name = 'Erased ' || id, mail_domains = '{}', proved_domains = '{}'" },
    says: "switched off, without its name and its domains",
  },
  ofSeller("hosts", "host, status, created_at", "deleted"),
  ofSeller("brands", "name, support", "deleted"),
  ofSeller("sellers", "invoice_name, invoice_address, vat_number, tax_country", "kept"),
];

/** Tables that name an account and have nothing else of a person: numbers, settings of sellers, and the work of replicas. */
export const IMPERSONAL_TABLES = [
  ...[
    "allotments",
    "answer_sums",
    "checkouts",
    "earnings",
    "epochs",
    "error_sums",
    "escrows",
    "incidents",
    "losses",
    "markups",
  ],
  ...[
    "measured_prices",
    "models",
    "provider_key_pauses",
    "provider_keys",
    "receipt_totals",
    "receipts",
    "retail_prices",
    "sealed_usage",
  ],
  ...["sign_up_settings", "stripe_reads", "usage_crossings", "usage_holders", "voucher_batches"],
];

function gone(table: string, exported: string | null, of = OWN): PersonalTable {
  return { table, exported, of, erased: "deleted", says: "deleted" };
}

/** Its rows are the person's, also if the account goes on. */
function ofPerson(table: PersonalTable): PersonalTable {
  return { ...table, alone: table.of };
}

function kept(table: string, exported: string, says: string): PersonalTable {
  return { table, exported, of: OWN, erased: "kept", says };
}

function ofSeller(table: string, exported: string, erased: "deleted" | "kept"): PersonalTable {
  const of = table === "sellers" ? "seller_id = $1" : "reseller_id = $1";
  return { table, exported, of, erased, says: erased === "deleted" ? "deleted" : "kept: its invoices name it" };
}
