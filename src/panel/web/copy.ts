import type { MemberRole } from "../../accounts/member_roles.ts";
import type { RequestBounds } from "../../limits.ts";
import {
  formatApart,
  formatCount,
  formatDay,
  formatDuration,
  formatList,
  formatOf,
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
  return say ? say(facts) : (facts.message ?? "This request was refused.");
}

/** True for codes that refuse a request without charging it: shown in amber, not as a failure. */
export function isRefusal(code: string): boolean {
  return code in REFUSALS;
}

/** The end of every refusal; the request id and its copy button follow it. */
export const NOTHING_CHARGED = "Nothing was charged.";

const KEYS_KEPT = (facts: RefusalFacts) =>
  `Your keys are kept and work again with a new package${facts.brand ? ` from ${facts.brand}` : ""}.`;

const REFUSALS: Record<string, (facts: RefusalFacts) => string> = {
  daily_quota_exceeded: (facts) =>
    sentences(
      facts.limit === undefined
        ? "Today's requests are used."
        : `Today's ${formatOf(facts.limit, "request")} ${used(facts.limit)}.`,
      moreAt(facts),
    ),
  carryover_quota_exceeded: (facts) =>
    sentences("All the requests that you had saved up are used.", moreAt({ ...facts, limit: facts.dailyLimit })),
  package_quota_exceeded: (facts) =>
    sentences(
      `All ${facts.limit === undefined ? `${facts.unit ?? "request"}s` : formatOf(facts.limit, facts.unit ?? "request")} of ${facts.packageName ?? "the package"} ${used(facts.limit)}.`,
      KEYS_KEPT(facts),
    ),
  package_expired: (facts) =>
    sentences(
      facts.packageEndedAt === undefined
        ? `${facts.packageName ?? "The package"} has ended.`
        : `${facts.packageName ?? "The package"} ended on ${formatDay(facts.packageEndedAt, facts.zone ?? "UTC", facts.now)}.`,
      KEYS_KEPT(facts),
    ),
  package_required: (facts) => sentences("No package is active.", KEYS_KEPT(facts)),
  insufficient_balance: ({ limit, remaining, message = "The balance does not cover this." }) => {
    if (limit === undefined || remaining === undefined) return message;
    const [cost, available] = formatApart(toNanoUsd(limit), toNanoUsd(remaining));
    return `This could cost up to ${cost}; ${available} is available. Lower max tokens or top up the balance.`;
  },
  key_request_limit_exceeded: (facts) =>
    sentences(
      facts.limit === undefined
        ? "This key's own requests for today are used."
        : `This key's own ${formatOf(facts.limit, "request")} for today ${used(facts.limit)}.`,
      moreAt(facts),
    ),
  key_spend_limit_exceeded: (facts) => sentences(spendLimit(facts), againAt(facts)),
  payg_pricing_unavailable: (facts) =>
    sentences(`${facts.model ?? "This model"} has no pay-as-you-go price yet.`, instead(facts)),
  model_not_in_package: (facts) =>
    sentences(`${facts.model ?? "This model"} is not in ${facts.packageName ?? "your package"}.`, instead(facts)),
  model_not_found: (facts) =>
    sentences(`${facts.model ?? "This model"} does not exist, or this key may not use it.`, instead(facts)),
  no_active_key: () => "No key can pay for this. Create one or switch one on.",
  too_many_requests: (facts) => `Too many requests. Try again in ${waitOf(facts)}.`,
  provider_unavailable: (facts) => `${facts.model ?? "The model"} is not answering. Try again in ${waitOf(facts)}.`,
  service_unavailable: (facts) => `We cannot take this request right now. Try again in ${waitOf(facts)}.`,
};

function spendLimit({ limit, remaining }: RefusalFacts): string {
  if (limit === undefined) return "This key may spend no more for now.";
  if (remaining === undefined) return `This key may spend no more than its limit of ${formatUsd(limit)}.`;
  return remaining > 0
    ? `This could cost more than the ${formatUsd(remaining)} that this key may still spend.`
    : `This key has reached its spending limit of ${formatUsd(limit)}.`;
}

/** Texts for failures that are not refusals. */
export const FAILURES = {
  offline: "We cannot reach the server. Check your connection; nothing you entered is lost.",
  internal: "Something went wrong on our side. Nothing you entered is lost.",
  notFound: "There is nothing here. It may have been removed, or the address is wrong.",
  forbidden: "Your account may not see this.",
  crashed: "This page stopped working. Reload it; if it happens again, send us the text below.",
  newVersion: "There is a newer version of this page, or the connection was lost. Reload to continue.",
  csrf: "This page has been open for too long. Reload it and try again.",
} as const;

