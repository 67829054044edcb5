import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import type { Person } from "../world.ts";
import { type Billing, openBilling, USD } from "./billing_world.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/** Orders: placed by customers, seen and decided by their sellers. Source: RES-4. */

let close: Billing["close"];
let shop: Billing["shop"];
let acme: Billing["acme"];
let as: Billing["as"];
let topUp: Billing["topUp"];
let offering: Billing["offering"];
let balanceOf: Billing["balanceOf"];
let signInFrom: Billing["signInFrom"];

beforeAll(async () => {
  ({ close, shop, acme, as, topUp, offering, balanceOf, signInFrom } = await openBilling());
});
afterAll(() => close());

const packagesOf = async ({ accountId }: Person) =>
  (await shop.world.sql`select id from packages where account_id = ${accountId}`).length;
const customerOfAcme = async () => signInFrom(await shop.world.addCustomer(acme.accountId));
const customerOfHouse = async () => signInTo(shop, await shop.world.addCustomer());
const place = async (session: PanelSession, wanted: object) => ok(await session.post("/orders", wanted)).order;
const orderTopUp = (session: PanelSession, nanoUsd: bigint) =>
  place(session, { kind: "top_up", amountNanoUsd: String(nanoUsd) });
const orderPackage = (session: PanelSession, offeringId: number) => place(session, { kind: "package", offeringId });

test("a package order is seen and fulfilled by the reseller, paid from its balance", async () => {
  const customer = await customerOfAcme();
  const offeringId = await offering();
  await topUp(acme, 10n * USD);
  const had = await balanceOf(acme);
  const order = await place(customer, { kind: "package", offeringId, note: "  For <b>June</b>\n& July " });
  expect(order).toMatchObject({
    kind: "package",
    status: "open",
    note: "For <b>June</b>\n& July",
    offering: { offeringId },
    amountNanoUsd: null,
    decidedAt: null,
  });
  // The customer does not see what its reseller pays.
  expect(JSON.stringify(order)).not.toContain("wholesale");
  const [incoming] = ok(await as.acme.get("/orders/incoming?status=open")).orders;
  expect(incoming).toMatchObject({
    orderId: order.orderId,
    account: { accountId: customer.accountId, email: customer.email },
    offering: { offeringId, wholesaleNanoUsd: String(4n * USD) },
  });
  const done = ok(await as.acme.post(`/orders/${order.orderId}/fulfil`));
  expect(done).toMatchObject({
    order: { status: "fulfilled" },
    package: { accountId: customer.accountId, state: "active", paidWith: "balance" },
  });
  expect(await balanceOf(acme)).toBe(had - 4n * USD);
  const [own] = ok(await customer.get("/orders")).orders;
  expect(own).toMatchObject({ orderId: order.orderId, status: "fulfilled", decidedAt: expect.any(String) });
  expect(own.account).toBeUndefined();
  expect(ok(await customer.get("/billing")).packages).toMatchObject([{ packageId: done.package.packageId }]);
  const notes = await shop.world.sql`
    select action, actor_id, after from audit_entries where subject = 'orders' and subject_id = ${String(order.orderId)} order by id`;
  expect(notes.map(({ action, actor_id }) => [action, Number(actor_id)])).toEqual([
    ["added", customer.accountId],
    ["changed", acme.accountId],
  ]);
  expect(notes[1]?.after).toMatchObject({ status: "fulfilled", decided_by: acme.accountId });
});

