import { and, desc, eq, gt, inArray, isNotNull, lt, not, sql } from "drizzle-orm";
import { emailIs, insertAccount } from "../accounts/accounts_store.ts";
import { checkEmail, checkName } from "../accounts/input_checks.ts";
import { lockMailedAddress } from "../accounts/locks_store.ts";
import { ownedDomainOf, personDigestOf, requireAllowedDomain } from "../accounts/mail_domains.ts";
import type { SignedChallenge } from "../accounts/passkeys_store.ts";
import { takeChallenge } from "../accounts/passkeys_store.ts";
import { inviteAgain, linkUrl } from "../accounts/password_links_store.ts";
import { signsInOn } from "../accounts/reseller_store.ts";
import { wrongProof } from "../accounts/sign_up_challenge.ts";
import type { Config } from "../config.ts";
import { InputError, Refusal } from "../errors.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import { PERSON_NAME_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { digestOfToken, encrypt, newToken } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { signedUp, signUps } from "../platform/schema_sign_up.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { OPERATOR } from "./sellers_store.ts";
import { type ShownSignUpSettings, settingsIn, type Trial } from "./sign_up_settings_store.ts";

/**
 * Sign-up: a stranger asks for an account, and makes it with the link that is mailed to the address. Until then there is no account.
 * The password is chosen with the link, so that whoever filled in the form, but does not read the mail, does not know it. Source: SUP-2, SUP-4.
 */

/** How long a link may be used. */
const LINK_HOURS = 24;
/** One mail to an address in this time; after so many within a day, one in an hour. */
const PAUSE_MINUTES = 5;
const QUICK_MAX = 3;
const LONG_PAUSE_MINUTES = 60;
const PRUNE_MAX = 2_000;
const RECENT_MAX = 100;
/** Trials of one registered domain in so many days: whoever owns it makes as many mailboxes as it likes. */
const DOMAIN_TRIALS_MAX = 5;
const DOMAIN_DAYS = 30;

/** A sign-up as the person who opens its link sees it. */
export type OpenedSignUp = { kind: "sign_up"; name: string; email: string; expiresAt: string };

export type AskedSignUp = {
  sellerId: number;
  email: string;
  name: string;
  /** The origin of the link. */
  site: string;
  /** Of the page. */
  language: LanguageTag;
  /** Proof of work, which works once. */
  proof: SignedChallenge;
  /** Counts the request towards its seller's limit. Throws if there is no place; then the proof has not been used. */
  takePlace(): Promise<void>;
};

/** Checks what people type, with the settings of the seller. Says nothing about accounts. Throws InputError. Source: SUP-1, SUP-5. */
export function checkSignUp(settings: ShownSignUpSettings, typed: { email: string; name: string }) {
  if (!settings.isOpen) throw notOpen();
  const email = checkEmail(typed.email);
  const name = checkName(typed.name, { param: "name", charsMax: PERSON_NAME_CHARS_MAX });
  requireAllowedDomain(email, settings);
  return { email, name };
}

/**
 * Mails a link to the address, or tells its owner that there is an account already. A person who was invited and has no password yet gets
 * the invitation again. The answer is the same in each case, also if the address was mailed minutes ago, and gets nothing. Throws InputError.
 */
export async function askToSignUp(
  deps: ChangeDeps & { config: Pick<Config, "secretKey"> },
  { sellerId, site, language, proof, takePlace, ...typed }: AskedSignUp,
): Promise<void> {
  const { secretKey } = deps.config;
  await changing(deps, async (tx) => {
    // Locked: requests of one seller run one after the other with a change of its settings.
    const settings = await settingsIn(tx, sellerId, true);
    const { email, name } = checkSignUp(settings, typed);
    await requireActive(tx, sellerId);
    if (!(await takeChallenge(tx, proof))) throw wrongProof();
    // Now that nobody else can send the same proof: otherwise one proof, sent again and again, would take all places.
    await takePlace();
    // Of concurrent requests for an address, one mails.
    await lockMailedAddress(tx, { kind: "sign_up", tenantId: sellerId, email });
    if (!(await mayMail(tx, sellerId, email))) return;
    const [account] = await tx
      .select({
        accountId: accounts.id,
        role: accounts.role,
        hasPassword: sql<boolean>`${accounts.passwordHash} is not null`,
      })
      .from(accounts)
      .where(and(emailIs(email), signsInOn(sellerId === OPERATOR ? null : sellerId)));
    const { token, digest } = newToken();
    const [put] = await tx
      .insert(signUps)
      .values({
        ...{ digest, sellerId, email, name, language, isKnown: account !== undefined },
        ...{ termsUrl: settings.termsUrl ?? "", privacyUrl: settings.privacyUrl ?? "" },
        expiresAt: sql`clock_timestamp() + make_interval(hours => ${LINK_HOURS})`,
      })
      .returning({ expiresAt: signUps.expiresAt });
    if (!put) throw new Error("an insert returned nothing");
    await holdSecretKey(tx, secretKey);
    if (account !== undefined) {
      const isInvited = !account.hasPassword && account.role !== "admin";
      if (isInvited) await inviteAgain(tx, account.accountId, { site, secretKey });
      else await tell(tx, { kind: "sign_up_known", accountId: account.accountId, data: {} });
      return;
    }
    const urlCiphertext = encrypt(secretKey, linkUrl(site, { kind: "sign_up", token })).toString("base64");
    // Of the seller: the address has no account.
    await tell(tx, {
      kind: "sign_up",
      accountId: sellerId,
      data: { urlCiphertext, expiresAt: toIso(put.expiresAt), address: email, language },
    });
  });
}

