import type { ErrorReport } from "./error_reports.ts";

/**
 * How providers say that a prompt is too long for the model. Clients that compact their conversation look for a code of ours, so each
 * sentence of theirs must be known. Source: END-22.
 */

/** By a code … */
const CODES =
  /^(?:(?:context|prompt|input|max_?context)_?(?:length|window|size|tokens?)?_?(?:limit_?)?(?:exceeded|overflow|too_?(?:long|large))|exceed_context_size_error|model_context_window_exceeded|tokens_limit_reached|token_limit_exceeded|model_max_prompt_tokens_exceeded|1261|1039|40303|336103)$/i;
/** What is too long, before a comparison with what the model takes. Not the output limit. */
const PROMPT = "(?:prompt|inputs?|messages?|conversation|context|sequence|total)";
const OVER = "(?:exceed(?:s|ed|ing)?|(?:greater|longer|larger|bigger|more) than)";
const ROOM =
  "(?:max_?(?:seq|model|input|prompt|context)(?:uence)?_?len(?:gth)?|max(?:imum)? (?:context|message tokens|input|prompt|sequence)|(?:model|input|prompt|safe)(?: token| length| input length)? limit|tokens? limit|model'?s? max)";
/** … or in a sentence. */
const SENTENCES: readonly RegExp[] = [
  // OpenAI, Azure, vLLM, DeepSeek, OpenRouter, Mistral.
  /\bmaximum context length\b/i,
  /\bexceeds? (?:the |this |its )?(?:model'?s? |available |maximum |max |allowed )*(?:context|prompt|input) (?:length|window|size|limit)/i,
  // vLLM.
  /\blonger than the (?:maximum model length|model'?s context length)/i,
  /\bmax_model_len\b|\bmaximum model length\b|\bcontext length is only \d+/i,
  // SGLang, OpenAI's embeddings.
  /\binput length\b[^.]{0,40}\bexceeds the maximum allowed length\b|\bmaximum input length is \d+ tokens/i,
  // llama.cpp, Ollama, LM Studio, MiniMax.
  /\b(?:exceeds?|exceeded|overflows?|greater than)\b[^.]{0,80}\bcontext (?:length|window|size|limit)/i,
  /\bcontext (?:length|window|size|limit)\b[^.]{0,40}\b(?:exceed|overflow|is too small)/i,
  /\bwhen context the overflows\b/i,
  /\binput (?:\(\d+ tokens\) )?is too large to process\b/i,
  // Mistral.
  /\btoo large for model with \d+ maximum context/i,
  // Anthropic, Fireworks, Bedrock.
  /\b(?:prompt|input) is too long\b/i,
  /\binput length and `?max_tokens`? exceed context limit/i,
  /\btoo many input tokens\b/i,
  /\binput tokens exceeds? (?:the )?max/i,
  // Gemini, Vertex AI.
  /\binput token count\b[^.]{0,60}\b(?:exceeds the maximum number of tokens|only supports up to \d+)/i,
  // Groq.
  /\breduce the length of the (?:messages|prompt|input)\b/i,
  // Together, TGI.
  /`inputs`(?: tokens \+ `max_new_tokens`)? must (?:be <=|have less than) \d+/i,
  // xAI.
  /\bmaximum prompt length is \d+/i,
  // Qwen, Moonshot, Cohere.
  /\brange of input length should be\b/i,
  /\bexceeded model token limit\b/i,
  /\btotal number of tokens in the prompt cannot exceed\b/i,
  /\btoo many tokens: size limit exceeded\b/i,
  // GitHub Copilot, and others that count tokens.
  /\b(?:prompt|request|input|conversation|messages?)\b[^.]{0,40}\bexceeds?\b[^.]{0,30}\b(?:token limit|limit of \d+ tokens|(?:maximum )?(?:number|limit) of (?:input )?tokens)/i,
  /\bprompt token count\b[^.]{0,40}\b(?:exceeds|cannot exceed)\b/i,
  // TensorRT-LLM.
  /\bprompt length \([\d.]{1,15}\)[^:;]{0,80}\bexceed\b/i,
  /\bat most \d+ tokens\b[^.]{0,40}\b(?:prompt|input|request|messages)\b/i,
  // Exllama, MLC, TensorRT-LLM, Volcengine, DashScope, watsonx, and whoever else names a limit of the model behind a comparison.
  new RegExp(`\\b${PROMPT}\\b[^.]{0,100}\\b${OVER}\\b[^.]{0,60}\\b${ROOM}\\b`, "i"),
  // Cohere, vLLM's first versions.
  /\btotal (?:number of )?tokens\b[^.]{0,40}\bexceeds? (?:the )?(?:limit|model)/i,
  /\b(?:prompt|input|context|conversation|messages?)\b(?:[^.\w]{1,3}\w{1,20}){0,4}[^.\w]{1,3}(?:is|are|was|tokens|input)? ?(?<!\b(?:string|array|took|taking) )too long\b/i,
  // OpenAI: one text that is larger than any context.
  /\binvalid '(?:prompt|input|messages\[\d+\]\.content)[^']{0,40}': string too long/i,
  // Bedrock's Titan, Jina.
  /#\/(?:inputText|prompt)\b[^.]{0,20}\bexpected maxLength\b|\binput\b[^.]{0,40}\bexceeds (?:the )?maximum length of [\d,]{1,15} tokens/i,
  // Cerebras.
  /\bcurrent length is \d+ while limit is \d+/i,
  // DS4, DeepSpeed, and others that begin with what the prompt has.
  /\bprompt (?:has|contains|is|of) [\d,]{1,15} tokens\b[^.]{0,120}\b(?:context|sequence length)/i,
  // Baidu.
  /\bmax length of current question is \d+/i,
  // Chinese services: the input or the context is longer than the model takes.
  /(?:输入|上下文|提示词|prompt|tokens?数量?)[^。]{0,30}(?:超长|过长|超过|超出)/i,
];

/** Whether an error says that the prompt is too long for the model. `charsMax`: of the message, which a stranger writes. */
export function isContextLength({ codes, message }: ErrorReport, charsMax: number): boolean {
  if (codes.some((code) => CODES.test(code))) return true;
  const words = message.slice(0, charsMax);
  return SENTENCES.some((sentence) => sentence.test(words));
}
