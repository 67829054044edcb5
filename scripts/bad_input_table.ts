import { writeFileSync } from "node:fs";
import { ERROR_TABLE, type ErrorCode } from "../src/errors.ts";
import {
  BAD_CHAT,
  BAD_ENCODINGS,
  BAD_IMAGE,
  BAD_METHODS,
  BAD_MODEL_IDS,
  BAD_QUERIES,
  BAD_TYPES,
  type BodyCase,
  BY_THE_RUNTIME,
  BYTES_MAX,
  NO_HTTP,
  NO_JSON,
  TOO_LARGE,
  TWICE,
  UNKNOWN_PATHS,
} from "../test/http/body_cases.ts";

/** The page of bad input, made of the cases that the tests run. `bun scripts/bad_input_table.ts` writes docs/bad-input.md. */

/** Longer text is shown by its beginning. */
const SHOWN_CHARS_MAX = 90;
const SHOWN_BYTES_MAX = 40;
const SHORT_ESCAPES: Readonly<Record<string, string>> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };

type Row = { what: string; sent: string; code: string | null; param?: string | null };
type Section = { title: string; request: string; rows: Row[] };

/** The whole page as Markdown. */
export function badInputPage(): string {
  const sections = allSections();
  const count = sections.reduce((sum, { rows }) => sum + rows.length, 0);
  return [
    "# Bad input",
    "",
    `${count} things that clients send and that are refused, each of them a case of \`test/gateway/bad_input.test.ts\`, which also checks`,
    "that nothing is charged, written or sent to a provider. The answer is always the envelope of the contract, with the status, code and",
    "`param` named here; bodies are refused by the panel's playground too, as 422 `validation_failed` where it is 400 here.",
    `The limit of a body is ${BYTES_MAX.toLocaleString("en")} bytes in these tests (\`BODY_BYTES_MAX\`; 20 MiB by default). Made by \`bun scripts/bad_input_table.ts\`.`,
    "",
    ...sections.flatMap(({ title, request, rows }) => [
      `## ${title}`,
      "",
      `\`${request}\``,
      "",
      "| what | sent | status | code | param |",
      "| --- | --- | --- | --- | --- |",
      ...rows.map(lineOf),
      "",
    ]),
    ...byTheRuntime(),
  ].join("\n");
}

/** What the service never sees: each runtime's own answer, the proxy's, and what ends it. */
function byTheRuntime(): string[] {
  return [
    "## What the runtime answers by itself",
    "",
    "Bun and Deno refuse some requests before the service sees them: without the envelope, without a request id, and without a line in the",
    "log. A request that ends so before its provider is called costs nothing; later it counts as one whose client has left. Measured with",
    "Bun 1.4.5, the newest release, and Deno 2.9.6. Behind `deploy/Caddyfile` nearly all of them are served, or get the envelope and a request",
    "id (`test/deploy/topology.test.ts`). The id is Caddy's own, and stands in its log. What Caddy's parser refuses gets one line of text.",
    "",
    "| what | Bun | Deno | behind Caddy | what else ends it |",
    "| --- | --- | --- | --- | --- |",
    ...BY_THE_RUNTIME.map(
      ({ what, bun, deno, proxy, ends }) =>
        `| ${[what, bun.join(", or "), deno.join(", or "), proxy, ends].join(" | ")} |`,
    ),
    "| any byte behind a request whose answer is a stream | the stream is broken off with a bare 400 in it, and charged as if the client had left | the stream goes on to its end | the stream goes on to its end | no setting |",
    "| two Hosts | 403 with the envelope | 400, no body | Caddy's own 400, as text | no setting |",
    "| a host in the target that is another than the Host | the Host header decides | the target decides | the target decides | no setting |",
    "| headers that stop, or trickle in | closed after some 12 s | waited for | closed after 10 s (`read_header`) | |",
    "",
  ];
}

