import type { Body } from "../../http/body.ts";
import { isRecord } from "../../platform/records.ts";
import { refusal } from "./refusals.ts";
import { type ResponsesBody, readResponses, refersBack } from "./request.ts";
import type { Seal } from "./sealed_reasoning.ts";
import { type ChatRequest, toChat } from "./to_chat.ts";
import { checkChoice, readTools, type Tools } from "./tools.ts";

/**
 * A request of the Responses API at /chat/completions: `input` in place of `messages`, and tools without `function`. Cursor sends it to
 * models that it does not know. It is translated as at /responses, and answered as a chat. Source: API-15.
 */

/** Fields of chat completions that such a request may have, and that the translation does not know. */
const CHAT_FIELDS = "n max_tokens max_completion_tokens logprobs top_logprobs response_format stream_options".split(
  " ",
);

type Fields = Readonly<Record<string, unknown>>;

export type ChatInput = { request: ResponsesBody; tools: Tools; chatFields: Fields };

/** Whether a body has `input` in place of `messages`. */
export function hasInput(body: unknown): boolean {
  return isRecord(body) && (body.messages ?? null) === null && (body.input ?? null) !== null;
}

/** Checks the body by every rule that needs no model. Throws invalid_request. */
export function readChatInput(raw: Body): ChatInput {
  const fields = Object.entries(isRecord(raw.value) ? raw.value : {}).filter(([, value]) => value !== null);
  const isOfChat = ([name]: [string, unknown]) => CHAT_FIELDS.includes(name);
  const { messages: _, ...given } = Object.fromEntries(fields.filter((field) => !isOfChat(field)));
  const { tools: listed, tool_choice: choice } = given;
  const value = {
    ...given,
    ...(Array.isArray(listed) && { tools: listed.map(asFlat) }),
    ...(choice !== undefined && { tool_choice: asFlat(choice) }),
  };
  const request = readResponses({ ...raw, value });
  // Nothing of a chat is stored, so it cannot be continued either.
  if (refersBack(request))
    throw refusal(
      request.previous_response_id ? "previous_response_id" : "input",
      "Stored responses are continued at /v1/responses. Send the whole conversation here.",
    );
  const tools = readTools(request);
  checkChoice(request, tools);
  return { request, tools, chatFields: Object.fromEntries(fields.filter(isOfChat)) };
}

/** A tool, or a choice of one, as the Responses API has it. */
function asFlat(tool: unknown): unknown {
  if (!isRecord(tool) || !isRecord(tool.function)) return tool;
  const { function: called, ...rest } = tool;
  return { ...rest, ...called };
}

/** The chat that it stands for. */
export function chatOfInput({ request, tools, chatFields }: ChatInput, seal: Seal): ChatRequest {
  const chat = toChat(request, { tools, seal });
  const { max_output_tokens: cap } = request;
  const capped = typeof cap === "number" && { max_completion_tokens: cap };
  return { ...chat, body: { ...chat.body, ...chatFields, ...capped } };
}
