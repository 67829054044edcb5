import { and, eq, sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { sentForms } from "../platform/schema.ts";

/** Forms that were sent, by the key each opened form has: so that a double click creates one thing. */

const KEPT_HOURS = 24;

export type SentForm = {
  accountId: number;
  formKey: string;
  /** SHA-256 of what was sent, and where to. */
  bodyDigest: Buffer;
};

/** Takes a form's key. `same` and `other`: it was sent before, so or with another body. */
export async function claimForm({ db }: { db: Db }, form: SentForm): Promise<"taken" | "same" | "other"> {
  const claimed = await db.orm
    .insert(sentForms)
    .values(form)
    .onConflictDoNothing()
    .returning({ formKey: sentForms.formKey });
  if (claimed.length > 0) return "taken";
  const [sent] = await db.orm.select({ bodyDigest: sentForms.bodyDigest }).from(sentForms).where(isForm(form));
  // Gone by now: it was in flight when this one came, and failed.
  return sent === undefined || form.bodyDigest.equals(sent.bodyDigest) ? "same" : "other";
}

/** Gives a key back: what the form asked for was not done, and it may be sent again. */
export async function unclaimForm({ db }: { db: Db }, form: SentForm): Promise<void> {
  await db.orm.delete(sentForms).where(isForm(form));
}

function isForm({ accountId, formKey }: SentForm) {
  return and(eq(sentForms.accountId, accountId), eq(sentForms.formKey, formKey));
}

/** Forgets forms of yesterday. */
export async function pruneForms({ db }: { db: Db }): Promise<void> {
  await db.orm
    .delete(sentForms)
    .where(sql`${sentForms.createdAt} < clock_timestamp() - make_interval(hours => ${KEPT_HOURS})`);
}
