import { and, eq, gt, ne, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import type { Db } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf } from "../platform/pages.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { packages } from "../platform/schema_ledger.ts";
import { renewals } from "../platform/schema_renewals.ts";
import { LEAD, type RenewalProblem, type RenewalSource } from "./renewals_store.ts";
import { OPERATOR } from "./sellers_store.ts";

/** Packages of a seller's customers that renew automatically, or were to, for the seller. Source: REN-1, REN-6. */

export type CustomerRenewal = {
  packageId: number;
  package: string;
  accountId: number;
  name: string;
  endsAt: string;
  renewsAt: string;
  timeZone: string;
  source: RenewalSource;
  status: Exclude<(typeof renewals.$inferSelect)["status"], "done">;
  problem: RenewalProblem | null;
};

/** Those of packages that have not ended, in the order in which they end. */
export async function customerRenewals(
  { db }: { db: Db },
  { sellerId, limit }: { sellerId: number; limit: number },
): Promise<Page<CustomerRenewal>> {
  const customer = alias(accounts, "customer");
  const rows = await db.orm
    .select({
      packageId: packages.id,
      package: packages.name,
      accountId: customer.id,
      name: customer.name,
      endsAt: packages.endsAt,
      renewsAt: sql<string>`${packages.endsAt} - ${LEAD}`,
      timeZone: packages.timeZone,
      source: renewals.source,
      status: sql<
        CustomerRenewal["status"]
      >`case when ${renewals.continues} then ${renewals.status} else 'cancelled' end`,
      problem: renewals.problem,
    })
    .from(renewals)
    .innerJoin(packages, eq(packages.id, renewals.packageId))
    .innerJoin(customer, eq(customer.id, renewals.accountId))
    .where(
      and(
        eq(customer.role, "customer"),
        sellerId === OPERATOR ? sql`${customer.resellerId} is null` : eq(customer.resellerId, sellerId),
        ne(renewals.status, "done"),
        gt(packages.endsAt, sql`ledger_now()`),
      ),
    )
    .orderBy(packages.endsAt, packages.id)
    .limit(limit + 1);
  return pageOf(
    rows.map((row) => ({ ...row, endsAt: toIso(row.endsAt), renewsAt: toIso(row.renewsAt) })),
    limit,
  );
}