function allSections(): Section[] {
  const chat = "POST /v1/chat/completions";
  const images = "POST /v1/images/generations";
  const refused = (code: ErrorCode, sent: string, what = "") => ({ what, sent, code });
  return [
    { title: "A body that is no JSON object", request: chat, rows: NO_JSON.map(rowOfBody) },
    { title: "A field that stands twice", request: chat, rows: TWICE.map(rowOfBody) },
    { title: "Fields of a chat", request: chat, rows: BAD_CHAT.map(rowOfBody) },
    { title: "Fields of an image", request: images, rows: BAD_IMAGE.map(rowOfBody) },
    {
      title: "Size of the body",
      request: `${chat} and ${images}`,
      rows: TOO_LARGE.map(([what, how, bytes]) =>
        refused("request_too_large", `${how === "declared" ? "Content-Length: " : "chunks: "}${bytes}`, what),
      ),
    },
    {
      title: "Type and coding of the body",
      request: `${chat} and ${images}`,
      rows: [
        ...BAD_TYPES.map((type) => refused("unsupported_media_type", `Content-Type: ${type || "(none)"}`, "type")),
        ...BAD_ENCODINGS.map((coding) => refused("unsupported_media_type", `Content-Encoding: ${coding}`, "coding")),
      ],
    },
    {
      title: "Ids in the path",
      request: "GET /v1/models/{id}",
      rows: BAD_MODEL_IDS.map((id) => ({ ...refused("model_not_found", id, "no model's id"), param: "model" })),
    },
    {
      title: "Paths and methods",
      request: "any",
      rows: [
        ...UNKNOWN_PATHS.map((path) => refused("not_found", `GET ${path}`, "no such address")),
        ...BAD_METHODS.flatMap(([path, methods]) =>
          methods.map((method) => refused("method_not_allowed", `${method} ${path}`, "not this method")),
        ),
      ],
    },
    {
      title: "Queries",
      request: "GET /v1/usage",
      rows: BAD_QUERIES.map(([query, param]) => ({ ...refused("invalid_request", `?${query}`, param), param })),
    },
    {
      title: "What is no HTTP",
      request: "bytes on the socket",
      rows: NO_HTTP.map(([what, bytes]) => ({ what, sent: bytes.replace("HEAD", "(a good head) "), code: null })),
    },
  ];
}

function rowOfBody([what, body, param = null, code = "invalid_request"]: BodyCase): Row {
  return { what, sent: shownBody(body), code, param };
}

function shownBody(body: unknown): string {
  if (typeof body === "string") return body;
  if (!(body instanceof Uint8Array)) return JSON.stringify(body);
  // What is packed has other bytes on another machine.
  return Buffer.from(body.subarray(0, body[0] === 0x1f ? 3 : SHOWN_BYTES_MAX)).toString("latin1");
}

/** What no code belongs to is answered by the runtime, which knows of no envelope. */
function lineOf({ what, sent, code, param = null }: Row): string {
  const status = code === null ? "400, or the connection ends" : String(ERROR_TABLE[code as ErrorCode][0]);
  const cells = [what, asCode(sent), status, code === null ? "" : `\`${code}\``, param === null ? "" : `\`${param}\``];
  return `| ${cells.join(" | ")} |`;
}

/** Text as one cell: what cannot be printed is escaped, what is long is cut. */
function asCode(text: string): string {
  if (text === "") return "(nothing)";
  const shown = [...text.slice(0, SHOWN_CHARS_MAX)].map(printable).join("").replaceAll("|", "\\|");
  const rest = text.length > SHOWN_CHARS_MAX ? ` … (${text.length} characters)` : "";
  return `\`\` ${shown} \`\`${rest}`;
}

function printable(sign: string): string {
  if (/[\x20-\x7e]/.test(sign)) return sign;
  return SHORT_ESCAPES[sign] ?? `\\u${(sign.codePointAt(0) ?? 0).toString(16).padStart(4, "0")}`;
}

if (import.meta.main) writeFileSync(new URL("../docs/bad-input.md", import.meta.url), badInputPage());
