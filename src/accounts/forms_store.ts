import { sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { sentForms } from "../platform/schema.ts";

/** Forms that were sent, by the key each opened form has: so that a double click creates one thing. */

const KEPT_HOURS = 24;

/** Takes a form's key. False: it was sent before. */
export async function claimForm({ db }: { db: Db }, accountId: number, formKey: string): Promise<boolean> {
  const claimed = await db.orm
    .insert(sentForms)
    .values({ accountId, formKey })
    .onConflictDoNothing()
    .returning({ formKey: sentForms.formKey });
  return claimed.length > 0;
}

/** Gives a key back: what the form asked for was not done, and it may be sent again. */
export async function unclaimForm({ db }: { db: Db }, accountId: number, formKey: string): Promise<void> {
  await db.orm
    .delete(sentForms)
    .where(sql`${sentForms.accountId} = ${accountId} and ${sentForms.formKey} = ${formKey}`);
}

/** Forgets forms of yesterday. */
export async function pruneForms({ db }: { db: Db }): Promise<void> {
  await db.orm
    .delete(sentForms)
    .where(sql`${sentForms.createdAt} < clock_timestamp() - make_interval(hours => ${KEPT_HOURS})`);
}
