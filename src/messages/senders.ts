import type { I18n } from "@lingui/core";
import { accentCss } from "../accounts/accent.ts";
import { type Account, findPerson } from "../accounts/accounts_store.ts";
import { loadBrand } from "../accounts/brands_store.ts";
import { signInHostOf } from "../accounts/password_links_store.ts";
import type { Config } from "../config.ts";
import { siteUrl } from "../http/host.ts";
import { type LanguageTag, languageTag } from "../languages/languages.ts";
import { textsIn } from "../languages/server_texts.ts";
import { decrypt } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import type { Claimed } from "./claims_store.ts";
import { isOptional, LINK_KINDS, MAILED_TO_ADDRESS } from "./kinds.ts";
import { DARK_LOGO_ID, LOGO_ID, type MailLook, mailHtml, mailPlain } from "./mail_html.ts";
import { findMailServer } from "./mail_servers_store.ts";
import { type MailText, mailText, testText } from "./mail_texts.ts";
import { oneLine } from "./mail_values.ts";
import { domainOf, type Mail, MailError, operatorServer, resellerServer, type SmtpServer } from "./smtp.ts";
import { unsubscribeToken } from "./unsubscribe.ts";

/** The sender and the brand of each mail: the operator, or a reseller for its customers. Source: MSG-5, MSG-8. */

/** The accent of the service's own pages. */
const OWN_ACCENT = { accent: "#00647c", onAccent: "#ffffff" };

export type SenderDeps = {
  db: Db;
  config: Pick<
    Config,
    | "secretKey"
    | "smtpUrl"
    | "mailFrom"
    | "brandName"
    | "brandSupport"
    | "brandLanguage"
    | "panelUrl"
    | "messagesAllowPrivate"
  >;
};

/** The mail server of a tenant (0: the operator); null: it has none, so its people get no mail. Throws MailError. */
export async function smtpServerOf({ db, config }: SenderDeps, tenantId: number): Promise<SmtpServer | null> {
  if (tenantId === 0) return operatorServer(config);
  const stored = await findMailServer({ db }, tenantId);
  if (stored === undefined) return null;
  const { smtpPasswordCiphertext: ciphertext } = stored;
  const password = ciphertext === null ? null : passwordIn(ciphertext, config.secretKey);
  return resellerServer({ ...stored, resellerId: tenantId }, password, config.messagesAllowPrivate);
}

/** Throws MailError. */
function passwordIn(ciphertext: Uint8Array, secretKey: Uint8Array): string {
  try {
    return decrypt(secretKey, ciphertext);
  } catch (cause) {
    throw new MailError("The stored password cannot be decrypted. Enter it again.", { fault: "server", cause });
  }
}

/** Whether a tenant has a mail server. */
export async function canMail({ db, config }: SenderDeps, tenantId: number): Promise<boolean> {
  if (tenantId === 0) return operatorServer(config) !== null;
  return (await findMailServer({ db }, tenantId)) !== undefined;
}

/** The brand of a tenant's mails. */
export async function lookOf({ db, config }: SenderDeps, tenantId: number): Promise<MailLook> {
  const brand = tenantId === 0 ? undefined : await loadBrand({ db }, tenantId);
  if (brand === undefined) {
    // Not for a reseller's customers: it would name the operator.
    if (tenantId !== 0) throw new MailError("This reseller does not exist any more.", { fault: "refused" });
    const { brandName, brandSupport, brandLanguage } = config;
    const support = brandSupport === "" ? null : brandSupport;
    const language = languageTag(brandLanguage) ?? null;
    return { name: brandName, support, language, ...OWN_ACCENT, logoLight: null, logoDark: null };
  }
  const { name, support, language, accent, logoLight, logoDark } = brand;
  return { name, support, language, ...(accent === null ? OWN_ACCENT : accentCss(accent).light), logoLight, logoDark };
}

