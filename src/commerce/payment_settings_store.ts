import { randomBytes } from "node:crypto";
import { and, eq, inArray, isNotNull, sql } from "drizzle-orm";
import { checkLines } from "../accounts/input_checks.ts";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { PAY_INSTRUCTIONS_CHARS_MAX, SHOP_URL_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decrypt, encrypt, Secret } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { requireNoCharges } from "./card_charges_store.ts";
import { forgetCards } from "./cards_store.ts";
import { requireNoPages } from "./checkouts_store.ts";
import { modeOf, type StripeMode } from "./test_money.ts";

/** How a seller is paid. Secrets are stored encrypted, and never shown again. Source: BUY-2, BUY-7. */

const SHOP_SECRET_BYTES = 32;
const STRIPE_KEY = /^(sk|rk)_(live|test)_[0-9A-Za-z_]{10,240}$/;
const STRIPE_WEBHOOK_SECRET = /^whsec_[0-9A-Za-z+/=_-]{10,240}$/;

type Deps = { db: Db; config: Pick<Config, "secretKey"> };

/** As its seller sees it. */
export type PaymentSettings = {
  /** Shown to a customer who pays by instructions; null: not offered. */
  instructions: string | null;
  /** Whether Stripe's key is set, and of which mode. */
  stripe: "off" | StripeMode;
  /** The address that customers are sent to; null: not offered. */
  shopUrl: string | null;
  hasShopSecret: boolean;
};

/** The ways to pay that a seller offers. */
export type WaysToPay = { stripe: boolean; instructions: string | null; shopUrl: string | null };

export type StripeSecrets = { apiKey: Secret; webhookSecret: Secret };

export async function readPaymentSettings(deps: Deps, sellerId: number): Promise<PaymentSettings> {
  const row = await rowOf(deps, sellerId);
  const secrets = row === undefined ? undefined : secretsOf(deps, row);
  return {
    instructions: row?.instructions ?? null,
    stripe: secrets === undefined ? "off" : modeOf(secrets.apiKey),
    shopUrl: row?.shopUrl ?? null,
    hasShopSecret: row?.shopSecretCiphertext != null,
  };
}

/** The sellers whose key is of Stripe's test mode. */
export async function sellersInTestMode(deps: Deps): Promise<number[]> {
  const rows = await deps.db.orm.select().from(sellers).where(isNotNull(sellers.stripeKeyCiphertext));
  const inTestMode = rows.filter((row) => {
    const secrets = secretsOf(deps, row);
    return secrets !== undefined && modeOf(secrets.apiKey) === "test";
  });
  return inTestMode.map(({ sellerId }) => sellerId);
}

export async function waysToPay(deps: Pick<Deps, "db">, sellerId: number): Promise<WaysToPay> {
  const row = await rowOf(deps, sellerId);
  return {
    stripe: row?.stripeKeyCiphertext != null && row.stripeWebhookCiphertext != null,
    instructions: row?.instructions ?? null,
    shopUrl: row?.shopSecretCiphertext == null ? null : row.shopUrl,
  };
}

/** Stripe's secrets of a seller; undefined: not set. Throws Error if SECRET_KEY is not the one that encrypted them. */
export async function stripeSecretsOf(deps: Deps, sellerId: number): Promise<StripeSecrets | undefined> {
  const row = await rowOf(deps, sellerId);
  return row === undefined ? undefined : secretsOf(deps, row);
}

/** The secret by which a seller's shop signs; undefined: not set. */
export async function shopSecretOf(deps: Deps, sellerId: number): Promise<Secret | undefined> {
  const ciphertext = (await rowOf(deps, sellerId))?.shopSecretCiphertext;
  return ciphertext == null ? undefined : new Secret(decrypt(deps.config.secretKey, ciphertext));
}

export type WebhookSender = "stripe" | "shop";

/** Those of the sellers, by their ids as text, that have the secret by which the sender's webhooks are signed. */
export async function sellersWithWebhooks(
  { db }: Pick<Deps, "db">,
  sender: WebhookSender,
  sellerIds: readonly string[],
): Promise<ReadonlyMap<string, true>> {
  const secret = sender === "stripe" ? sellers.stripeWebhookCiphertext : sellers.shopSecretCiphertext;
  const rows = await db.orm
    .select({ sellerId: sellers.sellerId })
    .from(sellers)
    .where(and(inArray(sellers.sellerId, sellerIds.map(Number)), isNotNull(secret)));
  return new Map(rows.map(({ sellerId }) => [String(sellerId), true]));
}

