import { eq, isNotNull, sql } from "drizzle-orm";
import type { Tx } from "../platform/db.ts";
import { mailServers, outboxMessages, webhookEndpoints } from "../platform/schema_outbox.ts";

/**
 * Encrypts this room's secrets again for a new SECRET_KEY. Their number is limited by that of accounts; links expire
 * within days.
 */

/**
 * Encrypts every secret again. `again` returns undefined for a value that the old key does not decrypt: it is removed
 * or stays unreadable, and its owner must enter or make a new one. Returns how many were encrypted.
 */
export async function rotateMessageSecrets(
  tx: Tx,
  again: (ciphertext: Uint8Array) => Buffer | undefined,
): Promise<number> {
  let count = 0;
  const servers = await tx
    .select()
    .from(mailServers)
    .where(isNotNull(mailServers.smtpPasswordCiphertext))
    .for("update");
  for (const { resellerId, smtpPasswordCiphertext: old } of servers) {
    const fresh = old === null ? undefined : again(old);
    if (fresh === undefined) continue;
    await tx.update(mailServers).set({ smtpPasswordCiphertext: fresh }).where(eq(mailServers.resellerId, resellerId));
    count++;
  }
  for (const { id, secretCiphertext, oldSecretCiphertext } of await tx.select().from(webhookEndpoints).for("update")) {
    const fresh = again(secretCiphertext);
    if (fresh === undefined) continue;
    const older = oldSecretCiphertext === null ? null : (again(oldSecretCiphertext) ?? null);
    const set = { secretCiphertext: fresh, oldSecretCiphertext: older };
    await tx.update(webhookEndpoints).set(set).where(eq(webhookEndpoints.id, id));
    count++;
  }
  const links = await tx
    .select({ id: outboxMessages.id, data: outboxMessages.data })
    .from(outboxMessages)
    .where(
      sql`${outboxMessages.data} ? 'urlCiphertext' and (${outboxMessages.data} ->> 'expiresAt')::timestamptz > clock_timestamp()`,
    )
    .for("update");
  for (const { id, data } of links) {
    const fresh = again(Buffer.from(String(data.urlCiphertext), "base64"));
    if (fresh === undefined) continue;
    const set = { data: { ...data, urlCiphertext: fresh.toString("base64") } };
    await tx.update(outboxMessages).set(set).where(eq(outboxMessages.id, id));
    count++;
  }
  return count;
}
