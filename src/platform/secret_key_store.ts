import { sql } from "drizzle-orm";
import { Refusal } from "../errors.ts";
import { decrypt, encrypt } from "./crypto.ts";
import type { Db, Tx } from "./db.ts";
import { secretKeyCheck } from "./schema_service.ts";

/**
 * One SECRET_KEY per database: from the first start, or the first secret, the database has a word encrypted with it. A replica with
 * another key refuses to write secrets that the others could not read.
 */

/** Any text: being able to decrypt it proves the key. */
const WORD = "tollgate";
const ANOTHER_KEY =
  "SECRET_KEY is not the key that this database's secrets are encrypted with. Set that one; to change it, see " +
  "Rotating secrets in docs/operations.md.";

/**
 * Makes `secretKey` the database's key if it has none, and locks it until the transaction ends. Call it before encrypting anything.
 * Throws service_unavailable if the database has another key; another replica may have the right one.
 */
export async function holdSecretKey(tx: Tx, secretKey: Uint8Array): Promise<void> {
  const stored = () => tx.select({ ciphertext: secretKeyCheck.ciphertext }).from(secretKeyCheck).for("key share");
  let [row] = await stored();
  if (!row) {
    // Of several concurrent calls one inserts; the others wait and read its row.
    await tx
      .insert(secretKeyCheck)
      .values({ ciphertext: encrypt(secretKey, WORD) })
      .onConflictDoNothing();
    [row] = await stored();
  }
  if (!row || !opens(secretKey, row.ciphertext)) throw new Refusal("service_unavailable", { message: ANOTHER_KEY });
}

/** As `holdSecretKey`, at the start of a replica. Throws the same. */
export async function checkSecretKey(db: Db, secretKey: Uint8Array): Promise<void> {
  await db.orm.transaction((tx) => holdSecretKey(tx, secretKey));
}

/**
 * Replaces the database's key with `to`; nobody can encrypt until the transaction ends. False: `from` is not the current key. null: the
 * current key is lost.
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
    return false; // `decrypt` throws for another key.
  }
}
