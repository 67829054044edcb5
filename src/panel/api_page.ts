import { SERVICES, type Service } from "../catalog/modalities.ts";
import { ERROR_TABLE } from "../errors.ts";
import { EXAMPLE_MODELS } from "../gateway/v1_operations.ts";
import type { DescribedRoute, Json, OpenApi, Operation } from "../http/openapi.ts";
import { escapeHtml } from "./site.ts";

/**
 * The API reference as one HTML page without scripts, built from the same parts as the OpenAPI document. The parts that differ by host are
 * %PLACEHOLDERS% that `fill` of site.ts replaces: TITLE, LANG, ICON, STYLE, PANEL, BRAND, BASE, and those of EXAMPLE_PLACEHOLDERS.
 */

/** What stands for a model of the examples in the template. */
const EXAMPLE_PLACEHOLDERS = new Map<unknown, string>(
  SERVICES.map((service) => [EXAMPLE_MODELS[service], `%${modelPlaceholder(service)}%`]),
);

/** The name of the placeholder for the model of a service. */
export function modelPlaceholder(service: Service): string {
  return `${service.toUpperCase()}MODEL`;
}

/** What a reference says of itself. HTML, with the placeholders of the page. */
export type PageWords = { name: string; lead: string; facts: readonly (readonly [name: string, words: string])[] };

export const CUSTOMERS_PAGE: PageWords = {
  name: "API",
  lead: `An OpenAI-compatible API. Existing SDKs work once you set their base URL and API key.
The same reference as a file for tools: <a href="/docs/openapi.json">OpenAPI 3.1</a>.`,
  facts: [
    [
      "Key",
      "Create an API key in the panel and keep it on your server. Send it with every request: <code>Authorization: Bearer &lt;API_KEY&gt;</code>",
    ],
    ["Request id", "Every response has <code>X-Request-Id</code>. Quote it when you contact support."],
    [
      "Errors",
      `Every error is an ${linkTo("ErrorEnvelope")}. A request refused with 402 reached no model, cost nothing and has no usage record.`,
    ],
  ],
};

export const MANAGEMENT_PAGE: PageWords = {
  name: "management API",
  lead: `For programs of admins and resellers: accounts, keys, packages, balances and sales.
The same reference as a file for tools: <a href="/api/v1/openapi.json">OpenAPI 3.1</a>. The <a href="/docs/api">customers' API</a> has its own.`,
  facts: [
    [
      "Token",
      "Make a token in the panel under API tokens, with only the scopes that the program needs. Send it with every request: <code>Authorization: Bearer &lt;TOKEN&gt;</code>",
    ],
    ["Amounts", "Strings of nano-USD: 1 USD is <code>1000000000</code>."],
    [
      "Writing once",
      "Send an <code>Idempotency-Key</code> with every write. The same request with the same key is made once, and gets the same answer for 24 hours.",
    ],
    [
      "Pages",
      "A list has <code>data</code>, <code>hasMore</code> and <code>nextCursor</code>. Send that cursor as <code>cursor</code>, with the same filter and token.",
    ],
    ["Errors", `Every error is an ${linkTo("ErrorEnvelope")}. An unknown field is refused by its name.`],
    [
      "Webhooks",
      "Instead of asking for changes, add an endpoint in the panel under Webhooks. The OpenAPI file lists the kinds of its calls.",
    ],
  ],
};

/** The whole page, as a template. */
export function apiPage({ routes, schemas }: OpenApi, words: PageWords): string {
  const shapes = Object.keys(schemas).sort();
  return `<!doctype html>
<html lang="%LANG%">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>%TITLE% ${words.name}</title>
<link rel="icon" href="%ICON%">
<link rel="stylesheet" href="/docs/api.css?v=%STYLE%">
%PANEL%
%BRAND%
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<div class="columns">
<header>
<p><a href="/">Open the panel</a></p>
<h1>%TITLE% ${words.name}</h1>
<p>${words.lead}</p>
<dl>
<dt>Base URL</dt><dd><code>%BASE%</code></dd>
${words.facts.map(([name, text]) => `<dt>${name}</dt><dd>${text}</dd>`).join("\n")}
</dl>
</header>
<nav aria-label="Contents">
${contents(routes, shapes)}
</nav>
<main id="content">
${routes.map((route) => section(route, schemas)).join("\n")}
<h2 id="shapes">Shapes</h2>
${shapes.map((name) => shapeSection(name, schemas[name] ?? {})).join("\n")}
</main>
</div>
</body>
</html>
`;
}

