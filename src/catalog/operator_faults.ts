import type { FailureKind } from "../platform/metrics.ts";
import type { ErrorReport } from "./error_reports.ts";

/**
 * Refusals that look like the client's and are the operator's: of our key, our credit, our place or the name of our model at the provider. The
 * client cannot fix these and must not learn about them, and another route may serve. Source: PRV-4, PRV-7.
 */

/** By a code, whatever the status. */
const KEY = /^(?:(?:invalid|incorrect)_api_key|api_key_invalid|account_\w+)$/i;
export const CREDIT =
  /^(?:billing_\w+|insufficient_?(?:quota|balance|credits?|funds|user_quota)|arrear\w*|not_?enough_?balance|budget_exceeded|exceeded_current_quota\w*|payment_required)$/i;
const MODEL = /^(?:model_?not_?(?:found|exist|available)|(?:unknown|invalid)_model|model_decommissioned)$/i;

/** By a sentence, from its beginning: behind it, it may quote the prompt. */
const SENTENCES: readonly (readonly [FailureKind, RegExp])[] = [
  ["credentials", /^(?:the |your )?(?:provided |invalid |incorrect )?api[ _-]?key\b/i],
  // Gemini.
  ["credentials", /^user location is not supported\b/i],
  // Anthropic, OpenAI.
  [
    "credentials",
    /^(?:this|your|the) (?:organization|account|project|team|workspace) (?:has been |is |was )?(?:disabled|suspended|deactivated|must be verified)\b/i,
  ],
  [
    "no_credit",
    /^(?:billing |insufficient (?:account )?(?:balance|credits?|funds)\b|not enough (?:balance|credits?)\b|your credit balance is too low\b|budget has been exceeded\b|credit limit exceeded\b|(?:sorry, )?your account balance is insufficient\b)/i,
  ],
  ["no_credit", /^access denied, please make sure your account is in good standing\b/i],
  // Anthropic, Gemini.
  ["no_credit", /^you (?:have )?(?:exceeded your current quota|reached your (?:specified )?(?:api )?usage limits?)\b/i],
  // One API and New API.
  ["no_credit", /^(?:用户额度不足|预扣费额度失败)/],
  // DeepSeek, SiliconFlow, Groq, NVIDIA, Bedrock.
  [
    "unknown_model",
    /^(?:the )?(?:requested |provided )?model (?:identifier )?(?:\S{1,200} )?(?:(?:does |is |was )?not (?:exist|found|available)|is invalid|has been (?:decommissioned|retired)|has reached)\b/i,
  ],
  // Mistral, Perplexity, GitHub, Cloudflare, LM Studio.
  ["unknown_model", /^(?:invalid|unknown|no such) model(?: name| id| identifier)?(?::| ["'`@])/i],
  ["unknown_model", /^\S{1,200} is not a valid model id\b/i],
  ["unknown_model", /^invalid params, unknown model\b/i],
  // LiteLLM, New API, One API, Xinference, llama-swap.
  ["unknown_model", /^[\w/:{}' ]{0,60}invalid model name passed\b/i],
  ["unknown_model", /^(?:no available channel for model\b|当前分组.{0,80}无可用渠道|模型不存在)/i],
  ["unknown_model", /^(?:\[address=[^\]]{0,80}\] )?model not found\b/i],
  ["unknown_model", /^could not find suitable (?:inference )?handler\b/i],
  ["unknown_model", /^invocation of model id \S{1,200} with on-demand\b/i],
];

/** The problem with our key, credit or route that a refusal reports; undefined: none. */
export function operatorFault({ codes, message }: ErrorReport): FailureKind | undefined {
  const says = (pattern: RegExp) => codes.some((code) => pattern.test(code));
  if (says(KEY)) return "credentials";
  if (says(CREDIT)) return "no_credit";
  if (says(MODEL)) return "unknown_model";
  return SENTENCES.find(([, sentence]) => sentence.test(message))?.[0];
}
