import { ERROR_TABLE } from "../errors.ts";
import type { DescribedRoute, Json, OpenApi, Operation } from "../http/openapi.ts";
import { escapeHtml } from "./site.ts";

/**
 * The page about the API, for people: plain HTML made of the OpenAPI document's own parts, without any script. What differs from host
 * to host stands in it as %NAMES%, which `fill` of site.ts fills: TITLE, ICON, STYLE, PANEL, BRAND, BASE, VERSION.
 */

/** The whole page. */
export function apiPage({ routes, schemas }: OpenApi): string {
  const shapes = Object.keys(schemas).sort();
  return `<!doctype html>
<html lang="%LANG%">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>%TITLE% API</title>
<link rel="icon" href="%ICON%">
<link rel="stylesheet" href="/docs/api.css?v=%STYLE%">
%PANEL%
%BRAND%
</head>
<body>
<a class="skip" href="#content">Skip to the content</a>
<div class="columns">
<header>
<p><a href="/">To the panel</a></p>
<h1>%TITLE% API</h1>
<p>An OpenAI-compatible API: existing SDKs work once their base URL and key are set.
The same as a file for tools: <a href="/docs/openapi.json">OpenAPI 3.1</a>.</p>
<dl>
<dt>Base URL</dt><dd><code>%BASE%</code></dd>
<dt>Key</dt><dd>Create one in the panel, keep it on a server, and send it with every call: <code>Authorization: Bearer &lt;API_KEY&gt;</code></dd>
<dt>Request id</dt><dd>Every answer carries <code>X-Request-Id</code>. Quote it to support.</dd>
<dt>Refusals</dt><dd>Every error is an ${linkTo("ErrorEnvelope")}. A request that is refused with 402 reached no model, cost nothing and left no usage record.</dd>
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
const linkTo = (name: string) => `<a href="#${name}"><code>${name}</code></a>`;

function section(route: DescribedRoute, schemas: OpenApi["schemas"]): string {
  const { operation } = route;
  const { id, summary, description, params, query, headers, body, answer, events } = operation;
  const inputs = [
    ...(params ? [["In the path", fieldsOf(params)]] : []),
    ...(query ? [["In the query", fieldsOf(query)]] : []),
    ...(headers ? [["Headers", fieldsOf(headers)]] : []),
    ...(body ? [["Body", fieldsOf(schemas[titleOf(body.schema)] ?? {})]] : []),
  ];
  return `<section>
<h2 id="${id}">${nameOf(route)}</h2>
<p>${escapeHtml(summary)}. ${escapeHtml(description)}</p>
<h3>Request</h3>
<p>${operation.caller === "session" ? "For the panel's own page: with the session's cookie and its CSRF header." : "With an API key."}</p>
<pre>${escapeHtml(exampleOf(route))}</pre>
${inputs.map(([title, fields]) => `<h4>${title}</h4>\n${fields}`).join("\n")}
<h3>Answer</h3>
<p><code>200</code> ${linkTo(titleOf(answer.schema))} ${escapeHtml(answer.description)}</p>
${events ? `<p>A stream's events are ${linkTo(titleOf(events))}, the last one is <code>data: [DONE]</code>. A stream that breaks off ends with an ${linkTo("ErrorEnvelope")} and without it; then nothing was charged.</p>` : ""}
<h3>Refusals</h3>
${refusals(operation)}
</section>`;
}

const titleOf = (schema: { title?: unknown }) => String(schema.title);

/** A call to paste, or what the panel's page sends. */
function exampleOf({ method, path, operation }: DescribedRoute): string {
  const body = operation.body && JSON.stringify(operation.body.example);
  if (operation.caller === "session") return `${method.toUpperCase()} ${path}\n${body ?? ""}`;
  const lines = [`curl "%BASE%${path.replace(/\{(\w+)\}/g, "<$1>")}"`, `-H "Authorization: Bearer $API_KEY"`];
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

/** The fields of an object, those of objects within it by their paths. */
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

/** In words, as HTML. */
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