function contents(routes: readonly DescribedRoute[], shapes: readonly string[]): string {
  const tags = Map.groupBy(routes, ({ operation }) => operation.tag);
  const groups = [...tags].map(
    ([tag, some]) => `<p>${tag}</p><ul>${some.map((route) => item(route.operation.id, nameOf(route))).join("")}</ul>`,
  );
  return [...groups, `<p>Shapes</p><ul>${shapes.map((name) => item(name, `<code>${name}</code>`)).join("")}</ul>`].join(
    "\n",
  );
}

const item = (id: string, words: string) => `<li><a href="#${id}">${words}</a></li>`;
const nameOf = ({ method, path }: DescribedRoute) =>
  `<code><span class="method">${method.toUpperCase()}</span>${escapeHtml(path)}</code>`;
function linkTo(name: string): string {
  return `<a href="#${name}"><code>${name}</code></a>`;
}

function section(route: DescribedRoute, schemas: OpenApi["schemas"]): string {
  const { operation } = route;
  const { id, summary, description, params, query, headers, body, answer, events } = operation;
  const inputs = [
    ...(params ? [["Path", fieldsOf(params)]] : []),
    ...(query ? [["Query", fieldsOf(query)]] : []),
    ...(headers ? [["Headers", fieldsOf(headers)]] : []),
    ...(body ? [["Body", fieldsOf(schemas[titleOf(body.schema)] ?? {})]] : []),
  ];
  return `<section>
<h2 id="${id}">${nameOf(route)}</h2>
<p>${escapeHtml(summary)}. ${escapeHtml(description)}</p>
<h3>Request</h3>
<p>${CALLERS[operation.caller]}</p>
<pre>${escapeHtml(exampleOf(route))}</pre>
${inputs.map(([title, fields]) => `<h4>${title}</h4>\n${fields}`).join("\n")}
<h3>Response</h3>
<p><code>200</code> ${"schema" in answer ? linkTo(titleOf(answer.schema)) : answer.mediaTypes.map((type) => `<code>${type}</code>`).join(" ")} ${escapeHtml(answer.description)}</p>
${events ? `<p>The events of a stream are ${linkTo(titleOf(events))}; the last event is <code>data: [DONE]</code>. A stream that fails ends with an ${linkTo("ErrorEnvelope")} and no <code>[DONE]</code>; nothing was charged.</p>` : ""}
<h3>Errors</h3>
${refusals(operation)}
</section>`;
}

const CALLERS: Readonly<Record<Operation["caller"], string>> = {
  key: "With an API key.",
  session: "Sent by the panel itself, with the session cookie and the CSRF header.",
  token: "With a token of the management API.",
  anyone: "Without an API key.",
};

const titleOf = (schema: { title?: unknown }) => String(schema.title);

/** A curl command to paste; for the panel's endpoints, the request line and body. */
function exampleOf({ method, path, operation }: DescribedRoute): string {
  const ownModel = (key: string, value: unknown) =>
    key === "model" ? (EXAMPLE_PLACEHOLDERS.get(value) ?? value) : value;
  const body = operation.body && JSON.stringify(operation.body.example, ownModel);
  if (operation.caller === "session") return `${method.toUpperCase()} ${path}\n${body ?? ""}`;
  const lines = [`curl "%BASE%${path.replace(/\{(\w+)\}/g, "<$1>")}"`];
  // curl chooses between GET and POST by itself.
  if (method !== "get" && body === undefined) lines.push(`-X ${method.toUpperCase()}`);
  if (operation.caller === "key") lines.push(`-H "Authorization: Bearer $API_KEY"`);
  if (operation.caller === "token") lines.push(`-H "Authorization: Bearer $TOKEN"`);
  if (operation.caller === "token" && method !== "get") lines.push(`-H "Idempotency-Key: $(uuidgen)"`);
  if (body) lines.push(`-H "Content-Type: application/json"`, `-d '${body.replaceAll("'", "'\\''")}'`);
  return lines.join(" \\\n  ");
}

