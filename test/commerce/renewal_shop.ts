import { expect } from "bun:test";
import { topUpDue } from "../../src/commerce/auto_top_up_store.ts";
import { renewDue } from "../../src/commerce/renewal_steps_store.ts";
import { askAboutSetups, forgetRemoved } from "../../src/commerce/stripe_cards.ts";
import { chargeDue } from "../../src/commerce/stripe_charges.ts";
import { readConfig } from "../../src/config.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { openDb } from "../../src/platform/db.ts";
import { createLog } from "../../src/platform/log.ts";
import { ok, type PanelSession } from "../panel/panel_client.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { openPayShop, type PayShop, USD } from "./pay_shop.ts";
import type { Bank } from "./stripe_cards_stand_in.ts";

/** A shop whose customers have cards on file and packages that renew. The steps are made when a test says so. */

export const PRICE = 12n * USD;
export type RenewalShop = Awaited<ReturnType<typeof openRenewalShop>>;
type Side = "house" | "acme";

/** The name of the connections that make steps. */
const STEPS = "steps";
/** Claims of other connections find nothing: what a claim sets is due again soon, but not now. */
const ONLY_STEPS = `
  create function only_steps() returns trigger language plpgsql as $$
  begin
    return case when current_setting('application_name') = '${STEPS}' then new end;
  end $$;
  create trigger only_steps before update on renewals for each row
    when (new.status = 'on' and old.status = 'on' and new.next_at > ledger_now() + interval '30 seconds') execute function only_steps();
  create trigger only_steps before update on card_charges for each row
    when (new.status = 'charging' and new.try_at > clock_timestamp() + interval '30 seconds') execute function only_steps();
  create function only_orders() returns trigger language plpgsql as $$
  begin
    if current_setting('application_name') <> '${STEPS}' then raise exception 'only the test orders top-ups'; end if;
    return new;
  end $$;
  create trigger only_orders before insert on card_charges for each row when (new.purpose = 'top_up') execute function only_orders();`;

