import { eq, sql } from "drizzle-orm";
import { checkMailDomains } from "../accounts/mail_domains.ts";
import { notForSale } from "../accounts/offerings_store.ts";
import { InputError } from "../errors.ts";
import { CENT_NANO_USD, MONEY_NANO_USD_MAX, TERMS_URL_CHARS_MAX } from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { signUpSettings } from "../platform/schema_sign_up.ts";
import { OPERATOR } from "./sellers_store.ts";

/** How strangers may sign up with a seller. Source: SUP-1, SUP-5, SUP-7. */

/** What a new account gets, one of the two or nothing. */
export type Trial = {
  offeringId: number | null;
  amountNanoUsd: bigint | null;
  /** How a reseller pays for a package. */
  payWith: "balance" | "allotment";
};

export type SignUpSettings = {
  isOpen: boolean;
  termsUrl: string | null;
  privacyUrl: string | null;
  trial: Trial;
  /** Empty: all are allowed. */
  allowedDomains: string[];
  forbiddenDomains: string[];
  disposableAllowed: boolean;
};

const CLOSED: SignUpSettings = {
  isOpen: false,
  termsUrl: null,
  privacyUrl: null,
  trial: { offeringId: null, amountNanoUsd: null, payWith: "balance" },
  allowedDomains: [],
  forbiddenDomains: [],
  disposableAllowed: false,
};

/** `name` of the trial's offering; null: the trial is no package. */
export type ShownSignUpSettings = SignUpSettings & { trialName: string | null };

/** The settings of a seller. */
export async function signUpSettingsOf({ db }: { db: Db }, sellerId: number): Promise<ShownSignUpSettings> {
  return settingsIn(db.orm, sellerId);
}

/** The same in a transaction; `isLocked`: they do not change until it ends. */
export async function settingsIn(tx: Tx, sellerId: number, isLocked = false): Promise<ShownSignUpSettings> {
  const reading = tx
    .select({ row: signUpSettings, trialName: offerings.name })
    .from(signUpSettings)
    .leftJoin(offerings, eq(offerings.id, signUpSettings.trialOfferingId))
    .where(eq(signUpSettings.sellerId, sellerId));
  const [found] = await (isLocked ? reading.for("share", { of: signUpSettings }) : reading);
  if (!found) return { ...CLOSED, trialName: null };
  const { isOpen, termsUrl, privacyUrl, allowedDomains, forbiddenDomains, disposableAllowed, ...row } = found.row;
  const trial = { offeringId: row.trialOfferingId, amountNanoUsd: row.trialNanoUsd, payWith: row.trialPayWith };
  return {
    ...{ isOpen, termsUrl, privacyUrl, trial, allowedDomains, forbiddenDomains, disposableAllowed },
    trialName: found.trialName,
  };
}

/** Which of these sellers are open to sign-up. Keys are their ids as text. */
export async function sellersOpenToSignUp(
  { db }: { db: Db },
  sellerIds: readonly string[],
): Promise<Map<string, true>> {
  const rows = await db.orm
    .select({ sellerId: signUpSettings.sellerId })
    .from(signUpSettings)
    .where(
      sql`${signUpSettings.isOpen} and ${signUpSettings.sellerId} = any(${`{${sellerIds.join(",")}}`}::text::bigint[])`,
    );
  return new Map(rows.map(({ sellerId }) => [String(sellerId), true]));
}

/** What is given replaces what is set. */
export type SignUpChange = { sellerId: number } & {
  [Name in keyof Omit<SignUpSettings, "trial">]?: SignUpSettings[Name] | undefined;
} & {
  trial?: { [Name in keyof Trial]?: Trial[Name] | undefined };
};

