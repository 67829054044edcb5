import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

/**
 * The rules for an OpenAPI 3.1 document: the allowed and required fields of each object that our document uses, and rules that no
 * schema can express. Other fields are errors, except `x-` fields. Source: spec.openapis.org/oas/v3.1.0.
 */

type Json = Record<string, unknown>;

const text = { type: "string" };
const markdown = { type: "string", minLength: 1 };
const url = { type: "string", pattern: "^(?:https?://[^\\s{}]+[^/\\s{}]|/.*)$" };
const ref = (name: string) => ({ $ref: `#/$defs/${name}` });
const list = (items: unknown, more: Json = {}) => ({ type: "array", items, ...more });
const map = (of: unknown, more: Json = {}) => ({ type: "object", additionalProperties: of, ...more });
const object = (properties: Json, required: string[] = [], more: Json = {}) => ({
  type: "object",
  properties,
  required,
  patternProperties: { "^x-": true },
  additionalProperties: false,
  ...more,
});
/** The object, or a reference to a component of that kind. */
const orRef = (kind: string, name: string) => ({
  if: { type: "object", required: ["$ref"] },
  // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
  then: object({ $ref: { type: "string", pattern: `^#/components/${kind}/[A-Za-z0-9._-]+$` } }, ["$ref"]),
  else: ref(name),
});
const componentNames = { propertyNames: { pattern: "^[A-Za-z0-9._-]+$" } };
const METHODS = ["get", "put", "post", "delete", "options", "head", "patch", "trace"];
const PLACES = ["query", "header", "path", "cookie"];

const DOCUMENT = {
  $schema: "https://json-schema.org/draft/2020-12/schema",
  ...object(
    {
      openapi: { type: "string", pattern: "^3\\.1\\.\\d+$" },
      info: ref("info"),
      servers: list(ref("server"), { minItems: 1 }),
      paths: ref("paths"),
      webhooks: map(ref("pathItem")),
      components: ref("components"),
      security: list(ref("securityRequirement")),
      tags: list(object({ name: text, description: markdown }, ["name"])),
    },
    ["openapi", "info", "paths"],
  ),
  $defs: {
    info: object({ title: markdown, summary: text, description: markdown, version: markdown }, ["title", "version"]),
    server: object({ url, description: markdown }, ["url"]),
    paths: map(ref("pathItem"), { propertyNames: { pattern: "^/" } }),
    pathItem: object({
      servers: list(ref("server"), { minItems: 1 }),
      ...Object.fromEntries(METHODS.map((method) => [method, ref("operation")])),
    }),
    operation: object(
      {
        operationId: { type: "string", pattern: "^[A-Za-z][A-Za-z0-9]*$" },
        tags: list(text, { minItems: 1, uniqueItems: true }),
        summary: markdown,
        description: markdown,
        parameters: list(ref("parameter"), { minItems: 1 }),
        requestBody: object({ description: markdown, required: { type: "boolean" }, content: ref("content") }, [
          "content",
        ]),
        responses: {
          type: "object",
          minProperties: 1,
          patternProperties: { "^[1-5](?:\\d\\d|XX)$": ref("response") },
          additionalProperties: false,
        },
        security: list(ref("securityRequirement")),
        servers: list(ref("server")),
        deprecated: { type: "boolean" },
      },
      ["operationId", "responses"],
    ),
    parameter: object(
      {
        name: markdown,
        in: { enum: PLACES },
        description: markdown,
        required: { type: "boolean" },
        schema: ref("schema"),
      },
      ["name", "in", "schema"],
      {
        allOf: [
          {
            if: { properties: { in: { const: "path" } } },
            // biome-ignore lint/suspicious/noThenProperty: a keyword of JSON Schema.
            then: { properties: { required: { const: true } }, required: ["required"] },
          },
          // OpenAPI ignores these names: content types and security schemes describe them.
          {
            not: {
              properties: {
                in: { const: "header" },
                name: { pattern: "^(?:[Aa]ccept|[Cc]ontent-[Tt]ype|[Aa]uthorization)$" },
              },
            },
          },
        ],
      },
    ),
    content: map(ref("mediaType"), { minProperties: 1, propertyNames: { pattern: "^[a-z]+/[a-z0-9.+-]+$" } }),
    mediaType: object({ schema: ref("schema"), example: true, examples: map(true) }),
    response: object({ description: markdown, headers: map(orRef("headers", "header")), content: ref("content") }, [
      "description",
    ]),
    header: object({ description: markdown, required: { type: "boolean" }, schema: ref("schema") }, ["schema"]),
    components: object({
      schemas: map(ref("schema"), componentNames),
      headers: map(ref("header"), componentNames),
      securitySchemes: map(ref("securityScheme"), componentNames),
    }),
    securityRequirement: map(list(text)),
    securityScheme: {
      oneOf: [
        object({ type: { const: "http" }, scheme: markdown, bearerFormat: text, description: markdown }, [
          "type",
          "scheme",
        ]),
        object(
          {
            type: { const: "apiKey" },
            name: markdown,
            in: { enum: ["query", "header", "cookie"] },
            description: markdown,
          },
          ["type", "name", "in"],
        ),
      ],
    },
    /** OpenAPI 3.1 uses JSON Schema 2020-12. */
    schema: { $ref: "https://json-schema.org/draft/2020-12/schema" },
  },
};

