import type { Model } from "../catalog/catalog.ts";
import { noteHidesTokens } from "../catalog/models_store.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import type { Log } from "../platform/log.ts";
import type { AnswerToCount } from "./usage_counts.ts";

/**
 * Learns which models hide tokens: models that reason without showing it, and report the reasoning tokens at the end. If the client
 * of such a model leaves, its answer is read to the end. Source: END-6.
 */

/** Fewer hidden tokens than this may come from a chat template, and are not worth finishing a call for. */
const HIDDEN_TOKENS_MIN = 100;
/** Lower bound for the bytes of a token; common text has three or more. */
const BYTES_A_TOKEN_MIN = 2;
/** The number of answers with hidden tokens that is needed before a model is noted. */
const ANSWERS_MIN = 3;
/** Maximum number of models with evidence in memory. */
const MODELS_MAX = 10_000;

export type HiddenTokens = {
  /** Evaluates a complete answer. Never throws. */
  note(model: Model, accountId: number, answer: AnswerToCount): void;
};

/** `accountId`: the account of the first answer with hidden tokens. `isDoubted`: another account got an answer without. */
type Evidence = { answers: number; accountId: number; hasSecondAccount: boolean; isDoubted: boolean };

/**
 * Collects evidence in memory, and writes the conclusion to the catalog. One account alone cannot bring it about while others get
 * answers that hide nothing. A model that an admin has decided on is left alone.
 */
export function createHiddenTokens(deps: ChangeDeps & { log: Log }): HiddenTokens {
  const seen = new Map<string, Evidence>();

  function learned(modelId: string): void {
    seen.delete(modelId);
    noteHidesTokens(deps, modelId).then(
      (isNew) =>
        isNew &&
        deps.log.warn(
          { model: modelId },
          "a model hides tokens; from now on its answers are read to the end when clients leave",
        ),
      (err) => deps.log.error({ err, model: modelId }, "could not save that a model hides tokens"),
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

/** Whether more tokens were reported than the visible text can contain: more than its bytes, or, with reasoning, more than half of them. */
function hidesTokens({ usage, completionText, completionChars = 0 }: AnswerToCount): boolean {
  if (usage === undefined) return false;
  const { completionTokens, further } = usage;
  const tokensPerByte = (further?.reasoning ?? 0) >= HIDDEN_TOKENS_MIN ? BYTES_A_TOKEN_MIN : 1;
  // A text has at least as many bytes as characters. This settles most answers without counting bytes.
  const chars = Math.max(completionText.length, completionChars);
  if ((completionTokens - HIDDEN_TOKENS_MIN) * tokensPerByte <= chars) return false;
  const bytes = Buffer.byteLength(completionText) + 3 * (chars - completionText.length);
  return (completionTokens - HIDDEN_TOKENS_MIN) * tokensPerByte > bytes;
}