function notOpen(): InputError {
  return new InputError("No one can sign up here at the moment.");
}

async function requireActive(tx: Tx, sellerId: number): Promise<void> {
  if (sellerId === OPERATOR) return;
  const [reseller] = await tx.select({ status: accounts.status }).from(accounts).where(eq(accounts.id, sellerId));
  if (reseller?.status !== "active") throw notOpen();
}

/** Whether the address may be mailed by now. */
async function mayMail(tx: Tx, sellerId: number, email: string): Promise<boolean> {
  const pause = sql`make_interval(mins => case when count(*) < ${QUICK_MAX} then ${PAUSE_MINUTES}::int else ${LONG_PAUSE_MINUTES}::int end)`;
  const [mailed] = await tx
    .select({ isLongAgo: sql<boolean>`coalesce(max(${signUps.acceptedAt}) < clock_timestamp() - ${pause}, true)` })
    .from(signUps)
    .where(
      and(
        eq(signUps.sellerId, sellerId),
        eq(signUps.email, email),
        sql`${signUps.acceptedAt} > clock_timestamp() - interval '1 day'`,
      ),
    );
  return mailed?.isLongAgo === true;
}

type Link = { token: string; sellerId: number };

/** Finds a sign-up by the token of its link, opened on a host of the seller. undefined: unknown, used, ended, or of another seller. */
export async function findSignUp({ db }: { db: Db }, link: Link): Promise<OpenedSignUp | undefined> {
  const found = await findIn(db.orm, link);
  return found && { kind: "sign_up", name: found.name, email: found.email, expiresAt: toIso(found.expiresAt) };
}

async function findIn(tx: Tx, { token, sellerId }: Link, isLocked = false) {
  const digest = digestOfToken(token);
  if (digest === undefined) return undefined;
  const reading = tx
    .select()
    .from(signUps)
    .where(
      and(
        eq(signUps.digest, digest),
        eq(signUps.sellerId, sellerId),
        not(signUps.isKnown),
        gt(signUps.expiresAt, sql`clock_timestamp()`),
        sql`(${signUps.sellerId} = ${OPERATOR} or exists (
          select from ${accounts} where ${accounts.id} = ${signUps.sellerId} and ${accounts.status} = 'active'))`,
      ),
    );
  const [row] = await (isLocked ? reading.for("update") : reading);
  return row;
}

/** Throws not_found if the seller has closed sign-up meanwhile. Its links work again when it opens it. Source: SUP-4. */
export async function requireOpenToSignUp({ db }: { db: Db }, sellerId: number): Promise<void> {
  requireOpen(await settingsIn(db.orm, sellerId));
}

function requireOpen({ isOpen }: ShownSignUpSettings): void {
  if (!isOpen)
    throw new Refusal("not_found", { message: "No one can sign up here at the moment. Open the link again later." });
}

/**
 * Makes the account with the password that was chosen, and tells the seller. All links of the address end. undefined: the link was used meanwhile. Throws
 * not_found if sign-up was closed, and InputError if the address has an account by now. Source: SUP-4, SUP-6, SUP-9.
 */
export async function confirmSignUp(
  deps: ChangeDeps,
  { token, sellerId, passwordHash }: Link & { passwordHash: string },
): Promise<{ accountId: number } | undefined> {
  return changing(deps, async (tx) => {
    const settings = await settingsIn(tx, sellerId, true);
    requireOpen(settings);
    const found = await findIn(tx, { token, sellerId }, true);
    if (!found) return undefined;
    const { email, name, language, termsUrl, privacyUrl, acceptedAt } = found;
    // Again: the seller may have forbidden the domain since.
    requireAllowedDomain(email, settings);
    const person = { email, name, language: languageTag(language) ?? null, passwordHash };
    return addSignedUp(tx, settings, { sellerId, ...person, termsUrl, privacyUrl, acceptedAt });
  });
}

type Confirmed = {
  sellerId: number;
  email: string;
  name: string;
  language?: LanguageTag | null;
  /** null: the person signs in by an identity provider. */
  passwordHash: string | null;
} & Pick<Consent, "termsUrl" | "privacyUrl" | "acceptedAt">;

