/**
 * What providers take and how they answer, as facts. A provider has a dialect, whose facts its operator may override, for all of its
 * routes or for one. `gateway/chat_payload.ts` and `gateway/upstream_embeddings.ts` write requests by them. This file imports nothing,
 * so that the browser can load it. Source: DIA-1, DIA-2, DIA-12.
 */

/** The facts that have names for values, with the words of the panel and of the CLI. The first value is that of most providers. */
export const FACT_CHOICES = {
  capField: {
    values: ["max_tokens", "max_completion_tokens"],
    label: /*i18n*/ "Output limit",
    hint: /*i18n*/ "The field from which it reads the output limit.",
  },
  developerRole: {
    values: ["system", "developer"],
    label: /*i18n*/ "Developer messages",
    hint: /*i18n*/ "The role in which it takes messages of the role developer.",
  },
  systemMessages: {
    values: ["several", "merged"],
    label: /*i18n*/ "System messages in a row",
    hint: /*i18n*/ "Sent as several, or merged into one, for chat templates that refuse two.",
  },
  contentForm: {
    values: ["list", "text"],
    label: /*i18n*/ "Content",
    hint: /*i18n*/ "A list of nothing but texts is sent as a list, or as one text.",
  },
  toolCallContent: {
    values: ["any", "null", "empty"],
    label: /*i18n*/ "Content beside tool calls",
    hint: /*i18n*/ "What an assistant's message without text has: any (what the client sent), null, or an empty text.",
  },
  toolImages: {
    values: ["kept", "moved"],
    label: /*i18n*/ "Images in tool messages",
    hint: /*i18n*/ "Kept there, or moved into a message of the user that follows.",
  },
  functions: {
    values: ["kept", "tools"],
    label: /*i18n*/ "Legacy functions",
    hint: /*i18n*/ "functions, function_call and messages of the role function: kept, or sent as tools.",
  },
  streamOptions: {
    values: ["sent", "left_out"],
    label: /*i18n*/ "Stream options",
    hint: /*i18n*/ "Whether stream_options are sent. Without them the tokens of a stream may have to be estimated.",
  },
  embeddings: {
    values: ["base64", "float"],
    label: /*i18n*/ "Embeddings",
    hint: /*i18n*/ "The form that it is asked for: float, if it refuses or ignores base64.",
  },
  completions: {
    values: ["chat", "own"],
    label: /*i18n*/ "Text completions",
    hint: /*i18n*/ "chat: sent as a message of the user; own: sent to its own /completions, which may also take a suffix",
  },
  usage: {
    values: ["asked", "last_chunk", "every_chunk", "finish_choice", "none"],
    label: /*i18n*/ "Usage of streams",
    hint: /*i18n*/ "Where its streams have it. asked: in the last chunk, if stream_options ask for it. All places are read, so this only informs.",
  },
  choicesUsage: {
    values: ["all", "first"],
    label: /*i18n*/ "Usage of several choices",
    hint: /*i18n*/ "all: of all choices; first: of the first alone, so that the others are counted as their texts are long",
  },
} as const satisfies Record<string, { values: readonly string[]; label: string; hint: string }>;

export type FactChoice = keyof typeof FACT_CHOICES;
export const FACT_CHOICE_NAMES = Object.keys(FACT_CHOICES) as FactChoice[];

/** Requests of one probe of a provider's facts. */
export const PROBE_CALLS_MAX = 20;

/** How long a provider may be silent before a stream's first token, in seconds. */
export const FIRST_TOKEN_SECONDS = { min: 1, max: 3_600 };

export type Facts = { readonly [Name in FactChoice]: (typeof FACT_CHOICES)[Name]["values"][number] } & {
  /** How long it may be silent before a stream's first token; null: as long as PROVIDER_FIRST_BYTE_MS says. */
  readonly firstTokenSeconds: number | null;
  /** Parameters that it does not take, and members of them. Source: PRV-26. */
  readonly droppedParams: readonly string[];
};
export type FactName = keyof Facts;
export const FACT_NAMES: readonly FactName[] = [...FACT_CHOICE_NAMES, "firstTokenSeconds", "droppedParams"];
/** Facts that are overridden. */
export type FactsOverride = { readonly [Name in FactName]?: Facts[Name] };

