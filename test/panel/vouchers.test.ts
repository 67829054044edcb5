import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { once } from "node:events";
import { connect } from "node:net";
import { issueInvoice } from "../../src/commerce/invoices_store.ts";
import { newVoucherCode } from "../../src/commerce/voucher_codes.ts";
import type { Db } from "../../src/platform/db.ts";
import { expectRefusal, tally } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/** Vouchers and invoices over HTTP: permissions, limits, and data that nobody may learn. Source: VOU-1, VOU-4, VOU-6, INV-3. */

const ACME = "ai.acme.test";
const USD = 1_000_000_000n;
const SLOW_MS = 300_000;

let shop: Shop;
let db: Db;
let acme: Person;
let admin: PanelSession;
let seller: PanelSession;
beforeAll(async () => {
  shop = await openShop({
    redisUrl: "",
    env: { TRUSTED_PROXIES: "127.0.0.1" },
  });
  const { world } = shop;
  db = world.openDb();
  acme = await world.addReseller(ACME);
  await world.sql`select add_balance(${acme.accountId}, ${String(500n * USD)}, 'top_up', 'test', null)`;
  admin = await signInTo(shop, await world.addAdmin());
  seller = await signInTo(shop, acme, { host: ACME });
}, SLOW_MS);
afterAll(async () => {
  expect(await shop.world.unbalanced()).toEqual([]);
  await db.close();
  await shop.close();
});

const endsAt = () => new Date(Date.now() + 30 * 86_400_000).toISOString();
const batchOf = (over: object = {}) => ({
  name: "spring",
  amountNanoUsd: String(5n * USD),
  codes: 3,
  usesPerCode: 1,
  endsAt: endsAt(),
  ...over,
});
const codesOf = (csv: string) =>
  csv
    .trimEnd()
    .split("\r\n")
    .slice(1)
    .map((row) => String(row.split(",")[1]));
/** An address that no other test uses, so that tests do not share its limits. */
let addresses = 0;
const ownAddress = () => `10.0.0.${++addresses}`;
const customer = async (resellerId?: number) => {
  const person = await shop.world.addCustomer(resellerId);
  return signInTo(shop, person, { address: ownAddress(), ...(resellerId !== undefined && { host: ACME }) });
};
const redeem = (session: PanelSession, code: string, address = ownAddress()) =>
  session.post("/vouchers/redeem", { code }, { "x-forwarded-for": address });

