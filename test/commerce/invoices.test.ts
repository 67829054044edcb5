import { afterAll, beforeAll, expect, test } from "bun:test";
import {
  buyerDetailsOf,
  saveBuyerDetails,
  saveSellerDetails,
  sellerDetails,
} from "../../src/commerce/invoice_details_store.ts";
import {
  findInvoice,
  invoicesOfMonth,
  issueInvoice,
  listInvoices,
  type NewInvoice,
} from "../../src/commerce/invoices_store.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";

/** Invoices: numbered without gaps per seller, and never changed. Source: INV-1, INV-2, INV-3. */

const AT_ONCE = 40;
const USD = 1_000_000_000n;
const SLOW_MS = 180_000;

let world: AccountsWorld;
let deps: AccountsWorld["deps"];
beforeAll(async () => {
  world = await createAccountsWorld({ connections: AT_ONCE });
  deps = world.deps;
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const line = { text: "Pro, 30 days", quantity: 1, amountNano: 29n * USD };
/** Issues an invoice. `fails`: the transaction is rolled back afterwards. */
const issue = (over: Partial<NewInvoice> & { accountId: number }, { fails = false } = {}) =>
  deps.db.orm.transaction(async (tx) => {
    const issued = await issueInvoice(tx, {
      ...{ sellerId: 0, orderId: null, lines: [line], kind: "invoice", currency: "usd", tax: null, taxNano: 0n },
      ...over,
    });
    if (fails) throw new Error("rolled back");
    return issued;
  });
const invoiceOf = async (accountId: number, invoiceId: number) => findInvoice(deps, { accountId }, invoiceId);

test(
  "the numbers of each of three sellers have no gap and no duplicate after 300 concurrent invoices, a third of them rolled back",
  async () => {
    const sellers = [(await world.addReseller()).accountId, (await world.addReseller()).accountId, 0];
    const { accountId } = await world.addCustomer();
    const work = Array.from({ length: 300 }, (_, i) =>
      issue({ accountId, sellerId: sellers[i % 3] as number }, { fails: i % 9 < 3 }),
    );
    const ended = await Promise.allSettled(work);
    expect(ended.filter(({ status }) => status === "fulfilled").length).toBe(198);
    for (const sellerId of sellers) {
      const rows = await world.sql`select number::int from invoices where seller_id = ${sellerId} order by number`;
      expect(rows.map(({ number }) => number)).toEqual(rows.map((_, i) => i + 1));
      expect(rows.length).toBe(66);
    }
  },
  SLOW_MS,
);

test("an invoice keeps the seller and the buyer as they were, and no statement can change or delete it", async () => {
  const sellerId = (await world.addReseller()).accountId;
  const { accountId } = await world.addCustomer(sellerId);
  await saveSellerDetails(deps, sellerId, {
    name: "Acme GmbH",
    address: "Torstraße 12\nBerlin",
    taxLine: "VAT ID DE1",
  });
  await saveBuyerDetails(deps, accountId, { name: "Łódź Żółć", address: "Rynek 1", taxNumber: "PL1", vatNumber: null });
  const { invoiceId, number } = await issue({ accountId, sellerId, orderId: 900_001 });
  expect(number).toBe(1);
  await saveSellerDetails(deps, sellerId, { name: "Other", address: "Elsewhere", taxLine: null });
  await saveBuyerDetails(deps, accountId, { name: null, address: null, taxNumber: null, vatNumber: null });
  await world.sql`update accounts set name = 'renamed' where id = ${accountId}`;
  expect(await invoiceOf(accountId, invoiceId)).toMatchObject({
    number: 1,
    seller: { name: "Acme GmbH", address: "Torstraße 12\nBerlin", taxLine: "VAT ID DE1" },
    buyer: { name: "Łódź Żółć", address: "Rynek 1", taxNumber: "PL1" },
    lines: [line],
    totalNano: 29n * USD,
  });
  for (const statement of [
    `update invoices set total_nano = 1 where id = ${invoiceId}`,
    `delete from invoices where id = ${invoiceId}`,
    "truncate invoices",
  ])
    await expect(world.sql.unsafe(statement)).rejects.toThrow("never changed");
  const next = await issue({ accountId, sellerId });
  expect(await invoiceOf(accountId, next.invoiceId)).toMatchObject({
    number: 2,
    seller: { name: "Other", taxLine: null },
    buyer: { name: "renamed", address: null },
  });
});

test(
  "an order has one invoice, even if it is issued 20 times concurrently; credit notes name it and never exceed it",
  async () => {
    const { accountId } = await world.addCustomer();
    const orderId = 900_002;
    const ended = await Promise.allSettled(Array.from({ length: 20 }, () => issue({ accountId, orderId })));
    const [done] = ended.filter((each) => each.status === "fulfilled");
    expect(ended.filter(({ status }) => status === "fulfilled").length).toBe(1);
    const number = done?.status === "fulfilled" ? done.value.number : 0;
    const credit = (amountNano: bigint) =>
      issue({ accountId, orderId, kind: "credit_note", lines: [{ ...line, amountNano }] });
    const credited = await Promise.allSettled(Array.from({ length: 10 }, () => credit(10n * USD)));
    expect(credited.filter(({ status }) => status === "fulfilled").length).toBe(2);
    await expect(credit(9n * USD + 1n)).rejects.toThrow("above what was invoiced");
    const last = await credit(9n * USD);
    expect(await invoiceOf(accountId, last.invoiceId)).toMatchObject({ kind: "credit_note", correctsNumber: number });
  },
  SLOW_MS,
);

test("invalid lines, buyers and sellers are refused, and use no number", async () => {
  const { accountId } = await world.addCustomer();
  const sellerId = (await world.addReseller()).accountId;
  for (const [over, param] of [
    [{ lines: [] }, "lines"],
    [{ lines: Array.from({ length: 201 }, () => line) }, "lines"],
    [{ lines: [{ ...line, text: "" }] }, "lines.0.text"],
    [{ lines: [line, { ...line, text: "x".repeat(10_000) }] }, "lines.1.text"],
    [{ lines: [{ ...line, text: "a\nb" }] }, "lines.0.text"],
    [{ lines: [{ ...line, quantity: 0 }] }, "lines.0.quantity"],
    [{ lines: [{ ...line, quantity: 1.5 }] }, "lines.0.quantity"],
    [{ lines: [{ ...line, amountNano: 0n }] }, "lines.0.amountNano"],
    [{ lines: [{ ...line, amountNano: -USD }] }, "lines.0.amountNano"],
    [{ lines: [{ ...line, amountNano: 900_000_001n * USD }] }, "lines.0.amountNano"],
    [{ lines: [line, { ...line, amountNano: 900_000_000n * USD }] }, "lines"],
    [{ accountId: 999_999 }, "accountId"],
    [{ sellerId: -1 }, "sellerId"],
  ] as [Partial<NewInvoice>, string][])
    await expect(issue({ accountId, sellerId, ...over })).rejects.toMatchObject({ param });
  expect((await issue({ accountId, sellerId })).number).toBe(1);
});

test("an invoice has the buyer's language, else that of the reseller's brand, and keeps it", async () => {
  const { accountId: sellerId } = await world.addReseller();
  const { accountId } = await world.addCustomer(sellerId);
  const issued = async () => (await invoiceOf(accountId, (await issue({ accountId, sellerId })).invoiceId)).language;
  expect(await issued()).toBe("en");
  await world.sql`insert into brands (reseller_id, name, version, language) values (${sellerId}, 'Acme', '1', 'es')`;
  expect(await issued()).toBe("es");
  await world.sql`update accounts set language = 'ar' where id = ${accountId}`;
  const { invoiceId } = await issue({ accountId, sellerId });
  await world.sql`update accounts set language = 'de' where id = ${accountId}`;
  expect((await invoiceOf(accountId, invoiceId)).language).toBe("ar");
  expect(await issued()).toBe("de");
});

test("details are plain text that the font can print; anything else is refused with its field", async () => {
  const sellerId = (await world.addReseller()).accountId;
  const good = { name: "Παπαδόπουλος & Σία", address: "ул. Ленина 1\r\nМосква  \n", taxLine: " VAT DE1 " };
  expect(await saveSellerDetails(deps, sellerId, good)).toEqual({
    name: "Παπαδόπουλος & Σία",
    address: "ул. Ленина 1\nМосква",
    taxLine: "VAT DE1",
  });
  for (const [over, param] of [
    [{ name: "a\nb" }, "name"],
    [{ name: "nul\0" }, "name"],
    [{ name: "x".repeat(10_000) }, "name"],
    [{ name: "주식회사" }, "name"],
    [{ name: "שלום" }, "name"],
    [{ name: "right\u202eto left" }, "name"],
    [{ address: "ถนน" }, "address"],
    [{ address: "a\tb" }, "address"],
    [{ address: `${"1\n".repeat(9)}x` }, "address"],
    [{ address: "x".repeat(401) }, "address"],
    [{ taxLine: "🚀" }, "taxLine"],
    [{ taxLine: "x".repeat(201) }, "taxLine"],
  ] as [Partial<typeof good>, string][])
    await expect(saveSellerDetails(deps, sellerId, { ...good, ...over })).rejects.toMatchObject({
      name: "InputError",
      param,
    });
  expect(await sellerDetails(deps, sellerId)).toMatchObject({ name: "Παπαδόπουλος & Σία" });
  const { accountId } = await world.addCustomer(sellerId);
  await expect(
    saveBuyerDetails(deps, accountId, { name: null, address: null, taxNumber: "x".repeat(41), vatNumber: null }),
  ).rejects.toMatchObject({ param: "taxNumber" });
  expect(await buyerDetailsOf(deps, accountId)).toEqual({
    name: null,
    address: null,
    taxNumber: null,
    vatNumber: null,
  });
  const [audit] =
    await world.sql`select after from audit_entries where subject = 'sellers' and subject_id = ${String(sellerId)} order by id desc limit 1`;
  expect(audit?.after).toMatchObject({ tax_line: "VAT DE1" });
});

test("invoices of others are not found; a month is a month of the time zone, sorted by number", async () => {
  const sellerId = (await world.addReseller()).accountId;
  const { accountId } = await world.addCustomer(sellerId);
  const other = await world.addCustomer();
  const first = await issue({ accountId, sellerId });
  await issue({ accountId, sellerId });
  await expect(findInvoice(deps, { accountId: other.accountId }, first.invoiceId)).rejects.toMatchObject({
    code: "not_found",
  });
  await expect(findInvoice(deps, { sellerId: 0 }, first.invoiceId)).rejects.toMatchObject({ code: "not_found" });
  await expect(findInvoice(deps, { sellerId }, Number.NaN)).rejects.toMatchObject({ code: "not_found" });
  const page = await listInvoices(deps, { accountId, limit: 1 });
  expect(page).toMatchObject({ hasMore: true, rows: [{ number: 2 }] });
  expect((await listInvoices(deps, { accountId, before: Number(page.rows[0]?.invoiceId) })).rows).toMatchObject([
    { number: 1 },
  ]);
  const [row] = await world.sql`select to_char(now() at time zone 'Asia/Tokyo', 'YYYY-MM') as month`;
  const month = String(row?.month);
  const ofMonth = (wanted: string, after?: number) =>
    invoicesOfMonth(deps, { sellerId, month: wanted, timeZone: "Asia/Tokyo", after, limit: 1 });
  expect(await ofMonth(month)).toMatchObject({ hasMore: true, rows: [{ number: 1 }] });
  expect(await ofMonth(month, first.invoiceId)).toMatchObject({ hasMore: false, rows: [{ number: 2 }] });
  expect(await ofMonth("2020-01")).toEqual({ hasMore: false, rows: [] });
});