/** A fact, and the document or report that it is known from. */
type Known<T> = { is: T; source: string };

export type Dialect = {
  /** Its name for people. */
  title: string;
  /** Hosts of base URLs that have it, and their subdomains. */
  hosts: readonly string[];
  /** `owned_by` in the lists of models of servers that have it at any host. Source: DIA-14. */
  owners?: readonly string[];
  /** Facts that differ from those of most providers. */
  known: { readonly [Name in FactName]?: Known<Facts[Name]> };
};

/** What is sent to a provider of which nothing is known: what most providers take. */
export const USUAL_FACTS: Facts = {
  capField: "max_tokens",
  developerRole: "system",
  systemMessages: "several",
  contentForm: "list",
  toolCallContent: "any",
  toolImages: "kept",
  functions: "kept",
  streamOptions: "sent",
  embeddings: "base64",
  completions: "chat",
  usage: "asked",
  choicesUsage: "all",
  firstTokenSeconds: null,
  droppedParams: [],
};

const known = <T>(is: T, source: string): Known<T> => ({ is, source });

/** The template of the model decides which roles follow which: many accept one system message, at the beginning. */
const TEMPLATES = known(
  "merged" as const,
  "github.com/ggml-org/llama.cpp/pull/14246, github.com/QwenLM/Qwen3.8/issues/244: templates raise an exception",
);
const NO_LEGACY = (source: string) => known("tools" as const, source);

