import { CONTENT_WORDS, finishWords, reasonIn } from "../catalog/error_reports.ts";
import { isRecord } from "../platform/records.ts";

/** Why a choice ended, in OpenAI's words: clients that know only these fail at others. Those of failures: `error_reports.ts`. Source: END-20. */

/** Words for none: Gemini's, watsonx's, Yandex's, llama.cpp's. */
const UNFINISHED =
  /(?:^|_)unspecified$|^(?:null|none|nil|undefined|not_finished|unfinished|in_?progress|running|generating|(?:\w+_)?partial)$/;
/** Finish reasons that say that the context is full. */
const OVER_CONTEXT = /context|max_?(?:model|seq(?:uence)?)_?len/;
/** OpenAI's finish reasons, by those of other vendors as `finishWords` returns them. */
const FINISH_REASONS: ReadonlyMap<string, string> = new Map(
  Object.entries({
    stop: ["stop", "end_turn", "stop_sequence", "stop_token", "eos", "eos_token", "end", "complete", "completed"],
    length: [
      ...["length", "model_length", "max_length", "max_tokens", "max_output_tokens", "token_limit", "length_capped"],
      ...["error_limit", "time_limit", "maxpredictedtokensreached"],
    ],
    content_filter: [
      ...["content_filter", "content_filtered", "sensitive", "safety", "recitation", "prohibited_content", "blocklist"],
      ...["spii", "image_safety", "guardrail_intervened", "refusal", "error_toxic", "language", "model_armor"],
      ...["image_prohibited_content", "image_recitation"],
    ],
    tool_calls: ["tool_calls", "tool_call", "tool_use", "toolcalls"],
    function_call: ["function_call"],
  }).flatMap(([ours, theirs]) => theirs.map((reason) => [reason, ours] as const)),
);

/** The same by what a reason says that is not in the table, the first that fits. */
const BY_WORD: readonly (readonly [RegExp, string])[] = [
  [CONTENT_WORDS, "content_filter"],
  [
    /filter|blacklist|black_list|block|toxic|unsafe|harm|violat|refus|guardrail|copyright|policy|flagged/,
    "content_filter",
  ],
  [/length|limit|max|truncat|cut_?off|exceed|budget|overflow|context|incomplete|exhaust/, "length"],
  [/tool|function/, "tool_calls"],
];

/**
 * OpenAI's word for a finish reason; null while there is none, which some providers write as a text. A word that says nothing known ends an
 * answer as `stop` does.
 */
export function plainReason(given: unknown): string | null {
  const finish = reasonIn(given);
  if (typeof finish !== "string") return finish === true || (typeof finish === "number" && finish > 0) ? "stop" : null;
  if (finish === "stop") return finish;
  if (finish === "") return null;
  const words = finishWords(finish);
  if (words.every((word) => UNFINISHED.test(word))) return null;
  const known = words.find((word) => FINISH_REASONS.has(word));
  if (known !== undefined) return FINISH_REASONS.get(known) ?? "stop";
  return BY_WORD.find(([said]) => words.some((word) => said.test(word)))?.[1] ?? "stop";
}

/** OpenAI's word for a choice's finish reason; undefined if it has none. */
export function finishOf(choice: unknown): string | undefined {
  return isRecord(choice) ? (plainReason(choice.finish_reason) ?? undefined) : undefined;
}

/** Whether a choice ended because the context is full: without a word in it, the prompt has filled it, as Zhipu says. */
export function isOverContext(choice: unknown): boolean {
  const finish = isRecord(choice) ? reasonIn(choice.finish_reason) : undefined;
  return typeof finish === "string" && finishWords(finish).some((word) => OVER_CONTEXT.test(word));
}

/** The finish reason of a whole answer that says none. */
export function reasonOfWhole({ tool_calls: calls, function_call: call }: Readonly<Record<string, unknown>>): string {
  if (Array.isArray(calls) && calls.length > 0) return "tool_calls";
  return isRecord(call) ? "function_call" : "stop";
}