/** How a chat can end early. */
export const CHAT = {
  stopped: (tokens: number) => `Stopped. Charged for what arrived, about ${formatOf(tokens, "token")}.`,
  brokeOff: "The answer was cut off. Nothing was charged.",
} as const;

/** A key that is shown once. */
export const SECRET = {
  once: "This key is shown only once. Store it on your server, never in a browser or app.",
  closeEarly: "Close without copying? It cannot be shown again.",
  stored: "I have stored it",
} as const;

/** Codes for when the authenticator app is lost, shown once. */
export const RECOVERY = {
  once: "These codes are shown only once. Each lets you sign in once without your app.",
  closeEarly: "Close without saving them? They cannot be shown again.",
  stored: "I have stored them",
} as const;

/** For who has never had a package. */
export const NEEDS_PACKAGE =
  "Requests are paid for by a package, or by your balance if pay-as-you-go is switched on for you.";

export const EMPTY = {
  keys: "No keys yet. A key lets your server call the API.",
  usage: "No requests in this view. Send one from the playground, or change the filters.",
  customers: "No customers yet. Invite the first one: you get a link to send, and they choose their own password.",
  domains: "No domains yet. Add the name under which your customers sign in and call the API, such as ai.example.com.",
  models: "No models yet. Add a provider first; then add a model, and give it a route to that provider and a price.",
  providers: "No providers yet. Add a service with an OpenAI-compatible API: its base URL and your key there.",
  catalogOfferings:
    "No offerings yet. An offering is what you can sell: a number of requests a day, for a number of days.",
  routes: "No route yet. A route names a provider for this model, and the model's name there.",
  allRoutes: "No routes yet. A route leads from a model to a provider. Add it on the model's page.",
  audit: "Nothing in this view. Every change that a person makes is listed here, with the values before it.",
  packages: `No package is active. ${NEEDS_PACKAGE}`,
  theirPackages:
    "No package is active. Their requests are paid for by a package, or by their balance if pay-as-you-go is switched on.",
  transactions: "No transactions yet. Top-ups, pay-as-you-go requests and corrections are listed here.",
  orders: "No orders yet. What you buy or ask for is listed here, with its payment and its answer.",
  incoming: "No order is waiting. Orders are listed here until you answer them.",
  offerings: "Nothing is on sale yet.",
  theirKeys: "No keys yet. They create their own after they sign in.",
} as const;

/** Why controls are disabled while an admin views another's panel. */
export const READ_ONLY = "This view is read-only, and recorded. Leave it to change something.";

/** Why they are disabled for a member. */
export function roleLocked(member: MemberRole): string {
  return `Your role in this account, ${member}, does not change this. An owner can.`;
}

type LimitSet = { requestsPerMinute: number | null; tokensPerMinute: number | null; requestsAtOnce: number | null };

