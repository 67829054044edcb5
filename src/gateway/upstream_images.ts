import type { KeyedRoute } from "../catalog/catalog.ts";
import { assertCallable, fetchGuarded, GuardError } from "../catalog/guard.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { patch } from "../http/json_spans.ts";
import { ANSWER_MEMORY_FULL } from "../platform/answer_memory.ts";
import { strictBase64 } from "../platform/base64.ts";
import type { Owner } from "../platform/share_limit.ts";
import { controllerBy } from "../platform/stop.ts";
import { within } from "../platform/time_limit.ts";
import { IMAGE_ANSWER_BYTES_MAX } from "./answer_bytes.ts";
import type { Payload } from "./chat_payload.ts";
import { createdOf } from "./chat_shape.ts";
import type { Namer } from "./end_users.ts";
import { type ImageToken, imageUrl } from "./image_addresses.ts";
import { accessOf, IMAGE_BYTES_MAX, IMAGE_TYPES, imageTypeOf } from "./image_files.ts";
import { filterParameters, IMAGE_PARAMETERS } from "./parameters.ts";
import type { ListPlaces } from "./provider_json.ts";
import { IMAGE_SIZE_DEFAULT, type ImageBody } from "./request_shapes.ts";
import { type ImagePrice, qualityOf } from "./reserve.ts";
import { type Called, entriesOf, limitsOf, throwReported, type WholeCall } from "./upstream_chat.ts";
import { withoutCosts } from "./usage_costs.ts";
import { type ShownCharge, shownCharge } from "./usage_shown.ts";

/**
 * Image requests to a provider and its answers. The client gets its `response_format`, whatever the provider returns, and never an
 * address of the provider's. Source: IMG-1, IMG-4.
 */

const IMAGE_FETCH_MS = 30_000;
/** For looking up the host of an address that is handed out. */
const LOOK_UP_MS = 5_000;
const PATH = "/images/generations";
/** Members of an answer, and of its image, that are passed on. Others could contain the provider's address or prices. Source: IMG-4. */
const ANSWER_FIELDS = ["background", "output_format", "quality", "size"];
const IMAGE_FIELDS = ["revised_prompt"];
/** Members of an image that have its content: base64, a data URL or an address. */
const CONTENTS = [
  ...["b64_json", "url", "base64", "image_base64", "b64", "b64_image", "image_url", "image", "bytesBase64Encoded"],
  ...["inlineData", "inline_data", "sample", "output"],
];
/** Vertex AI: why there is no image. */
const FILTERED = "raiFilteredReason";
const PLACES: ListPlaces = {
  lists: [
    ...["data", "images", "output", "artifacts", "result", "results", "predictions", "parts", "content"],
    ...["image_urls", "image_base64"],
  ],
  entry: [...CONTENTS, FILTERED],
};
const NO_IMAGE = "the answer contains no image";

export type ImageCall = WholeCall & {
  body: ImageBody;
  raw: Body;
  namer: Namer;
  price: ImagePrice;
  allowPrivate: readonly string[];
  createdUnix: number;
  links: ImageLinks;
};

/** What the URLs that are handed out are made of. `origin` is that of the request, as clients reach it. */
export type ImageLinks = {
  secretKey: Uint8Array;
  origin: string;
  expiresUnixMs: () => number;
} & Pick<ImageToken, "accountId" | "tenantId">;

/** `text` makes the JSON that the client gets; `rawUsage` is the provider's usage object, unchanged. */
export type ImageAnswer = {
  text: (charge: ShownCharge | undefined) => string;
  rawUsage: unknown;
  dropped: string | undefined;
};

/** Calls a route and reads its answer. Throws ProviderFailure if it contains no image, or one at an address that may not be called. */
export async function fetchImageAnswer(call: ImageCall, route: KeyedRoute): Promise<ImageAnswer> {
  const { provider } = call;
  const limits = limitsOf(call, IMAGE_ANSWER_BYTES_MAX);
  const payload = imagePayload(call, route);
  const called = { route, sent: payload.text };
  const answer = answerOf(await provider.postWhole(route, PATH, payload.text, limits), called);
  const image = { ...(await inFormat(answer.image, call, route)), ...pick(answer.image, IMAGE_FIELDS) };
  const { usage } = answer.fields;
  const fields = {
    ...pick(answer.fields, ANSWER_FIELDS),
    created: createdOf(answer.fields.created, call.createdUnix),
    model: call.body.model,
    data: [image],
  };
  const text = (charge: ShownCharge | undefined) => {
    const shown = imageUsage(usage, charge);
    return JSON.stringify(shown === undefined ? fields : { ...fields, usage: shown });
  };
  return { text, rawUsage: usage, dropped: payload.dropped };
}

