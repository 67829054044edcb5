import { and, asc, eq, gt, isNotNull } from "drizzle-orm";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decrypt, encrypt } from "../platform/crypto.ts";
import type { Tx } from "../platform/db.ts";
import { accounts, providers } from "../platform/schema.ts";
import { replaceSecretKey } from "../platform/secret_key_store.ts";

/** Second factors that are read at once. */
const PAGE_ROWS = 500;

/** How many secrets were encrypted again, and which could not be: names of providers, ids of accounts. */
export type Rotated = {
  providers: number;
  secondFactors: number;
  unreadable: { providers: string[]; accounts: number[] };
};

/**
 * Makes `to` the database's SECRET_KEY and encrypts again with it what `from` decrypts, in one transaction. Secrets that
 * `from` does not decrypt stay as they are; null decrypts nothing. Returns undefined if `from` is not the database's key.
 */
export async function rotateSecretKey(
  deps: ChangeDeps,
  keys: { from: Uint8Array | null; to: Uint8Array },
): Promise<Rotated | undefined> {
  return changing(deps, async (tx) => {
    if (!(await replaceSecretKey(tx, keys))) return undefined;
    const rotated: Rotated = { providers: 0, secondFactors: 0, unreadable: { providers: [], accounts: [] } };
    await rotateProviders(tx, keys, rotated);
    await rotateSecondFactors(tx, keys, rotated);
    return rotated;
  });
}

type Keys = Parameters<typeof rotateSecretKey>[1];

async function rotateProviders(tx: Tx, keys: Keys, rotated: Rotated): Promise<void> {
  for (const { id, name, keyCiphertext } of await tx
    .select()
    .from(providers)
    .orderBy(asc(providers.id))
    .for("update")) {
    const ciphertext = encryptAgain(keyCiphertext, keys);
    if (ciphertext === undefined) {
      rotated.unreadable.providers.push(name);
      continue;
    }
    await tx.update(providers).set({ keyCiphertext: ciphertext }).where(eq(providers.id, id));
    rotated.providers++;
  }
}

async function rotateSecondFactors(tx: Tx, keys: Keys, rotated: Rotated): Promise<void> {
  for (let after = 0; ; ) {
    const page = await tx
      .select({ id: accounts.id, ciphertext: accounts.totpCiphertext })
      .from(accounts)
      .where(and(gt(accounts.id, after), isNotNull(accounts.totpCiphertext)))
      .orderBy(asc(accounts.id))
      .limit(PAGE_ROWS)
      .for("no key update");
    for (const { id, ciphertext: old } of page) {
      const ciphertext = old === null ? undefined : encryptAgain(old, keys);
      if (ciphertext === undefined) {
        rotated.unreadable.accounts.push(id);
        continue;
      }
      await tx.update(accounts).set({ totpCiphertext: ciphertext }).where(eq(accounts.id, id));
      rotated.secondFactors++;
    }
    const last = page.at(-1);
    if (!last || page.length < PAGE_ROWS) return;
    after = last.id;
  }
}

/** The same text encrypted with the new key; undefined if the old key does not decrypt it. */
function encryptAgain(ciphertext: Uint8Array, { from, to }: Keys): Buffer | undefined {
  if (from === null) return undefined;
  try {
    return encrypt(to, decrypt(from, ciphertext));
  } catch {
    return undefined; // The caller lists it as unreadable.
  }
}