describe("vouchers", () => {
  test("codes are returned once, as CSV; no later answer and no audit entry has them", async () => {
    const made = ok(await seller.post("/vouchers", batchOf()));
    expect(made.csv.split("\r\n")[0]).toBe("voucher,code,offering,amount_usd,uses,ends_at");
    const codes = codesOf(made.csv);
    expect(new Set(codes).size).toBe(3);
    const person = await customer(acme.accountId);
    expect(ok(await redeem(person, ` ${codes[0]?.toLowerCase().replaceAll("-", " ")} `))).toMatchObject({
      amountNanoUsd: String(5n * USD),
      package: null,
    });
    const later = [
      await seller.get("/vouchers"),
      await seller.get(`/vouchers/${made.batch.batchId}`),
      await person.get("/billing/entries"),
      await seller.get("/billing/entries"),
      await admin.get("/admin/audit"),
    ];
    const log = JSON.stringify(await shop.world.sql`select * from audit_entries`);
    for (const code of codes)
      for (const form of [code, code.replaceAll("-", "")])
        for (const text of [...later.map(({ text }) => text), log]) expect(text).not.toContain(form);
    expect(ok(later[1] as never)).toMatchObject({
      batch: { used: 1, left: 2 },
      uses: [{ account: { accountId: person.accountId }, suffix: codes[0]?.slice(-4) }],
    });
  });

  test("a form that is sent twice makes one batch", async () => {
    const form = { "idempotency-key": "voucher-form-1" };
    const body = batchOf({ name: "once" });
    ok(await seller.post("/vouchers", body, form));
    expectRefusal(await seller.post("/vouchers", body, form), "idempotency_conflict");
    const { batches } = ok(await seller.get("/vouchers"));
    expect(batches.filter(({ name }: { name: string }) => name === "once")).toHaveLength(1);
  });

  test("of one seller, one batch is made and one waits; the others get 429, and another seller gets its batch", async () => {
    const other = await shop.world.addReseller("ai.flood.test");
    const neighbour = await signInTo(shop, other, { host: "ai.flood.test", address: ownAddress() });
    // While the lock is held, the first batch does not end.
    const { answers, theirs } = await shop.world.sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('tollgate.vouchers', ${acme.accountId}::bigint))`;
      let refused = 0;
      const answers = Array.from({ length: 20 }, async () => {
        const answer = await seller.post("/vouchers", batchOf({ codes: 10_000 }));
        if (answer.status === 429) refused++;
        return answer;
      });
      const theirs = neighbour.post("/vouchers", batchOf({ codes: 5 }));
      await until(() => refused === 18);
      return { answers, theirs };
    });
    const ended = await Promise.all(answers);
    expect(ended.filter(({ status }) => status === 200)).toHaveLength(2);
    const [refusal] = ended.filter(({ status }) => status === 429);
    expect(refusal?.json.error.message).toBe("A batch of yours is still being made. Try again when it has ended.");
    expect(codesOf(ok(await theirs).csv)).toHaveLength(5);
  });

  test("a client that leaves before its batch is written gets nothing made, and may send the same form again", async () => {
    const before = ok(await seller.get("/vouchers")).batches.length;
    const headers = { "idempotency-key": "cut" };
    const form = JSON.stringify(batchOf({ codes: 700 }));
    await shop.world.sql.begin(async (tx) => {
      await tx`select pg_advisory_xact_lock(hashtextextended('tollgate.vouchers', ${acme.accountId}::bigint))`;
      const socket = connect(Number(new URL(shop.origin).port), "127.0.0.1");
      const head = {
        ...{ host: ACME, cookie: seller.cookie, origin: `http://${ACME}`, "x-csrf-token": seller.csrf, ...headers },
        ...{ "content-type": "application/json", "content-length": String(Buffer.byteLength(form)) },
      };
      const lines = Object.entries(head).map(([name, value]) => `${name}: ${value}\r\n`);
      socket.write(`POST /api/panel/vouchers HTTP/1.1\r\n${lines.join("")}\r\n${form}`);
      await until(
        async () =>
          (await shop.world.sql`select 1 from pg_locks where locktype = 'advisory' and not granted`).length > 0,
      );
      // The server closes its side when it has learned that the client has left.
      socket.end();
      await once(socket, "close");
    });
    await until(async () => (await seller.post("/vouchers", form, headers)).status === 200);
    expect(ok(await seller.get("/vouchers")).batches).toHaveLength(before + 1);
  });

  test("bad input is refused with its field", async () => {
    for (const [over, param] of [
      [{ amountNanoUsd: "0" }, "amountNanoUsd"],
      [{ amountNanoUsd: "-5" }, "amountNanoUsd"],
      [{ amountNanoUsd: "99999999999999999999" }, "amountNanoUsd"],
      [{ amountNanoUsd: "9000000000000001" }, "amountNanoUsd"],
      [{ amountNanoUsd: 5 }, "amountNanoUsd"],
      [{ amountNanoUsd: null }, "offeringId"],
      [{ codes: "3" }, "codes"],
      [{ codes: -1 }, "codes"],
      [{ endsAt: "2026-02-30" }, "endsAt"],
      [{ endsAt: "2020-01-01" }, "endsAt"],
      [{ name: "\u0000" }, "name"],
      [{ payWith: "operator" }, "payWith"],
    ] as const)
      expectRefusal(await seller.post("/vouchers", batchOf(over)), "validation_failed", { param });
    const person = await customer(acme.accountId);
    expectRefusal(await person.post("/vouchers/redeem", { code: 7 }), "validation_failed", { param: "code" });
    expectRefusal(await person.post("/vouchers/redeem", {}), "validation_failed", { param: "code" });
    expectRefusal(await redeem(person, "x".repeat(10_000)), "validation_failed", { param: "code" });
  });

  test("a code of another seller gets the same answer as one that does not exist", async () => {
    const { csv } = ok(await seller.post("/vouchers", batchOf()));
    const operators = ok(await admin.post("/vouchers", batchOf()));
    const house = await customer();
    const ours = await customer(acme.accountId);
    const plain = ({ status, json }: Awaited<ReturnType<typeof redeem>>) => ({ status, error: json.error });
    const unknown = plain(await redeem(house, newVoucherCode().code));
    expect(plain(await redeem(house, String(codesOf(csv)[0])))).toEqual(unknown);
    expect(plain(await redeem(ours, String(codesOf(operators.csv)[0])))).toEqual(unknown);
    expectRefusal(await admin.post("/vouchers/redeem", { code: "x" }), "not_found");
  });

  test("the refusal of a voucher that the reseller cannot pay reveals neither its balance nor its prices nor the operator", async () => {
    const { csv, batch } = ok(await seller.post("/vouchers", batchOf({ amountNanoUsd: String(5_000n * USD) })));
    const person = await customer(acme.accountId);
    const answer = await redeem(person, String(codesOf(csv)[0]));
    expectRefusal(answer, "validation_failed", { param: "code" });
    expect(answer.json.error.message).not.toMatch(/balance|remaining|operator|tollgate|\d/i);
    expect(ok(await seller.get(`/vouchers/${batch.batchId}`)).batch).toMatchObject({
      used: 0,
      problem: { why: "balance", count: 1 },
    });
  });

  test(
    "of 10,000 guesses of one account ten are looked up and the others refused; its seller sees the guesses",
    async () => {
      const guesser = await customer(acme.accountId);
      const answers = [];
      for (let i = 0; i < 10_000; i += 100) {
        const many = Array.from({ length: 100 }, (_, j) =>
          redeem(guesser, newVoucherCode().code, `10.1.${i / 100}.${j}`),
        );
        answers.push(...(await Promise.all(many)));
      }
      const { "422 validation_failed": wrong = 0, "429 too_many_requests": refused = 0 } = tally(answers);
      expect(wrong + refused).toBe(10_000);
      expect(wrong).toBeLessThanOrEqual(10);
      // Now a valid code is refused too.
      const { csv } = ok(await seller.post("/vouchers", batchOf()));
      expectRefusal(await redeem(guesser, String(codesOf(csv)[0])), "too_many_requests");
      const { guesses } = ok(await seller.get("/vouchers/guesses"));
      expect(guesses).toMatchObject([{ account: { accountId: guesser.accountId }, wrong, refused: refused + 1 }]);
      expect(ok(await admin.get("/vouchers/guesses")).guesses).toEqual([]);
      // Another customer is not affected.
      ok(await redeem(await customer(acme.accountId), String(codesOf(csv)[0])));
    },
    SLOW_MS,
  );

  test(
    "accounts behind one address are limited together",
    async () => {
      const people = await Promise.all(Array.from({ length: 12 }, () => customer(acme.accountId)));
      const answers = [];
      for (const person of people) answers.push(await redeem(person, newVoucherCode().code, "10.9.9.9"));
      expect(tally(answers)).toEqual({ "422 validation_failed": 10, "429 too_many_requests": 2 });
    },
    SLOW_MS,
  );
});

