import { sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { decrypt, encrypt } from "./crypto.ts";
import type { Db, Tx } from "./db.ts";
import { secretKeyCheck } from "./schema.ts";

/**
 * One SECRET_KEY a database: a word that was encrypted with it stands in the database from the first start, or the first
 * secret, on. Who has another key refuses, before it writes what the others cannot read.
 */

/** What is encrypted does not matter: that it can be decrypted tells the key. */
const WORD = "tollgate";
const ANOTHER_KEY =
  "SECRET_KEY is not the key that this database's secrets are encrypted with. Set that one; to change it, see " +
  "Rotating secrets in docs/operations.md.";

/**
 * Makes `secretKey` the database's, if it has none yet, and keeps it until the transaction ends: whoever encrypts something
 * calls this first. Throws service_unavailable when the database's key is another one; a replica that has it may do better.
 */
export async function holdSecretKey(tx: Tx, secretKey: Uint8Array): Promise<void> {
  const stored = () => tx.select({ ciphertext: secretKeyCheck.ciphertext }).from(secretKeyCheck).for("key share");
  let [row] = await stored();
  if (!row) {
    // Of several that come first one writes; the others wait for it, and see its row.
    await tx
      .insert(secretKeyCheck)
      .values({ ciphertext: encrypt(secretKey, WORD) })
      .onConflictDoNothing();
    [row] = await stored();
  }
  if (!row || !opens(secretKey, row.ciphertext)) throw new Refusal("service_unavailable", { message: ANOTHER_KEY });
}

/** As `holdSecretKey`, for a start: before anything is encrypted. Throws the same. */
export async function checkSecretKey(db: Db, secretKey: Uint8Array): Promise<void> {
  await db.orm.transaction((tx) => holdSecretKey(tx, secretKey));
}

/**
 * Puts `to` in place of the database's key, and keeps everybody who encrypts waiting until the transaction ends. False:
 * `from` is not that key; null stands for a key that nobody has any more.
 */
export async function replaceSecretKey(
  tx: Tx,
  { from, to }: { from: Uint8Array | null; to: Uint8Array },
): Promise<boolean> {
  const [row] = await tx.select({ ciphertext: secretKeyCheck.ciphertext }).from(secretKeyCheck).for("update");
  if (row && from !== null && !opens(from, row.ciphertext)) return false;
  const ciphertext = encrypt(to, WORD);
  await tx
    .insert(secretKeyCheck)
    .values({ ciphertext })
    .onConflictDoUpdate({ target: secretKeyCheck.id, set: { ciphertext, setAt: sql`clock_timestamp()` } });
  return true;
}

function opens(secretKey: Uint8Array, ciphertext: Uint8Array): boolean {
  try {
    return decrypt(secretKey, ciphertext) === WORD;
  } catch {
    return false; // There is no other way to ask.
  }
}
