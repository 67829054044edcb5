import { plural, select, t } from "@lingui/core/macro";
import type { MemberRole } from "../../accounts/member_roles.ts";
import type { RequestBounds } from "../../limits.ts";
import {
  formatApart,
  formatCount,
  formatDay,
  formatDuration,
  formatList,
  formatReset,
  formatUsd,
  toNanoUsd,
} from "./format.ts";

/**
 * The panel's texts that several pages share. The text of a refusal follows from its code, never from its status, because some
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

/** How a chat can end early. */
export const CHAT = {
  stopped: (tokens: number) =>
    plural(tokens, {
      one: "Stopped. Charged for what arrived, about # token.",
      other: "Stopped. Charged for what arrived, about # tokens.",
    }),
  brokeOff: t`The answer was cut off. Nothing was charged.`,
} as const;

/** A key that is shown once. */
export const SECRET = {
  once: t`This key is shown only once. Store it on your server, never in a browser or app.`,
  closeEarly: t`Close without copying? It cannot be shown again.`,
  stored: t`I have stored it`,
} as const;

/** Codes for when the authenticator app is lost, shown once. */
export const RECOVERY = {
  once: t`These codes are shown only once. Each lets you sign in once without your app.`,
  closeEarly: t`Close without saving them? They cannot be shown again.`,
  stored: t`I have stored them`,
} as const;

/** For who has never had a package. */
export const NEEDS_PACKAGE = t`Requests are paid for by a package, or by your balance if pay-as-you-go is switched on for you.`;

export const EMPTY = {
  keys: t`No keys yet. A key lets your server call the API.`,
  usage: t`No requests in this view. Send one from the playground, or change the filters.`,
  customers: t`No customers yet. Invite the first one: you get a link to send, and they choose their own password.`,
  domains: t`No domains yet. Add the name under which your customers sign in and call the API, such as ai.example.com.`,
  models: t`No models yet. Add a provider first; then add a model, and give it a route to that provider and a price.`,
  providers: t`No providers yet. Add a service with an OpenAI-compatible API: its base URL and your key there.`,
  catalogOfferings: t`No offerings yet. An offering is what you can sell: a number of requests a day, for a number of days.`,
  routes: t`No route yet. A route names a provider for this model, and the model's name there.`,
  allRoutes: t`No routes yet. A route leads from a model to a provider. Add it on the model's page.`,
  audit: t`Nothing in this view. Every change that a person makes is listed here, with the values before it.`,
  packages: sentences(t`No package is active.`, NEEDS_PACKAGE),
  theirPackages: t`No package is active. Their requests are paid for by a package, or by their balance if pay-as-you-go is switched on.`,
  transactions: t`No transactions yet. Top-ups, pay-as-you-go requests and corrections are listed here.`,
  orders: t`No orders yet. What you buy or ask for is listed here, with its payment and its answer.`,
  incoming: t`No order is waiting. Orders are listed here until you answer them.`,
  offerings: t`Nothing is on sale yet.`,
  theirKeys: t`No keys yet. They create their own after they sign in.`,
} as const;

/** Why controls are disabled while an admin views another's panel. */
export const READ_ONLY = t`This view is read-only, and recorded. Leave it to change something.`;

/** Why they are disabled for a member. */
export function roleLocked(member: MemberRole): string {
  return t`Your role in this account, ${select(member, { owner: "owner", developer: "developer", billing: "billing", other: "viewer" })}, does not change this. An owner can.`;
}

type LimitSet = { requestsPerMinute: number | null; tokensPerMinute: number | null; requestsAtOnce: number | null };

/** One set of limits in words: "60 requests a minute, 3 requests at once"; "" without limits. */
export function limitSetText({ requestsPerMinute, tokensPerMinute, requestsAtOnce }: LimitSet): string {
  return [
    requestsPerMinute !== null &&
      plural(requestsPerMinute, { one: "# request a minute", other: "# requests a minute" }),
    tokensPerMinute !== null && plural(tokensPerMinute, { one: "# token a minute", other: "# tokens a minute" }),
    requestsAtOnce !== null && plural(requestsAtOnce, { one: "# request at once", other: "# requests at once" }),
  ]
    .filter(Boolean)
    .join(", ");
}

/** Limits in words, those of each model too: "60 requests a minute; model-a: 5 requests at once". */
export function limitsText({ models, ...set }: LimitSet & { models: Readonly<Record<string, LimitSet>> }): string {
  const ofModels = Object.entries(models).map(([modelId, ofModel]) => `${modelId}: ${limitSetText(ofModel)}`);
  return [limitSetText(set), ...ofModels].filter(Boolean).join("; ");
}

/** What an offering or a package grants: "500 a day for 7 days, carryover", "2,000 in one day, only model-a". */
export function termsText(terms: {
  days: number;
  dailyLimit: number;
  totalLimit: number;
  carryover: boolean;
  tokenLimit: number | null;
  modelIds: readonly string[] | null;
}): string {
  const { days, dailyLimit, totalLimit, carryover, tokenLimit, modelIds } = terms;
  const daily = formatCount(dailyLimit);
  return [
    days === 1
      ? t`${daily} in one day`
      : plural(days, { one: `${daily} a day for # day`, other: `${daily} a day for # days` }),
    carryover && days > 1 && t`carryover`,
    totalLimit !== dailyLimit * days && t`${{ total: formatCount(totalLimit) }} in total`,
    tokenLimit !== null && plural(tokenLimit, { one: "# token", other: "# tokens" }),
    modelIds !== null && onlyModels(modelIds),
  ]
    .filter(Boolean)
    .join(", ");
}

