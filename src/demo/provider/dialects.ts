import { isRecord, type JsonRecord } from "./text.ts";

/**
 * What real providers refuse, and in which words: the simulated provider plays one of them. This is written from what providers document
 * and users report, not from the gateway's table (`catalog/dialects.ts`), so that each is a test of the other.
 */

/** What is wrong with a request: its field, and what is said of it. */
type Wrong = { field: string; says: string };
type Check = (body: JsonRecord) => Wrong | undefined;
/** The status and the body of a refusal. */
export type RefusalBody = { status: number; json: string };
type Style = (wrong: Wrong) => RefusalBody;

export type Played = {
  refuses: readonly Check[];
  style: Style;
  /** Its streams end with the usage, also if nobody asks for it. */
  alwaysSendsUsage?: true;
};

const words = (names: string): readonly string[] => names.trim().split(/\s+/);

/** Refuses a field, whatever its value; null is a value. */
function field(name: string, says = `Unknown field: ${name}`): Check {
  return (body) => (name in body ? { field: name, says } : undefined);
}

const fields = (names: string): Check[] => words(names).map((name) => field(name));

/** Refuses a message. */
function message(fault: (one: JsonRecord, before: JsonRecord | undefined) => Wrong | undefined): Check {
  return ({ messages }) => {
    if (!Array.isArray(messages)) return undefined;
    for (const [i, one] of messages.entries()) {
      const before: unknown = messages[i - 1];
      const found = isRecord(one) ? fault(one, isRecord(before) ? before : undefined) : undefined;
      if (found) return { ...found, field: `messages[${i}].${found.field}` };
    }
    return undefined;
  };
}

/** Refuses members of messages. */
const members = (names: string): Check =>
  message((one) => {
    const name = words(names).find((known) => known in one);
    return name === undefined ? undefined : { field: name, says: `property '${name}' is unsupported` };
  });

const hasImage = (content: unknown) =>
  Array.isArray(content) && content.some((part) => isRecord(part) && part.type === "image_url");

const OLD_CAP = field(
  "max_tokens",
  "Unsupported parameter: 'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.",
);
const NEW_CAP = field("max_completion_tokens");
const DEVELOPER = message(({ role }) =>
  role === "developer"
    ? { field: "role", says: "unknown variant `developer`, expected one of `system`, `user`, `assistant`, `tool`" }
    : undefined,
);
const FUNCTION_ROLE = message((one) => {
  if (one.role === "function") return { field: "role", says: "unknown variant `function`" };
  return "function_call" in one ? { field: "function_call", says: "unknown field `function_call`" } : undefined;
});
const FUNCTIONS = [field("functions"), field("function_call"), FUNCTION_ROLE];
const SYSTEMS = message(({ role }, before) =>
  role === "system" && before?.role === "system"
    ? { field: "role", says: "Jinja Exception: System message must be at the beginning." }
    : undefined,
);
const LISTS = message(({ content }) =>
  Array.isArray(content) && !hasImage(content)
    ? { field: "content", says: "invalid type: sequence, expected a string" }
    : undefined,
);
const TOOL_IMAGES = message(({ role, content }) =>
  role === "tool" && hasImage(content)
    ? { field: "content", says: "Image URLs are only allowed for messages with role 'user'" }
    : undefined,
);
const EMPTY_BESIDE_CALLS = message(({ tool_calls, content }) =>
  Array.isArray(tool_calls) && content === ""
    ? { field: "content", says: "text content blocks must be non-empty" }
    : undefined,
);
const EMPTY_TOOLS: Check = ({ tools }) =>
  Array.isArray(tools) && tools.length === 0
    ? {
        field: "tools",
        says: "Invalid 'tools': empty array. Expected an array with minimum length 1, but got an empty array instead.",
      }
    : undefined;
