import { afterAll, beforeAll, expect, test } from "bun:test";
import { FIELDS, SUBJECTS } from "../../src/panel/web/pages/audit/audit_words.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts_world.ts";

/** What the audit log shows of a row: a column that nobody has named is hidden. Source: SEC-2. */

/** Columns of audited tables that may hold a secret or a picture. Every other column is shown, or maintained by the service. */
const HIDDEN = [
  "accounts.password_hash",
  "accounts.totp_ciphertext",
  "api_tokens.digest",
  "brands.icon",
  "brands.logo_dark",
  "brands.logo_light",
  // What Stripe knows a card by. Source: CRD-1.
  "cards.customer_id",
  "cards.payment_method_id",
  "cards.to_detach",
  "email_changes.new_digest",
  "email_changes.old_digest",
  "email_changes.session_digest",
  "hosts.token",
  "identities.subject",
  "identity_providers.proof_token",
  "identity_providers.secret_ciphertext",
  "keys.digest",
  "links.digest",
  "mail_servers.smtp_password_ciphertext",
  "member_invitations.digest",
  "passkeys.credential_id",
  "passkeys.public_key",
  "provider_keys.key_ciphertext",
  "sellers.shop_secret_ciphertext",
  "sellers.stripe_key_ciphertext",
  "sellers.stripe_webhook_ciphertext",
  "signed_up.person_digest",
  "webhook_endpoints.old_secret_ciphertext",
  "webhook_endpoints.secret_ciphertext",
  "webhook_endpoints.url",
];

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

test("a column that nobody has named is hidden, unless it is a number, a boolean or an instant", async () => {
  await world.sql`
    create table drawers (id bigint primary key, name text, pin text, api_password text, code int, open boolean, opened_at timestamptz, extra jsonb, picture bytea)`;
  await world.sql`create trigger drawers_audit after insert or update on drawers for each row execute function note_audit('id', '')`;
  await world.sql`
    insert into drawers values (1, 'top', '1234', 'hunter2', 7, true, '2026-01-01T00:00:00Z', '{"token":"hunter2"}', 'hunter2')`;
  await world.sql`update drawers set pin = '9876', name = 'bottom'`;
  const entries = await world.sql`select before, after from audit_entries where subject = 'drawers' order by id`;
  const hidden = "(hidden)";
  expect(entries[0]?.after).toEqual({
    ...{ id: 1, name: "top", code: 7, open: true, opened_at: expect.stringContaining("2026-01-01") },
    ...{ pin: hidden, api_password: hidden, extra: hidden, picture: hidden },
  });
  expect(entries[1]).toMatchObject({
    before: { name: "top", pin: hidden },
    after: { name: "bottom", pin: hidden },
  });
  await world.sql`drop table drawers`;
});

test("of the audited tables, the columns that may hold a secret are hidden, and no others: name a new column in k_shown of note_audit, or here", async () => {
  const [code] = await world.sql`select prosrc from pg_proc where proname = 'note_audit'`;
  const listed = (name: string) =>
    new RegExp(`${name} text\\[\\] := '\\{([^}]*)\\}'`).exec(String(code?.prosrc))?.[1]?.split(",");
  const named = [...(listed("k_shown") ?? []), ...(listed("k_kept_up") ?? [])];
  const columns = await world.sql`
    select table_name || '.' || column_name as name, column_name as column from information_schema.columns
    where table_schema = 'public' and data_type not in ('bigint', 'integer', 'smallint', 'boolean') and table_name in (
      select event_object_table from information_schema.triggers where action_statement like '%note_audit(%')`;
  const hidden = columns.filter(({ column }) => !named.includes(column) && !column.endsWith("_at"));
  expect(hidden.map(({ name }) => name).sort()).toEqual(HIDDEN);
});

test("the panel has words for every audited table, and for every column that the log has", async () => {
  const tables = await world.sql`
    select distinct event_object_table as name from information_schema.triggers where action_statement like '%note_audit(%'`;
  expect(tables.map(({ name }) => name).filter((name) => !(name in SUBJECTS))).toEqual([]);
  const columns = await world.sql`
    select distinct column_name as name from information_schema.columns
    where table_schema = 'public' and table_name = any (${tables.map(({ name }) => name)})`;
  expect(columns.map(({ name }) => name).filter((name) => !(name in FIELDS))).toEqual([]);
});