function onlyModels(modelIds: readonly string[]): string {
  const [modelId = ""] = modelIds;
  const count = modelIds.length;
  return count === 1 ? t`only ${modelId}` : plural(count, { one: "# model", other: "# models" });
}

/** What one request of an offering may ask for. */
export function boundsText({ choices, inputs, promptTokens, outputTokens }: RequestBounds): string {
  const list = formatList([
    plural(choices, { one: "# choice", other: "# choices" }),
    plural(inputs, { one: "# embedding", other: "# embeddings" }),
    plural(promptTokens, { one: "# token of prompt", other: "# tokens of prompt" }),
    ...(outputTokens === null ? [] : [plural(outputTokens, { one: "# token of output", other: "# tokens of output" })]),
  ]);
  return t`At most ${list} in one request`;
}

/** Questions before an action with consequences. */
export const CONFIRM = {
  revokeKey: (name: string, requests24h: number | null) => ({
    title: t`Revoke key ${name}?`,
    body: requests24h
      ? plural(requests24h, {
          one: "# request used it in the last 24 h. They will get a 401 error immediately.",
          other: "# requests used it in the last 24 h. They will get a 401 error immediately.",
        })
      : sentences(
          requests24h === 0 ? t`Nothing used it in the last 24 h.` : null,
          t`Requests with it get a 401 error immediately.`,
        ),
  }),
  endPackage: (name: string, left: number) => ({
    title: t`End ${name}?`,
    body: plural(left, {
      one: "# request is dropped, and its price is not refunded. Queued packages move up.",
      other: "# requests are dropped, and its price is not refunded. Queued packages move up.",
    }),
    confirmLabel: t`End package`,
  }),
  unqueuePackage: (name: string) => ({
    title: t`Take ${name} out of the queue?`,
    body: t`It is removed, and its price is not refunded. Packages queued behind it move up.`,
    confirmLabel: t`Take it out`,
  }),
  suspend: (name: string, role: "customer" | "reseller" | "admin") => ({
    title: t`Suspend ${name}?`,
    body:
      role === "reseller"
        ? t`They and all their customers are signed out, and all their keys get a 401 error immediately. Packages keep running. You can undo it.`
        : t`They are signed out, and their keys get a 401 error immediately. Packages keep running. You can undo it.`,
  }),
  disableTheirKey: (name: string) => ({
    title: t`Switch off key ${name}?`,
    body: t`Requests with it get a 401 error immediately. Only its owner can switch it on again.`,
  }),
} as const;

/** What a DNS answer means and what to do about it. `label` is the name as a DNS editor expects it: "ai". */
export const DNS = {
  wrongA: (found: string, want: string) => t`Found ${found}. Change it to ${want}.`,
  addA: (label: string, want: string) => t`Add an A record for "${label}": ${want}.`,
  deleteA: (remove: readonly string[], keep: readonly string[]) => {
    const removed = formatList(remove);
    const kept = formatList(keep);
    const count = keep.length + remove.length;
    if (keep.length === 0)
      return plural(count, { one: `Delete the A record ${removed}.`, other: `Delete the A records ${removed}.` });
    return plural(count, {
      2: `Two A records: keep ${kept}, delete ${removed}.`,
      other: `# A records: keep ${kept}, delete ${removed}.`,
    });
  },
  cname: (target: string) => t`There is a CNAME to ${target}. Delete it, then add the A record.`,
  aaaa: (label: string, values: readonly string[]) => {
    const list = formatList(values);
    const count = values.length;
    return plural(count, {
      one: `Delete the AAAA record of "${label}": ${list}.`,
      other: `Delete the AAAA records of "${label}": ${list}.`,
    });
  },
  addTxt: (label: string, value: string) => t`Add a TXT record for "${label}": ${value}`,
  changeTxt: (label: string, value: string) => t`Change the TXT record of "${label}" to ${value}`,
  noAnswer: (resolver: string) => t`${resolver} did not answer. Your records may be fine; we ask again.`,
  serversFail: t`The name servers of your domain do not answer.`,
  notYet: (sees: readonly string[], other: string) => {
    const resolvers = formatList(sees);
    const count = sees.length;
    return plural(count, {
      one: `${resolvers} sees it, ${other} not yet.`,
      other: `${resolvers} see it, ${other} not yet.`,
    });
  },
  contested: (host: string) =>
    t`Prove with the TXT record that ${host} is yours: another account claims it, or a wildcard record answers for it.`,
  live: (url: string) => t`Live: ${url}`,
  off: (day: string, what: string) => t`Off since ${day}: ${what}`,
} as const;

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

function sentences(...parts: (string | null)[]): string {
  return parts.filter((part) => part !== null).join(" ");
}

/** Kinds of transactions of a balance. */
export const ENTRY_KINDS = {
  top_up: t`Top-up`,
  charge: t({ message: "Request", context: "noun" }),
  wholesale: t`Package`,
  package: t`Renewal`,
  transfer: t`Transfer`,
  correction: t`Correction`,
  refund: t({ message: "Refund", context: "noun" }),
  earning: t`Earnings`,
} as const;