/** One set of limits in words: "60 requests a minute, 3 requests at once"; "" without limits. */
export function limitSetText({ requestsPerMinute, tokensPerMinute, requestsAtOnce }: LimitSet): string {
  return [
    requestsPerMinute !== null && `${formatOf(requestsPerMinute, "request")} a minute`,
    tokensPerMinute !== null && `${formatOf(tokensPerMinute, "token")} a minute`,
    requestsAtOnce !== null && `${formatOf(requestsAtOnce, "request")} at once`,
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
  return [
    days === 1
      ? `${formatCount(dailyLimit)} in one day`
      : `${formatCount(dailyLimit)} a day for ${formatOf(days, "day")}`,
    carryover && days > 1 && "carryover",
    totalLimit !== dailyLimit * days && `${formatCount(totalLimit)} in total`,
    tokenLimit !== null && `${formatOf(tokenLimit, "token")}`,
    modelIds !== null && (modelIds.length === 1 ? `only ${modelIds[0]}` : formatOf(modelIds.length, "model")),
  ]
    .filter(Boolean)
    .join(", ");
}

/** What one request of an offering may ask for. */
export function boundsText({ choices, inputs, promptTokens, outputTokens }: RequestBounds): string {
  const output = outputTokens === null ? [] : [`${formatOf(outputTokens, "token")} of output`];
  const prompt = `${formatOf(promptTokens, "token")} of prompt`;
  return `At most ${formatList([formatOf(choices, "choice"), formatOf(inputs, "embedding"), prompt, ...output])} in one request`;
}

/** Questions before an action with consequences. */
export const CONFIRM = {
  revokeKey: (name: string, requests24h: number | null) =>
    !requests24h
      ? {
          title: `Revoke key ${name}?`,
          body: `${requests24h === 0 ? "Nothing used it in the last 24 h. " : ""}Requests with it get a 401 error immediately.`,
        }
      : {
          title: `Revoke key ${name}?`,
          body: `${formatOf(requests24h, "request")} used it in the last 24 h. They will get a 401 error immediately.`,
        },
  endPackage: (name: string, left: number) => ({
    title: `End ${name}?`,
    body: `${formatOf(left, "request")} ${left === 1 ? "is" : "are"} dropped, and its price is not refunded. Queued packages move up.`,
    confirmLabel: "End package",
  }),
  unqueuePackage: (name: string) => ({
    title: `Take ${name} out of the queue?`,
    body: "It is removed, and its price is not refunded. Packages queued behind it move up.",
    confirmLabel: "Take it out",
  }),
  suspend: (name: string, role: "customer" | "reseller" | "admin") => ({
    title: `Suspend ${name}?`,
    body:
      role === "reseller"
        ? "They and all their customers are signed out, and all their keys get a 401 error immediately. Packages keep running. You can undo it."
        : "They are signed out, and their keys get a 401 error immediately. Packages keep running. You can undo it.",
  }),
  disableTheirKey: (name: string) => ({
    title: `Switch off key ${name}?`,
    body: "Requests with it get a 401 error immediately. Only its owner can switch it on again.",
  }),
} as const;

/** What a DNS answer means and what to do about it. `label` is the name as a DNS editor expects it: "ai". */
export const DNS = {
  wrongA: (found: string, want: string) => `Found ${found}. Change it to ${want}.`,
  addA: (label: string, want: string) => `Add an A record for "${label}": ${want}.`,
  deleteA: (remove: readonly string[], keep: readonly string[]) => {
    if (keep.length === 0) return `Delete the A ${remove.length === 1 ? "record" : "records"} ${formatList(remove)}.`;
    const count = keep.length + remove.length;
    return `${count === 2 ? "Two" : count} A records: keep ${formatList(keep)}, delete ${formatList(remove)}.`;
  },
  cname: (target: string) => `There is a CNAME to ${target}. Delete it, then add the A record.`,
  aaaa: (label: string, values: readonly string[]) =>
    `Delete the AAAA ${values.length === 1 ? "record" : "records"} of "${label}": ${formatList(values)}.`,
  addTxt: (label: string, value: string) => `Add a TXT record for "${label}": ${value}`,
  changeTxt: (label: string, value: string) => `Change the TXT record of "${label}" to ${value}`,
  noAnswer: (resolver: string) => `${resolver} did not answer. Your records may be fine; we ask again.`,
  serversFail: "The name servers of your domain do not answer.",
  notYet: (sees: readonly string[], not: string) =>
    `${formatList(sees)} ${sees.length === 1 ? "sees" : "see"} it, ${not} not yet.`,
  contested: (host: string) =>
    `Prove with the TXT record that ${host} is yours: another account claims it, or a wildcard record answers for it.`,
  live: (url: string) => `Live: ${url}`,
  off: (day: string, what: string) => `Off since ${day}: ${what}`,
} as const;

/** "500 more in 5 h 12 min, at 00:00 Berlin (08:00 your time)." Null without a known reset. */
function moreAt({ limit, resetsAt, zone = "UTC", now }: RefusalFacts): string | null {
  if (resetsAt === undefined) return null;
  if (resetsAt === null) return "No more days are left in this package.";
  const more = limit === undefined ? "More" : `${formatCount(limit)} more`;
  return `${more} in ${formatDuration(Date.parse(resetsAt) - now)}, at ${formatReset(resetsAt, zone)}.`;
}

/** "More in 5 h 12 min, …", for limits that are not counted in requests. */
function againAt({ limit: _, ...facts }: RefusalFacts): string | null {
  return moreAt(facts);
}

function instead({ alternatives = [] }: RefusalFacts): string | null {
  if (alternatives.length === 0) return null;
  return `You can use ${formatList(alternatives.slice(0, ALTERNATIVES_MAX), "or")}.`;
}

function waitOf(facts: RefusalFacts): string {
  return formatDuration((facts.retryAfterSeconds ?? RETRY_DEFAULT_SECONDS) * 1_000);
}

function sentences(...parts: (string | null)[]): string {
  return parts.filter((part) => part !== null).join(" ");
}

/** "is used" for one, "are used" for any other number. */
function used(count: number | undefined): string {
  return count === 1 ? "is used" : "are used";
}

/** Kinds of transactions of a balance. */
export const ENTRY_KINDS = {
  top_up: "Top-up",
  charge: "Request",
  wholesale: "Package",
  package: "Renewal",
  transfer: "Transfer",
  correction: "Correction",
  refund: "Refund",
  earning: "Earnings",
} as const;
