import packages from "../package.json" with { type: "json" };

/**
 * Clients that were run unchanged against a replica: the versions that tests install, and what was seen of those that were run by hand.
 * `bun scripts/compatibility_page.ts` writes them into docs/compatibility.md.
 */

export type ClientTried = {
  client: string;
  version: string;
  /** The test, or the command. */
  ran: string;
  /** What it shows, or what was seen. */
  saw: string;
};

/** Packages of `test/response_clients.test.ts`. */
export const RESPONSE_SDKS = {
  "@openai/agents": "0.20.0",
  openai: "7.55.0",
  ai: "7.0.173",
  "@ai-sdk/openai": "4.0.118",
  "@langchain/core": "1.4.0",
  "@langchain/openai": "1.6.0",
  zod: "4.6.7",
};
export const CODEX = "0.169.0";
export const QWEN_CODE = "0.24.4";
export const CONTINUE = "1.5.47";
export const OPENCODE = "1.18.33";
export const CLINE = "3.0.65";

const AGENT_CLIENTS = "`test/agent_clients.test.ts`";
const RESPONSE_CLIENTS = "`test/response_clients.test.ts`";
const { openai, "@langchain/openai": langchain } = packages.devDependencies;

export const CLIENTS_TESTED: readonly ClientTried[] = [
  {
    client: "`openai` (npm)",
    version: openai,
    ran: "`test/gateway/sdk.test.ts`, `test/gateway/responses_sdk.test.ts`",
    saw: "chat, streams, tools, images, embeddings, responses, and the class of each error",
  },
  {
    client: "`@langchain/openai` (npm), embeddings",
    version: langchain,
    ran: "`test/gateway/sdk.test.ts`",
    saw: "embeddings of queries and of documents",
  },
  {
    client: "`@langchain/openai` (npm)",
    version: RESPONSE_SDKS["@langchain/openai"],
    ran: RESPONSE_CLIENTS,
    saw: "two turns by default, and through `/responses` with the whole conversation and with `previous_response_id`",
  },
  {
    client: "`@openai/agents` (npm), its default model",
    version: RESPONSE_SDKS["@openai/agents"],
    ran: RESPONSE_CLIENTS,
    saw: "a tool is called, whole and streamed",
  },
  {
    client: "Vercel AI SDK: `ai`, `@ai-sdk/openai` (npm), its default model",
    version: `${RESPONSE_SDKS.ai}, ${RESPONSE_SDKS["@ai-sdk/openai"]}`,
    ran: RESPONSE_CLIENTS,
    saw: "two steps with a tool, whole and streamed; ten turns that refer to stored items; structured output",
  },
  {
    client: "Codex: `@openai/codex` (npm)",
    version: CODEX,
    ran: RESPONSE_CLIENTS,
    saw: "a streamed turn in which a command is run",
  },
  {
    client: "Codex, with a prompt that becomes too long",
    version: CODEX,
    ran: AGENT_CLIENTS,
    saw: "it says that it ran out of room in the model's context window, and ends with 1",
  },
  {
    client: "Qwen Code: `@qwen-code/qwen-code` (npm), likewise",
    version: QWEN_CODE,
    ran: AGENT_CLIENTS,
    saw: "it asks for a summary, without tools if that is too long too, goes on, and ends with 0",
  },
  {
    client: "Continue: `@continuedev/cli` (npm), likewise",
    version: CONTINUE,
    ran: AGENT_CLIENTS,
    saw: "it says `Context length exceeded` with the provider's sentence, and ends with 1; it does not compact without a person",
  },
  {
    client: "opencode: `opencode-ai` (npm), likewise",
    version: OPENCODE,
    ran: AGENT_CLIENTS,
    saw: "it names a `ContextOverflowError`, asks for a summary and goes on; where the last message fills half of the model's room, it was seen to do so without end",
  },
  {
    client: "Cline: `cline` (npm), likewise",
    version: CLINE,
    ran: AGENT_CLIENTS,
    saw: "it says that the request exceeds the model's context window, and that a first message leaves nothing to compact; after a tool call it was seen to compact first",
  },
];

const byHand = (command: string) => `\`${command}\``;

export const LIBRARIES_TRIED: readonly ClientTried[] = [
  {
    client: "`openai`",
    version: "3.57.0",
    ran: byHand("chat.completions.create(…), stream=True, responses.create(…, previous_response_id=…)"),
    saw: "works",
  },
  {
    client: "`litellm`",
    version: "1.110.2",
    ran: byHand('completion("openai/…"), stream=True, responses(…, previous_response_id=…)'),
    saw: "works",
  },
  {
    client: "`langchain-openai`",
    version: "1.7.4",
    ran: byHand("ChatOpenAI(…).invoke(…), .stream(…), use_previous_response_id=True"),
    saw: "works",
  },
  {
    client: "`semantic-kernel`",
    version: "1.45.0",
    ran: byHand("OpenAIChatCompletion, get_streaming_chat_message_content; OpenAIResponsesAgent with its thread"),
    saw: "works",
  },
];
