import type { TSchema } from "@sinclair/typebox";
import { ERROR_TABLE, type ErrorCode, Refusal, toErrorResponse } from "../errors.ts";
import { ErrorShape } from "./error_shape.ts";

/**
 * The OpenAPI 3.1 document, made of what the routes say of themselves (`described`) and of the shapes that bodies are checked by.
 * Pure. Source: contract › Versioning, spec.openapis.org/oas/v3.1.0.
 */

const VERSION = "1.0.0";

/** In the order in which people meet them. */
const TAGS = ["Models", "Chat", "Images", "Account", "Panel"] as const;
export type Tag = (typeof TAGS)[number];
/** A refusal that a route can answer with; `status` where it is another than the table's. */
export type RefusalSpec = { code: ErrorCode; status: number };

/** What a route says of itself. `id` and `summary` are for people and for generated clients. */
export type Operation = {
  id: string;
  tag: Tag;
  summary: string;
  description: string;
  /** Whom it serves: who has an API key, or who is signed in to the panel. */
  caller: "key" | "session";
  /** The fields of the path, in its order. */
  params?: TSchema;
  query?: TSchema;
  /** Headers that it reads, beside those of whom it serves. */
  headers?: TSchema;
  body?: { schema: TSchema; example: Record<string, unknown> };
  answer: { schema: TSchema; description: string };
  /** The shape of a stream's events, where it can be asked for one. */
  events?: TSchema;
  refusals: readonly RefusalSpec[];
};

/** Where and in whose name the document is shown. */
export type Place = {
  title: string;
  /** Addresses of the API, each ending in /v1; the first is the one to use. */
  apiUrls: readonly string[];
  /** Without a slash at the end. */
  panelUrl: string;
  /** Names of the session's cookie, and of the header that goes with it. */
  cookie: string;
  csrfHeader: string;
};

/** JSON, as plain data. */
export type Json = { [key: string]: unknown };
export type Method = "get" | "post" | "put" | "patch" | "delete";
export type DescribedRoute = { method: Method; path: string; operation: Operation };

export type OpenApi = {
  routes: readonly DescribedRoute[];
  /** The shapes by name, as JSON Schema. */
  schemas: Readonly<Record<string, Json>>;
  document(place: Place): Json;
};

type Route = { method: string; path: string; hooks?: { detail?: { [OPERATION]?: Operation } } };

const OPERATION = "x-operation";
/** Elysia keeps a route's `detail`, and does nothing with it when it serves. */
export const described = (operation: Operation) => ({ summary: operation.summary, [OPERATION]: operation });

/** The refusals of these codes, with the statuses of the table. */
export const refusalsOf = (...codes: ErrorCode[]): RefusalSpec[] =>
  codes.map((code) => ({ code, status: ERROR_TABLE[code][0] }));

/**
 * Reads what the routes say of themselves. Of the API every route must; of the panel those that the contract knows do.
 * Throws for a route of the API without a description, and for two shapes of one name.
 */
export function openapiOf(routes: readonly Route[]): OpenApi {
  const describedRoutes = routes
    .flatMap((route) => routeOf(route) ?? [])
    .sort((a, b) => TAGS.indexOf(a.operation.tag) - TAGS.indexOf(b.operation.tag));
  const schemas: Record<string, Json> = {};
  const shape = (schema: TSchema) => toJsonSchema(schema, schemas);
  const envelope = shape(ErrorShape);
  const items = new Map<string, { caller: Operation["caller"]; item: Json }>();
  for (const { method, path, operation } of describedRoutes) {
    const known = items.get(path) ?? { caller: operation.caller, item: {} };
    known.item[method] = operationObject(operation, shape, envelope);
    items.set(path, known);
  }
  const tags = [...new Set(describedRoutes.map(({ operation }) => operation.tag))].map((name) => ({ name }));
  return {
    routes: describedRoutes,
    schemas,
    document: ({ title, apiUrls, panelUrl, cookie, csrfHeader }) => ({
      openapi: "3.1.0",
      info: { title, version: VERSION, description: API_WORDS },
      servers: apiUrls.map((url) => ({ url })),
      security: [{ apiKey: [] }],
      tags,
      paths: Object.fromEntries(
        [...items].map(([path, { caller, item }]) => [
          path,
          caller === "session" ? { servers: [{ url: panelUrl }], ...item } : item,
        ]),
      ),
      components: {
        schemas,
        headers: HEADERS,
        securitySchemes: {
          apiKey: { type: "http", scheme: "bearer", description: "A key of the panel. Keep it on a server." },
          session: { type: "apiKey", in: "cookie", name: cookie, description: "Set by signing in to the panel." },
          csrf: { type: "apiKey", in: "header", name: csrfHeader, description: "Told to the panel's page at sign-in." },
        },
      },
    }),
  };
}

