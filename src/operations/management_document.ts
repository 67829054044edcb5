import { type TProperties, type TSchema, Type } from "@sinclair/typebox";
import type { ErrorCode } from "../errors.ts";
import { described, type Kind, type Operation, refusalsOf, type Tag } from "../http/openapi.ts";
import { SELLER_WEBHOOK_KINDS } from "../messages/kinds.ts";
import type { AnyOperation } from "./operation.ts";

/** What the OpenAPI document and the reference page say of each operation of the management API. */

const EVERY: readonly ErrorCode[] = [
  "invalid_request",
  "invalid_token",
  "insufficient_scope",
  "host_not_allowed",
  "not_found",
  "too_many_requests",
  "service_unavailable",
  "internal_error",
];
const OF_WRITES: readonly ErrorCode[] = ["request_too_large", "unsupported_media_type", "idempotency_conflict"];

const WriteHeaders = Type.Object({
  "Idempotency-Key": Type.Optional(
    Type.String({
      minLength: 1,
      maxLength: 255,
      description: "The same request with the same key is made once, and gets the same answer for 24 hours.",
    }),
  ),
});
const Cursor = Type.Optional(
  Type.String({ description: "nextCursor of the page before. It belongs to the token and to the filter." }),
);

const TAG_OF: Readonly<Record<string, Tag>> = {
  accounts: "Accounts",
  members: "Accounts",
  keys: "Keys",
  packages: "Packages",
  allotments: "Packages",
  balances: "Balances",
  usage: "Usage",
  losses: "Usage",
  offerings: "Offerings",
  prices: "Prices",
  measured: "Prices",
  markups: "Markups",
  orders: "Orders",
  payments: "Payments",
  vouchers: "Vouchers",
  incidents: "Incidents",
  domains: "Domains",
  models: "Models",
  routes: "Models",
  price_imports: "Models",
  providers: "Providers",
  provider_keys: "Providers",
  webhooks: "Webhooks",
};

/** For an Elysia route's `detail`. */
export function describedOperation(operation: AnyOperation) {
  return described(descriptionOf(operation));
}

export function descriptionOf({ name, says, scope, roles, route, input, output, pageJson }: AnyOperation): Operation {
  const id = name.replace(/[._](\w)/g, (_, letter: string) => letter.toUpperCase());
  const title = id.charAt(0).toUpperCase() + id.slice(1);
  const isRead = route.startsWith("GET");
  const hasQuery = isRead || route.startsWith("DELETE");
  const names = [...route.matchAll(/\{(\w+)\}/g)].map(([, field = ""]) => field);
  const fields: TProperties = { ...input.properties, ...(pageJson !== null && { cursor: Cursor }) };
  const params = Object.entries(fields).filter(([field]) => names.includes(field));
  const rest = Object.entries(fields).filter(
    ([field]) => !names.includes(field) && !(pageJson !== null && field === "before"),
  );
  const body = Type.Object(Object.fromEntries(rest), { additionalProperties: false, title: `${title}Body` });
  return {
    id,
    tag: TAG_OF[name.split(".")[0] ?? ""] ?? "Accounts",
    summary: says.replace(/\.$/, ""),
    description: `Scope: ${scope}. ${roles.includes("reseller") ? "For resellers and admins." : "For admins."}`,
    caller: "token",
    ...(params.length > 0 && { params: Type.Object(Object.fromEntries(params)) }),
    ...(rest.length > 0 && hasQuery && { query: Type.Object(Object.fromEntries(rest)) }),
    ...(!isRead && { headers: WriteHeaders }),
    ...(rest.length > 0 && !hasQuery && { body: { schema: body, example: exampleOf(body) } }),
    answer: {
      description: pageJson === null ? "What was asked for." : "A page of the list.",
      schema: pageJson === null ? titled(output, `${title}Result`) : pageShape(output, `${title}Page`),
    },
    refusals: [
      ...refusalsOf(...EVERY, ...(isRead ? [] : OF_WRITES)),
      ...(isRead ? [] : [{ code: "idempotency_mismatch" as const, status: 422 }]),
      ...(/\.(create|update)$/.test(name) ? refusalsOf("already_exists") : []),
      ...(/^(packages\.assign|balances\.change|orders\.fulfil|payments\.refund)$/.test(name)
        ? refusalsOf("insufficient_balance")
        : []),
    ],
  };
}

function titled(schema: TSchema, title: string): TSchema {
  return schema.title === undefined ? { ...schema, title } : schema;
}

function pageShape(output: TSchema, title: string): TSchema {
  const nextCursor = Type.Union([Type.String({ description: "The cursor of the next page." }), Type.Null()]);
  return Type.Object({ data: output.properties.rows, hasMore: Type.Boolean(), nextCursor }, { title });
}

const TEXTS = ["Ann", "1000000000", "2030-01-31T12:00:00Z"];
const BY_NAME: Readonly<Record<string, unknown>> = {
  email: "ann@example.com",
  host: "ai.example.com",
  when: "now",
  digest: "0".repeat(32),
};

/** A value that the schema accepts, with the required fields. */
function exampleOf(schema: TSchema): Record<string, unknown> {
  const properties: Record<string, TSchema> = schema.properties;
  const required: readonly string[] = schema.required ?? Object.keys(properties).slice(0, 1);
  return Object.fromEntries(
    Object.entries(properties)
      .filter(([name]) => required.includes(name))
      .map(([name, field]) => [name, BY_NAME[name] ?? sampleOf(field)]),
  );
}

function sampleOf(schema: TSchema): unknown {
  if (Array.isArray(schema.anyOf)) return sampleOf(schema.anyOf[0]);
  if ("const" in schema) return schema.const;
  if (schema.type === "integer") return Math.max(1, schema.minimum ?? 1);
  if (schema.type === "boolean") return true;
  if (schema.type === "array") return [sampleOf(schema.items)];
  if (schema.type === "object") return exampleOf(schema);
  return TEXTS.find((text) => new RegExp(schema.pattern ?? "").test(text)) ?? "";
}

const WORDS = [
  "Manages accounts, packages, balances and what else a seller has, for programs of admins and resellers.",
  "Every answer carries X-Request-Id; every error is an ErrorEnvelope whose request_id is the same.",
  "Amounts are strings of nano-USD: 1 USD is 1000000000. Unknown fields are refused.",
].join(" ");

/** What differs from the document of the customers' API. */
export const MANAGEMENT: Kind = {
  prefix: "/api/v1",
  words: WORDS,
  security: { token: [] },
  schemes: () => ({
    token: { type: "http", scheme: "bearer", description: "A token, made in the panel's settings." },
  }),
  more: { webhooks: Object.fromEntries(SELLER_WEBHOOK_KINDS.map((kind) => [kind, webhookOf(kind)])) },
};

/** A call to a seller's webhook, beside the operations that cause it. */
function webhookOf(kind: string) {
  const properties = {
    type: { const: kind },
    timestamp: { type: "string", format: "date-time" },
    data: { type: "object", description: "See the page on webhooks." },
  };
  return {
    post: {
      operationId: `webhook${kind.replace(/(?:^|_)(\w)/g, (_, letter: string) => letter.toUpperCase())}`,
      summary: `A webhook that you have added is called: ${kind.replaceAll("_", " ")}`,
      security: [],
      requestBody: {
        content: { "application/json": { schema: { type: "object", required: Object.keys(properties), properties } } },
      },
      responses: { "2XX": { description: "Received. Any other answer is tried again." } },
    },
  };
}