const CHOICE_ALONE: Check = (body) => {
  const name = ["tool_choice", "parallel_tool_calls"].find((one) => body[one] !== undefined && !("tools" in body));
  return name === undefined
    ? undefined
    : { field: name, says: `'${name}' is only allowed when 'tools' are specified.` };
};
const OPTIONS_ALONE: Check = ({ stream, stream_options }) =>
  stream_options !== undefined && stream !== true
    ? {
        field: "stream_options",
        says: "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
      }
    : undefined;
const OPTIONS = field("stream_options");
const BASE64: Check = ({ encoding_format: form }) =>
  form !== undefined && form !== "float"
    ? { field: "encoding_format", says: "encoding_format must be float" }
    : undefined;
/** Everybody refuses these. */
const USUAL: readonly Check[] = [EMPTY_TOOLS, CHOICE_ALONE, OPTIONS_ALONE];
const SAMPLERS = fields("top_k min_p repetition_penalty");
const JSON_STATUS = 400;

const openai: Style = ({ field: param, says }) => ({
  status: JSON_STATUS,
  json: JSON.stringify({
    error: { message: says, type: "invalid_request_error", param, code: "unsupported_parameter" },
  }),
});
const serde: Style = ({ field: at, says }) => ({
  status: 422,
  json: JSON.stringify({
    error: {
      message: `Failed to deserialize the JSON body into the target type: ${at}: ${says} at line 1 column 85`,
      ...{ type: "invalid_request_error", param: null, code: "invalid_request_error" },
    },
  }),
});
const pydantic: Style = ({ field: at }) => ({
  status: 422,
  json: JSON.stringify({
    object: "error",
    message: {
      detail: [
        { type: "extra_forbidden", loc: ["body", ...at.split(/[.[\]]+/)], msg: "Extra inputs are not permitted" },
      ],
    },
    ...{ type: "invalid_request_error", param: null, code: null },
  }),
});
const vllm: Style = ({ says }) => ({
  status: 400,
  json: JSON.stringify({ object: "error", message: says, type: "BadRequestError", param: null, code: 400 }),
});
const bare: Style = ({ field: at, says }) => ({ status: 400, json: JSON.stringify({ error: `${at}: ${says}` }) });
const llama: Style = ({ says }) => ({
  status: 500,
  json: JSON.stringify({ error: { code: 500, message: says, type: "server_error" } }),
});
const google: Style = ({ field: at }) => {
  const description = `Invalid JSON payload received. Unknown name "${at}": Cannot find field.`;
  const details = [{ "@type": "type.googleapis.com/google.rpc.BadRequest", fieldViolations: [{ description }] }];
  return {
    status: 400,
    json: JSON.stringify([{ error: { code: 400, message: description, status: "INVALID_ARGUMENT", details } }]),
  };
};
const xai: Style = ({ field: at }) => ({
  status: 400,
  json: JSON.stringify({
    code: "Client specified an invalid argument",
    error: `Model grok-4 does not support parameter ${at}.`,
  }),
});
const numbered: Style = ({ says }) => ({
  status: 400,
  json: JSON.stringify({ error: { message: says, type: "invalid_message", code: 400 } }),
});
const detail: Style = ({ says }) => ({ status: 400, json: JSON.stringify({ detail: says }) });
const message400: Style = ({ field: at, says }) => ({
  status: 400,
  json: JSON.stringify({ id: "b1a7f0c2", message: `invalid request: ${at}: ${says}` }),
});