/** Makes the account of a person whose address is confirmed. `settings`: of the seller, locked. Throws InputError if the address has an account. */
export async function addSignedUp(
  tx: Tx,
  settings: ShownSignUpSettings,
  { sellerId, email, name, language = null, passwordHash, ...accepted }: Confirmed,
): Promise<{ accountId: number }> {
  const resellerId = sellerId === OPERATOR ? null : sellerId;
  const { accountId } = await insertAccount(tx, { role: "customer", email, name, language, resellerId, passwordHash });
  await tx.delete(signUps).where(and(eq(signUps.sellerId, sellerId), eq(signUps.email, email)));
  const person = { personDigest: personDigestOf(email), ownedDomain: await ownedDomainOf(email, settings) };
  const trial = await insertSignedUp(tx, { accountId, sellerId, ...accepted, ...person }, settings.trial);
  await tell(tx, { kind: "customer_signed_up", accountId, data: { name, email, trial } });
  return { accountId };
}

type Consent = Omit<typeof signedUp.$inferInsert, "trial">;

/**
 * The unique index decides whether this person had a trial before. The seller's settings are locked, so confirmations of one seller count
 * the trials of a domain one after the other.
 */
async function insertSignedUp(tx: Tx, consent: Consent, trial: Trial): Promise<"none" | "taken" | "domain" | "waits"> {
  if (trial.offeringId === null && trial.amountNanoUsd === null) {
    await tx.insert(signedUp).values({ ...consent, trial: "none" });
    return "none";
  }
  if (await hadManyTrials(tx, consent)) {
    await tx.insert(signedUp).values({ ...consent, trial: "domain" });
    return "domain";
  }
  const offered = { trialOfferingId: trial.offeringId, trialNanoUsd: trial.amountNanoUsd, trialPayWith: trial.payWith };
  const first = await tx
    .insert(signedUp)
    .values({ ...consent, ...offered, trial: "waits" })
    .onConflictDoNothing({
      target: [signedUp.sellerId, signedUp.personDigest],
      where: sql`${signedUp.trial} in ('waits', 'given')`,
    })
    .returning({ accountId: signedUp.accountId });
  if (first.length > 0) return "waits";
  await tx.insert(signedUp).values({ ...consent, trial: "taken" });
  return "taken";
}

/** Whether a domain has had as many trials as it may. Source: SUP-10. */
async function hadManyTrials(tx: Tx, { sellerId, ownedDomain }: Consent): Promise<boolean> {
  if (!ownedDomain) return false;
  const had = await tx
    .select({ accountId: signedUp.accountId })
    .from(signedUp)
    .where(
      and(
        eq(signedUp.sellerId, sellerId),
        eq(signedUp.ownedDomain, ownedDomain),
        sql`${signedUp.confirmedAt} > clock_timestamp() - make_interval(days => ${DOMAIN_DAYS})`,
        inArray(signedUp.trial, ["waits", "given"]),
      ),
    )
    .limit(DOMAIN_TRIALS_MAX);
  return had.length === DOMAIN_TRIALS_MAX;
}

export type SignedUp = {
  accountId: number;
  name: string;
  email: string;
  confirmedAt: string;
  acceptedAt: string;
  termsUrl: string;
  privacyUrl: string;
  trial: "none" | "taken" | "domain" | "waits" | "given";
  /** Why the trial waits. */
  trialWhy: "balance" | "allotment" | "offering" | "payg" | null;
};

/** The accounts that signed up with a seller, the newest first; `before` is an account's id. */
export async function listSignedUp(
  { db }: { db: Db },
  { sellerId, before, limit = RECENT_MAX }: { sellerId: number; before?: number | undefined; limit?: number },
): Promise<{ rows: SignedUp[]; hasMore: boolean }> {
  const size = Math.min(limit, RECENT_MAX);
  const rows = await db.orm
    .select({
      accountId: signedUp.accountId,
      name: accounts.name,
      email: accounts.email,
      confirmedAt: signedUp.confirmedAt,
      acceptedAt: signedUp.acceptedAt,
      termsUrl: signedUp.termsUrl,
      privacyUrl: signedUp.privacyUrl,
      trial: signedUp.trial,
      trialWhy: signedUp.trialWhy,
    })
    .from(signedUp)
    .innerJoin(accounts, eq(accounts.id, signedUp.accountId))
    .where(and(eq(signedUp.sellerId, sellerId), before === undefined ? undefined : lt(signedUp.accountId, before)))
    .orderBy(desc(signedUp.accountId))
    .limit(size + 1);
  const shown = rows.slice(0, size).map(({ trialWhy, ...row }) => ({
    ...row,
    confirmedAt: toIso(row.confirmedAt),
    acceptedAt: toIso(row.acceptedAt),
    trialWhy: row.trial === "waits" ? trialWhy : null,
  }));
  return { rows: shown, hasMore: rows.length > size };
}

/** Deletes requests that have ended, at most PRUNE_MAX; returns how many. Called by a job. */
export async function pruneSignUps({ db }: { db: Db }): Promise<number> {
  const ended = db.orm
    .select({ digest: signUps.digest })
    .from(signUps)
    .where(and(isNotNull(signUps.expiresAt), lt(signUps.expiresAt, sql`clock_timestamp()`)))
    .limit(PRUNE_MAX);
  const deleted = await db.orm
    .delete(signUps)
    .where(sql`${signUps.digest} in ${ended}`)
    .returning({ digest: signUps.digest });
  return deleted.length;
}
