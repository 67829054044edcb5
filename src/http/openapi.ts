import type { TSchema } from "@sinclair/typebox";
import { ERROR_TABLE, type ErrorCode, Refusal, toErrorResponse } from "../errors.ts";
import { ErrorShape } from "./error_shape.ts";

/**
 * Makes the OpenAPI 3.1 document from the descriptions of the endpoints (`described`) and from the schemas that check bodies.
 * Pure. Source: API-3, spec.openapis.org/oas/v3.1.0.
 */

const VERSION = "1.0.0";

/** In the order of the API reference. */
const TAGS = [
  ...["Models", "Chat", "Responses", "Images", "Embeddings", "Account", "Panel"],
  ...["Accounts", "Keys", "Packages", "Balances", "Usage", "Offerings", "Prices", "Markups", "Orders", "Payments"],
  ...["Vouchers", "Incidents", "Domains", "Providers", "Webhooks"],
] as const;
export type Tag = (typeof TAGS)[number];
/** A refusal that an endpoint can answer with, and its status there. */
export type RefusalSpec = { code: ErrorCode; status: number };

/** Description of an endpoint. `id` and `summary` are for people and for generated clients. */
export type Operation = {
  id: string;
  tag: Tag;
  summary: string;
  description: string;
  /** How the caller authenticates: with an API key, a session of the panel, or a token of the management API; or not at all. */
  caller: "key" | "session" | "token" | "anyone";
  /** The parameters of the path, in their order. */
  params?: TSchema;
  query?: TSchema;
  /** Headers that it reads, besides those for authentication. */
  headers?: TSchema;
  body?: { schema: TSchema; example: Record<string, unknown> };
  answer: Answer;
  /** The schema of a stream's events, if the endpoint can stream. */
  events?: TSchema;
  refusals: readonly RefusalSpec[];
};

/** JSON of this schema, or a file of these media types. */
export type Answer = { description: string } & ({ schema: TSchema } | { mediaTypes: readonly string[] });

/** Addresses and names for the document of one host. */
export type Place = {
  title: string;
  /** URLs of the API, each ending in /v1; the preferred one first. */
  apiUrls: readonly string[];
  /** Without a slash at the end. */
  panelUrl: string;
  /** Names of the session cookie and of the CSRF header. */
  cookie: string;
  csrfHeader: string;
};

/** JSON, as plain data. */
export type Json = { [key: string]: unknown };
export type Method = "get" | "post" | "put" | "patch" | "delete";
export type DescribedRoute = { method: Method; path: string; operation: Operation };

export type OpenApi = {
  routes: readonly DescribedRoute[];
  /** The schemas by name, as JSON Schema. */
  schemas: Readonly<Record<string, Json>>;
  document(place: Place): Json;
};

type Route = { method: string; path: string; hooks?: { detail?: { [OPERATION]?: Operation } } };

const OPERATION = "x-operation";
/** For an Elysia route's `detail`, which Elysia keeps and does not use when it serves. */
export const described = (operation: Operation) => ({ summary: operation.summary, [OPERATION]: operation });

/** The refusals with these codes, with the statuses of the error table. */
export const refusalsOf = (...codes: ErrorCode[]): RefusalSpec[] =>
  codes.map((code) => ({ code, status: ERROR_TABLE[code][0] }));

/** What differs between the documents: of the customers' API, and of the management API. */
export type Kind = {
  /** What the paths of its own endpoints begin with; the servers' addresses end in it. */
  prefix: string;
  words: string;
  security: Json;
  schemes(place: Place): Json;
  /** More of the document. */
  more?: Json;
};

const API_WORDS = [
  "An OpenAI-compatible API: existing SDKs work once their base URL and key are set.",
  "Every answer carries X-Request-Id; every error is an ErrorEnvelope whose request_id is the same.",
  "A request that is refused with 402 reaches no model, costs nothing and leaves no usage record.",
].join(" ");

const CUSTOMERS: Kind = {
  prefix: "/v1",
  words: API_WORDS,
  security: { apiKey: [] },
  schemes: ({ cookie, csrfHeader }) => ({
    apiKey: {
      type: "http",
      scheme: "bearer",
      description: "An API key, created in the panel. Keep it on a server.",
    },
    session: { type: "apiKey", in: "cookie", name: cookie, description: "Set by signing in to the panel." },
    csrf: {
      type: "apiKey",
      in: "header",
      name: csrfHeader,
      description: "Given to the panel's page at sign-in.",
    },
  }),
};

