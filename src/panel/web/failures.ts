import { plural, select, t } from "@lingui/core/macro";
import type { MemberRole } from "../../accounts/member_roles.ts";
import { formatApart, formatDay, formatDuration, formatList, formatReset, formatUsd, toNanoUsd } from "./format.ts";

/**
 * The texts of what did not work. The text of a refusal follows from its code, never from its status, because some
 * statuses differ in the panel.
 *
 *   refusalText({ code: "daily_quota_exceeded", limit: 500, resetsAt, zone: "Europe/Berlin", now: nowMs() })
 *   → "Today's 500 requests are used. 500 more in 5 h 12 min, at 00:00 Berlin (08:00 your time)."
 *
 * Every function is pure. The page passes the facts it has; a sentence whose fact is missing is left out.
 */

/** Facts for the text of a refusal. The first block is from the error, the second from the page. */
export type RefusalFacts = {
  code: string;
  message?: string;
  /** In requests; for insufficient_balance in USD; for a package's token limit in tokens. */
  limit?: number;
  used?: number;
  remaining?: number;
  resetsAt?: string | null;
  retryAfterSeconds?: number;

  /** Unix milliseconds, by the server's clock. */
  now: number;
  /** The package's time zone, an IANA name; default UTC. */
  zone?: string;
  packageName?: string;
  packageEndedAt?: string;
  /** Requests that each day adds. The `limit` of a carryover package is the sum of all days so far. */
  dailyLimit?: number;
  /** What package_quota_exceeded counts; default requests. */
  unit?: "request" | "token";
  model?: string;
  /** Models that could be used instead. */
  alternatives?: readonly string[];
  /** The name of the brand that sells here. */
  brand?: string;
};

const ALTERNATIVES_MAX = 3;
const RETRY_DEFAULT_SECONDS = 5;

/** Why a request was refused, and what to do next. */
export function refusalText(facts: RefusalFacts): string {
  const say = REFUSALS[facts.code];
  return say ? say(facts) : (facts.message ?? t`This request was refused.`);
}

/** True for codes that refuse a request without charging it: shown in amber, not as a failure. */
export function isRefusal(code: string): boolean {
  return code in REFUSALS;
}

/** The end of every refusal; the request id and its copy button follow it. */
export const NOTHING_CHARGED = t`Nothing was charged.`;

const KEYS_KEPT = ({ brand }: RefusalFacts) =>
  brand
    ? t`Your keys are kept and work again with a new package from ${brand}.`
    : t`Your keys are kept and work again with a new package.`;

const REFUSALS: Record<string, (facts: RefusalFacts) => string> = {
  daily_quota_exceeded: (facts) => sentences(dayUsed(facts), moreAt(facts)),
  carryover_quota_exceeded: (facts) =>
    sentences(t`All the requests that you had saved up are used.`, moreAt({ ...facts, limit: facts.dailyLimit })),
  package_quota_exceeded: (facts) =>
    sentences(facts.unit === "token" ? tokensUsed(facts) : requestsUsed(facts), KEYS_KEPT(facts)),
  package_expired: (facts) => sentences(packageEnded(facts), KEYS_KEPT(facts)),
  package_required: (facts) => sentences(t`No package is active.`, KEYS_KEPT(facts)),
  insufficient_balance: ({ limit, remaining, message = t`The balance does not cover this.` }) => {
    if (limit === undefined || remaining === undefined) return message;
    const [cost, available] = formatApart(toNanoUsd(limit), toNanoUsd(remaining));
    return t`This could cost up to ${cost}; ${available} is available. Lower max tokens or top up the balance.`;
  },
  key_request_limit_exceeded: (facts) => sentences(keyDayUsed(facts), moreAt(facts)),
  key_spend_limit_exceeded: (facts) => sentences(spendLimit(facts), againAt(facts)),
  payg_pricing_unavailable: (facts) => {
    const { model } = facts;
    return sentences(
      model === undefined ? t`This model has no pay-as-you-go price yet.` : t`${model} has no pay-as-you-go price yet.`,
      instead(facts),
    );
  },
  model_not_in_package: (facts) => sentences(notInPackage(facts), instead(facts)),
  model_not_found: (facts) => {
    const { model } = facts;
    return sentences(
      model === undefined
        ? t`This model does not exist, or this key may not use it.`
        : t`${model} does not exist, or this key may not use it.`,
      instead(facts),
    );
  },
  no_active_key: () => t`No key can pay for this. Create one or switch one on.`,
  too_many_requests: (facts) => t`Too many requests. Try again in ${{ wait: waitOf(facts) }}.`,
  provider_unavailable: (facts) => {
    const { model } = facts;
    const wait = waitOf(facts);
    return model === undefined
      ? t`The model is not answering. Try again in ${wait}.`
      : t`${model} is not answering. Try again in ${wait}.`;
  },
  service_unavailable: (facts) => t`We cannot take this request right now. Try again in ${{ wait: waitOf(facts) }}.`,
};

