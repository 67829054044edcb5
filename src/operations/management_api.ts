import type { TSchema } from "@sinclair/typebox";
import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { asRefusal, Refusal, sentence, toEnvelope } from "../errors.ts";
import { hasBody, readBody } from "../http/body.ts";
import { refuseRepeated } from "../http/query.ts";
import { refusalOf } from "../http/refusal_of.ts";
import { factsOf } from "../http/request_facts.ts";
import { sha256 } from "../platform/runtime.ts";
import { type CursorScope, fromCursor, toCursor } from "./cursors.ts";
import { toJson } from "./json.ts";
import { describedOperation } from "./management_document.ts";
import { type AnyOperation, type Call, requireAccess } from "./operation.ts";
import { OPERATIONS } from "./table.ts";
import { type Bearer, bearerOf, callWith } from "./token_auth.ts";
import { type Answer, checkWriteKey, writeOnce } from "./write_once.ts";
import { markWrite } from "./writes_store.ts";

/**
 * The management API, `/api/v1`: every operation that has a scope, for a token. In this order: host, token, network, rate, role and scope,
 * body, shape, idempotency, operation. Source: MGT-1.
 */

export const MANAGEMENT_PREFIX = "/api/v1";
const BODY_BYTES_MAX = 1024 * 1024;
const WRITE_KEY_HEADER = "idempotency-key";

/** The operations that it serves. */
export const SERVED = OPERATIONS.filter(({ scope }) => scope !== null);

export function managementApi(deps: Deps) {
  const app = new Elysia({ prefix: MANAGEMENT_PREFIX, normalize: false });
  for (const operation of SERVED) {
    const { method, path } = routeOf(operation);
    app.route(
      method.toUpperCase(),
      path.replace(/\{(\w+)\}/g, ":$1"),
      ({ request, params }) => serve(deps, operation, { request, params }),
      { parse: "none", detail: describedOperation(operation) },
    );
  }
  return app;
}

/** Method in small letters, and path with the names of its fields in braces. */
export function routeOf({ route }: Pick<AnyOperation, "route">) {
  const [method = "", path = ""] = route.split(" ");
  return { method: method.toLowerCase(), path, names: [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name) };
}

type Asked = { request: Request; params: Record<string, string> };

async function serve(deps: Deps, operation: AnyOperation, { request, params }: Asked): Promise<Response> {
  const bearer = await bearerOf(deps, request);
  requireAccess(operation, bearer.token);
  const isRead = request.method === "GET";
  const body = isRead ? undefined : await bodyOf(deps, request, bearer);
  const given = inputOf(operation, { url: factsOf(request).url, params, body: body?.value });
  // Not before the body has arrived, which may take a minute.
  await deps.readPlaces.enter(request, { side: "api", ...bearer.token });
  const writeKey = request.headers.get(WRITE_KEY_HEADER);
  const { requestId, url } = factsOf(request);
  if (isRead || writeKey === null)
    return toResponse(await answerOf(deps, operation, { bearer, request, given }), requestId);
  checkWriteKey(writeKey);
  const ref = { accountId: bearer.token.accountId, writeKey, requestId };
  const beforeCommit: NonNullable<Call["caller"]["by"]>["beforeCommit"] = (tx) => markWrite(tx, ref);
  const answer = await writeOnce(
    deps,
    { ...ref, bodyDigest: digestOf(`${request.method} ${url.pathname}${url.search}`, body?.text ?? "") },
    {
      work: () => answerOf(deps, operation, { bearer, request, given, beforeCommit }),
      refused: (error) => refusedAnswer(deps, error, requestId),
    },
  );
  return toResponse(answer, requestId);
}

type Performing = {
  bearer: Bearer;
  request: Request;
  given: Record<string, unknown>;
  beforeCommit?: NonNullable<Call["caller"]["by"]>["beforeCommit"];
};

async function answerOf(deps: Deps, operation: AnyOperation, asked: Performing): Promise<Answer> {
  try {
    return await performed(deps, operation, asked);
  } catch (error) {
    // The default sentence is about paths. Another tenant's id and an unknown one get the same.
    const isPlain = error instanceof Refusal && error.code === "not_found" && error.facts.message === undefined;
    throw isPlain ? new Refusal("not_found", { message: "Nothing with this id exists among what you manage." }) : error;
  }
}

async function performed(
  deps: Deps,
  operation: AnyOperation,
  { bearer, given, ...asked }: Performing,
): Promise<Answer> {
  const call = callWith(deps, bearer, asked);
  const { pageJson, runJson, output } = operation;
  const value =
    pageJson === null
      ? toJson(output, await runJson(deps, call, given))
      : await pageOf(deps, { ...operation, pageJson }, { call, tokenId: bearer.token.tokenId, given });
  return { status: 200, body: JSON.stringify(value) };
}

