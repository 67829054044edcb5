import { domainToASCII } from "node:url";
import { disposableEmailBlocklistSet } from "disposable-email-domains-js";
import mailProviders from "email-providers/all.json" with { type: "json" };
import { InputError, sentence } from "../errors.ts";
import { MAIL_DOMAINS_MAX } from "../limits.ts";
import { lazily } from "../platform/lazily.ts";
import { sha256 } from "../platform/runtime.ts";
import { checkEmail } from "./input_checks.ts";

/** The domains of e-mail addresses, and which addresses are one mailbox. Pure. Source: SUP-5, SUP-6, SUP-10. */

const DOMAIN = /^(?=.{4,253}$)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])$/;
/** Providers that ignore dots before the @, and the name under which both of their domains are one. */
const DOTLESS: Readonly<Record<string, string>> = { "gmail.com": "gmail.com", "googlemail.com": "gmail.com" };

/** Nine thousand domains each, put into sets when the first is looked up. */
const disposables = lazily((): ReadonlySet<string> => disposableEmailBlocklistSet());
const providers = lazily((): ReadonlySet<string> => new Set(mailProviders));

export type DomainRules = {
  /** Empty: all are allowed. */
  allowedDomains: readonly string[];
  forbiddenDomains: readonly string[];
  disposableAllowed: boolean;
};

/** Throws InputError if a person may not sign up with this address. It says nothing about accounts. */
export function requireAllowedDomain(email: string, rules: DomainRules): void {
  const domain = mailDomainOf(email);
  const { allowedDomains, forbiddenDomains, disposableAllowed } = rules;
  const isAllowed =
    DOMAIN.test(domain) &&
    (allowedDomains.length === 0 || isBelow(domain, allowedDomains)) &&
    !isBelow(domain, forbiddenDomains) &&
    (disposableAllowed || !isDisposable(domain));
  if (!isAllowed)
    throw new InputError("Addresses of this mail provider cannot be used here. Use another address.", "email");
}

/** The domain of an address, in the form in which the DNS has it. "" if it has none. */
export function mailDomainOf(email: string): string {
  return domainToASCII(email.slice(email.lastIndexOf("@") + 1));
}

/** Whether a domain is one of the list, or below one of it. */
export function isBelow(domain: string, list: readonly string[]): boolean {
  return parentsOf(domain).some((one) => list.includes(one));
}

function isDisposable(domain: string): boolean {
  return parentsOf(domain).some((one) => disposables().has(one));
}

/**
 * The domain whose owner can make any number of mailboxes at an address's domain: the one that was registered. null: anyone gets a mailbox
 * there, as at Gmail, or the seller names the domain as allowed. Source: SUP-10.
 */
export async function ownedDomainOf(
  email: string,
  { allowedDomains }: Pick<DomainRules, "allowedDomains">,
): Promise<string | null> {
  const domain = mailDomainOf(email);
  if (isBelow(domain, allowedDomains)) return null;
  const isPublic = parentsOf(domain).some((one) => providers().has(one)) && !isDisposable(domain);
  if (isPublic) return null;
  // The list of all registries takes longer to load than all of this file.
  const { getDomain } = await import("tldts");
  return getDomain(domain, { allowPrivateDomains: true }) ?? domain;
}

/** "a.b.example" → "a.b.example", "b.example". */
function parentsOf(domain: string): string[] {
  const labels = domain.split(".");
  return labels.slice(0, -1).map((_, from) => labels.slice(from).join("."));
}

/** Domains as people type them, in lower case and without the @. Throws InputError that names the first invalid one. */
export function checkMailDomains(typed: readonly string[], param: string): string[] {
  const domains = [...new Set(typed.map((one) => one.trim().toLowerCase().replace(/^@/, "")).filter(Boolean))];
  if (domains.length > MAIL_DOMAINS_MAX)
    throw new InputError(
      sentence("The list may have at most {mailDomainsMax} domains.", { mailDomainsMax: MAIL_DOMAINS_MAX }),
      param,
    );
  return domains.map((one) => {
    const domain = domainToASCII(one);
    if (!DOMAIN.test(domain))
      throw new InputError(
        sentence("{one} is not a domain, such as example.com.", { one: JSON.stringify(one.slice(0, 60)) }),
        param,
      );
    return domain;
  });
}

/**
 * A digest of the mailbox that an address leads to: what follows a plus sign does not count, and neither do dots at Gmail, nor the
 * capitals of either. It is the same for all spellings of one mailbox. Throws InputError.
 */
export function personDigestOf(email: string): Buffer {
  const address = checkEmail(email);
  const at = address.lastIndexOf("@");
  const domain = mailDomainOf(address);
  const untagged = address.slice(0, at).replace(/(?<=.)\+.*$/u, "");
  const dotless = DOTLESS[domain];
  const local = dotless === undefined ? untagged : untagged.replaceAll(".", "");
  return Buffer.from(sha256(`${local}@${dotless ?? domain}`));
}
