import { randomBytes } from "node:crypto";
import { readResponses } from "../../src/gateway/responses/request.ts";
import { toChat } from "../../src/gateway/responses/to_chat.ts";
import { readTools } from "../../src/gateway/responses/tools.ts";
import { NO_ROOM } from "../../src/http/body.ts";
import { topLevelSpans } from "../../src/http/json_spans.ts";

/** Requests to the Responses API, and the chat requests that they become. */

export const SEAL = { secretKey: randomBytes(32), accountId: 7 };
export type Fields = Record<string, unknown>;

export function read(over: Fields) {
  const value = { model: "chat-a", input: "Hello", ...over };
  const text = JSON.stringify(value);
  return readResponses({ text, value, spans: topLevelSpans(text) ?? new Map(), room: NO_ROOM });
}

export function chatOf(over: Fields) {
  const body = read(over);
  return toChat(body, { tools: readTools(body), seal: SEAL });
}
export const messagesOf = (input: unknown, over: Fields = {}) => chatOf({ input, ...over }).body.messages;
