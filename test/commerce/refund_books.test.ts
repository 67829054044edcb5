import { afterAll, beforeAll, expect, test } from "bun:test";
import type { TransactionSql } from "postgres";
import { ok } from "../panel/panel_client.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";

/**
 * What the check of the books says about refunds that were changed by hand, or by a defect: each disagreement is found.
 * Source: BUY-6, BUY-9.
 */
let pay: PayShop;

beforeAll(async () => {
  pay = await openPayShop();
  await sell();
});
afterAll(() => pay.close());

/** The ids that the cases change. */
const of = {
  toppedUp: 0,
  failed: 0,
  done: 0,
  twice: 0,
  resellers: 0,
  package: 0,
  waited: 0,
  waitedRefund: 0,
  other: 0,
};

async function sell(): Promise<void> {
  const [topUp, twice] = [await paid("house", "top_up"), await paid("house", "top_up")];
  of.toppedUp = topUp.orderId;
  of.other = (await paid("house", "top_up")).orderId;
  of.done = (await refund(topUp, 4n * USD)).refundId;
  pay.stripe.refuseRefunds("The charge is disputed.");
  of.failed = (await refund(topUp, 3n * USD)).refundId;
  pay.stripe.refuseRefunds("");
  ok(
    await pay.shopHook(0, {
      ...{ order: twice.reference, amount: "10.00", currency: "usd", payment_id: `again-${twice.orderId}` },
    }),
  );
  of.twice = (await refund({ ...twice, paymentId: await paymentOf(twice.orderId, "paid_twice") }, 10n * USD)).refundId;
  await pay.topUp(pay.acme, 10n * USD);
  of.resellers = (await refund(await paid("acme", "top_up"), 10n * USD)).refundId;
  of.package = (await refund(await paid("house", "package"), 5n * USD)).refundId;
  await pay.sql`select add_balance(${pay.acme.accountId}, -balance_nano_usd, 'correction', 'x', null) from balances
    where account_id = ${pay.acme.accountId}`;
  const waited = await paid("acme", "top_up");
  of.waited = waited.orderId;
  of.waitedRefund = (await refund(waited, 10n * USD)).refundId;
}

async function paymentOf(orderId: number, problem: string | null = null): Promise<number> {
  const found = (await pay.paymentsOf(orderId)).find((payment) => payment.problem === problem);
  return Number(found?.id);
}

/** A paid order of $10. */
async function paid(seller: "house" | "acme", kind: "top_up" | "package") {
  const buyer = await pay.newcomer(seller);
  const wanted =
    kind === "top_up"
      ? { kind, amountNanoUsd: String(10n * USD) }
      : { kind, offeringId: await pay.offering(10n * USD) };
  const { orderId, reference } = await pay.order(buyer, wanted);
  ok(await buyer.post(`/orders/${orderId}/pay`, { method: "stripe" }));
  ok(await pay.hook(seller === "acme" ? pay.acme.accountId : 0, { ...pay.stripe.pay(reference) }));
  return {
    orderId,
    reference,
    seller: pay.as[seller === "acme" ? "acme" : "admin"],
    paymentId: await paymentOf(orderId),
  };
}

async function refund(
  { seller, paymentId }: Pick<Awaited<ReturnType<typeof paid>>, "seller" | "paymentId">,
  nano: bigint,
) {
  return ok(await seller.post(`/payments/${paymentId}/refunds`, { amountNano: String(nano) })).refund;
}

class RollBack extends Error {}

/** What the view says after a change, which is then rolled back. */
async function problemsAfter(change: (sql: TransactionSql) => Promise<unknown>): Promise<string[]> {
  let problems: string[] = [];
  const rolledBack = await pay.sql
    .begin(async (tx) => {
      await change(tx);
      problems = (await tx`select problem from inv_payments`).map(({ problem }) => String(problem));
      throw new RollBack();
    })
    .catch((error: unknown) => error);
  expect(rolledBack).toBeInstanceOf(RollBack);
  return problems;
}