test("a top-up order is fulfilled by a reseller's transfer or an admin's top-up, with the order as the reason", async () => {
  const customer = await customerOfAcme();
  await topUp(acme, 5n * USD);
  const had = await balanceOf(acme);
  const order = await orderTopUp(customer, 3n * USD);
  expect(order).toMatchObject({ kind: "top_up", offering: null, amountNanoUsd: String(3n * USD) });
  expect(ok(await as.acme.post(`/orders/${order.orderId}/fulfil`)).package).toBeNull();
  expect([await balanceOf(acme), await balanceOf(customer)]).toEqual([had - 3n * USD, 3n * USD]);
  expect(ok(await customer.get("/billing/entries")).entries).toMatchObject([
    { kind: "transfer", reason: `order ${order.reference}`, orderId: order.orderId, amountNanoUsd: String(3n * USD) },
  ]);

  const direct = await customerOfHouse();
  const theirs = await orderTopUp(direct, 7n * USD);
  ok(await as.admin.post(`/orders/${theirs.orderId}/fulfil`));
  expect(ok(await direct.get("/billing/entries")).entries).toMatchObject([
    {
      kind: "top_up",
      reason: `order ${theirs.reference}`,
      orderId: theirs.orderId,
      amountNanoUsd: String(7n * USD),
      actor: { accountId: as.admin.accountId },
    },
  ]);

  // A reseller's own order is paid by the operator, never from the reseller's balance.
  const own = await orderTopUp(as.rival, 9n * USD);
  expectRefusal(await as.admin.post(`/orders/${own.orderId}/fulfil`, { payWith: "balance" }), "validation_failed", {
    param: "payWith",
  });
  ok(await as.admin.post(`/orders/${own.orderId}/fulfil`));
  expect(await balanceOf(as.rival)).toBe(9n * USD);
});

test("an admin also fulfils orders of a reseller's customers, and chooses who pays; the default is the reseller", async () => {
  const customer = await customerOfAcme();
  const offeringId = await offering(2n * USD);
  await topUp(acme, 10n * USD);
  const had = await balanceOf(acme);
  const orders = [];
  for (let i = 0; i < 3; i++) orders.push(await orderPackage(customer, offeringId));
  const [first, second, third] = orders.map(({ orderId }) => orderId);
  expect(ok(await as.admin.post(`/orders/${first}/fulfil`)).package.paidWith).toBe("balance");
  expect(await balanceOf(acme)).toBe(had - 2n * USD);
  const queued = ok(await as.admin.post(`/orders/${second}/fulfil`, { when: "after", payWith: "operator" })).package;
  expect(queued).toMatchObject({ paidWith: "operator", state: "queued" });
  await shop.world
    .sql`insert into allotments (reseller_id, offering_id, granted) values (${acme.accountId}, ${offeringId}, 1)`;
  expect(ok(await as.acme.post(`/orders/${third}/fulfil`, { payWith: "allotment" })).package.paidWith).toBe(
    "allotment",
  );
  expect(await balanceOf(acme)).toBe(had - 2n * USD);
  const topped = await orderTopUp(customer, USD);
  for (const session of [as.acme, as.admin])
    expectRefusal(
      await session.post(`/orders/${topped.orderId}/fulfil`, { payWith: "allotment" }),
      "validation_failed",
      {
        param: "payWith",
      },
    );
  expectRefusal(await as.acme.post(`/orders/${topped.orderId}/fulfil`, { payWith: "operator" }), "validation_failed", {
    param: "payWith",
  });
  ok(await as.admin.post(`/orders/${topped.orderId}/fulfil`, { payWith: "operator" }));
  expect([await balanceOf(acme), await balanceOf(customer)]).toEqual([had - 2n * USD, USD]);
});

test("exactly one of 20 concurrent fulfilments of an order succeeds", async () => {
  const customer = await customerOfAcme();
  const offeringId = await offering(USD);
  await topUp(acme, 100n * USD);
  const had = await balanceOf(acme);
  const sessions = [as.acme, as.admin, as.otherAdmin];
  const [pack, money] = [await orderPackage(customer, offeringId), await orderTopUp(customer, 5n * USD)];
  for (const { orderId } of [pack, money]) {
    const answers = await Promise.all(
      Array.from({ length: 20 }, (_, i) => (sessions[i % 3] as PanelSession).post(`/orders/${orderId}/fulfil`)),
    );
    const refused = answers.filter(({ status }) => status !== 200);
    expect(refused).toHaveLength(19);
    for (const answer of refused) {
      expectRefusal(answer, "validation_failed");
      expect(answer.json.error.message).toBe("This order is already fulfilled. Nothing was changed.");
    }
  }
  expect(await packagesOf(customer)).toBe(1);
  expect([await balanceOf(acme), await balanceOf(customer)]).toEqual([had - 6n * USD, 5n * USD]);
});