function refusals({ refusals: all }: Operation): string {
  const rows = [...all]
    .sort((a, b) => a.status - b.status)
    .map(({ code, status }) => `<dt><code>${status} ${code}</code></dt><dd>${escapeHtml(ERROR_TABLE[code][2])}</dd>`);
  return `<dl>${rows.join("\n")}</dl>`;
}

function shapeSection(name: string, schema: Json): string {
  const words = typeof schema.description === "string" ? `<p>${escapeHtml(schema.description)}</p>` : "";
  return `<section>\n<h3 id="${name}"><code>${name}</code></h3>\n${words}\n${fieldsOf(schema)}\n</section>`;
}

type Schema = {
  $ref?: string;
  type?: string | string[];
  const?: unknown;
  enum?: unknown[];
  anyOf?: Schema[];
  allOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  format?: string;
  default?: unknown;
  description?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
};

/** The fields of an object as HTML. Fields of nested objects have their full path. */
function fieldsOf(schema: Schema): string {
  const parts = schema.allOf ?? [schema];
  const rows = parts.flatMap((part) => rowsOf(part, ""));
  const others = parts.flatMap(({ $ref }) => ($ref ? [`<p>All fields of ${linkTo(refName($ref))}, and:</p>`] : []));
  return `${others.join("")}<dl>${rows.join("\n")}</dl>`;
}

function rowsOf({ properties = {}, required = [] }: Schema, path: string): string[] {
  return Object.entries(properties).flatMap(([name, field]) => {
    const facts = [typeOf(field), required.includes(name) ? "required" : "", ...limitsOf(field)]
      .filter(Boolean)
      .join(", ");
    const words = field.description ? `<dd>${escapeHtml(field.description)}</dd>` : "<dd></dd>";
    const row = `<dt><code>${escapeHtml(path + name)}</code> <span>${facts}</span></dt>${words}`;
    const [object] = [field, ...(field.anyOf ?? [])].filter((one) => one.properties !== undefined);
    const within = object ? rowsOf(object, `${path}${name}.`) : rowsOf(field.items ?? {}, `${path}${name}[].`);
    return [row, ...within];
  });
}

/** The type in words, as HTML. */
function typeOf(schema: Schema): string {
  if (schema.$ref) return linkTo(refName(schema.$ref));
  if (schema.anyOf) return schema.anyOf.map(typeOf).join(" or ");
  if ("const" in schema) return `always <code>${escapeHtml(String(schema.const))}</code>`;
  if (schema.enum) return `one of ${schema.enum.map((one) => `<code>${escapeHtml(String(one))}</code>`).join(", ")}`;
  const types = [schema.type ?? "anything"].flat();
  const named = types.map((type) => (type === "array" && schema.items ? `array of ${typeOf(schema.items)}` : type));
  return named.join(" or ") + (schema.format ? ` (${schema.format})` : "");
}

const refName = (ref: string) => ref.slice(ref.lastIndexOf("/") + 1);

function limitsOf(schema: Schema): string[] {
  return [
    range(schema.minimum, schema.maximum, ""),
    range(schema.minLength, schema.maxLength, " characters"),
    range(schema.minItems, schema.maxItems, " elements"),
    schema.default === undefined ? "" : `default <code>${escapeHtml(String(schema.default))}</code>`,
  ];
}

function range(min: number | undefined, max: number | undefined, unit: string): string {
  if (min !== undefined && max !== undefined) return `${shown(min)} to ${shown(max)}${unit}`;
  if (min !== undefined) return `at least ${shown(min)}${unit}`;
  return max === undefined ? "" : `at most ${shown(max)}${unit}`;
}

const shown = (n: number) => n.toLocaleString("en-US");