/** A page of a list: its rows, and the cursor of the next page. */
async function pageOf(
  deps: Deps,
  { name, output, pageJson }: AnyOperation & { pageJson: NonNullable<AnyOperation["pageJson"]> },
  { call, tokenId, given }: { call: Call; tokenId: number; given: Record<string, unknown> },
) {
  const { cursor, limit, ...filter } = given;
  const scope: CursorScope = { tokenId, operation: name, filter };
  const { secretKey } = deps.config;
  const before = cursor === undefined ? {} : { before: fromCursor(secretKey, scope, String(cursor)) };
  const input = { ...filter, ...(limit !== undefined && { limit }), ...before };
  const { rows, hasMore, next } = await pageJson(deps, call, input);
  const item: TSchema = output.properties.rows.items;
  const nextCursor = next === null ? null : toCursor(secretKey, scope, next);
  return { data: rows.map((row) => toJson(item, row)), hasMore, nextCursor };
}

type ReadBody = { value: Record<string, unknown>; text: string };

async function bodyOf(deps: Deps, request: Request, { token }: Bearer): Promise<ReadBody | undefined> {
  if (!hasBody(request)) return undefined;
  const { value, text, room } = await readBody(deps, request, { bytesMax: BODY_BYTES_MAX, owner: token });
  room.close(); // Only bodies still being read count against the limit.
  // Again: the body may have taken a minute, in which the token may have ended.
  await bearerOf(deps, request);
  return { value: Object.fromEntries(Object.entries(value ?? {})), text };
}

/** The input as JSON: fields of the path, and of the query or the body. Throws invalid_request, and not_found for a path. */
function inputOf(
  operation: AnyOperation,
  { url, params, body = {} }: { url: URL; params: Record<string, string>; body: Record<string, unknown> | undefined },
): Record<string, unknown> {
  refuseRepeated(url.searchParams);
  const { names, method } = routeOf(operation);
  const { properties } = operation.input;
  const query = Object.fromEntries(url.searchParams);
  const hasQuery = method === "get" || method === "delete";
  const [unexpected] = [
    ...Object.keys(body).filter((name) => hasQuery || names.includes(name)),
    ...Object.keys(query).filter(
      (name) => !hasQuery || names.includes(name) || (operation.pageJson !== null && name === "before"),
    ),
  ];
  if (unexpected !== undefined) throw unknownField(unexpected);
  const fromText = ([name, text]: [string, string]) => [name, valueIn(properties[name], text)];
  const ofPath = names.map((name) => {
    const value = valueIn(properties[name], params[name] ?? "");
    // An invalid id in a path reads the same as an unknown one.
    if (isWhole(properties[name]) && (typeof value !== "number" || value === 0)) throw new Refusal("not_found");
    return [name, value];
  });
  return { ...Object.fromEntries(Object.entries(query).map(fromText)), ...body, ...Object.fromEntries(ofPath) };
}

const NAME_CHARS_MAX = 100;

function unknownField(name: string): Refusal {
  const param = name.slice(0, NAME_CHARS_MAX);
  return new Refusal("invalid_request", {
    message: sentence("The field {param} is not known here.", { param }),
    param,
  });
}

function isWhole(schema: TSchema | undefined): boolean {
  return schema?.type === "integer";
}

/** A text of a path or a query as its schema wants it. What does not fit stays a text, which the schema then refuses. */
function valueIn(schema: TSchema | undefined, text: string): unknown {
  if (isWhole(schema) && /^\d{1,16}$/.test(text) && Number.isSafeInteger(Number(text))) return Number(text);
  if (schema?.type === "boolean" && (text === "true" || text === "false")) return text === "true";
  return text;
}

function digestOf(endpoint: string, body: string): Buffer {
  return Buffer.from(sha256(`${endpoint}\0${body}`));
}

function refusedAnswer(deps: Deps, error: unknown, requestId: string): Answer {
  const refusal = refusalOf(deps.log, error, { requestId, as: asRefusal });
  return { status: refusal.status, body: JSON.stringify(toEnvelope(refusal, requestId)) };
}

function toResponse({ status, body, replayed = false }: Answer & { replayed?: boolean }, requestId: string): Response {
  return new Response(body, {
    status,
    headers: {
      "content-type": "application/json",
      "cache-control": "no-store",
      "x-request-id": requestId,
      ...(replayed && { "idempotent-replayed": "true" }),
    },
  });
}
