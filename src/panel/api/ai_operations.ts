import { Type } from "@sinclair/typebox";
import { Refusal } from "../../errors.ts";
import { ChatBody, ImageBody } from "../../gateway/request_shapes.ts";
import { ChatCompletionChunk } from "../../gateway/response_shapes.ts";
import { CHAT_ANSWER, CHAT_EXAMPLE, IMAGE_ANSWER, IMAGE_EXAMPLE, METERED } from "../../gateway/v1_operations.ts";
import { type Operation, type RefusalSpec, refusalsOf } from "../../http/openapi.ts";
import { asPanelRefusal } from "./panel_session.ts";

/** What the panel's two AI endpoints say of themselves, and their statuses. Source: contract › POST {panel_url}/api/panel/ai/chat. */

export const KEY_ID_CHARS_MAX = 40;

/** `api_key_id` of a request to the panel, as it is published; withoutKeyId checks it. */
const KeyIdField = Type.Object({
  api_key_id: Type.Optional(
    Type.Union([Type.String({ maxLength: KEY_ID_CHARS_MAX }), Type.Null()], {
      description: "The key to use; without it the latest that can be used.",
    }),
  ),
});

/** What a metered request can be refused with here: by who asks, by the key, and by the gateway in the panel's words. */
function panelRefusals(kind: "chat" | "image"): RefusalSpec[] {
  const own = refusalsOf("session_required", "csrf_failed", "read_only", "no_active_key");
  const always = refusalsOf(
    "host_not_allowed",
    "invalid_api_key",
    "too_many_requests",
    "service_unavailable",
    "internal_error",
  );
  const metered = METERED.map((code) => {
    const refusal = asPanelRefusal(atPanel(new Refusal(code), kind));
    return { code: refusal.code, status: refusal.status };
  });
  const all = [...own, ...always, ...metered];
  return all.filter(({ code }, i) => all.findIndex((one) => one.code === code) === i);
}

const PANEL_WORDS = "The key is chosen on the server; from there on it is the API's own request, by the same rules.";

export const PANEL_CHAT: Operation = {
  id: "panelChat",
  tag: "Panel",
  summary: "An answer of a model, for who is signed in",
  description: PANEL_WORDS,
  caller: "session",
  body: { schema: Type.Intersect([ChatBody, KeyIdField], { title: "PanelChatRequest" }), example: CHAT_EXAMPLE },
  answer: CHAT_ANSWER,
  events: ChatCompletionChunk,
  refusals: panelRefusals("chat"),
};

export const PANEL_IMAGE: Operation = {
  id: "panelImage",
  tag: "Panel",
  summary: "An image of a model, for who is signed in",
  description: PANEL_WORDS,
  caller: "session",
  body: { schema: Type.Intersect([ImageBody, KeyIdField], { title: "PanelImageRequest" }), example: IMAGE_EXAMPLE },
  answer: IMAGE_ANSWER,
  refusals: panelRefusals("image"),
};

/** The panel's statuses. Source: rulings › Errors, last paragraph. */
export function atPanel(refusal: Refusal, kind: "chat" | "image"): Refusal {
  if (kind === "image" && refusal.code === "model_not_found")
    return new Refusal("validation_failed", { ...refusal.facts, message: refusal.message });
  const noPackage = refusal.code === "package_required" || refusal.code === "package_expired";
  if (noPackage && kind === "chat") return new Refusal(refusal.code, { ...refusal.facts, status: 422 });
  return refusal;
}