const API_WORDS = [
  "An OpenAI-compatible API: existing SDKs work once their base URL and key are set.",
  "Every answer carries X-Request-Id; every error is an ErrorEnvelope whose request_id is the same.",
  "A request that is refused with 402 reached no model, cost nothing and left no usage record.",
].join(" ");

const HEADERS = {
  "X-Request-Id": {
    description: "The request's id, for support and logs.",
    schema: { type: "string", format: "uuid" },
  },
  "Retry-After": { description: "Seconds to wait.", schema: { type: "integer", minimum: 1 } },
  "X-Should-Retry": { description: "Tells SDKs not to try again.", schema: { const: "false" } },
  "WWW-Authenticate": { description: "How to sign in.", schema: { const: "Bearer" } },
  "X-Accel-Buffering": { description: "Of a stream: no proxy may buffer it.", schema: { const: "no" } },
  "X-Dropped-Params": {
    description:
      "The parameters of the request that were not sent on to the model's service, with commas; at most 20, then how many more, as in +7.",
    schema: { type: "string" },
  },
  "Idempotent-Replayed": {
    description:
      "The answer to an earlier request with the same Idempotency-Key, sent again; X-Request-Id is that one's.",
    schema: { const: "true" },
  },
} as const;

function routeOf(route: Route): DescribedRoute | undefined {
  const operation = route.hooks?.detail?.[OPERATION];
  const isApi = route.path.startsWith("/v1/");
  if (operation === undefined) {
    if (isApi) throw new Error(`${route.method} ${route.path} says nothing of itself: give the route a description`);
    return undefined;
  }
  const names = Object.keys(operation.params?.properties ?? {});
  // The server's address ends in /v1.
  const path = (isApi ? route.path.slice("/v1".length) : route.path).replace(/\*$|:\w+/g, () => `{${names.shift()}}`);
  return { method: methodOf(route), path, operation };
}

function methodOf({ method, path }: Route): Method {
  const name = (["get", "post", "put", "patch", "delete"] as const).find((one) => one === method.toLowerCase());
  if (name === undefined) throw new Error(`${method} ${path}: no method that can be described`);
  return name;
}

function operationObject(operation: Operation, shape: (schema: TSchema) => Json, envelope: Json): Json {
  const { id, tag, summary, description, caller, params, query, headers, body } = operation;
  const parameters = [
    ...parametersOf("path", params, shape),
    ...parametersOf("query", query, shape),
    ...parametersOf("header", headers, shape),
  ];
  return {
    operationId: id,
    tags: [tag],
    summary,
    description,
    ...(caller === "session" && { security: [{ session: [], csrf: [] }] }),
    ...(parameters.length > 0 && { parameters }),
    ...(body && {
      requestBody: {
        required: true,
        content: { "application/json": { schema: shape(body.schema), example: body.example } },
      },
    }),
    responses: { "200": answerObject(operation, shape), ...refusalObjects(operation.refusals, envelope) },
  };
}

function parametersOf(place: string, schema: TSchema | undefined, shape: (schema: TSchema) => Json): Json[] {
  if (schema === undefined) return [];
  const properties: Record<string, TSchema> = schema.properties;
  const required: readonly string[] = schema.required ?? [];
  return Object.entries(properties).map(([name, property]) => {
    const { description, ...rest } = shape(property);
    return { name, in: place, required: required.includes(name), description, schema: rest };
  });
}

function answerObject({ answer, body, events, headers }: Operation, shape: (schema: TSchema) => Json): Json {
  return {
    description: answer.description,
    headers: headersOf(
      "X-Request-Id",
      ...(events ? (["X-Accel-Buffering"] as const) : []),
      ...(body ? (["X-Dropped-Params"] as const) : []),
      ...(headers?.properties["Idempotency-Key"] ? (["Idempotent-Replayed"] as const) : []),
    ),
    content: {
      "application/json": { schema: shape(answer.schema) },
      ...(events && {
        "text/event-stream": {
          schema: {
            type: "string",
            description:
              "Events `data: {chunk}`, at last `data: [DONE]`; lines that begin with a colon are comments. A stream that breaks off ends with `data: {ErrorEnvelope}` and without [DONE]; then nothing was charged.",
          },
          // OpenAPI 3.1 has no word for the parts of a stream.
          "x-event": { anyOf: [shape(events), { $ref: "#/components/schemas/ErrorEnvelope" }] },
        },
      }),
    },
  };
}

