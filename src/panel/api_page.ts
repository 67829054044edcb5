import type { I18n } from "@lingui/core";
import { SERVICE_NAMES, type Service } from "../catalog/modalities.ts";
import { ERROR_TABLE } from "../errors.ts";
import { EXAMPLE_MODELS } from "../gateway/v1_operations.ts";
import type { DescribedRoute, Json, OpenApi, Operation } from "../http/openapi.ts";
import { LANGUAGES, languageTag } from "../languages/languages.ts";
import {
  callerWords,
  code,
  type Frame,
  frameIn,
  linkTo,
  name as nameIn,
  type PageWords,
  rangeWords,
  tagWords,
} from "./api_page_words.ts";
import { escapeHtml } from "./site.ts";

/**
 * The API reference as one HTML page without scripts, built from the same parts as the OpenAPI document, whose names and descriptions stay
 * in English in every language. The parts that differ by host are %PLACEHOLDERS% that `fill` of site.ts replaces: TITLE, ICON, STYLE, PANEL,
 * BRAND, BASE, and those of EXAMPLE_PLACEHOLDERS. Source: LNG-1.
 */

/** What stands for a model of the examples in the template. */
const EXAMPLE_PLACEHOLDERS = new Map<unknown, string>(
  SERVICE_NAMES.map((service) => [EXAMPLE_MODELS[service], `%${modelPlaceholder(service)}%`]),
);

/** The name of the placeholder for the model of a service. */
export function modelPlaceholder(service: Service): string {
  return `${service.toUpperCase()}MODEL`;
}

/** The whole page in one language, as a template. */
export function apiPage({ routes, schemas }: OpenApi, wordsOf: (frame: Frame) => PageWords, i18n: I18n): string {
  const frame = frameIn(i18n);
  const words = wordsOf(frame);
  const callers = callerWords(frame);
  const shapes = Object.keys(schemas).sort();
  return `<!doctype html>
<html ${attributesOf(i18n)}>
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta name="robots" content="noindex">
<title>${words.title}</title>
<link rel="icon" href="%ICON%">
<link rel="stylesheet" href="/docs/api.css?v=%STYLE%">
%PANEL%
%BRAND%
</head>
<body>
<a class="skip" href="#content">${i18n.t("Skip to the content")}</a>
<div class="columns">
<header>
<p><a href="/">${i18n.t("Open the panel")}</a></p>
<h1>${words.title}</h1>
<p>${words.lead}</p>
<dl>
<dt>${i18n.t("Base URL")}</dt><dd>${code(frame, "%BASE%")}</dd>
${words.facts.map(([name, text]) => `<dt>${name}</dt><dd>${text}</dd>`).join("\n")}
</dl>
</header>
<nav aria-label="${i18n.t("Contents")}">
${contents(frame, routes, shapes)}
</nav>
<main id="content">
${routes.map((route) => section(frame, route, callers[route.operation.caller], schemas)).join("\n")}
<h2 id="shapes">${i18n.t("Shapes")}</h2>
${shapes.map((name) => shapeSection(frame, name, schemas[name] ?? {})).join("\n")}
</main>
</div>
</body>
</html>
`;
}

/** The languages' directions are in the list of languages; English is from left to right without saying so. */
function attributesOf({ locale }: I18n): string {
  const { direction } = LANGUAGES[languageTag(locale) ?? "en"];
  return locale === "en" ? 'lang="en"' : `lang="${locale}" dir="${direction}"`;
}

function contents(frame: Frame, routes: readonly DescribedRoute[], shapes: readonly string[]): string {
  const words = tagWords(frame);
  const tags = Map.groupBy(routes, ({ operation }) => operation.tag);
  const groups = [...tags].map(
    ([tag, some]) =>
      `<p>${words[tag]}</p><ul>${some.map((route) => item(route.operation.id, nameOf(frame, route))).join("")}</ul>`,
  );
  const list = shapes.map((name) => item(name, code(frame, name))).join("");
  return [...groups, `<p>${frame.i18n.t("Shapes")}</p><ul>${list}</ul>`].join("\n");
}

const item = (id: string, words: string) => `<li><a href="#${id}">${words}</a></li>`;
const nameOf = (frame: Frame, { method, path }: DescribedRoute) =>
  code(frame, `<span class="method">${method.toUpperCase()}</span>${escapeHtml(path)}`);

function section(frame: Frame, route: DescribedRoute, caller: string, schemas: OpenApi["schemas"]): string {
  const { i18n, english } = frame;
  const { operation } = route;
  const { id, summary, description, params, query, headers, body, answer, events } = operation;
  const inputs = [
    ...(params ? [[i18n.t("Path"), fieldsOf(frame, params)]] : []),
    ...(query ? [[i18n.t("Query"), fieldsOf(frame, query)]] : []),
    ...(headers ? [[i18n.t("Headers"), fieldsOf(frame, headers)]] : []),
    ...(body ? [[i18n.t("Body"), fieldsOf(frame, schemas[titleOf(body.schema)] ?? {})]] : []),
  ];
  return `<section>
<h2 id="${id}"${english}>${nameOf(frame, route)}</h2>
<p${english}>${escapeHtml(summary)}. ${escapeHtml(description)}</p>
<h3>${i18n.t("Request")}</h3>
<p>${caller}</p>
<pre${english}>${escapeHtml(exampleOf(route))}</pre>
${inputs.map(([title, fields]) => `<h4>${title}</h4>\n${fields}`).join("\n")}
<h3>${i18n.t("Response")}</h3>
<p${english}><code>200</code> ${"schema" in answer ? linkTo(frame, titleOf(answer.schema)) : answer.mediaTypes.map((type) => `<code>${type}</code>`).join(" ")} ${escapeHtml(answer.description)}</p>
${events ? `<p>${eventWords(frame, titleOf(events))}</p>` : ""}
<h3>${i18n.t("Errors")}</h3>
${refusals(frame, operation)}
</section>`;
}