const ajv = new Ajv({ strict: false, allErrors: true });
addFormats(ajv);
const validate = ajv.compile(DOCUMENT);

/** The errors of a document, one per line; empty if it is valid. */
export function problemsOf(document: Json): string[] {
  const broken = validate(document)
    ? []
    : (validate.errors ?? []).map(
        ({ instancePath, message, params }) => `${instancePath} ${message} ${JSON.stringify(params)}`,
      );
  return [
    ...broken,
    ...danglingIn(document),
    ...operationsOf(document).flatMap((one) => problemsOfOperation(document, one)),
  ];
}

export type DocumentOperation = { method: string; path: string; item: Json; operation: Json };

export function operationsOf(document: Json): DocumentOperation[] {
  return Object.entries(document.paths as Record<string, Json>).flatMap(([path, item]) =>
    Object.entries(item)
      .filter(([method]) => METHODS.includes(method))
      .map(([method, operation]) => ({ method: method.toUpperCase(), path, item, operation: operation as Json })),
  );
}

/** The target of a reference; undefined if there is none. */
export function resolve(document: Json, $ref: string): Json | undefined {
  const at = $ref
    .slice(2)
    .split("/")
    .reduce<unknown>((value, name) => (value as Json | undefined)?.[name], document);
  return at as Json | undefined;
}

function danglingIn(document: Json): string[] {
  const refs = [...JSON.stringify(document).matchAll(/"\$ref":"([^"]+)"/g)].map(([, $ref = ""]) => $ref);
  const dangling = refs.filter(($ref) => !$ref.startsWith("#/") || resolve(document, $ref) === undefined);
  const used = new Set(refs);
  const { schemas = {}, headers = {} } = document.components as Record<string, Json>;
  const unused = [
    ...Object.keys(schemas).map((name) => `#/components/schemas/${name}`),
    ...Object.keys(headers).map((name) => `#/components/headers/${name}`),
  ].filter((name) => !used.has(name));
  return [...dangling.map(($ref) => `${$ref} leads nowhere`), ...unused.map((name) => `${name} is not used`)];
}

function problemsOfOperation(document: Json, { method, path, operation }: DocumentOperation): string[] {
  const all = operationsOf(document);
  const parameters = (operation.parameters ?? []) as { name: string; in: string }[];
  const inPath = parameters.filter((one) => one.in === "path").map(({ name }) => name);
  const templated = [...path.matchAll(/\{([^}]+)\}/g)].map(([, name = ""]) => name);
  const names = parameters.map(({ name, in: place }) => `${place} ${name.toLowerCase()}`);
  const tags = ((document.tags ?? []) as { name: string }[]).map(({ name }) => name);
  const schemes = Object.keys((document.components as Record<string, Json>).securitySchemes ?? {});
  const required = ((operation.security ?? document.security ?? []) as Json[]).flatMap((one) => Object.keys(one));
  const rules: [boolean, string][] = [
    [all.filter((one) => one.operation.operationId === operation.operationId).length === 1, "its id is not unique"],
    [inPath.sort().join() === templated.sort().join(), "its path's parameters are not those of the path"],
    [new Set(names).size === names.length, "a parameter occurs twice"],
    [((operation.tags ?? []) as string[]).every((tag) => tags.includes(tag)), "a tag is not declared"],
    [required.every((name) => schemes.includes(name)), "a security scheme is not declared"],
    [!(method === "GET" && operation.requestBody !== undefined), "a GET has a body"],
    [
      Object.keys((operation.responses ?? {}) as Json).some((status) => status.startsWith("2")),
      "it has no 2xx response",
    ],
  ];
  return rules.filter(([holds]) => !holds).map(([, wrong]) => `${method} ${path}: ${wrong}`);
}
