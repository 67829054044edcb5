import type { Deps } from "../deps.ts";
import { type Reader, textResponse } from "../http/unread_answer.ts";
import type { Owner } from "../platform/share_limit.ts";

/** The HTTP responses to metered requests. */

/** Names the parameters that were not sent on. Source: PRV-1. */
export const DROPPED_HEADER = "x-dropped-params";

/** Whose request is answered. */
type Asker = { requestId: string; key: Owner; signal: AbortSignal };

/** A whole JSON answer. `dropped`: the parameters that were not sent on. `requestId`: of the request that it was made for, if not this one. */
export function jsonResponse(
  deps: Pick<Deps, "answerMemory">,
  caller: Asker,
  { text, dropped, requestId = caller.requestId }: { text: string; dropped?: string | undefined; requestId?: string },
): Response {
  const headers = {
    "content-type": "application/json",
    "cache-control": "no-store",
    "x-request-id": requestId,
    ...droppedHeader(dropped),
  };
  return textResponse(text, { headers }, readerOf(deps, caller));
}

/** Whose share of the memory an answer takes that its client has not read. */
export function readerOf(
  { answerMemory }: Pick<Deps, "answerMemory">,
  { key, signal }: Pick<Asker, "key" | "signal">,
): Reader {
  return { memory: answerMemory, owner: key, signal };
}

/** A stream of server-sent events; null for a client that has left. */
export function streamResponse(
  stream: ReadableStream<Uint8Array> | null,
  requestId: string,
  dropped?: string,
): Response {
  return new Response(stream, {
    headers: {
      "content-type": "text/event-stream; charset=utf-8",
      "cache-control": "no-cache, no-transform",
      "x-accel-buffering": "no",
      "x-request-id": requestId,
      ...droppedHeader(dropped),
    },
  });
}

/** A JSON answer that is awaited: white space, then the JSON. Its `x-dropped-params` are not known yet. */
export function waitingJsonResponse(stream: ReadableStream<Uint8Array>, requestId: string): Response {
  return new Response(stream, {
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-accel-buffering": "no",
      "x-request-id": requestId,
    },
  });
}

function droppedHeader(dropped: string | undefined): Record<string, string> | undefined {
  return dropped === undefined ? undefined : { [DROPPED_HEADER]: dropped };
}