function dayUsed({ limit }: RefusalFacts): string {
  if (limit === undefined) return t`Today's requests are used.`;
  return plural(limit, { one: "Today's # request is used.", other: "Today's # requests are used." });
}

function keyDayUsed({ limit }: RefusalFacts): string {
  if (limit === undefined) return t`This key's own requests for today are used.`;
  return plural(limit, {
    one: "This key's own # request for today is used.",
    other: "This key's own # requests for today are used.",
  });
}

function requestsUsed({ limit, packageName }: RefusalFacts): string {
  if (limit === undefined) {
    return packageName === undefined
      ? t`All requests of the package are used.`
      : t`All requests of ${packageName} are used.`;
  }
  return packageName === undefined
    ? plural(limit, {
        one: "All # request of the package is used.",
        other: "All # requests of the package are used.",
      })
    : plural(limit, {
        one: `All # request of ${packageName} is used.`,
        other: `All # requests of ${packageName} are used.`,
      });
}

function tokensUsed({ limit, packageName }: RefusalFacts): string {
  if (limit === undefined) {
    return packageName === undefined
      ? t`All tokens of the package are used.`
      : t`All tokens of ${packageName} are used.`;
  }
  return packageName === undefined
    ? plural(limit, {
        one: "All # token of the package is used.",
        other: "All # tokens of the package are used.",
      })
    : plural(limit, {
        one: `All # token of ${packageName} is used.`,
        other: `All # tokens of ${packageName} are used.`,
      });
}

function packageEnded({ packageName, packageEndedAt, zone = "UTC", now }: RefusalFacts): string {
  if (packageEndedAt === undefined) {
    return packageName === undefined ? t`The package has ended.` : t`${packageName} has ended.`;
  }
  const day = formatDay(packageEndedAt, zone, now);
  return packageName === undefined ? t`The package ended on ${day}.` : t`${packageName} ended on ${day}.`;
}

function notInPackage({ model, packageName }: RefusalFacts): string {
  if (model === undefined) {
    return packageName === undefined ? t`This model is not in your package.` : t`This model is not in ${packageName}.`;
  }
  return packageName === undefined ? t`${model} is not in your package.` : t`${model} is not in ${packageName}.`;
}

function spendLimit({ limit, remaining }: RefusalFacts): string {
  if (limit === undefined) return t`This key may spend no more for now.`;
  if (remaining === undefined) return t`This key may spend no more than its limit of ${{ limit: formatUsd(limit) }}.`;
  return remaining > 0
    ? t`This could cost more than the ${{ rest: formatUsd(remaining) }} that this key may still spend.`
    : t`This key has reached its spending limit of ${{ limit: formatUsd(limit) }}.`;
}

/** Texts for failures that are not refusals. */
export const FAILURES = {
  offline: t`We cannot reach the server. Check your connection; nothing you entered is lost.`,
  internal: t`Something went wrong on our side. Nothing you entered is lost.`,
  notFound: t`There is nothing here. It may have been removed, or the address is wrong.`,
  forbidden: t`Your account may not see this.`,
  crashed: t`This page stopped working. Reload it; if it happens again, send us the text below.`,
  newVersion: t`There is a newer version of this page, or the connection was lost. Reload to continue.`,
  csrf: t`This page has been open for too long. Reload it and try again.`,
} as const;

/** Why controls are disabled while an admin views another's panel. */
export const READ_ONLY = t`This view is read-only, and recorded. Leave it to change something.`;

/** Why they are disabled for a member. */
export function roleLocked(member: MemberRole): string {
  return t`Your role in this account, ${select(member, { owner: "owner", developer: "developer", billing: "billing", other: "viewer" })}, does not change this. An owner can.`;
}

/** "500 more in 5 h 12 min, at 00:00 Berlin (08:00 your time)." Null without a known reset. */
function moreAt({ limit, resetsAt, zone = "UTC", now }: RefusalFacts): string | null {
  if (resetsAt === undefined) return null;
  if (resetsAt === null) return t`No more days are left in this package.`;
  const wait = formatDuration(Date.parse(resetsAt) - now);
  const time = formatReset(resetsAt, zone);
  return limit === undefined
    ? t`More in ${wait}, at ${time}.`
    : plural(limit, { other: `# more in ${wait}, at ${time}.` });
}

/** "More in 5 h 12 min, …", for limits that are not counted in requests. */
function againAt({ limit: _, ...facts }: RefusalFacts): string | null {
  return moreAt(facts);
}

function instead({ alternatives = [] }: RefusalFacts): string | null {
  if (alternatives.length === 0) return null;
  return t`You can use ${{ models: formatList(alternatives.slice(0, ALTERNATIVES_MAX), "or") }}.`;
}

function waitOf(facts: RefusalFacts): string {
  return formatDuration((facts.retryAfterSeconds ?? RETRY_DEFAULT_SECONDS) * 1_000);
}

/** Whole sentences, one after the other. */
export function sentences(...parts: (string | null)[]): string {
  return parts.filter((part) => part !== null).join(" ");
}