export const DIALECTS = {
  generic: { title: /*i18n*/ "As most providers", hosts: [], known: {} },
  openai: {
    title: "OpenAI",
    hosts: ["api.openai.com"],
    known: {
      capField: known(
        "max_completion_tokens",
        "platform.openai.com/docs/api-reference/chat/create: max_tokens is deprecated, and not compatible with reasoning models",
      ),
      developerRole: known("developer", "platform.openai.com/docs/api-reference/chat/create"),
      toolImages: known(
        "moved",
        "platform.openai.com/docs/api-reference/chat/create: tool messages have text parts only",
      ),
      droppedParams: known(
        ["min_p", "repetition_penalty", "top_k"],
        "community.openai.com: Unrecognized request argument supplied: top_k",
      ),
    },
  },
  azure: {
    title: "Azure OpenAI",
    hosts: ["openai.azure.com", "services.ai.azure.com"],
    known: {
      capField: known("max_completion_tokens", "github.com/vercel/ai/issues/3309"),
      developerRole: known("developer", "learn.microsoft.com/azure/ai-services/openai/how-to/reasoning"),
      toolImages: known("moved", "learn.microsoft.com/azure/ai-services/openai/reference"),
      droppedParams: known(
        ["min_p", "repetition_penalty", "top_k"],
        "learn.microsoft.com/azure/ai-services/openai/reference: unrecognized arguments are refused",
      ),
    },
  },
  vllm: {
    title: "vLLM",
    hosts: [],
    owners: ["vllm"],
    known: {
      completions: known(
        "own",
        "docs.vllm.ai/en/latest/serving/openai_compatible_server: Completions API; suffix is not supported",
      ),
      systemMessages: TEMPLATES,
      functions: NO_LEGACY("docs.vllm.ai/en/latest/serving/openai_compatible_server.html: functions are ignored"),
    },
  },
  sglang: {
    title: "SGLang",
    hosts: [],
    owners: ["sglang"],
    known: {
      completions: known("own", "docs.sglang.ai/basic_usage/openai_api_completions.html: Completions"),
      systemMessages: TEMPLATES,
      functions: NO_LEGACY("docs.sglang.ai/basic_usage/openai_api_completions.html"),
      embeddings: known("float", "docs.sglang.ai/basic_usage/openai_api_embeddings.html: lists of numbers only"),
    },
  },
  ollama: {
    title: "Ollama",
    hosts: ["ollama.com"],
    owners: ["library"],
    known: {
      completions: known("own", "docs.ollama.com/api/openai-compatibility: /v1/completions, with suffix"),
      functions: NO_LEGACY("docs.ollama.com/api/openai-compatibility: supported request fields"),
      embeddings: known("float", "docs.ollama.com/api/openai-compatibility: older versions ignore encoding_format"),
    },
  },
  "llama.cpp": {
    title: "llama.cpp",
    hosts: [],
    owners: ["llamacpp"],
    known: {
      completions: known(
        "own",
        "github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md: POST /v1/completions",
      ),
      systemMessages: known("merged", "github.com/ggml-org/llama.cpp/issues/20733"),
      functions: NO_LEGACY("github.com/ggml-org/llama.cpp/blob/master/tools/server/README.md"),
      choicesUsage: known(
        "first",
        "github.com/ggml-org/llama.cpp, tools/server, b10434: with n: 2 it reports the tokens of one choice",
      ),
    },
  },
  "lm-studio": {
    title: "LM Studio",
    hosts: [],
    owners: ["organization_owner"],
    known: {
      completions: known("own", "lmstudio.ai/docs/developer/openai-compat: completions"),
      developerRole: known("system", "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/669"),
      systemMessages: known("merged", "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/2298"),
      functions: NO_LEGACY("lmstudio.ai/docs/developer/openai-compat"),
      embeddings: known("float", "github.com/lmstudio-ai/lmstudio-bug-tracker/issues/756"),
    },
  },
  tgi: {
    title: "Text Generation Inference",
    hosts: ["endpoints.huggingface.cloud", "router.huggingface.co"],
    known: {
      systemMessages: TEMPLATES,
      functions: NO_LEGACY("huggingface.co/docs/text-generation-inference/reference/api_reference"),
      embeddings: known("float", "github.com/huggingface/text-embeddings-inference/issues/288"),
    },
  },
  deepseek: {
    title: "DeepSeek",
    hosts: ["api.deepseek.com"],
    known: {
      developerRole: known("system", "github.com/eclipse-theia/theia/issues/15144: 422, unknown variant `developer`"),
      contentForm: known("text", "github.com/BerriAI/litellm/issues/6642: invalid type: sequence, expected a string"),
      toolImages: known("moved", "github.com/QwenLM/qwen-code/issues/2318"),
      functions: NO_LEGACY("api-docs.deepseek.com/api/create-chat-completion: roles and fields"),
      firstTokenSeconds: known(600, "api-docs.deepseek.com/quick_start/rate_limit: closed after 10 minutes"),
    },
  },
  mistral: {
    title: "Mistral",
    hosts: ["api.mistral.ai"],
    known: {
      developerRole: known("system", "docs.mistral.ai/api: roles of messages"),
      functions: NO_LEGACY("docs.mistral.ai/api: unknown fields are refused"),
      streamOptions: known("left_out", "github.com/dnakov/anon-kode/issues/53: 422, extra_forbidden"),
      usage: known("last_chunk", "github.com/dnakov/anon-kode/issues/53: usage is included by default"),
      droppedParams: known(
        [
          "logit_bias",
          "logprobs",
          "messages.annotations",
          "messages.extra_content",
          "messages.name",
          "messages.reasoning",
          "messages.reasoning_content",
          "messages.reasoning_details",
          "messages.refusal",
          "seed",
          "store",
          "top_logprobs",
          "user",
        ],
        "github.com/mistralai/platform-docs-public/issues/7, github.com/Gage-Technologies/mistral-go/pull/2, github.com/charmbracelet/crush/issues/1590: 422, extra_forbidden",
      ),
    },
  },
  groq: {
    title: "Groq",
    hosts: ["api.groq.com"],
    known: {
      capField: known("max_completion_tokens", "console.groq.com/docs/api-reference: max_tokens is deprecated"),
      functions: NO_LEGACY("console.groq.com/docs/api-reference: functions are deprecated, and names are refused"),
      droppedParams: known(
        [
          "logit_bias",
          "logprobs",
          "messages.annotations",
          "messages.extra_content",
          "messages.name",
          "messages.reasoning_content",
          "messages.reasoning_details",
          "store",
          "top_logprobs",
        ],
        "console.groq.com/docs/openai: 400 if they are supplied; reported: property 'reasoning_content' is unsupported",
      ),
    },
  },
  together: {
    title: "Together AI",
    hosts: ["api.together.xyz", "api.together.ai"],
    known: {
      completions: known("own", "docs.together.ai/reference/completions-1"),
      functions: NO_LEGACY("docs.together.ai/reference/chat-completions"),
      droppedParams: known(["user"], "github.com/ogx-ai/ogx/pull/3559: 400, Unrecognized request arguments supplied"),
    },
  },
  fireworks: {
    title: "Fireworks AI",
    hosts: ["api.fireworks.ai"],
    known: {
      completions: known("own", "docs.fireworks.ai/api-reference/post-completions"),
      functions: NO_LEGACY("docs.fireworks.ai/api-reference/post-chatcompletions"),
      embeddings: known("float", "docs.fireworks.ai/api-reference/creates-an-embedding-vector: lists of numbers only"),
      usage: known("last_chunk", "docs.fireworks.ai/tools-sdks/openai-compatibility: usage is in the last chunk"),
    },
  },
  xai: {
    title: "xAI",
    hosts: ["api.x.ai"],
    known: {
      capField: known("max_completion_tokens", "docs.x.ai/docs/api-reference: max_tokens is deprecated"),
      functions: NO_LEGACY("docs.x.ai/docs/api-reference"),
      firstTokenSeconds: known(600, "docs.x.ai/developers/model-capabilities/text/reasoning: long time-outs"),
      droppedParams: known(
        ["frequency_penalty", "presence_penalty"],
        "docs.x.ai/developers/model-capabilities/text/reasoning: refused by reasoning models",
      ),
    },
  },
  gemini: {
    title: "Gemini",
    hosts: ["generativelanguage.googleapis.com"],
    known: {
      functions: NO_LEGACY("ai.google.dev/gemini-api/docs/openai"),
      embeddings: known("float", "ai.google.dev/gemini-api/docs/openai"),
      droppedParams: known(
        ["frequency_penalty", "metadata", "reasoning", "seed", "store", "top_k"],
        "github.com/Vali-98/ChatterUI/issues/227, github.com/ed-donner/agents/issues/45, github.com/MinLL/SkyrimNet-GamePlugin/issues/77: 400, Unknown name",
      ),
    },
  },
  "anthropic-compatible": {
    title: /*i18n*/ "Anthropic, OpenAI-compatible",
    hosts: ["api.anthropic.com"],
    known: {
      developerRole: known("developer", "platform.claude.com/docs/en/api/openai-sdk: hoisted as system messages are"),
      toolCallContent: known("null", "reported: messages: text content blocks must be non-empty"),
    },
  },
  moonshot: {
    title: "Moonshot",
    hosts: ["api.moonshot.ai", "api.moonshot.cn"],
    known: {
      functions: NO_LEGACY("platform.moonshot.ai/docs/api/chat"),
      usage: known("finish_choice", "github.com/earendil-works/pi/issues/2017"),
    },
  },
  qwen: {
    title: "Qwen (DashScope)",
    hosts: ["dashscope.aliyuncs.com", "dashscope-intl.aliyuncs.com"],
    known: {
      systemMessages: known("merged", "github.com/QwenLM/Qwen3.8/issues/244: not the first message"),
      functions: NO_LEGACY("alibabacloud.com/help/model-studio/qwen-api-via-openai-chat-completions"),
      embeddings: known("float", "alibabacloud.com/help/model-studio/text-embedding-synchronous-api: only float"),
    },
  },
  perplexity: {
    title: "Perplexity",
    hosts: ["api.perplexity.ai"],
    known: {
      systemMessages: known("merged", "github.com/perplexityai/api-discussion/issues/265: order of roles"),
      functions: NO_LEGACY("docs.perplexity.ai/api-reference/chat-completions-post"),
      usage: known("every_chunk", "docs.perplexity.ai/api-reference/chat-completions-post"),
      droppedParams: known(["logit_bias", "seed", "store"], "docs.perplexity.ai/guides/chat-completions-guide"),
    },
  },
  "cohere-compatible": {
    title: /*i18n*/ "Cohere, OpenAI-compatible",
    hosts: ["api.cohere.ai", "api.cohere.com"],
    known: {
      developerRole: known("developer", "docs.cohere.com/docs/compatibility-api"),
      functions: NO_LEGACY("docs.cohere.com/docs/compatibility-api"),
      droppedParams: known(
        ["logit_bias", "metadata", "parallel_tool_calls", "store", "top_logprobs"],
        "docs.cohere.com/docs/compatibility-api: unsupported parameters",
      ),
    },
  },
  "bedrock-gateway": {
    title: /*i18n*/ "Gateway to Amazon Bedrock",
    hosts: [],
    known: {
      toolCallContent: known("null", "reported: The text field in the ContentBlock object is blank"),
      functions: NO_LEGACY("github.com/aws-samples/bedrock-access-gateway: schema of requests"),
    },
  },
  openrouter: {
    title: "OpenRouter",
    hosts: ["openrouter.ai"],
    known: {
      completions: known("own", "openrouter.ai/docs/api-reference/completion"),
      functions: NO_LEGACY("openrouter.ai/docs/api-reference/overview: roles and fields"),
      usage: known("last_chunk", "openrouter.ai/docs/use-cases/usage-accounting"),
    },
  },
} as const satisfies Record<string, Dialect>;