const PLAYED: Readonly<Record<string, Played>> = {
  generic: { refuses: [...USUAL, DEVELOPER, NEW_CAP], style: openai },
  openai: { refuses: [...USUAL, OLD_CAP, TOOL_IMAGES, ...SAMPLERS], style: openai },
  azure: { refuses: [...USUAL, OLD_CAP, TOOL_IMAGES, ...SAMPLERS], style: openai },
  vllm: { refuses: [...USUAL, DEVELOPER, SYSTEMS, ...FUNCTIONS], style: vllm },
  sglang: { refuses: [...USUAL, DEVELOPER, SYSTEMS, BASE64, ...FUNCTIONS], style: vllm },
  ollama: { refuses: [...USUAL, DEVELOPER, NEW_CAP, BASE64, FUNCTION_ROLE], style: bare },
  "llama.cpp": { refuses: [...USUAL, DEVELOPER, SYSTEMS, FUNCTION_ROLE], style: llama },
  "lm-studio": { refuses: [...USUAL, DEVELOPER, SYSTEMS, NEW_CAP, BASE64, ...FUNCTIONS], style: bare },
  tgi: { refuses: [...USUAL, DEVELOPER, SYSTEMS, NEW_CAP, BASE64, ...FUNCTIONS], style: serde },
  deepseek: { refuses: [...USUAL, DEVELOPER, LISTS, TOOL_IMAGES, NEW_CAP, ...FUNCTIONS], style: serde },
  mistral: {
    refuses: [
      ...[...USUAL, DEVELOPER, NEW_CAP, OPTIONS, ...FUNCTIONS],
      ...fields("logit_bias logprobs top_logprobs seed store user"),
      members("name refusal annotations extra_content reasoning reasoning_content reasoning_details"),
    ],
    style: pydantic,
    alwaysSendsUsage: true,
  },
  groq: {
    refuses: [
      ...[...USUAL, DEVELOPER, OLD_CAP, ...FUNCTIONS, ...fields("logit_bias logprobs top_logprobs store")],
      members("name annotations extra_content reasoning_content reasoning_details"),
    ],
    style: openai,
  },
  together: { refuses: [...USUAL, DEVELOPER, ...FUNCTIONS, field("user")], style: openai },
  fireworks: { refuses: [...USUAL, DEVELOPER, BASE64, ...FUNCTIONS], style: numbered, alwaysSendsUsage: true },
  xai: { refuses: [...USUAL, OLD_CAP, ...FUNCTIONS, ...fields("frequency_penalty presence_penalty")], style: xai },
  gemini: {
    refuses: [
      ...[...USUAL, DEVELOPER, BASE64, ...FUNCTIONS],
      ...fields("frequency_penalty metadata reasoning seed store top_k"),
    ],
    style: google,
  },
  "anthropic-compatible": { refuses: [...USUAL, EMPTY_BESIDE_CALLS], style: numbered },
  moonshot: { refuses: [...USUAL, DEVELOPER, NEW_CAP, ...FUNCTIONS], style: openai, alwaysSendsUsage: true },
  qwen: { refuses: [...USUAL, DEVELOPER, SYSTEMS, BASE64, ...FUNCTIONS], style: openai },
  perplexity: {
    refuses: [...USUAL, DEVELOPER, NEW_CAP, ...FUNCTIONS, ...fields("logit_bias seed store")],
    style: numbered,
    alwaysSendsUsage: true,
  },
  "cohere-compatible": {
    refuses: [...USUAL, ...FUNCTIONS, ...fields("logit_bias metadata store top_logprobs parallel_tool_calls")],
    style: message400,
  },
  "bedrock-gateway": { refuses: [...USUAL, DEVELOPER, EMPTY_BESIDE_CALLS, ...FUNCTIONS], style: detail },
  openrouter: { refuses: [...USUAL, DEVELOPER, ...FUNCTIONS], style: numbered, alwaysSendsUsage: true },
};

export const PLAYED_NAMES: readonly string[] = Object.keys(PLAYED);

/** The provider that is played. Throws an Error for an unknown name. */
export function playedBy(name: string): Played {
  const played = PLAYED[name];
  if (played === undefined) throw new Error(`There is no dialect ${name}. There are ${PLAYED_NAMES.join(", ")}.`);
  return played;
}

/** The refusal of a request; undefined if the provider takes it. */
export function refusalOf({ refuses, style }: Played, body: unknown): RefusalBody | undefined {
  if (!isRecord(body)) return undefined;
  for (const check of refuses) {
    const wrong = check(body);
    if (wrong !== undefined) return style(wrong);
  }
  return undefined;
}