/** Counts that an image's usage has in OpenAI's schema. Zero where the provider counts no tokens. */
const NO_TOKENS = { input_tokens: 0, output_tokens: 0, total_tokens: 0 };
const NO_DETAILS = { text_tokens: 0, image_tokens: 0 };

/** The usage of an image in OpenAI's shape, with what the provider reports; undefined if it reports none, and the client did not ask. */
function imageUsage(reported: unknown, charge: ShownCharge | undefined): Item | undefined {
  const shown = isObject(reported) ? withoutCosts(reported) : undefined;
  if (shown === undefined && charge === undefined) return undefined;
  const usage = { ...NO_TOKENS, ...Object(shown) };
  const { input_tokens_details: details } = usage;
  return { ...usage, input_tokens_details: { ...NO_DETAILS, ...Object(details) }, ...shownCharge(charge) };
}

/** The body for a route: the client's bytes, without dropped parameters, and with the model's upstream name and a size. */
function imagePayload({ body, raw, namer, price }: ImageCall, route: KeyedRoute): Payload {
  const { changed, dropped } = filterParameters({
    list: IMAGE_PARAMETERS,
    body,
    spans: raw.spans,
    by: route,
    namer,
    leaveOut: qualityOf(body) === price.quality ? undefined : "quality",
  });
  const edits = new Map<string, string | null>();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  // Our default size, not the provider's: it is the one that is charged.
  if (body.size === undefined || body.size === null) edits.set("size", JSON.stringify(IMAGE_SIZE_DEFAULT));
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

type Item = Record<string, unknown>;
type Answer = { fields: Item; image: Item };

/** The answer's fields, and its first image. Throws ProviderFailure, ProviderRejection. */
function answerOf(text: string, called: Called): Answer {
  const { list = [], fields } = entriesOf(text, PLACES, called);
  // One image is requested and charged. A provider that sends more must not make us fetch them.
  const image = list.find((entry) => typeof entry === "string" || (isObject(entry) && hasContent(entry)));
  if (typeof image === "string") return { fields, image: { url: image } };
  if (isObject(image)) return { fields, image };
  for (const entry of list) if (isObject(entry)) throwMissing(entry, called);
  throw new ProviderFailure("not_json", NO_IMAGE);
}

function hasContent(item: Item): boolean {
  return CONTENTS.some((name) => textIn(item, name) !== undefined);
}

/** Throws ProviderFailure or ProviderRejection if an entry says why it has no image: by an error, as Volcengine does, or a filter's sentence. */
function throwMissing({ error, [FILTERED]: message }: Item, called: Called): void {
  throwReported({ error: message === undefined ? error : { message, code: "content_filter" } }, called);
}

function isObject(value: unknown): value is Item {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** A text in a member, or in an object in it: `image_url` has one in chats, `inlineData` in Gemini's parts. */
function textIn(item: Item, name: string): string | undefined {
  const member = item[name];
  const value = isObject(member) ? (member.url ?? member.data) : member;
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** The listed fields that are there. */
function pick(item: Item, names: readonly string[]): Item {
  return Object.fromEntries(names.flatMap((name) => (item[name] === undefined ? [] : [[name, item[name]]])));
}

/** The image in the client's format: base64, fetched if the provider sent an address; or a URL, which is ours or contains the base64. */
async function inFormat(item: Item, call: ImageCall, route: KeyedRoute): Promise<Item> {
  const { address, base64, type } = readImage(item);
  if (call.body.response_format === "b64_json") {
    if (base64 !== undefined) return { b64_json: base64 };
    if (address !== undefined) return { b64_json: await fetchBase64(address, call, route) };
  } else {
    if (address !== undefined) return { url: await handOut(address, call, route) };
    if (base64 !== undefined) return { url: `data:${type};base64,${base64}` };
  }
  throw new ProviderFailure("not_json", NO_IMAGE);
}

/** What the provider sent of an image: its address, or its base64 with its type, or both. */
type Sent = { address?: string; base64?: string; type?: string };

/**
 * Reads an image, wherever the provider put it: base64 or a data URL in either member, or an address in either. Throws ProviderFailure if
 * base64 is not that of an image, or too large. Source: IMG-11.
 */
function readImage(item: Item): Sent {
  const sent: Sent = {};
  for (const name of CONTENTS) {
    const value = textIn(item, name);
    if (value === undefined) continue;
    if (ADDRESS.test(value.slice(0, 16))) sent.address ??= value;
    else if (sent.base64 === undefined) Object.assign(sent, inlineOf(value));
  }
  return sent;
}

const ADDRESS = /^https?:\/\//i;
/** The head of a data URL. Its content is not searched. */
const DATA_URL = /^\s{0,8}data:(?:([\w.+-]{1,64}\/[\w.+-]{1,64}))?(?:;[\w-]{1,32}=[\w.+-]{1,64}){0,4};base64,/i;
const DATA_HEAD_CHARS_MAX = 512;

/** Base64, or a data URL of it, as strict base64 with its type. */
function inlineOf(text: string): { base64: string; type: string } {
  const [head = "", declared] = DATA_URL.exec(text.slice(0, DATA_HEAD_CHARS_MAX)) ?? [];
  if (head === "" && text.startsWith("data:")) throw new ProviderFailure("not_json", NO_IMAGE);
  const letters = text.slice(head.length);
  const base64 = strictBase64(head !== "" && letters.includes("%") ? unescaped(letters) : letters);
  if (base64 === undefined) throw new ProviderFailure("not_json", "the image is not base64");
  if ((base64.length / 4) * 3 > IMAGE_BYTES_MAX)
    throw new ProviderFailure("oversized", `the image is larger than ${IMAGE_BYTES_MAX} bytes`, { work: "too_large" });
  const type = imageTypeOf(Buffer.from(base64.slice(0, 64), "base64")) ?? otherType(declared?.toLowerCase());
  if (type === undefined) throw new ProviderFailure("not_json", "the base64 is not that of an image");
  return { base64, type };
}

/** The content of a URL without its percent-encoding: of base64 only these characters can have one. */
function unescaped(letters: string): string {
  return letters.replace(/%(?:2B|2F|3D|0A|0D|20)/gi, (code) => String.fromCharCode(Number.parseInt(code.slice(1), 16)));
}

/** A declared type of image that the first bytes do not tell, such as SVG. */
function otherType(declared: string | undefined): string | undefined {
  if (declared === undefined || !declared.startsWith("image/")) return undefined;
  return (IMAGE_TYPES as readonly string[]).includes(declared) ? undefined : declared;
}

async function fetchBase64(
  address: string,
  { allowPrivate, signal, links, answerMemory, payer }: ImageCall,
  route: KeyedRoute,
): Promise<string> {
  const ended = controllerBy(signal);
  const held = answerMemory.open(payer, () => ended.abort(new GuardError("oversized", ANSWER_MEMORY_FULL)));
  const limits = {
    bytesMax: IMAGE_BYTES_MAX,
    timeoutMs: IMAGE_FETCH_MS,
    signal: ended.signal,
    owner: ownerOf(links),
    onBytes: (bytes: number) => held.hold(bytes),
  };
  try {
    const { bytes } = await callable(fetchGuarded(address, { ...accessOf(route, address, allowPrivate), ...limits }));
    return Buffer.from(bytes).toString("base64");
  } finally {
    held.close();
  }
}

/** Our URL for a provider's address, which must be one that can be fetched later: the image is charged now. Source: IMG-6. */
async function handOut(address: string, { allowPrivate, links }: ImageCall, route: KeyedRoute): Promise<string> {
  const { secretKey, origin, accountId, tenantId, expiresUnixMs } = links;
  const { providerId, key } = route;
  const access = accessOf(route, address, allowPrivate);
  const late = () => new GuardError("timeout", `No address within ${LOOK_UP_MS} ms.`);
  const guard = { ...access, owner: ownerOf(links), purpose: "The image's address", tellsAddresses: true };
  const checked = assertCallable(address, guard);
  const { url } = await callable(within(LOOK_UP_MS, checked, late));
  const token = { url: url.href, providerId, keyId: key.id, accountId, tenantId, expiresUnixMs: expiresUnixMs() };
  return imageUrl(secretKey, origin, token);
}

function ownerOf({ accountId, tenantId }: ImageCall["links"]): Owner {
  return { accountId, tenantId };
}

/**
 * Turns a refusal of the guard into a failure of the provider, which has made an image nevertheless. Without the guard's message, into
 * which a provider could put a prompt.
 */
async function callable<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    const why = error instanceof GuardError ? error.kind : "failed";
    throw new ProviderFailure("not_json", `the image could not be fetched from its URL: ${why}`, { work: "unfetched" });
  }
}