/** `replicasToo`: replicas make steps as well; otherwise only the test does, so that it knows which step comes next. */
export async function openRenewalShop({
  replicasToo = false,
  pay: opened,
}: {
  replicasToo?: boolean;
  pay?: PayShop;
} = {}) {
  const pay = opened ?? (await openPayShop());
  const url = new URL(pay.world.url);
  url.searchParams.set("application_name", STEPS);
  const db = openDb({ databaseUrl: url.href, dbPrepare: true, dbPoolMax: 8, lockMsMax: 10_000 });
  if (!replicasToo) await pay.sql.unsafe(ONLY_STEPS);
  const log = createLog("silent");
  const config = readConfig({
    ...{ SECRET_KEY: TEST_SECRET_KEY, DATABASE_URL: pay.world.url, REDIS_URL: "", STRIPE_API_BASE: pay.stripe.base },
    ...{ BASE_URL: "http://api.tollgate.test/v1", PANEL_URL: "http://panel.tollgate.test" },
  });
  const bus = inProcessBus(log);
  const deps = { db, bus, log, config };
  const failures: unknown[] = [];
  return {
    ...pay,
    pay,
    deps,
    failures,
    /** One round of what every replica does every ten seconds. */
    async round(): Promise<void> {
      await renewDue(deps, { renewalsMax: 50, onFailure: (error) => failures.push(error) });
      await this.orderTopUps();
      await chargeDue(deps);
      await askAboutSetups(deps);
      await forgetRemoved(deps);
    },
    /** Orders the automatic top-ups that are due. */
    orderTopUps: () => topUpDue(deps, { topUpsMax: 50, timeZone: "UTC", onFailure: (error) => failures.push(error) }),
    /** Lets the pause before the next try pass. */
    async later(): Promise<void> {
      await moveAll(pay, "update renewals set next_at = ledger_now() where status = 'on'");
      await moveAll(pay, "update auto_top_ups set next_at = ledger_now()");
      await moveAll(pay, "update card_charges set try_at = clock_timestamp() where status in ('due', 'charging')");
      await this.round();
    },
    /** The person saves a card on Stripe's page, and returns. */
    async saveCard(session: PanelSession, bank: Bank = "pays"): Promise<void> {
      const { url } = ok(await session.post("/card"));
      pay.stripe.cards.complete(setupIdOf(url), bank);
      ok(await session.post("/card/look"));
    },
    /** A customer whose package ends in some hours, and renews. */
    async renewing({
      of = "house",
      source = "card",
      bank = "pays",
      hoursLeft = 12,
      days = 30,
    }: {
      of?: Side;
      source?: "card" | "balance";
      bank?: Bank;
      hoursLeft?: number;
      days?: number;
    } = {}) {
      const buyer = await pay.newcomer(of);
      const offeringId = await priced(pay, days);
      const { packageId } = await pay.world.assign(buyer, offeringId);
      if (source === "card") await this.saveCard(buyer, bank);
      ok(await buyer.put(`/packages/${packageId}/renewal`, { source }));
      await endsIn(pay, packageId, hoursLeft);
      return { ...buyer, session: buyer, offeringId, packageId, sellerId: of === "acme" ? pay.acme.accountId : 0 };
    },
    /** The same without the panel, with rows as it writes them: a replica need not run. */
    async ofRow({ of = "house", source }: { of?: Side; source: "card" | "balance" }) {
      const sellerId = of === "acme" ? pay.acme.accountId : 0;
      const person = await pay.world.addCustomer(sellerId || undefined);
      const offeringId = await priced(pay, 30);
      const { packageId } = await pay.world.assign(person, offeringId);
      if (source === "card") await addCardRow(pay, person, sellerId);
      await pay.sql`
        insert into renewals (package_id, account_id, source, told_nano, told_at)
        values (${packageId}, ${person.accountId}, ${source}, ${String(PRICE)}, now())`;
      await endsIn(pay, packageId, 12);
      return { ...person, offeringId, packageId, sellerId };
    },
    /** A customer, or a reseller, whose balance is low and is topped up automatically: by $20, at most $50 a month. */
    async ofTopUp({ of = "house" }: { of?: Side } = {}) {
      const sellerId = of === "acme" ? pay.acme.accountId : 0;
      const person = await pay.world.addCustomer(sellerId || undefined);
      await addCardRow(pay, person, sellerId);
      await pay.sql`
        insert into auto_top_ups (account_id, below_nano_usd, amount_nano_usd, month_max_nano_usd, told_nano)
        values (${person.accountId}, ${String(5n * USD)}, ${String(20n * USD)}, ${String(50n * USD)}, ${String(20n * USD)})`;
      return { ...person, sellerId };
    },
    addCardRow: (person: { accountId: number }, sellerId: number, accountOf = sellerId) =>
      addCardRow(pay, person, sellerId, accountOf),
    endsIn: (packageId: number, hours: number) => endsIn(pay, packageId, hours),
    renewalOf: async (packageId: number) =>
      (await pay.sql`select * from renewals where package_id = ${packageId}`)[0] ?? {},
    chargeOf: async (packageId: number) =>
      (
        await pay.sql`select c.* from card_charges c join renewals r on r.order_id = c.order_id where r.package_id = ${packageId}`
      )[0],
    packagesOf: ({ accountId }: { accountId: number }) =>
      pay.sql`select * from packages where account_id = ${accountId} order by id`,
    /** What a customer was told of renewals, oldest first. */
    async told({ accountId }: { accountId: number }): Promise<{ kind: string; data: Record<string, unknown> }[]> {
      const rows = await pay.sql<{ kind: string; data: Record<string, unknown> }[]>`
        select kind, data from outbox_messages where account_id = ${accountId} order by id`;
      return rows.map(({ kind, data }) => ({ kind, data }));
    },
    /** Closes it. Throws if a step failed unforeseen, or if a payment at Stripe took money twice. */
    async close(): Promise<void> {
      await db.close();
      await pay.close();
      expect(failures).toEqual([]);
      expect(pay.stripe.cards.charged).toEqual([...new Set(pay.stripe.cards.charged)]);
    },
  };
}

/** One at a time: two statements that each change all rows meet them in different orders, and would wait for each other. */
async function moveAll(pay: PayShop, statement: string): Promise<void> {
  await pay.sql.begin(async (tx) => {
    await tx`select pg_advisory_xact_lock(hashtext('all rows are moved'))`;
    await tx.unsafe(statement);
  });
}

export function setupIdOf(url: string): string {
  return /\/pay\/(\w+)/.exec(url)?.[1] ?? "";
}

async function priced(pay: PayShop, days: number): Promise<number> {
  const offeringId = await pay.world.addOffering({ days, wholesaleNanoUsd: 4n * USD });
  for (const sellerId of [0, pay.acme.accountId])
    await pay.sql`insert into retail_prices values (${sellerId}, ${offeringId}, ${String(PRICE)})`;
  return offeringId;
}

/** Moves a package in time, so that it ends in some hours. */
async function endsIn(pay: PayShop, packageId: number, hours: number): Promise<void> {
  await pay.sql`
    update packages set ends_at = now() + make_interval(hours => ${hours}),
      starts_at = now() + make_interval(hours => ${hours}) - make_interval(days => days) where id = ${packageId}`;
}

/** A card, with the row that saving it makes. */
async function addCardRow(
  pay: PayShop,
  { accountId }: { accountId: number },
  sellerId: number,
  accountOf = sellerId,
): Promise<void> {
  const card = pay.stripe.cards.add(`sk_test_0123456789abcdef${accountOf}`);
  await pay.sql`
    insert into cards (account_id, seller_id, customer_id, payment_method_id, brand, last_four)
    values (${accountId}, ${sellerId}, ${card.customer}, ${card.id}, 'visa', ${card.lastFour})`;
}
