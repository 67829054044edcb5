/** The HTTP responses to metered requests. */

/** Names the parameters that were not sent on. Source: PRV-1. */
export const DROPPED_HEADER = "x-dropped-params";

/** A whole JSON answer. `dropped`: the parameters that were not sent on. */
export function jsonResponse(text: string, requestId: string, dropped?: string): Response {
  return new Response(text, {
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-request-id": requestId,
      ...droppedHeader(dropped),
    },
  });
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
