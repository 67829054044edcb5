import { Agent as HttpAgent, request as httpRequest, type IncomingMessage } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest } from "node:https";
import { isIPv6, type LookupFunction } from "node:net";

/** Idle connections, for http and https each. */
const IDLE_CONNECTIONS_MAX = 256;

const agents = {
  http: new HttpAgent({ keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS_MAX }),
  https: new HttpsAgent({ keepAlive: true, maxFreeSockets: IDLE_CONNECTIONS_MAX }),
};

export type NodeCall = {
  method: string;
  headers: Readonly<Record<string, string>>;
  body: string | Uint8Array | null;
  signal: AbortSignal | null;
};

/**
 * Calls `address` with node's client, whatever the URL's name resolves to: for a runtime whose `fetch` cannot be told where to connect.
 * Does not follow redirects, decode or retry. Rejects with the reason of `signal`.
 */
export function nodeFetch(url: URL, { method, headers, body, signal }: NodeCall, address: string): Promise<Response> {
  const isTls = url.protocol === "https:";
  const request = isTls ? httpsRequest : httpRequest;
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const call = request(url.href, {
      method,
      headers: { ...headers },
      agent: isTls ? agents.https : agents.http,
      lookup: pinnedLookup(address),
    });
    // A reused connection that closes unanswered may have carried the call; Deno would otherwise retry it.
    call.once("socket", () => {
      call.reusedSocket = false;
    });
    // Without a reason: if the answer has arrived unread, the reason would be an unhandled socket error and end the process.
    const abort = () => call.destroy();
    signal?.addEventListener("abort", abort, { once: true });
    call.on("close", () => signal?.removeEventListener("abort", abort));
    call.on("error", (error) => reject(signal?.aborted ? signal.reason : error));
    call.on("response", (response) => {
      try {
        resolve(asResponse(response, call, signal));
      } catch (error) {
        call.destroy(); // A status or a header that no Response takes.
        reject(error);
      }
    });
    call.end(body ?? undefined);
  });
}

function pinnedLookup(address: string): LookupFunction {
  const family = isIPv6(address) ? 6 : 4;
  return (_, { all }, callback) => {
    if (all) callback(null, [{ address, family }]);
    else callback(null, address, family);
  };
}

function asResponse(message: IncomingMessage, call: { destroy(): unknown }, signal: AbortSignal | null): Response {
  const headers = new Headers();
  for (let i = 0; i + 1 < message.rawHeaders.length; i += 2)
    headers.append(message.rawHeaders[i] ?? "", message.rawHeaders[i + 1] ?? "");
  const status = message.statusCode ?? 0;
  if (status === 204 || status === 205 || status === 304) {
    message.resume();
    return new Response(null, { status, headers });
  }
  return new Response(streamOf(message, call, signal), { status, headers });
}

/** The body, read on demand. Cancelling it closes the connection. Unread data is lost when `signal` aborts. */
function streamOf(
  message: IncomingMessage,
  call: { destroy(): unknown },
  signal: AbortSignal | null,
): ReadableStream<Uint8Array> {
  const chunks = message[Symbol.asyncIterator]();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await chunks.next().finally(() => signal?.throwIfAborted());
      if (!done) return controller.enqueue(new Uint8Array(value));
      if (message.complete) controller.close();
      else controller.error(new Error("The answer broke off."));
    },
    cancel: () => void call.destroy(),
  });
}