/** Changes settings of a seller. `canMail`: whether it can send mail, without which nobody can sign up. Throws InputError. Source: SUP-1. */
export async function setSignUpSettings(
  deps: ChangeDeps,
  { sellerId, ...wanted }: SignUpChange,
  canMail: boolean,
): Promise<ShownSignUpSettings> {
  return changing(deps, async (tx) => {
    // The row is inserted first, so that there is one to lock.
    await tx.insert(signUpSettings).values({ sellerId }).onConflictDoNothing();
    await tx
      .select({ sellerId: signUpSettings.sellerId })
      .from(signUpSettings)
      .where(eq(signUpSettings.sellerId, sellerId))
      .for("update");
    const before = await settingsIn(tx, sellerId);
    const next = { ...before, ...given(wanted), trial: { ...before.trial, ...given(wanted.trial ?? {}) } };
    const set = {
      isOpen: next.isOpen,
      termsUrl: checkUrl(next.termsUrl, "termsUrl"),
      privacyUrl: checkUrl(next.privacyUrl, "privacyUrl"),
      trialOfferingId: next.trial.offeringId,
      trialNanoUsd: next.trial.amountNanoUsd,
      trialPayWith: sellerId === OPERATOR ? ("balance" as const) : next.trial.payWith,
      allowedDomains: checkMailDomains(next.allowedDomains, "allowedDomains"),
      forbiddenDomains: checkMailDomains(next.forbiddenDomains, "forbiddenDomains"),
      disposableAllowed: next.disposableAllowed,
    };
    if (set.isOpen) requireReady(set, canMail);
    // What was chosen before stays, also if it is not for sale any more: sign-up must not be locked open.
    if (wanted.trial !== undefined) await checkTrial(tx, sellerId, next.trial);
    await tx
      .update(signUpSettings)
      .set({ ...set, updatedAt: sql`clock_timestamp()` })
      .where(eq(signUpSettings.sellerId, sellerId));
    return settingsIn(tx, sellerId);
  });
}

/** Without what is undefined. */
function given<Values extends object>(values: Values): { [Name in keyof Values]?: Exclude<Values[Name], undefined> } {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as {
    [Name in keyof Values]?: Exclude<Values[Name], undefined>;
  };
}

function requireReady(
  { termsUrl, privacyUrl }: { termsUrl: string | null; privacyUrl: string | null },
  canMail: boolean,
): void {
  if (termsUrl === null)
    throw new InputError("Enter the address of your terms: people accept them when they sign up.", "termsUrl");
  if (privacyUrl === null)
    throw new InputError("Enter the address of your privacy policy: people accept it when they sign up.", "privacyUrl");
  if (!canMail)
    throw new InputError("Sign-up needs a mail server: people confirm their address by mail. Set one first.", "isOpen");
}

async function checkTrial(tx: Tx, sellerId: number, { offeringId, amountNanoUsd }: Trial): Promise<void> {
  if (offeringId !== null && amountNanoUsd !== null)
    throw new InputError("A trial is a package or an amount, not both.", "trialAmountNanoUsd");
  if (offeringId !== null) {
    const found = await tx
      .select({ id: offerings.id })
      .from(offerings)
      .where(sql`${offerings.id} = ${offeringId}::bigint and ${offerings.enabled} and not ${offerings.measured}`);
    if (found.length === 0) throw new InputError(notForSale().message, "trialOfferingId");
  }
  if (amountNanoUsd === null) return;
  if (amountNanoUsd <= 0n || amountNanoUsd > MONEY_NANO_USD_MAX || amountNanoUsd % CENT_NANO_USD !== 0n)
    throw new InputError("The amount of a trial must be whole cents, from $0.01 to $9,000,000.", "trialAmountNanoUsd");
  if (!(await maySwitchPayg(tx, sellerId)))
    throw new InputError(
      "An amount pays for requests only with pay-as-you-go, which you may not enable. Ask the operator for the permission, or choose a package.",
      "trialAmountNanoUsd",
    );
}

/** Whether a seller may enable pay-as-you-go for its customers. */
export async function maySwitchPayg(tx: Tx, sellerId: number): Promise<boolean> {
  if (sellerId === OPERATOR) return true;
  const [row] = await tx.select({ granted: accounts.maySwitchPayg }).from(accounts).where(eq(accounts.id, sellerId));
  return row?.granted === true;
}

/** An https:// page; empty: none. */
function checkUrl(typed: string | null, param: string): string | null {
  const text = typed?.trim() ?? "";
  if (text === "") return null;
  const url = URL.canParse(text) ? new URL(text) : undefined;
  // A user name before the host disguises the real host.
  const isPage = url?.protocol === "https:" && url.username === "" && url.password === "";
  if (!isPage || url.href.length > TERMS_URL_CHARS_MAX) throw new InputError("Enter an https:// address.", param);
  return url.href;
}
