import { BOUND_NAMES, type BoundName, type BoundsPatch, MODEL_BOUNDS, type ModelBounds } from "./model_bounds.ts";

/**
 * What answers really used of what was reserved for them, and which other bounds that suggests. Pure, and loaded by the browser. Only a
 * suggestion: nothing changes by itself. Source: MON-8.
 */

/**
 * What a prompt was mostly reserved for. `text` stands for prompts of several parts too: no setting bounds text, of which each byte may
 * be a token. `output`: the answer was longer than its limit.
 */
export const BOUND_PARTS = ["text", "overhead", "images", "files", "output"] as const;
export type BoundPart = (typeof BOUND_PARTS)[number];
/** A prompt is one of the part that makes this much of its bound, in tenths; if it used more than its bound, half is enough. */
const MOSTLY_TENTHS = 9;
const HALF_TENTHS = 5;
/** Fewer requests suggest no lower bound. */
const REQUESTS_MIN = 1_000;
/** What is suggested is above what was used, by this factor in percent. */
const HEADROOM_PERCENT = 110;
/** A bound is not suggested to be lowered by less, in percent of it. */
const LOWERED_PERCENT_MAX = 80;
const ALL_PERMILLE = 1_000;
const MARGIN_MAX = 100_000;
/** How long uses are kept and read. */
export const BOUND_USES_DAYS = 30;

export type BoundedModel = ModelBounds & { readonly marginPermille: number; readonly contextLength: number | null };
/** Of the requests of one part under the present bounds. */
export type BoundUse = {
  part: BoundPart;
  requests: number;
  /** Those that used more than was reserved. */
  overruns: number;
  /** The most that one of them used of what was reserved. */
  mostPermille: number;
};
/** The uses of a model under the bounds of `key`: see `boundsKey`. */
export type ModelUses = { readonly modelId: string; readonly key: string; readonly parts: readonly BoundUse[] };
/** `change`: for `model set`, or the panel. Empty: the bounds are good as they are, or too few requests have been counted. */
export type BoundAdvice = BoundUse & { change: BoundsPatch & { marginPermille?: number } };

/** What was reserved for a prompt beyond its text, in tokens. */
export type ReservedParts = { overheadTokens: number; imageTokens: number; fileTokens: number };

/** The part of an answer that used `permille` of `reservedTokens`. */
export function partOf(
  { overheadTokens, imageTokens, fileTokens }: ReservedParts,
  { reservedTokens, permille }: { reservedTokens: number; permille: number },
): BoundPart {
  const tenths = permille > ALL_PERMILLE ? HALF_TENTHS : MOSTLY_TENTHS;
  const isMost = (tokens: number) => tokens * 10 >= reservedTokens * tenths;
  if (isMost(imageTokens)) return "images";
  if (isMost(fileTokens)) return "files";
  return isMost(overheadTokens) ? "overhead" : "text";
}

/** The bounds as one text: uses under other bounds say nothing about these. */
export function boundsKey(model: BoundedModel): string {
  return [...BOUND_NAMES.map((name) => model[name]), model.marginPermille, model.contextLength ?? 0].join("/");
}

const SETTINGS: Readonly<Record<BoundPart, readonly BoundName[]>> = {
  text: [],
  overhead: ["requestTokens", "messageTokens"],
  images: ["imageBaseTokens", "imageTileTokens", "imageMostTokens"],
  files: ["fileMostTokens"],
  output: [],
};

/** What each use suggests. All of it together would have covered every answer that was counted. */
export function adviceOf(model: BoundedModel, uses: readonly BoundUse[]): BoundAdvice[] {
  // What was too low is corrected first: the excess may have been of another part.
  const isTooLow = uses.some(({ overruns }) => overruns > 0);
  // A prompt of several parts is covered as long as none of them is lowered further than what it used.
  const mixedPermille = uses.find(({ part }) => part === "text")?.mostPermille ?? 0;
  return uses.map((use) => {
    if (use.overruns > 0) return { ...use, change: raised(model, use) };
    return { ...use, change: isTooLow ? {} : lowered(model, use, mixedPermille) };
  });
}

function raised(model: BoundedModel, { part, mostPermille }: BoundUse): BoundAdvice["change"] {
  if (SETTINGS[part].length === 0) {
    const margin = Math.ceil((model.marginPermille * mostPermille * HEADROOM_PERCENT) / (ALL_PERMILLE * 100));
    return { marginPermille: Math.min(MARGIN_MAX, margin) };
  }
  // The part made at least half of what was reserved, and has to cover the excess alone.
  const permille = ALL_PERMILLE + 2 * (mostPermille - ALL_PERMILLE);
  return scaled(model, part, { permille, isFit: (from, to) => to > from });
}

function lowered(
  model: BoundedModel,
  { part, requests, mostPermille }: BoundUse,
  mixed: number,
): BoundAdvice["change"] {
  if (requests < REQUESTS_MIN) return {};
  // As if all that was used had been used by this part, which made at least nine tenths of what was reserved.
  const permille = Math.ceil((Math.max(mostPermille, mixed) * 10) / MOSTLY_TENTHS);
  return scaled(model, part, { permille, isFit: (from, to) => to * 100 <= from * LOWERED_PERCENT_MAX });
}

type Scaling = { permille: number; isFit: (from: number, to: number) => boolean };

function scaled(model: BoundedModel, part: BoundPart, { permille, isFit }: Scaling): BoundsPatch {
  const change: BoundsPatch = {};
  for (const name of SETTINGS[part]) {
    const { min, max } = MODEL_BOUNDS[name];
    const from = name === "fileMostTokens" ? Math.min(model[name], model.contextLength ?? max) : model[name];
    const to = Math.ceil((from * permille * HEADROOM_PERCENT) / (ALL_PERMILLE * 100));
    if (isFit(from, to)) change[name] = Math.min(max, Math.max(min, to));
  }
  return change;
}

const REQUESTS_OF: Readonly<Record<BoundPart, string>> = {
  text: "requests with text",
  overhead: "short requests",
  images: "requests that were mostly images",
  files: "requests that were mostly files",
  output: "answers that were longer than their limit",
};

/** "In 30 days, 12,400 requests that were mostly images used at most 61 % of what was reserved." */
export function adviceWords({ part, requests, overruns, mostPermille }: BoundUse): string {
  const count = requests.toLocaleString("en");
  const most = `at most ${Math.ceil(mostPermille / 10).toLocaleString("en")}% of what was reserved`;
  const over = overruns === 0 || part === "output" ? "" : `; ${overruns.toLocaleString("en")} used more than that was`;
  return `In ${BOUND_USES_DAYS} days, ${count} ${REQUESTS_OF[part]} used ${most}${over}.`;
}