function eventWords(frame: Frame, shape: string): string {
  return frame.i18n.t(
    "The events of a stream are {shape}; the last event is {last}. A stream that fails ends with an {error} and no {done}; nothing was charged.",
    {
      shape: linkTo(frame, shape),
      last: code(frame, "data: [DONE]"),
      error: linkTo(frame, "ErrorEnvelope"),
      done: code(frame, "[DONE]"),
    },
  );
}

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

function refusals({ english }: Frame, { refusals: all }: Operation): string {
  const rows = [...all]
    .sort((a, b) => a.status - b.status)
    .map(({ code, status }) => `<dt><code>${status} ${code}</code></dt><dd>${escapeHtml(ERROR_TABLE[code][2])}</dd>`);
  return `<dl${english}>${rows.join("\n")}</dl>`;
}

function shapeSection(frame: Frame, name: string, schema: Json): string {
  const { english } = frame;
  const words = typeof schema.description === "string" ? `<p${english}>${escapeHtml(schema.description)}</p>` : "";
  return `<section>\n<h3 id="${name}"${english}><code>${name}</code></h3>\n${words}\n${fieldsOf(frame, schema)}\n</section>`;
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
function fieldsOf(frame: Frame, schema: Schema): string {
  const parts = schema.allOf ?? [schema];
  const rows = parts.flatMap((part) => rowsOf(frame, part, ""));
  const others = parts.flatMap(({ $ref }) =>
    $ref ? [`<p>${frame.i18n.t("All fields of {shape}, and:", { shape: linkTo(frame, refName($ref)) })}</p>`] : [],
  );
  return `${others.join("")}<dl${frame.english}>${rows.join("\n")}</dl>`;
}

function rowsOf(frame: Frame, { properties = {}, required = [] }: Schema, path: string): string[] {
  const { i18n } = frame;
  return Object.entries(properties).flatMap(([name, field]) => {
    const isRequired = required.includes(name);
    const facts = [typeOf(frame, field), isRequired ? i18n.t("required") : "", ...limitsOf(frame, field)];
    const words = field.description ? `<dd>${escapeHtml(field.description)}</dd>` : "<dd></dd>";
    const ofFacts = frame.english === "" ? "" : ` ${attributesOf(i18n)}`;
    const row = `<dt><code>${escapeHtml(path + name)}</code> <span${ofFacts}>${listed(frame, facts.filter(Boolean))}</span></dt>${words}`;
    const [object] = [field, ...(field.anyOf ?? [])].filter((one) => one.properties !== undefined);
    const within = object
      ? rowsOf(frame, object, `${path}${name}.`)
      : rowsOf(frame, field.items ?? {}, `${path}${name}[].`);
    return [row, ...within];
  });
}

/** The type in words, as HTML. */
function typeOf(frame: Frame, schema: Schema): string {
  const { i18n } = frame;
  const coded = (value: unknown) => code(frame, escapeHtml(String(value)));
  if (schema.$ref) return linkTo(frame, refName(schema.$ref));
  if (schema.anyOf)
    return either(
      frame,
      schema.anyOf.map((one) => typeOf(frame, one)),
    );
  if ("const" in schema) return i18n.t("always {value}", { value: coded(schema.const) });
  if (schema.enum) return i18n.t("one of {values}", { values: listed(frame, schema.enum.map(coded)) });
  if (schema.type === undefined) return i18n.t("anything");
  const named = [schema.type].flat().map((type) => {
    if (type === "array" && schema.items) return i18n.t("array of {type}", { type: typeOf(frame, schema.items) });
    return nameIn(frame, type);
  });
  return either(frame, named) + (schema.format ? ` ${nameIn(frame, `(${schema.format})`)}` : "");
}

function either({ i18n }: Frame, types: readonly string[]): string {
  return types.reduce((one, other) => i18n.t("{one} or {other}", { one, other }));
}

function listed({ i18n }: Frame, facts: readonly string[]): string {
  return facts.reduce((before, next) => i18n.t("{before}, {next}", { before, next }));
}

const refName = (ref: string) => ref.slice(ref.lastIndexOf("/") + 1);

function limitsOf(frame: Frame, schema: Schema): string[] {
  const value = schema.default === undefined ? "" : code(frame, escapeHtml(String(schema.default)));
  return [
    rangeWords(frame, "number", schema.minimum, schema.maximum),
    rangeWords(frame, "characters", schema.minLength, schema.maxLength),
    rangeWords(frame, "elements", schema.minItems, schema.maxItems),
    value === "" ? "" : frame.i18n.t("default {value}", { value }),
  ];
}
