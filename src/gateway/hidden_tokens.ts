import type { Model } from "../catalog/catalog.ts";
import { noteHidesTokens } from "../catalog/catalog_store.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Log } from "../platform/log.ts";
import type { AnswerToCount } from "./charge.ts";

/**
 * Learns which models hide tokens: they think without showing it, and report what they thought at the end. For such a model an answer
 * whose client leaves is read to its end. Source: rulings › Who pays when something breaks.
 */

/** Fewer hidden tokens than this are nothing to finish a call for, and may be a template's. */
const HIDDEN_TOKENS_MIN = 100;
/** A token of common text has three bytes or more. */
const BYTES_A_TOKEN_MIN = 2;
/** So many answers must have hidden tokens. */
const ANSWERS_MIN = 3;
/** Models that are being learned about. */
const MODELS_MAX = 10_000;

export type HiddenTokens = {
  /** Looks at a complete answer. Never throws. */
  note(model: Model, accountId: number, answer: AnswerToCount): void;
};

/** `accountId`: whose answer was the first. */
type Evidence = { answers: number; accountId: number; hasSecondAccount: boolean; isDoubted: boolean };

/**
 * Learns in memory, and notes in the catalog what it has learned. One account cannot move it while others get answers that hide
 * nothing. Nothing is learned of a model about which an admin has decided.
 */
export function createHiddenTokens(deps: ChangeDeps & { log: Log }): HiddenTokens {
  const seen = new Map<string, Evidence>();

  function learned(modelId: string): void {
    seen.delete(modelId);
    noteHidesTokens(deps, modelId).then(
      (isNew) =>
        isNew &&
        deps.log.warn({ model: modelId }, "a model hides tokens; its answers are read to their end from now on"),
      (err) => deps.log.error({ err, model: modelId }, "it could not be noted that a model hides tokens"),
    );
  }

  return {
    note(model, accountId, answer) {
      if (model.hidesTokens !== null || answer.usage === undefined) return;
      const known = seen.get(model.id);
      if (!hidesTokens(answer)) {
        if (known !== undefined && known.accountId !== accountId) known.isDoubted = true;
        return;
      }
      const evidence = known ?? { answers: 0, accountId, hasSecondAccount: false, isDoubted: false };
      evidence.answers++;
      if (evidence.accountId !== accountId) evidence.hasSecondAccount = true;
      if (seen.size >= MODELS_MAX) seen.clear();
      seen.set(model.id, evidence);
      if (evidence.answers >= ANSWERS_MIN && (evidence.hasSecondAccount || !evidence.isDoubted)) learned(model.id);
    },
  };
}

/** Whether an answer's reported tokens cannot all have been seen: there are more than its text has bytes, or mostly reasoning that does not show. */
function hidesTokens({ usage, completionText, completionChars = 0 }: AnswerToCount): boolean {
  if (usage === undefined) return false;
  const { completionTokens, reasoningTokens } = usage;
  const tokensASaidByte = reasoningTokens >= HIDDEN_TOKENS_MIN ? BYTES_A_TOKEN_MIN : 1;
  // Characters are fewer than bytes: most answers need no closer look.
  const chars = Math.max(completionText.length, completionChars);
  if ((completionTokens - HIDDEN_TOKENS_MIN) * tokensASaidByte <= chars) return false;
  const bytes = Buffer.byteLength(completionText) + 3 * (chars - completionText.length);
  return (completionTokens - HIDDEN_TOKENS_MIN) * tokensASaidByte > bytes;
}