export type DialectName = keyof typeof DIALECTS;
/** In the order in which they are shown: `generic` first. */
export const DIALECT_NAMES = Object.keys(DIALECTS) as DialectName[];

export function isDialect(name: string): name is DialectName {
  return Object.hasOwn(DIALECTS, name);
}

/** The facts of a dialect, with those that are overridden: of the provider, then of the route. */
export function factsOf(dialect: DialectName, ...overrides: readonly FactsOverride[]): Facts {
  const entries = Object.entries(DIALECTS[dialect].known).map(([name, { is }]) => [name, is]);
  return Object.assign({}, USUAL_FACTS, Object.fromEntries(entries), ...overrides);
}

/** The dialect of a base URL by its host; `generic` if the host is not known. */
export function dialectOfUrl(baseUrl: string): DialectName {
  const host = URL.canParse(baseUrl) ? new URL(baseUrl).hostname : "";
  const isOf = (one: string) => host === one || host.endsWith(`.${one}`);
  return DIALECT_NAMES.find((name) => DIALECTS[name].hosts.some(isOf)) ?? "generic";
}

/** The dialect of a server by who owns the models that it lists; undefined if that tells none. Source: DIA-14. */
export function dialectOfOwners(owners: ReadonlySet<string>): DialectName | undefined {
  return DIALECT_NAMES.find((name) => {
    const { owners: known = [] }: Dialect = DIALECTS[name];
    return known.some((owner) => owners.has(owner));
  });
}

/** Why these facts cannot all be true, in a sentence, with the facts; undefined if they can. */
export function contradictionOf(facts: Facts): string | undefined {
  if (facts.streamOptions === "left_out" && facts.usage === "asked")
    return "streamOptions left_out and usage asked contradict each other: a usage that must be asked for would never come. Set usage to none, or to where it stands.";
  if (facts.contentForm === "text" && facts.toolImages === "kept")
    return "contentForm text and toolImages kept contradict each other: an image needs a list. Set toolImages to moved.";
  if (facts.functions === "kept" && facts.droppedParams.includes("messages.name"))
    return "functions kept and droppedParams messages.name contradict each other: a message of the role function needs its name. Set functions to tools.";
  return undefined;
}
