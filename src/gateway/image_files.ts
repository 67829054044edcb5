import type { KeyedRoute } from "../catalog/catalog.ts";
import { type FileOptions, GuardError, mayBePrivate, type OpenFile, openGuarded } from "../catalog/guard.ts";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { hostOf } from "../http/host.ts";
import { factsOf } from "../http/request_facts.ts";
import { deadline } from "../platform/deadline.ts";
import { type ImageToken, openImageToken } from "./image_addresses.ts";
import { sharesOf } from "./image_places.ts";

/**
 * Serves the images that were handed out by URL: each is fetched from its provider when it is asked for, and passed on as it arrives.
 * The URL is enough to get it; no API key is needed. Source: IMG-5, IMG-8, IMG-9, IMG-10.
 */

/** The largest image that is fetched from an address, also for base64. */
export const IMAGE_BYTES_MAX = 32 * 1024 * 1024;
/** For the provider's headers, and between two pieces. */
const IDLE_MS = 20_000;
/** For all of it, however slowly the client reads. */
const TOTAL_MS = 300_000;
const WAIT_MS_MAX = 15_000;
/** How files of each type begin; told by their first HEAD_BYTES, read as latin1. */
const HEAD_BYTES = 12;
const FIRST_BYTES = {
  "image/png": /^\u0089PNG\r\n.\n/,
  "image/jpeg": /^\u00ff\u00d8\u00ff/,
  "image/webp": /^RIFF.{4}WEBP/s,
  "image/gif": /^GIF8[79]a/,
  "image/avif": /^.{4}ftypavi[fs]/s,
};
export const IMAGE_TYPES = ["image/png", "image/jpeg", "image/webp", "image/gif", "image/avif"] as const;
/** Statuses by which a provider asks to try again later. */
const PASSING_STATUSES: readonly number[] = [408, 425, 429];

/** GET /v1/images/files/{token}. Throws host_not_allowed, not_found, too_many_requests, provider_unavailable, service_unavailable. */
export async function getImageFile(deps: Deps, request: Request, text: string): Promise<Response> {
  const host = await hostOf(deps, request);
  const token = openImageToken(deps.config.secretKey, host.name, text);
  if (token === undefined) throw noImage("There is no image at this address: it is incomplete, or of another host.");
  factsOf(request).accountId = token.accountId;
  const leftMs = token.expiresUnixMs - deps.clock.unixMs();
  if (leftMs <= 0) throw noImage("The address of this image has expired.");
  // Counted apart from the account's API requests: whoever has the address can use up this limit, and no more.
  await deps.limiter.take(`image-files:${token.accountId}`);
  try {
    const shares = sharesOf(token, deps.config.shares);
    const leave = await deps.imagePlaces.enter(shares, { waitMsMax: WAIT_MS_MAX, signal: request.signal });
    return await serveImage(deps, request, { token, leftMs, leave });
  } catch (error) {
    // Nobody gets this answer.
    throw request.signal.aborted ? new Refusal("service_unavailable") : refusalFor(deps, token, error);
  }
}

/** Answers with the provider's image. Calls `leave` when it has ended. */
async function serveImage(
  deps: Deps,
  request: Request,
  { token, leftMs, leave }: { token: ImageToken; leftMs: number; leave: () => void },
): Promise<Response> {
  const { signal } = request;
  let file: OpenFile | undefined;
  try {
    file = await openImage(deps, token, signal);
    const first = await readHead(file);
    const type = imageTypeOf(first);
    if (type === undefined) throw noImage("What the provider has at this address is not an image.");
    const headers = headersOf(type, { file, leftMs, requestId: factsOf(request).requestId });
    return new Response(bodyOf(file, first, { leave, signal }), { headers });
  } catch (error) {
    file?.close();
    leave();
    throw error;
  }
}

function openImage(deps: Deps, token: ImageToken, signal: AbortSignal): Promise<OpenFile> {
  const { url, providerId, keyId, accountId, tenantId } = token;
  const routes = deps.catalog
    .models()
    .flatMap(({ routes }) => routes)
    .flatMap(({ keyed }) => keyed)
    .filter((one) => one.providerId === providerId);
  // A key that was removed or disabled since is replaced by another one of the provider's.
  const route = routes.find(({ key }) => key.id === keyId) ?? routes[0];
  const limits = {
    bytesMax: IMAGE_BYTES_MAX,
    timeoutMs: TOTAL_MS,
    idleMs: IDLE_MS,
    signal,
    owner: { accountId, tenantId },
  };
  return openGuarded(url, { ...accessOf(route, url, deps.config.providerAllowPrivate), ...limits });
}