test("one of a concurrent fulfilment, decline and withdrawal succeeds; money moves only if the order was fulfilled", async () => {
  for (let round = 0; round < 8; round++) {
    const customer = await customerOfAcme();
    await topUp(acme, USD);
    const { orderId } = await orderTopUp(customer, USD);
    const answers = await Promise.all([
      as.acme.post(`/orders/${orderId}/decline`, {}),
      as.acme.post(`/orders/${orderId}/fulfil`),
      customer.post(`/orders/${orderId}/withdraw`),
      as.admin.post(`/orders/${orderId}/fulfil`),
    ]);
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1);
    const [{ status }] = ok(await customer.get("/orders")).orders;
    expect(await balanceOf(customer)).toBe(status === "fulfilled" ? USD : 0n);
  }
});

test("402 insufficient_balance leaves the order open, and the seller can decline it with an answer", async () => {
  const customer = await customerOfAcme();
  const [pack, money] = [
    await orderPackage(customer, await offering(1_000_000n * USD)),
    await orderTopUp(customer, 1_000_000n * USD),
  ];
  await withoutEffect(shop, async () => {
    for (const { orderId } of [pack, money])
      expectRefusal(await as.acme.post(`/orders/${orderId}/fulfil`), "insufficient_balance");
  });
  const { orders } = ok(await customer.get("/orders?status=open"));
  expect(orders).toHaveLength(2);
  expect(await packagesOf(customer)).toBe(0);
  // An order for an offering that is off sale can only be declined.
  await shop.world.sql`update offerings set enabled = false where id = ${pack.offering.offeringId}`;
  expectRefusal(await as.admin.post(`/orders/${pack.orderId}/fulfil`, { payWith: "operator" }), "validation_failed", {
    param: "offeringId",
  });
  const declined = ok(await as.acme.post(`/orders/${pack.orderId}/decline`, { answer: "Sold out, sorry." }));
  expect(declined.order).toMatchObject({ status: "declined", answer: "Sold out, sorry." });
  expect(ok(await customer.get("/orders?status=declined")).orders).toMatchObject([{ answer: "Sold out, sorry." }]);
  expectRefusal(await as.acme.post(`/orders/${pack.orderId}/fulfil`), "validation_failed");
});

test("an account has at most five open orders, concurrent ones included; after one is withdrawn it can place another", async () => {
  const customer = await customerOfHouse();
  const answers = await Promise.all(
    Array.from({ length: 12 }, () => customer.post("/orders", { kind: "top_up", amountNanoUsd: "50000000" })),
  );
  expect(answers.filter(({ status }) => status === 200)).toHaveLength(5);
  for (const answer of answers.filter(({ status }) => status !== 200)) expectRefusal(answer, "validation_failed");
  const [latest] = ok(await customer.get("/orders")).orders;
  expect(ok(await customer.post(`/orders/${latest.orderId}/withdraw`)).order.status).toBe("withdrawn");
  expectRefusal(await customer.post(`/orders/${latest.orderId}/withdraw`), "validation_failed");
  await orderTopUp(customer, 5n * USD);
});

test("an account places at most 20 orders within 24 hours that are not paid, so that withdrawing and placing again sends no flood of mails", async () => {
  const { sql } = shop.world;
  const customer = await customerOfHouse();
  const { accountId } = customer;
  const ask = () => customer.post("/orders", { kind: "top_up", amountNanoUsd: "50000000" });
  const messages = async () =>
    Number((await sql`select count(*)::int as n from outbox_messages where account_id = ${accountId}`)[0]?.n);
  // What was fulfilled does not count.
  for (let n = 0; n < 3; n++)
    ok(await as.admin.post(`/orders/${(await orderTopUp(customer, 5n * USD)).orderId}/fulfil`, {}));
  const before = await messages();
  for (let n = 0; n < 20; n++) ok(await customer.post(`/orders/${ok(await ask()).order.orderId}/withdraw`));
  await withoutEffect(shop, async () => {
    const refused = await ask();
    expectRefusal(refused, "validation_failed");
    expect(refused.json.error.message).toContain("20 orders within 24 hours");
  });
  expect((await messages()) - before).toBe(20);
  await sql`
    update orders set created_at = created_at - interval '24 hours'
    where id = (select max(id) from orders where account_id = ${accountId})`;
  ok(await ask());
  expectRefusal(await ask(), "validation_failed");
});