const entryOf = (sql: TransactionSql, refundId: number) => sql`(select entry_id from refunds where id = ${refundId})`;

/** The refund takes its amount from the balance, as only the refund of a top-up may. */
const takeMoney = (sql: TransactionSql, refundId: number) => sql`
  with taken as (insert into balance_entries (account_id, amount_nano_usd, kind, reason)
    select account_id, -amount_nano, 'refund', 'x' from refunds where id = ${refundId} returning id)
  update refunds set entry_id = taken.id from taken where refunds.id = ${refundId}`;

const CASES: [what: string, problem: string, change: (sql: TransactionSql) => Promise<unknown>][] = [
  [
    "refunds above the payment",
    "has more refunds than payments",
    (sql) => sql`update refunds set amount_nano = 11 * ${String(USD)}::bigint where id = ${of.package}`,
  ],
  [
    "a refund that names another order",
    "has a refund of another order",
    (sql) => sql`update refunds set order_id = ${of.other} where id = ${of.done}`,
  ],
  [
    "a refund that names another account",
    "has a refund of another order",
    (sql) => sql`update refunds set account_id = ${pay.customer.accountId} where id = ${of.done}`,
  ],
  [
    "a refund that is not what was taken",
    "has refunds of another worth",
    (sql) => sql`update refunds set amount_nano = amount_nano - 10000000 where id = ${of.done}`,
  ],
  [
    "a refund that went to another balance than the top-up came from",
    "has a refund without its entry",
    (sql) => sql`update balance_entries set counterpart_id = null where id = ${entryOf(sql, of.resellers)}`,
  ],
  [
    "a refund of a top-up that took nothing",
    "has a refund that took nothing from the balance",
    (sql) => sql`update refunds set entry_id = null where id = ${of.done}`,
  ],
  ["a refund of a package that took money", "has a refund that took too much", (sql) => takeMoney(sql, of.package)],
  [
    "a refund of a second payment that took money",
    "has a refund that took too much",
    (sql) => takeMoney(sql, of.twice),
  ],
  [
    "a refund that failed and returned nothing",
    "has a failed refund that was not returned",
    (sql) => sql`update refunds set return_entry_id = null where id = ${of.failed}`,
  ],
  [
    "a refund that failed and returned its money to another account",
    "has a failed refund that was not returned",
    (sql) => sql`update balance_entries set account_id = ${pay.house.accountId}
      where id = (select return_entry_id from refunds where id = ${of.failed})`,
  ],
  [
    "a refund that failed, whose money is that of another one",
    "has a failed refund that was not returned",
    (sql) => sql`update balance_entries set reason = 'refund 999999 failed'
      where id = (select return_entry_id from refunds where id = ${of.failed})`,
  ],
  [
    "a refund that was made and returned",
    "has a failed refund that was not returned",
    (sql) => sql`update refunds set status = 'pending', problem = null where id = ${of.failed}`,
  ],
  [
    "a refund that was made without a credit note",
    "has a refund without its credit note",
    (sql) => sql`update refunds set credit_note = null where id = ${of.done}`,
  ],
  [
    "an order that is refunded without a refund",
    "is refunded without its refunds",
    (sql) => sql`update refunds set status = 'failed' where id = ${of.waitedRefund}`,
  ],
  [
    "an order that is refunded and would still be fulfilled",
    "has a refund and waits to be fulfilled",
    (sql) => sql`update orders set status = 'paid', try_at = now() where id = ${of.waited}`,
  ],
];

test("nothing is wrong with refunds that were made, that failed, and that went to a reseller", async () => {
  expect(await problemsAfter(async () => {})).toEqual([]);
  const rows = await pay.sql`select status, count(*)::int as many from refunds group by 1 order by 1`;
  expect([...rows]).toEqual([
    { status: "done", many: 5 },
    { status: "failed", many: 1 },
  ]);
});

test.each(CASES)("%s is found", async (_, problem, change) => {
  expect(await problemsAfter(change)).toEqual([problem]);
});