/** One response a status, with the codes that come with it. */
function refusalObjects(refusals: readonly RefusalSpec[], envelope: Json): Record<string, Json> {
  const byStatus = Map.groupBy(refusals, ({ status }) => status);
  return Object.fromEntries(
    [...byStatus].map(([status, some]) => {
      const codes = some.map(({ code }) => code);
      const types = [...new Set(codes.map((code) => ERROR_TABLE[code][1]))];
      return [
        String(status),
        {
          description: codes.map((code) => `${code}: ${ERROR_TABLE[code][2]}`).join("\n"),
          headers: headersOf(...headerNamesOf(some)),
          content: {
            "application/json": {
              schema: {
                allOf: [
                  envelope,
                  { properties: { error: { properties: { code: { enum: codes }, type: { enum: types } } } } },
                ],
              },
            },
          },
        },
      ];
    }),
  );
}

type HeaderName = keyof typeof HEADERS;

/** Those that such an answer really has, with and without a time to wait. */
function headerNamesOf(refusals: readonly RefusalSpec[]): HeaderName[] {
  const answers = refusals.flatMap(({ code, status }) =>
    [{ status }, { status, retryAfterSeconds: 1 }].map((facts) => toErrorResponse(new Refusal(code, facts), "")),
  );
  const names = Object.keys(HEADERS) as HeaderName[];
  return names.filter((name) => answers.some(({ headers }) => headers.has(name)));
}

const headersOf = (...names: HeaderName[]): Json =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Keywords that TypeBox and JSON Schema write alike. */
const KEPT = new Set(
  (
    "type const enum format pattern minLength maxLength minimum maximum minItems maxItems " +
    "required additionalProperties default description if else"
  ).split(" "),
);

/**
 * A TypeBox shape as JSON Schema 2020-12: what has a title becomes a component of that name, unions of literals an enum, and what
 * may be null a type of two. Throws for a keyword that it does not know, so that no rule is lost in silence.
 */
function toJsonSchema(shape: TSchema, components: Record<string, Json>): Json {
  const { title, ...rest } = shape;
  const schema = bareSchema(rest, components);
  if (typeof title !== "string") return schema;
  const known = components[title];
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(schema))
    throw new Error(`two shapes are called ${title}`);
  components[title] = schema;
  return { $ref: `#/components/schemas/${title}` };
}

function bareSchema(shape: Json, components: Record<string, Json>): Json {
  const inner = (value: unknown) => toJsonSchema(value as TSchema, components);
  const schema: Json = {};
  let variants: Json[] = [];
  for (const [keyword, value] of Object.entries(shape)) {
    if (KEPT.has(keyword)) schema[keyword] = value;
    else if (keyword === "properties")
      schema.properties = Object.fromEntries(Object.entries(value as Json).map(([name, one]) => [name, inner(one)]));
    else if (keyword === "items") schema.items = inner(value);
    else if (keyword === "allOf") schema.allOf = (value as unknown[]).map(inner);
    else if (keyword === "anyOf") variants = (value as unknown[]).map(inner);
    else if (keyword === "codePoints") {
      // JSON Schema counts code points, TypeBox UTF-16 units.
      const { min, max } = value as { min: number; max: number };
      Object.assign(schema, { minLength: min, maxLength: max });
    } else if (keyword === "says") {
      // Words for a refusal: field_errors.ts.
    } else throw new Error(`a shape has the unknown keyword ${keyword}`);
  }
  if (Number.isInteger(schema.const)) schema.type = "integer"; // TypeBox calls every number a number.
  return variants.length === 0 ? schema : { ...unionOf(variants), ...schema };
}

/** A union in its shortest form. */
function unionOf(all: Json[]): Json {
  const flat = all.flatMap((one) => (Object.keys(one).join() === "anyOf" ? (one.anyOf as Json[]) : [one]));
  const isNull = (one: Json) => one.type === "null";
  const nulls = flat.filter(isNull).slice(0, 1);
  const others = flat.filter((one) => !isNull(one));
  const [first = {}] = others;
  if (others.every((one) => "const" in one && one.type === first.type))
    return withNull({ type: first.type, enum: others.map((one) => one.const) }, nulls.length > 0);
  if (others.length === 1 && typeof first.type === "string") return withNull(first, nulls.length > 0);
  return { anyOf: [...others, ...nulls] };
}

function withNull(schema: Json, orNull: boolean): Json {
  if (!orNull) return schema;
  return {
    ...schema,
    type: [schema.type, "null"],
    ...(Array.isArray(schema.enum) && { enum: [...schema.enum, null] }),
  };
}
