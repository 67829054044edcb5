import { Elysia } from "elysia";
import { findUsableKey, type KeySnapshot } from "../../accounts/key_snapshots_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal, sentence } from "../../errors.ts";
import { admit, Slots } from "../../gateway/admission.ts";
import { type Caller, requireUsableKey } from "../../gateway/authenticate.ts";
import { EMBEDDINGS } from "../../gateway/embeddings.ts";
import { CHAT, IMAGES } from "../../gateway/flow.ts";
import type { MeteredEndpoint } from "../../gateway/metered.ts";
import { countRefusal } from "../../gateway/refusal_counts.ts";
import { startRecord } from "../../gateway/request_record.ts";
import { readChat, readEmbedding, readImage } from "../../gateway/request_shapes.ts";
import { RESPONSES } from "../../gateway/responses/endpoint.ts";
import { readResponses } from "../../gateway/responses/request.ts";
import { waitOf } from "../../gateway/waiting.ts";
import { type Body, bodyOf } from "../../http/body.ts";
import type { Host } from "../../http/host.ts";
import { patch } from "../../http/json_spans.ts";
import { described } from "../../http/openapi.ts";
import { factsOf } from "../../http/request_facts.ts";
import { inTime } from "../../platform/time_limit.ts";
import { KEY_ID_CHARS_MAX, PANEL_CHAT, PANEL_EMBEDDING, PANEL_IMAGE, PANEL_RESPONSE } from "./ai_operations.ts";
import { requireWriter } from "./panel_session.ts";
import { type AiKind, asPanelAiRefusal } from "./refusals.ts";
import { cookieName, type Visitor, visitorOf } from "./session_auth.ts";

/**
 * The panel's AI endpoints. The API key is chosen on the server; everything after that is the gateway's own flow.
 * Source: ERR-9, ACC-1.
 */

/** The flow reads the bodies, not the framework, so that they are forwarded unchanged. */
export function aiEndpoints(deps: Deps) {
  const name = cookieName(deps);
  const serve = async (request: Request, token: unknown, kind: AiKind) => {
    const visitor = await visitorOf(deps, request, token);
    if (visitor.session.viewing) throw new Refusal("read_only");
    requireWriter(request, visitor.session);
    return await panelAi(deps, { visitor, request, token, kind });
  };
  return new Elysia({ normalize: false })
    .post("/ai/chat", ({ request, cookie }) => serve(request, cookie[name]?.value, "chat"), {
      parse: "none",
      detail: described(PANEL_CHAT),
    })
    .post("/ai/responses", ({ request, cookie }) => serve(request, cookie[name]?.value, "response"), {
      parse: "none",
      detail: described(PANEL_RESPONSE),
    })
    .post("/ai/image", ({ request, cookie }) => serve(request, cookie[name]?.value, "image"), {
      parse: "none",
      detail: described(PANEL_IMAGE),
    })
    .post("/ai/embeddings", ({ request, cookie }) => serve(request, cookie[name]?.value, "embedding"), {
      parse: "none",
      detail: described(PANEL_EMBEDDING),
    });
}

type AiCall = { visitor: Visitor; request: Request; token: unknown; kind: AiKind };

/** Refusals have the gateway's codes; some have another status in the panel. */
async function panelAi(deps: Deps, { visitor, request, token, kind }: AiCall): Promise<Response> {
  const { requestId } = factsOf(request);
  const { read, serve, streams = false, numbersMax } = KINDS[kind];
  const { accountId, tenantId } = visitor.session;
  const owner = { accountId, tenantId };
  const host = gatewayHost(deps, visitor.host);
  const record = startRecord(request, host, { accountId });
  // A person has a rate limit of their own, whichever key serves the request. Source: LIM-7.
  const limits = deps.limiter.begin(`panel:${accountId}`, owner, visitor.session.limits);
  const slots = new Slots(limits);
  record.limits = limits;
  const failed = (error: unknown) => {
    slots.release();
    countRefusal(deps, record, error);
    return error instanceof Refusal ? asPanelAiRefusal(error, kind) : error;
  };
  try {
    const raw = await admit(deps, request, { owner, slots, numbersMax });
    // Again: the session may have ended, or its role changed, while the body arrived.
    requireWriter(request, (await visitorOf(deps, request, token)).session);
    const { body, keyId } = withoutKeyId(raw, numbersMax);
    read(body); // An invalid body is reported before an unusable key.
    const key = await chooseKey(deps, visitor.session.accountId, { host, keyId });
    record.keyId = key.keyId;
    const caller: Caller = { requestId, key, host, signal: request.signal, record, limits };
    const wait = waitOf(deps, { request, record, raw: body, streams });
    if (wait === undefined) return await serve(deps, caller, { request, raw: body, slots });
    return await wait.answer(serve(deps, { ...caller, wait }, { request, raw: body, slots }), failed);
  } catch (error) {
    throw failed(error);
  }
}

type Served = MeteredEndpoint & { read: (body: Body) => unknown };

const KINDS: Readonly<Record<AiKind, Served>> = {
  chat: { read: readChat, ...CHAT },
  response: { read: readResponses, ...RESPONSES },
  image: { read: readImage, ...IMAGES },
  embedding: { read: readEmbedding, ...EMBEDDINGS },
};

/** Takes `api_key_id` out of the body, so that no provider sees it. Throws invalid_request. */
function withoutKeyId(raw: Body, numbersMax: number | undefined): { body: Body; keyId: string | undefined } {
  const { api_key_id: keyId } = raw.value as Record<string, unknown>;
  if (keyId === undefined) return { body: raw, keyId: undefined };
  if (keyId !== null && (typeof keyId !== "string" || keyId.length > KEY_ID_CHARS_MAX)) {
    throw new Refusal("invalid_request", {
      message: sentence("The field api_key_id must be a string of at most {keyIdCharsMax} characters.", {
        keyIdCharsMax: KEY_ID_CHARS_MAX,
      }),
      param: "api_key_id",
    });
  }
  const text = patch(raw.text, raw.spans, new Map([["api_key_id", null]]));
  return { body: bodyOf(text, raw.room, numbersMax), keyId: keyId ?? undefined };
}

/** The named key, or the newest that can be used on this host. Throws no_active_key, also for another account's key. */
async function chooseKey(
  deps: Deps,
  accountId: number,
  { host, keyId }: { host: Host; keyId: string | undefined },
): Promise<KeySnapshot> {
  const named = keyId === undefined ? undefined : /^[1-9]\d{0,15}$/.test(keyId) ? Number(keyId) : null;
  const found =
    named === null
      ? undefined
      : await inTime(
          findUsableKey(deps, {
            accountId,
            host: host.name,
            ...(named !== undefined && { keyId: named }),
          }),
        );
  try {
    return requireUsableKey(found, host, deps.clock.unixMs());
  } catch {
    throw new Refusal("no_active_key", { param: keyId === undefined ? null : "api_key_id" });
  }
}

/** A panel call counts as made on the API's base host, or on the reseller's domain it came from. Source: KEY-7. */
export function gatewayHost(deps: Deps, host: Host): Host {
  return host.resellerId === null ? { name: new URL(deps.config.baseUrl).hostname, resellerId: null } : host;
}
