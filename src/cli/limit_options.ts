import { type Command, InvalidArgumentError, Option } from "commander";
import type { RateLimitsInput } from "../accounts/rate_limits.ts";
import type { LimitSet, RateLimits } from "../platform/rate_tallies.ts";
import { integer } from "./options.ts";

/** The options that set limits of requests and tokens, and how limits are shown. */

export type LimitOptions = {
  requestsPerMinute?: number;
  tokensPerMinute?: number;
  requestsAtOnce?: number;
  modelLimits?: Record<string, Partial<LimitSet>>;
};

const MODEL_LIMIT_NAMES: ReadonlyMap<string, keyof LimitSet> = new Map([
  ["requests", "requestsPerMinute"],
  ["tokens", "tokensPerMinute"],
  ["at-once", "requestsAtOnce"],
]);

/** Adds the options. `models`: also the option for limits of single models. */
export function limitOptions(command: Command, { models }: { models: boolean }): Command {
  command
    .option("--requests-per-minute <count>", "requests a minute at most (default: no limit of its own)", integer)
    .option("--tokens-per-minute <count>", "tokens a minute at most (default: no limit of its own)", integer)
    .option("--requests-at-once <count>", "requests at once at most (default: no limit of its own)", integer);
  if (models)
    command.option(
      "--model-limits <limits>",
      "limits of one model, as in gpt-x=requests:60,tokens:100000,at-once:5; repeat for more",
      modelLimits,
    );
  return command;
}

export type LimitChangeOptions = LimitOptions & { none?: true };

/** Adds the options of a command that shows limits if it is given none. */
export function limitChangeOptions(command: Command, which: { models: boolean }): Command {
  return limitOptions(command, which).addOption(
    new Option("--none", "remove all its limits").conflicts([
      ...["requestsPerMinute", "tokensPerMinute", "requestsAtOnce", "modelLimits"],
    ]),
  );
}

/** The limits to set; null: none of its own; undefined: they stay, and are shown. */
export function changedLimits({ none, ...options }: LimitChangeOptions) {
  return givenLimits(options) ?? (none ? null : undefined);
}

type ModelLimits = NonNullable<LimitOptions["modelLimits"]>;

/** Parses `gpt-x=requests:60,tokens:100000`; the options of one command are collected. */
function modelLimits(text: string, before: ModelLimits = {}): ModelLimits {
  const split = text.lastIndexOf("=");
  if (split < 1) throw new InvalidArgumentError("Write the model, =, and its limits: gpt-x=requests:60.");
  const id = text.slice(0, split);
  const set = new Map(Object.entries(before[id] ?? {}));
  for (const pair of text.slice(split + 1).split(",")) {
    const [name = "", count = "", ...rest] = pair.split(":");
    const limit = MODEL_LIMIT_NAMES.get(name);
    if (limit === undefined || rest.length > 0)
      throw new InvalidArgumentError("The limits of a model are requests, tokens and at-once: requests:60,at-once:5.");
    if (set.has(limit)) throw new InvalidArgumentError(`For ${id}, ${name} stands twice.`);
    set.set(limit, integer(count));
  }
  return { ...before, [id]: Object.fromEntries(set) };
}

/** The limits that were given; null: none. */
export function givenLimits({ requestsPerMinute, tokensPerMinute, requestsAtOnce, modelLimits: models }: LimitOptions) {
  const given = { requestsPerMinute, tokensPerMinute, requestsAtOnce, models };
  const isGiven = Object.values(given).some((value) => value !== undefined);
  return isGiven ? (given satisfies { [Name in keyof RateLimitsInput]: unknown }) : null;
}

/** "60 requests a minute, 3 at once; gpt-x: 5 requests a minute", or "none". */
export function limitsText(limits: RateLimits | null): string {
  if (limits === null) return "none";
  const models = Object.entries(limits.models).map(([id, set]) => `${id}: ${setText(set)}`);
  return [setText(limits), ...models].filter((text) => text !== "").join("; ");
}

function setText({ requestsPerMinute, tokensPerMinute, requestsAtOnce }: LimitSet): string {
  return [
    requestsPerMinute !== null && `${requestsPerMinute} requests a minute`,
    tokensPerMinute !== null && `${tokensPerMinute} tokens a minute`,
    requestsAtOnce !== null && `${requestsAtOnce} at once`,
  ]
    .filter(Boolean)
    .join(", ");
}
