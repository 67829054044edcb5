import { and, eq, sql } from "drizzle-orm";
import type { Db } from "../platform/db.ts";
import { sentForms } from "../platform/schema_service.ts";

/** Submitted forms, by the key that each opened form has, so that a double click creates one thing. */

const KEPT_HOURS = 24;

export type SentForm = {
  accountId: number;
  formKey: string;
  /** SHA-256 of the body and the path. */
  bodyDigest: Buffer;
};

/** Records a submission. `same`, `other`: the key was submitted before, with the same body or another one. */
export async function recordForm({ db }: { db: Db }, form: SentForm): Promise<"taken" | "same" | "other"> {
  const claimed = await db.orm
    .insert(sentForms)
    .values(form)
    .onConflictDoNothing()
    .returning({ formKey: sentForms.formKey });
  if (claimed.length > 0) return "taken";
  const [sent] = await db.orm.select({ bodyDigest: sentForms.bodyDigest }).from(sentForms).where(isForm(form));
  // Deleted meanwhile: the first submission was in flight, and failed.
  return sent === undefined || form.bodyDigest.equals(sent.bodyDigest) ? "same" : "other";
}

/** Deletes a submission that failed, so that the form may be submitted again. */
export async function forgetForm({ db }: { db: Db }, form: SentForm): Promise<void> {
  await db.orm.delete(sentForms).where(isForm(form));
}

function isForm({ accountId, formKey }: SentForm) {
  return and(eq(sentForms.accountId, accountId), eq(sentForms.formKey, formKey));
}

/** Deletes submissions older than KEPT_HOURS. */
export async function pruneForms({ db }: { db: Db }): Promise<void> {
  await db.orm
    .delete(sentForms)
    .where(sql`${sentForms.createdAt} < clock_timestamp() - make_interval(hours => ${KEPT_HOURS})`);
}