/** The mail of a delivery, ready to send. Throws MailError if it cannot be rendered. */
export async function mailOf(deps: SenderDeps, claimed: Claimed, server: SmtpServer): Promise<Mail> {
  const { accountId, tenantId, kind, data, address, deliveryId } = claimed;
  const account = MAILED_TO_ADDRESS.includes(kind) ? stranger(tenantId, data) : await findPerson(deps, accountId);
  if (account === undefined || account.status !== "active")
    throw new MailError("The account does not exist any more, or is suspended.", { fault: "refused" });
  const [look, site] = await Promise.all([lookOf(deps, tenantId), siteOf(deps, account)]);
  const { secretKey } = deps.config;
  const link = LINK_KINDS.includes(kind) ? linkIn(data, secretKey) : null;
  const unsubscribe =
    site !== null && isOptional(kind)
      ? `${site}/unsubscribe/${unsubscribeToken(secretKey, { accountId, kind })}`
      : null;
  const i18n = textsFor(account.language, look);
  const { role } = account;
  const text = mailText(kind, { i18n, data, brand: oneLine(look.name), site, link, unsubscribe, role });
  return drawn(text, look, i18n, {
    // A name is free text: an account could use it to advertise to any address.
    to: { name: isConfirmed(claimed) ? oneLine(account.name) : "", address },
    messageId: `<${deliveryId}.${claimed.messageId}@${domainOf(server.from.address)}>`,
    headers: {
      // Tells servers not to answer automatically: RFC 3834.
      "auto-submitted": "auto-generated",
      ...(unsubscribe !== null && unsubscribeHeaders(unsubscribe)),
    },
  });
}

type Reader = Pick<Account, "role" | "resellerId" | "status" | "name" | "language">;

/** Who has no account yet: it would be a customer's. */
function stranger(tenantId: number, { language }: Readonly<Record<string, unknown>>): Reader {
  return {
    ...{ role: "customer", resellerId: tenantId === 0 ? null : tenantId, status: "active", name: "" },
    language: languageTag(String(language)) ?? null,
  };
}

/** In the reader's language; else in the brand's, or in English. Source: LNG-3. */
function textsFor(language: LanguageTag | null, brand: Pick<MailLook, "language">): I18n {
  return textsIn(language ?? brand.language ?? "en");
}

/**
 * Whether the address is confirmed as the account's: not for an invitation, nor for the new address of a change.
 * Source: MSG-7.
 */
function isConfirmed({ kind, data }: Claimed): boolean {
  return kind !== "invitation" && !(kind === "email_change" && data.to === "new");
}

/**
 * The headers by which a mail program switches the kind off with one click; only for https. Source: MSG-13, RFC 8058 ›
 * 3.1.
 */
function unsubscribeHeaders(url: string): Record<string, string> {
  const header = { "list-unsubscribe": `<${url}>` };
  return url.startsWith("https:") ? { ...header, "list-unsubscribe-post": "List-Unsubscribe=One-Click" } : header;
}

/** A mail that shows that the mail server works. */
export async function testMail(
  deps: SenderDeps,
  { tenantId, personId, to, server }: { tenantId: number; personId: number; to: Mail["to"]; server: SmtpServer },
): Promise<Mail> {
  const [look, person] = await Promise.all([lookOf(deps, tenantId), findPerson(deps, personId)]);
  const i18n = textsFor(person?.language ?? null, look);
  const brand = oneLine(look.name);
  const text = testText(i18n, { brand, from: `${oneLine(server.from.name)} <${server.from.address}>` });
  const messageId = `<test.${crypto.randomUUID()}@${domainOf(server.from.address)}>`;
  return drawn(text, look, i18n, {
    to: { ...to, name: oneLine(to.name) },
    messageId,
    headers: { "auto-submitted": "auto-generated" },
  });
}

/** Text and HTML of a mail in its brand and language. Only pictures that the HTML shows are attached. */
export function drawn(
  text: MailText,
  look: MailLook,
  i18n: I18n,
  rest: Pick<Mail, "to" | "messageId" | "headers">,
): Mail {
  const pictures = [
    { id: LOGO_ID, png: look.logoLight },
    { id: DARK_LOGO_ID, png: look.logoDark },
  ].flatMap(({ id, png }) => (png === null ? [] : [{ id, png }]));
  return {
    ...rest,
    subject: text.subject,
    text: mailPlain(text, look, i18n),
    html: mailHtml(text, look, i18n),
    pictures,
  };
}

/** Where an account signs in; null: its reseller has no active domain. */
async function siteOf({ db, config }: SenderDeps, { resellerId }: Pick<Account, "resellerId">): Promise<string | null> {
  if (resellerId === null) return new URL(config.panelUrl).origin;
  const host = await signInHostOf({ db }, { resellerId, preferred: "" });
  return host === undefined ? null : siteUrl({ config }, host);
}

/** The link of a message, which is stored encrypted. Throws MailError. */
function linkIn({ urlCiphertext }: Readonly<Record<string, unknown>>, secretKey: Uint8Array): string {
  try {
    const url = decrypt(secretKey, Buffer.from(String(urlCiphertext), "base64"));
    if (/^https?:\/\//.test(url)) return url;
    throw new Error("It is not a URL.");
  } catch (error) {
    throw new MailError("The link of this mail cannot be decrypted.", { fault: "refused", cause: error });
  }
}