/**
 * Reads the descriptions of the endpoints. Every endpoint of the API must have one; of the panel, those that the contract has.
 * Throws for an endpoint of the API without a description, and for two schemas with the same name.
 */
export function openapiOf(routes: readonly Route[], kind: Kind = CUSTOMERS): OpenApi {
  const describedRoutes = routes
    .flatMap((route) => routeOf(route, kind) ?? [])
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
    document: (place) => ({
      openapi: "3.1.0",
      info: { title: place.title, version: VERSION, description: kind.words },
      servers: place.apiUrls.map((url) => ({ url })),
      security: [kind.security],
      tags,
      paths: Object.fromEntries(
        [...items].map(([path, { caller, item }]) => [
          path,
          caller === "session" ? { servers: [{ url: place.panelUrl }], ...item } : item,
        ]),
      ),
      components: { schemas, headers: usedHeaders(items), securitySchemes: kind.schemes(place) },
      ...kind.more,
    }),
  };
}

const COUNT = { type: "integer", minimum: 0 } as const;
const RESET_WORDS = "How long until all of it is left again, as in 20ms, 34s, 1m0s.";

const HEADERS = {
  "X-Request-Id": {
    description: "The request's id, for support and logs.",
    schema: { type: "string", format: "uuid" },
  },
  "Retry-After": { description: "Seconds to wait.", schema: { type: "integer", minimum: 1 } },
  "X-Should-Retry": { description: "Tells SDKs not to retry.", schema: { const: "false" } },
  "WWW-Authenticate": { description: "How to authenticate.", schema: { const: "Bearer" } },
  "X-Accel-Buffering": { description: "Set on streams: tells proxies not to buffer.", schema: { const: "no" } },
  "X-Dropped-Params": {
    description:
      "Parameters of the request that were not sent to the provider, because they are not listed or it does not take them, comma-separated; at most 20, then how many more, as in +7.",
    schema: { type: "string" },
  },
  "Idempotent-Replayed": {
    description:
      "Set on the stored answer to an earlier request with the same Idempotency-Key. X-Request-Id is that of the earlier request.",
    schema: { const: "true" },
  },
  // Source: LIM-5.
  "X-RateLimit-Limit-Requests": {
    description: "The limit of requests a minute of which the least is left.",
    schema: COUNT,
  },
  "X-RateLimit-Remaining-Requests": { description: "How many requests of it are left.", schema: COUNT },
  "X-RateLimit-Reset-Requests": { description: RESET_WORDS, schema: { type: "string" } },
  "X-RateLimit-Limit-Tokens": {
    description: "The limit of tokens a minute of which the least is left. Not sent if tokens are not limited.",
    schema: COUNT,
  },
  "X-RateLimit-Remaining-Tokens": { description: "How many tokens of it are left.", schema: COUNT },
  "X-RateLimit-Reset-Tokens": { description: RESET_WORDS, schema: { type: "string" } },
} as const;

function routeOf(route: Route, { prefix }: Kind): DescribedRoute | undefined {
  const operation = route.hooks?.detail?.[OPERATION];
  const isApi = route.path.startsWith(`${prefix}/`);
  if (operation === undefined) {
    if (isApi) throw new Error(`${route.method} ${route.path} has no description: give it one with described()`);
    return undefined;
  }
  const names = Object.keys(operation.params?.properties ?? {});
  // The server's address ends in the prefix.
  const path = (isApi ? route.path.slice(prefix.length) : route.path).replace(/\*$|:\w+/g, () => `{${names.shift()}}`);
  return { method: methodOf(route), path, operation };
}

