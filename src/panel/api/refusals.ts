import { ParseError, ValidationError } from "elysia";
import { asRefusal, type ErrorCode, Refusal } from "../../errors.ts";
import { problemOf } from "../../http/field_errors.ts";

/** Where the panel's error codes and statuses differ from the API's. */

const OF_FIELDS: readonly ErrorCode[] = ["invalid_request", "already_exists"];

/** Any error thrown under /api/panel, as a refusal: what is wrong with a field is `validation_failed` here. Source: ERR-9. */
export function asPanelRefusal(error: unknown): Refusal {
  // The framework wraps what reading a body threw.
  const thrown = error instanceof ParseError ? error.cause : error;
  const refusal = thrown instanceof ValidationError ? shapeRefusal(thrown) : asRefusal(thrown);
  if (!OF_FIELDS.includes(refusal.code)) return refusal;
  return new Refusal("validation_failed", { ...refusal.facts, message: refusal.facts.message ?? refusal.message });
}

function shapeRefusal(error: ValidationError): Refusal {
  // An invalid id in a path reads the same as an unknown one.
  if (error.type === "params") return new Refusal("not_found");
  return new Refusal("invalid_request", problemOf(error.valueError));
}

/** The API that a request of the playground uses. */
export type AiKind = "chat" | "response" | "image" | "embedding";

/** A refusal of the gateway's flow, with the status that the panel's AI endpoints give it. Source: ERR-9. */
export function asPanelAiRefusal(refusal: Refusal, kind: AiKind): Refusal {
  if (kind === "image" && refusal.code === "model_not_found")
    return new Refusal("validation_failed", { ...refusal.facts, message: refusal.facts.message ?? refusal.message });
  if (refusal.code === "context_length_exceeded") return new Refusal(refusal.code, { ...refusal.facts, status: 422 });
  const noPackage = refusal.code === "package_required" || refusal.code === "package_expired";
  if (noPackage && (kind === "chat" || kind === "response"))
    return new Refusal(refusal.code, { ...refusal.facts, status: 422 });
  return refusal;
}
