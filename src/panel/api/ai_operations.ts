import { Type } from "@sinclair/typebox";
import { Refusal } from "../../errors.ts";
import { ChatBody, EmbeddingBody, ImageBody } from "../../gateway/request_shapes.ts";
import { ChatCompletionChunk, ResponseEvent } from "../../gateway/response_shapes.ts";
import { ResponsesBody } from "../../gateway/responses/request.ts";
import {
  CHAT_ANSWER,
  CHAT_EXAMPLE,
  EMBEDDING_ANSWER,
  EMBEDDING_EXAMPLE,
  IMAGE_ANSWER,
  IMAGE_EXAMPLE,
  METERED,
  RESPONSE_ANSWER,
  RESPONSE_EXAMPLE,
} from "../../gateway/v1_operations.ts";
import { type Operation, type RefusalSpec, refusalsOf } from "../../http/openapi.ts";
import { type AiKind, asPanelAiRefusal, asPanelRefusal } from "./refusals.ts";

/** The OpenAPI descriptions of the panel's AI endpoints. Source: ACC-1. */

export const KEY_ID_CHARS_MAX = 40;

/** `api_key_id`, as it is published; `withoutKeyId` of ai_endpoints.ts checks it. */
const KeyIdField = Type.Object({
  api_key_id: Type.Optional(
    Type.Union([Type.String({ maxLength: KEY_ID_CHARS_MAX }), Type.Null()], {
      description: "The key to use. Default: the newest key that can be used.",
    }),
  ),
});

/** The refusals of these endpoints: of the session, of the key, and the gateway's with the panel's codes and statuses. */
function panelRefusals(kind: AiKind): RefusalSpec[] {
  const own = refusalsOf("session_required", "csrf_failed", "read_only", "insufficient_role", "no_active_key");
  const always = refusalsOf(
    "host_not_allowed",
    "invalid_api_key",
    "too_many_requests",
    "service_unavailable",
    "internal_error",
  );
  const metered = METERED.map((code) => {
    const refusal = asPanelRefusal(asPanelAiRefusal(new Refusal(code), kind));
    return { code: refusal.code, status: refusal.status };
  });
  const all = [...own, ...always, ...metered];
  return all.filter(({ code }, i) => all.findIndex((one) => one.code === code) === i);
}

const PANEL_DESCRIPTION =
  "The key is chosen on the server. After that, the request follows the same rules as a request to the API.";

export const PANEL_CHAT: Operation = {
  id: "panelChat",
  tag: "Panel",
  summary: "Chat completion for a signed-in person",
  description: PANEL_DESCRIPTION,
  caller: "session",
  body: { schema: Type.Intersect([ChatBody, KeyIdField], { title: "PanelChatRequest" }), example: CHAT_EXAMPLE },
  answer: CHAT_ANSWER,
  events: ChatCompletionChunk,
  refusals: panelRefusals("chat"),
};

export const PANEL_RESPONSE: Operation = {
  id: "panelResponse",
  tag: "Panel",
  summary: "A response, stateless, for a signed-in person",
  description: PANEL_DESCRIPTION,
  caller: "session",
  body: {
    schema: Type.Intersect([ResponsesBody, KeyIdField], { title: "PanelResponseRequest" }),
    example: RESPONSE_EXAMPLE,
  },
  answer: RESPONSE_ANSWER,
  events: ResponseEvent,
  refusals: panelRefusals("response"),
};

export const PANEL_IMAGE: Operation = {
  id: "panelImage",
  tag: "Panel",
  summary: "Image generation for a signed-in person",
  description: PANEL_DESCRIPTION,
  caller: "session",
  body: { schema: Type.Intersect([ImageBody, KeyIdField], { title: "PanelImageRequest" }), example: IMAGE_EXAMPLE },
  answer: IMAGE_ANSWER,
  refusals: panelRefusals("image"),
};

export const PANEL_EMBEDDING: Operation = {
  id: "panelEmbedding",
  tag: "Panel",
  summary: "Embeddings for a signed-in person",
  description: PANEL_DESCRIPTION,
  caller: "session",
  body: {
    schema: Type.Intersect([EmbeddingBody, KeyIdField], { title: "PanelEmbeddingRequest" }),
    example: EMBEDDING_EXAMPLE,
  },
  answer: EMBEDDING_ANSWER,
  refusals: panelRefusals("embedding"),
};
