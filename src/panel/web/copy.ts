import { plural, t } from "@lingui/core/macro";
import type { RequestBounds } from "../../limits.ts";
import { sentences } from "./failures.ts";
import { formatCount, formatList } from "./format.ts";

/** The panel's texts that several pages share. Every function is pure. */

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