function methodOf({ method, path }: Route): Method {
  const name = (["get", "post", "put", "patch", "delete"] as const).find((one) => one === method.toLowerCase());
  if (name === undefined) throw new Error(`${method} ${path}: this method cannot be described`);
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
    ...(caller === "anyone" && { security: [] }),
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

function answerObject({ answer, body, caller, events, headers }: Operation, shape: (schema: TSchema) => Json): Json {
  return {
    description: answer.description,
    headers: headersOf(
      "X-Request-Id",
      ...(events ? (["X-Accel-Buffering"] as const) : []),
      ...(body && caller === "key" ? (["X-Dropped-Params", ...LIMIT_HEADERS] as const) : []),
      ...(headers?.properties["Idempotency-Key"] ? (["Idempotent-Replayed"] as const) : []),
    ),
    content: {
      ...contentOf(answer, shape),
      ...(events && {
        "text/event-stream": {
          schema: {
            type: "string",
            description:
              "Events `data: {chunk}`, then `data: [DONE]`. Lines that begin with a colon are comments. A stream that fails ends with `data: {ErrorEnvelope}` and without [DONE]; nothing is charged then.",
          },
          // OpenAPI 3.1 cannot describe the events of a stream.
          "x-event": { anyOf: [shape(events), { $ref: "#/components/schemas/ErrorEnvelope" }] },
        },
      }),
    },
  };
}

function contentOf(answer: Answer, shape: (schema: TSchema) => Json): Json {
  if ("schema" in answer) return { "application/json": { schema: shape(answer.schema) } };
  // The schema of a binary body is empty.
  return Object.fromEntries(answer.mediaTypes.map((type) => [type, {}]));
}

/** One response for each status, with its codes. */
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
const LIMIT_HEADERS = (Object.keys(HEADERS) as HeaderName[]).filter((name) => name.startsWith("X-RateLimit-"));

/** The headers that such answers really have: with and without a time to wait, and where no retry helps. */
function headerNamesOf(refusals: readonly RefusalSpec[]): HeaderName[] {
  const isFinal = true as const;
  const answers = refusals.flatMap(({ code, status }) =>
    [{ status }, { status, retryAfterSeconds: 1 }, ...(code === "provider_unavailable" ? [{ isFinal }] : [])].map(
      (facts) => toErrorResponse(new Refusal(code, facts), ""),
    ),
  );
  const names = Object.keys(HEADERS) as HeaderName[];
  return names.filter((name) => answers.some(({ headers }) => headers.has(name)));
}

/** The headers that the answers of these endpoints name. */
function usedHeaders(items: ReadonlyMap<string, { item: Json }>): Json {
  const text = JSON.stringify([...items]);
  return Object.fromEntries(Object.entries(HEADERS).filter(([name]) => text.includes(`#/components/headers/${name}"`)));
}

const headersOf = (...names: HeaderName[]): Json =>
  Object.fromEntries(names.map((name) => [name, { $ref: `#/components/headers/${name}` }]));

/** Keywords that are the same in TypeBox and JSON Schema. */
const KEPT = new Set(
  (
    "type const enum format pattern minLength maxLength minimum maximum minItems maxItems maxProperties " +
    "required additionalProperties default description if else"
  ).split(" "),
);

/**
 * A TypeBox schema as JSON Schema 2020-12. A schema with a title becomes a component of that name, a union of literals an enum,
 * and a nullable schema gets two types. Throws for an unknown keyword, so that no rule is lost silently.
 */
function toJsonSchema(shape: TSchema, components: Record<string, Json>): Json {
  const { title, ...rest } = shape;
  const schema = bareSchema(rest, components);
  if (typeof title !== "string") return schema;
  const known = components[title];
  if (known !== undefined && JSON.stringify(known) !== JSON.stringify(schema))
    throw new Error(`two schemas are called ${title}`);
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
    else if (keyword === "patternProperties") schema.additionalProperties = inner(Object.values(value as Json)[0]);
    else if (keyword === "allOf") schema.allOf = (value as unknown[]).map(inner);
    else if (keyword === "anyOf") variants = (value as unknown[]).map(inner);
    else if (keyword === "codePoints") {
      // JSON Schema counts code points, TypeBox UTF-16 units.
      const { min, max } = value as { min: number; max: number };
      Object.assign(schema, { minLength: min, maxLength: max });
    } else if (keyword === "says") {
      // The words of an error message: see field_errors.ts.
    } else throw new Error(`a schema has the unknown keyword ${keyword}`);
  }
  if (Number.isInteger(schema.const)) schema.type = "integer"; // TypeBox types integer constants as numbers.
  return variants.length === 0 ? schema : { ...unionOf(variants), ...schema };
}

/** The shortest form of a union. */
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