test("an order is seen and decided by its own reseller and by admins; 404 for all others", async () => {
  const customer = await customerOfAcme();
  const { orderId } = await orderTopUp(customer, 5n * USD);
  const direct = await orderTopUp(as.house, 5n * USD);
  const strangers: [PanelSession, string][] = [
    [as.rival, "fulfil"],
    [as.rival, "decline"],
    [as.rival, "withdraw"],
    [as.house, "withdraw"],
    [as.house, "fulfil"],
    [customer, "fulfil"],
    [customer, "decline"],
    [as.acme, "withdraw"],
    [as.admin, "withdraw"],
  ];
  await withoutEffect(shop, async () => {
    for (const [session, action] of strangers)
      expectRefusal(await session.post(`/orders/${orderId}/${action}`), "not_found");
    expectRefusal(await as.acme.post(`/orders/${direct.orderId}/fulfil`), "not_found");
    for (const id of ["x", "0", "999999", "99999999999999999999"])
      expectRefusal(await as.admin.post(`/orders/${id}/fulfil`), "not_found");
  });
  const seenBy = async (session: PanelSession, query = "") =>
    ok(await session.get(`/orders/incoming${query}`)).orders.map((order: { orderId: number }) => order.orderId);
  expect(await seenBy(as.acme)).toContain(orderId);
  expect(await seenBy(as.acme)).not.toContain(direct.orderId);
  expect(await seenBy(as.acme, "?scope=all")).not.toContain(direct.orderId);
  expect(await seenBy(as.rival)).toEqual([]);
  expect(await seenBy(as.admin)).toContain(direct.orderId);
  expect(await seenBy(as.admin)).not.toContain(orderId);
  expect(await seenBy(as.admin, "?scope=all")).toContain(orderId);
  for (const session of [customer, as.house]) expectRefusal(await session.get("/orders/incoming"), "not_found");
  const page = ok(await as.admin.get("/orders/incoming?scope=all&limit=1"));
  expect(page).toMatchObject({ hasMore: true, orders: [{ orderId: direct.orderId }] });
  expect(await seenBy(as.admin, `?scope=all&limit=1&before=${direct.orderId}`)).toEqual([orderId]);
  ok(await customer.post(`/orders/${orderId}/withdraw`));
});

test("422 validation_failed for wrong fields of an order, an answer or a fulfilment", async () => {
  const customer = await customerOfAcme();
  const offeringId = await offering();
  const off = await offering();
  await shop.world.sql`update offerings set enabled = false where id = ${off}`;
  await withoutEffect(shop, async () => {
    for (const [body, param] of [
      [{ kind: "package", offeringId: off }, "offeringId"],
      [{ kind: "package", offeringId: 999_999 }, "offeringId"],
      [{ kind: "top_up", amountNanoUsd: "9000000000000001" }, "amountNanoUsd"],
      [{ kind: "top_up", amountNanoUsd: "20005000000" }, "amountNanoUsd"],
      [{ kind: "package", offeringId, note: "a\u0000b" }, "note"],
      [{ kind: "package", offeringId, note: "bell\u0007" }, "note"],
      [{ kind: "package", offeringId, note: "x".repeat(501) }, "note"],
    ] as const)
      expectRefusal(await customer.post("/orders", body), "validation_failed", { param });
    for (const body of [
      { kind: "gift" },
      { kind: "top_up", amountNanoUsd: 5 },
      { kind: "top_up", amountNanoUsd: "-5" },
      { kind: "top_up", amountNanoUsd: "5", offeringId },
      { kind: "package" },
      { kind: "package", offeringId: "x" },
      { kind: "package", offeringId, extra: true },
      [],
    ]) {
      const answer = await customer.post("/orders", body);
      expect([answer.status, answer.json.error.code]).toEqual([422, "validation_failed"]);
    }
    const { orderId } = await orderPackage(customer, offeringId);
    expectRefusal(await as.acme.post(`/orders/${orderId}/decline`, { answer: "x".repeat(501) }), "validation_failed", {
      param: "answer",
    });
    expectRefusal(await as.acme.post(`/orders/${orderId}/fulfil`, { when: "later" }), "validation_failed", {
      param: "when",
    });
  });
});