/**
 * How an image of a provider may be fetched. Only a provider that is on the list of private addresses itself may name one of that
 * list. The provider's key is sent only to the origin of its base URL. Without a route, because the provider was removed or disabled
 * since, the address must be public and gets no key. Source: IMG-7.
 */
export function accessOf(
  route: Pick<KeyedRoute, "baseUrl" | "apiKey"> | undefined,
  address: string,
  allowPrivate: readonly string[],
): Pick<FileOptions, "allowPrivate" | "headers"> {
  if (route === undefined) return { allowPrivate: [] };
  const { baseUrl, apiKey } = route;
  const isOwn = URL.parse(address)?.origin === URL.parse(baseUrl)?.origin;
  return {
    allowPrivate: mayBePrivate(baseUrl, allowPrivate) ? allowPrivate : [],
    ...(isOwn && { headers: { authorization: `Bearer ${apiKey.reveal()}` } }),
  };
}

/** The first bytes, at least HEAD_BYTES if the file has that many. */
async function readHead(file: OpenFile): Promise<Uint8Array> {
  let head = new Uint8Array();
  while (head.length < HEAD_BYTES) {
    const piece = await file.read();
    if (piece === undefined) break;
    head = new Uint8Array(Buffer.concat([head, piece]));
  }
  return head;
}

/**
 * The media type of an image by its first bytes, whatever the provider calls it: a browser never shows anything else as a page of
 * ours. Undefined for other files, SVG included, which can contain scripts. Source: IMG-8.
 */
export function imageTypeOf(bytes: Uint8Array): string | undefined {
  const head = Buffer.from(bytes.subarray(0, HEAD_BYTES)).toString("latin1");
  return IMAGE_TYPES.find((type) => FIRST_BYTES[type].test(head));
}

function headersOf(
  type: string,
  { file, leftMs, requestId }: { file: OpenFile; leftMs: number; requestId: string },
): Record<string, string> {
  return {
    "content-type": type,
    ...(file.length !== undefined && { "content-length": String(file.length) }),
    "content-disposition": `inline; filename="image.${type.slice("image/".length)}"`,
    "cache-control": `private, max-age=${Math.floor(leftMs / 1000)}`,
    "content-security-policy": "default-src 'none'; sandbox",
    // Customers show images on pages of their own.
    "cross-origin-resource-policy": "cross-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-request-id": requestId,
  };
}

/**
 * The bytes of an image, read as fast as the client reads them. It ends once, with `leave`: after its last byte, when the client or
 * the provider breaks off, or at its time limit.
 */
function bodyOf(
  file: OpenFile,
  first: Uint8Array,
  { leave, signal }: { leave: () => void; signal: AbortSignal },
): ReadableStream<Uint8Array> {
  let next: Uint8Array | undefined = first;
  let stopClock = () => {};
  const end = () => {
    stopClock();
    file.close();
    leave();
  };
  const start = (controller: ReadableStreamDefaultController<Uint8Array>) => {
    // A client that hardly reads would keep its place, because nothing asks for the next piece.
    stopClock = deadline(TOTAL_MS, () => {
      end();
      controller.error(new Error(`not read within ${TOTAL_MS} ms`));
    });
    // The runtime does not cancel a body whose client left before it was begun.
    if (signal.aborted) end();
    else signal.addEventListener("abort", end, { once: true });
  };
  const pull = async (controller: ReadableStreamDefaultController<Uint8Array>) => {
    try {
      const piece = next ?? (await file.read());
      next = undefined;
      if (piece !== undefined) return controller.enqueue(piece);
      end();
      controller.close();
    } catch (error) {
      end();
      controller.error(error);
    }
  };
  return new ReadableStream({ start, pull, cancel: end }, { highWaterMark: 0 });
}

/** What a client is told. The guard's message names the provider's address, so it is only logged, by its kind. */
function refusalFor({ log }: Deps, { providerId }: ImageToken, error: unknown): unknown {
  if (!(error instanceof GuardError)) return error;
  const { kind, status } = error;
  log.debug({ providerId, kind, status }, "an image could not be fetched");
  if (kind === "refused") {
    // It was allowed when it was handed out: the operator may have changed PROVIDER_ALLOW_PRIVATE, or the provider its DNS.
    log.warn({ providerId }, "an image's address, which was handed out, may no longer be called");
    return noImage("The address of this image may not be fetched.");
  }
  if (kind === "oversized") return noImage(`The image is larger than ${IMAGE_BYTES_MAX / 1024 / 1024} MiB.`);
  if (status === undefined || status >= 500 || PASSING_STATUSES.includes(status))
    return new Refusal("provider_unavailable");
  return noImage("The provider no longer has this image.");
}

function noImage(message: string): Refusal {
  return new Refusal("not_found", { message, param: "token" });
}