describe("invoices", () => {
  const issue = (over: Partial<Parameters<typeof issueInvoice>[1]> & { accountId: number }) =>
    db.orm.transaction((tx) =>
      issueInvoice(tx, {
        sellerId: acme.accountId,
        orderId: null,
        kind: "invoice",
        lines: [{ text: "Pro", quantity: 1, amountNano: 29n * USD }],
        ...{ currency: "usd", tax: null, taxNano: 0n },
        ...over,
      }),
    );

  test("an account that requests many files concurrently gets only its share of the queue, and another account gets its file", async () => {
    const [greedy, other] = await Promise.all([customer(acme.accountId), customer(acme.accountId)]);
    const [many, one] = [await issue(greedy), await issue(other)];
    const asked = Array.from({ length: 40 }, () => greedy.get(`/invoices/${many.invoiceId}/pdf`));
    expect((await other.get(`/invoices/${one.invoiceId}/pdf`)).status).toBe(200);
    expect(Object.keys(tally(await Promise.all(asked))).sort()).toEqual(["429 too_many_requests", "served"]);
    // Some end before the others are requested.
    for (let i = 0; i < 60; i++) await greedy.get(`/invoices/${many.invoiceId}/pdf`);
    expectRefusal(await greedy.get(`/invoices/${many.invoiceId}/pdf`), "too_many_requests");
    expect((await other.get(`/invoices/${one.invoiceId}/pdf`)).status).toBe(200);
  });

  test("buyer and seller see an invoice and its PDF in the reseller's name; nobody else does", async () => {
    const person = await customer(acme.accountId);
    const other = await customer(acme.accountId);
    ok(await seller.put("/seller/invoice-details", { name: "Acme GmbH", address: "Torstraße 1", taxLine: null }));
    const { invoiceId, number } = await issue(person);
    for (const [session, path] of [
      [person, "/invoices"],
      [seller, "/seller/invoices"],
    ] as const) {
      expect(ok(await session.get(path)).invoices[0]).toMatchObject({
        invoiceId,
        number: String(number).padStart(5, "0"),
        title: "Invoice",
        totalNano: String(29n * USD),
      });
      const pdf = await session.get(`${path}/${invoiceId}/pdf`);
      expect(pdf.status).toBe(200);
      expect(pdf.headers.get("content-type")).toBe("application/pdf");
      expect(pdf.headers.get("content-disposition")).toMatch(/^attachment; filename="invoice-\d{5}\.pdf"$/);
      expect(pdf.text.slice(0, 5)).toBe("%PDF-");
      expect(pdf.text).not.toMatch(/tollgate|pdfkit/i);
    }
    expect(ok(await other.get("/invoices")).invoices).toEqual([]);
    for (const path of [`/invoices/${invoiceId}/pdf`, "/invoices/999999/pdf"])
      expectRefusal(await other.get(path), "not_found");
    expectRefusal(await other.get("/seller/invoices"), "not_found");
    expectRefusal(await admin.get(`/seller/invoices/${invoiceId}/pdf`), "not_found");
  });

  test("the CSV of a month runs no formula, and its credit notes are negative", async () => {
    const person = await customer(acme.accountId);
    ok(
      await person.put("/settings/invoices", {
        name: '=HYPERLINK("http://x","y")',
        address: null,
        taxNumber: "+49",
        vatNumber: null,
      }),
    );
    await issue({ ...person, orderId: 777 });
    await issue({ ...person, orderId: 777, kind: "credit_note" });
    const month = new Date().toISOString().slice(0, 7);
    const file = await seller.get(`/seller/invoices.csv?month=${month}`);
    expect(file.status).toBe(200);
    const rows = file.text.split("\r\n").filter((row) => row.includes(`,${person.accountId},`));
    expect(rows).toHaveLength(2);
    for (const row of rows) {
      expect(row).toContain(`"'=HYPERLINK(""http://x"",""y"")"`);
      expect(row).toContain(",'+49,");
    }
    expect(rows[0]).toMatch(/,29,USD,0,,,$/);
    expect(rows[1]).toMatch(/,-29,USD,0,,,$/);
    for (const wrong of ["2026-13", "26-01", "2026-1", "x", ""])
      expectRefusal(await seller.get(`/seller/invoices.csv?month=${wrong}`), "validation_failed", { param: "month" });
  });

  test("the CSV of a month of several pages has each invoice once, in order, also if many were issued at the same time", async () => {
    const person = await customer(acme.accountId);
    await shop.world.sql`
      insert into invoices (seller_id, number, kind, account_id, buyer_name, buyer_email, lines, total_nano, issued_at)
      select ${acme.accountId}, 10000 + i, 'invoice', ${person.accountId}, 'Ann', 'ann@example.com', '[]', 1, '2024-03-05T12:00:00Z'
      from generate_series(1, 2500) i order by i`;
    const file = await seller.get("/seller/invoices.csv?month=2024-03");
    const numbers = file.text
      .trim()
      .split("\r\n")
      .slice(1)
      .map((row) => Number(row.split(",")[0]));
    expect(numbers).toEqual(Array.from({ length: 2500 }, (_, i) => 10_001 + i));
  });

  test("details that cannot be printed are refused with their field; each tenant's details are separate", async () => {
    const person = await customer(acme.accountId);
    for (const [body, param] of [
      [{ name: "주식회사", address: null, taxNumber: null, vatNumber: null }, "name"],
      [{ name: "a\u202eb", address: null, taxNumber: null, vatNumber: null }, "name"],
      [{ name: "x".repeat(10_000), address: null, taxNumber: null, vatNumber: null }, "name"],
      [{ name: null, address: "\u0007", taxNumber: null, vatNumber: null }, "address"],
      [{ name: null, address: null, taxNumber: 7, vatNumber: null }, "taxNumber"],
    ] as const)
      expectRefusal(await person.put("/settings/invoices", body), "validation_failed", { param });
    expect(ok(await person.get("/settings/invoices"))).toEqual({
      name: null,
      address: null,
      taxNumber: null,
      vatNumber: null,
    });
    expect(ok(await admin.get("/seller/invoice-details"))).toEqual({ name: null, address: null, taxLine: null });
  });
});
