import { expect, test } from "bun:test";
import { formatMicroUsd, formatPrice } from "../../src/panel/web/format.ts";
import { changesOf, nameIn } from "../../src/panel/web/pages/audit/audit_words.ts";

/** How the panel's audit page words the log's columns and values. Source: ACC-9. */

const NOW = Date.parse("2026-11-21T12:00:00Z");

test("a change shows the old and new value of each field: money, prices, switches, lists, days, empty values", () => {
  const before = { wholesale_nano_usd: 4_200_000_001, enabled: true, model_ids: ["a", "b"], first_day: "2026-12-14" };
  const after = { wholesale_nano_usd: 5_000_000_000, enabled: false, name: "Week", context_length: 128_000 };
  expect(changesOf({ action: "changed", subject: "offerings", before, after }, NOW)).toMatchObject([
    { field: "name", before: null, after: "Week" },
    { field: "switched on", before: "yes", after: "no" },
    { field: "context, in tokens", before: null, after: "128,000" },
    { field: "first day", before: "14 Dec", after: null },
    { field: "models", before: "a, b", after: null },
    { field: "wholesale price", before: "$4.20", after: "$5.00" },
  ]);
});

test("the bounds of one request are said in words", () => {
  const bounds = { choices: 4, inputs: 128, promptTokens: 2_000_000, outputTokens: null };
  const change = { action: "changed", subject: "offerings", before: {}, after: { request_bounds: bounds } };
  expect(changesOf(change, NOW)).toMatchObject([
    { after: "At most 4 choices, 128 embeddings and 2,000,000 tokens of prompt in one request" },
  ]);
});

test("token prices are per million, image prices per image; neither is rounded", () => {
  const priced = (subject: string, column: string) =>
    changesOf({ action: "changed", subject, before: { [column]: 1_225_000 }, after: { [column]: 40_000 } }, NOW);
  expect(priced("models", "input_micro_usd")).toMatchObject([
    { field: "input price", before: "$1.225/M", after: "$0.04/M" },
  ]);
  expect(priced("image_prices", "micro_usd")).toMatchObject([{ field: "price", before: "$1.225", after: "$0.04" }]);
  expect([formatPrice(1_000_000_000), formatMicroUsd(1), formatMicroUsd(0)]).toEqual([
    "$1,000.00/M",
    "$0.000001",
    "$0.00",
  ]);
});

test("a secret shows only that it was set, changed or removed", () => {
  const of = (before: Record<string, unknown> | null, after: Record<string, unknown> | null) =>
    changesOf({ action: "changed", subject: "providers", before, after }, NOW);
  const hidden = { key_ciphertext: "(hidden)" };
  expect(of(null, hidden)).toMatchObject([{ field: "key", secret: "set" }]);
  expect(of(hidden, hidden)).toMatchObject([{ field: "key", secret: "changed" }]);
  expect(of(hidden, null)).toMatchObject([{ field: "key", secret: "removed" }]);
});

test("an added row omits fields that its line already names; a change shows every field", () => {
  const row = { id: 7, account_id: 3, reseller_id: 4, name: "ci", created_at: "2026-11-21T07:10:00.1+00:00" };
  const fields = (action: string, subject: string) =>
    changesOf({ action, subject, before: null, after: row }, NOW).map(({ field }) => field);
  expect(fields("added", "keys")).toEqual(["name"]);
  expect(fields("added", "accounts")).toEqual(["name", "reseller"]);
  expect(fields("changed", "keys")).toEqual(["name", "account", "created", "number", "reseller"]);
});

test("a subject is named by its name, its host, or its model", () => {
  expect(nameIn({ before: null, after: { name: "Week" } })).toBe("Week");
  expect(nameIn({ before: { host: "ai.acme.com" }, after: null })).toBe("ai.acme.com");
  expect(nameIn({ before: { model_id: "a/b", weight: 1 }, after: null })).toBe("a/b");
  expect(nameIn({ before: { weight: 1 }, after: { weight: 2 } })).toBeNull();
});

test("HTML stays text, and a number beyond every range is shown unchanged", () => {
  const after = { name: "<script>alert(1)</script>", weight: 1e300, note: 0.5 };
  expect(changesOf({ action: "added", subject: "routes", before: null, after }, NOW)).toMatchObject([
    { field: "name", before: null, after: "<script>alert(1)</script>" },
    { field: "note", before: null, after: "0.5" },
    { field: "weight", before: null, after: "1e+300" },
  ]);
});

test("ids are names, and values are words", () => {
  const names = { accounts: { 4: "Acme" }, offerings: { 7: "Week" }, providers: {} };
  const before = { seller_id: 0, method: null };
  const after = { seller_id: 4, method: "instructions", offering_id: 7, waits_for: "seller_balance", provider_id: 9 };
  const changes = changesOf({ action: "changed", subject: "orders", before, after }, NOW, names);
  expect(Object.fromEntries(changes.map((change) => [change.field, "after" in change && change.after]))).toEqual({
    offering: "Week",
    provider: "number 9",
    seller: "Acme",
    "waits for": "the seller's balance",
    "way to pay": "by your instructions",
  });
  expect(changes.find(({ field }) => field === "seller")).toMatchObject({ before: "the operator" });
});
