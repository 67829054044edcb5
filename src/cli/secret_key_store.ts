import { and, asc, eq, gt, isNotNull } from "drizzle-orm";
import { forgetResponses } from "../gateway/responses/stored_responses_store.ts";
import { rotateMessageSecrets } from "../messages/secrets_store.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decrypt, encrypt } from "../platform/crypto.ts";
import type { Tx } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { providerKeys, providers } from "../platform/schema_catalog.ts";
import { identityProviders } from "../platform/schema_identities.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { replaceSecretKey } from "../platform/secret_key_store.ts";

/** Second factors that are read in one query. */
const PAGE_ROWS = 500;

/**
 * The number of secrets that were encrypted again, and those that could not be: names of providers, ids of accounts,
 * ids of sellers.
 */
export type Rotated = {
  providerKeys: number;
  secondFactors: number;
  paymentSecrets: number;
  /** Client secrets of identity providers. */
  identitySecrets: number;
  /** Passwords of mail servers, secrets of webhooks, and links that wait to be mailed. */
  messageSecrets: number;
  /** `sellers`: 0 is the operator. */
  unreadable: { providers: string[]; accounts: number[]; sellers: number[] };
};

/**
 * Makes `to` the database's SECRET_KEY, and encrypts again with it every secret that `from` decrypts, in one
 * transaction. Secrets that `from` does not decrypt stay as they are; null decrypts nothing. Stored responses, which live for hours, are
 * forgotten. Returns undefined if `from` is not the database's key.
 */
export async function rotateSecretKey(
  deps: ChangeDeps,
  keys: { from: Uint8Array | null; to: Uint8Array },
): Promise<Rotated | undefined> {
  return changing(deps, async (tx) => {
    if (!(await replaceSecretKey(tx, keys))) return undefined;
    const rotated: Rotated = {
      ...{ providerKeys: 0, secondFactors: 0, paymentSecrets: 0, identitySecrets: 0, messageSecrets: 0 },
      unreadable: { providers: [], accounts: [], sellers: [] },
    };
    await rotateProviders(tx, keys, rotated);
    await rotateSecondFactors(tx, keys, rotated);
    await rotateSellers(tx, keys, rotated);
    await rotateIdentityProviders(tx, keys, rotated);
    await forgetResponses(tx);
    rotated.messageSecrets = await rotateMessageSecrets(tx, (ciphertext) => encryptAgain(ciphertext, keys));
    return rotated;
  });
}

type Keys = Parameters<typeof rotateSecretKey>[1];

async function rotateProviders(tx: Tx, secretKeys: Keys, rotated: Rotated): Promise<void> {
  const keys = await tx
    .select({ id: providerKeys.id, name: providers.name, keyCiphertext: providerKeys.keyCiphertext })
    .from(providerKeys)
    .innerJoin(providers, eq(providers.id, providerKeys.providerId))
    .orderBy(asc(providerKeys.id))
    .for("update");
  for (const { id, name, keyCiphertext } of keys) {
    const ciphertext = encryptAgain(keyCiphertext, secretKeys);
    if (ciphertext === undefined) {
      if (!rotated.unreadable.providers.includes(name)) rotated.unreadable.providers.push(name);
      continue;
    }
    await tx.update(providerKeys).set({ keyCiphertext: ciphertext }).where(eq(providerKeys.id, id));
    rotated.providerKeys++;
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

async function rotateSellers(tx: Tx, keys: Keys, rotated: Rotated): Promise<void> {
  const rows = await tx.select().from(sellers).orderBy(asc(sellers.sellerId)).for("update");
  const names = ["stripeKeyCiphertext", "stripeWebhookCiphertext", "shopSecretCiphertext"] as const;
  for (const row of rows) {
    for (const name of names) {
      const old = row[name];
      if (old === null) continue;
      const ciphertext = encryptAgain(old, keys);
      if (ciphertext === undefined) {
        if (!rotated.unreadable.sellers.includes(row.sellerId)) rotated.unreadable.sellers.push(row.sellerId);
        continue;
      }
      await tx
        .update(sellers)
        .set({ [name]: ciphertext })
        .where(eq(sellers.sellerId, row.sellerId));
      rotated.paymentSecrets++;
    }
  }
}

async function rotateIdentityProviders(tx: Tx, keys: Keys, rotated: Rotated): Promise<void> {
  const { id, sellerId, secretCiphertext } = identityProviders;
  const rows = await tx
    .select({ id, sellerId, secretCiphertext })
    .from(identityProviders)
    .orderBy(asc(id))
    .for("update");
  for (const row of rows) {
    const ciphertext = encryptAgain(row.secretCiphertext, keys);
    if (ciphertext === undefined) {
      if (!rotated.unreadable.sellers.includes(row.sellerId)) rotated.unreadable.sellers.push(row.sellerId);
      continue;
    }
    await tx.update(identityProviders).set({ secretCiphertext: ciphertext }).where(eq(id, row.id));
    rotated.identitySecrets++;
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