/** Sets the instructions for customers who pay by them; null or empty: not offered. Throws InputError. */
export async function setInstructions(deps: ChangeDeps & Deps, sellerId: number, text: string | null): Promise<void> {
  const instructions = checkLines(text, { param: "instructions", charsMax: PAY_INSTRUCTIONS_CHARS_MAX });
  await save(deps, sellerId, { instructions });
}

/** Checks the form of the secrets, before Stripe is asked about them. Throws InputError. */
export function checkStripeSecrets({
  apiKey,
  webhookSecret,
}: {
  apiKey: string;
  webhookSecret: string;
}): StripeSecrets {
  if (!STRIPE_KEY.test(apiKey.trim()))
    throw new InputError(
      "A secret key of Stripe begins with sk_ or rk_. A publishable key (pk_) is another one.",
      "apiKey",
    );
  if (!STRIPE_WEBHOOK_SECRET.test(webhookSecret.trim()))
    throw new InputError("The signing secret of a webhook of Stripe begins with whsec_.", "webhookSecret");
  return { apiKey: new Secret(apiKey.trim()), webhookSecret: new Secret(webhookSecret.trim()) };
}

/** `keepsPages`: the secrets are of the account that made the open pages. */
type StripeChange = { sellerId: number; secrets: StripeSecrets | null; keepsPages: boolean };

/**
 * Stores Stripe's secrets, or removes them. Throws service_unavailable if pages of the former account are still open:
 * see `stripe_account.ts`.
 */
export async function setStripe(
  deps: ChangeDeps & Deps,
  { sellerId, secrets, keepsPages }: StripeChange,
): Promise<void> {
  const sealed = (secret: Secret | undefined) =>
    secret === undefined ? null : encrypt(deps.config.secretKey, secret.reveal());
  const set = {
    stripeKeyCiphertext: sealed(secrets?.apiKey),
    stripeWebhookCiphertext: sealed(secrets?.webhookSecret),
  };
  await changing(deps, async (tx) => {
    await saveIn(tx, { deps, sellerId, set });
    if (keepsPages) return;
    await requireNoPages(tx, sellerId);
    await requireNoCharges(tx, sellerId);
    await forgetCards(tx, sellerId);
  });
}

/** Sets the address of the seller's shop, with a new secret, which is returned this once; null: removes both. Throws InputError. */
export async function setShop(deps: ChangeDeps & Deps, sellerId: number, url: string | null): Promise<Secret | null> {
  if (url === null) {
    await save(deps, sellerId, { shopUrl: null, shopSecretCiphertext: null });
    return null;
  }
  const parsed = URL.parse(url.trim());
  const isPlain = parsed !== null && parsed.username === "" && parsed.password === "";
  if (!isPlain || parsed.protocol !== "https:" || parsed.href.length > SHOP_URL_CHARS_MAX)
    throw new InputError("The address of the shop must begin with https://.", "shopUrl");
  const secret = new Secret(`whsec_${randomBytes(SHOP_SECRET_BYTES).toString("base64")}`);
  await save(deps, sellerId, {
    shopUrl: parsed.href,
    shopSecretCiphertext: encrypt(deps.config.secretKey, secret.reveal()),
  });
  return secret;
}

type Row = typeof sellers.$inferSelect;

async function save(deps: ChangeDeps & Deps, sellerId: number, set: Partial<Row>): Promise<void> {
  await changing(deps, (tx) => saveIn(tx, { deps, sellerId, set }));
}

async function saveIn(tx: Tx, { deps, sellerId, set }: { deps: Deps; sellerId: number; set: Partial<Row> }) {
  await holdSecretKey(tx, deps.config.secretKey);
  const updatedAt = sql`clock_timestamp()`;
  await tx
    .insert(sellers)
    .values({ sellerId, ...set })
    .onConflictDoUpdate({ target: sellers.sellerId, set: { ...set, updatedAt } });
}

async function rowOf({ db }: Pick<Deps, "db">, sellerId: number): Promise<Row | undefined> {
  const [row] = await db.orm.select().from(sellers).where(eq(sellers.sellerId, sellerId));
  return row;
}

function secretsOf({ config }: Pick<Deps, "config">, row: Row): StripeSecrets | undefined {
  const { stripeKeyCiphertext: key, stripeWebhookCiphertext: webhook } = row;
  if (key === null || webhook === null) return undefined;
  return {
    apiKey: new Secret(decrypt(config.secretKey, key)),
    webhookSecret: new Secret(decrypt(config.secretKey, webhook)),
  };
}
