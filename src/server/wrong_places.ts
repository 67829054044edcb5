import type { AllowedMethods } from "./routing.ts";

/**
 * Paths that clients try and that are not served: known paths of other APIs, and paths of this one under a wrong prefix. The answer says
 * what to use instead. Pure. Source: API-10.
 */

/** What a message may refer to: a path of this API below its base URL, with its method. */
const CHAT = "POST /chat/completions";
const COMPLETIONS = "POST /completions";
const IMAGES = "POST /images/generations";
const EMBEDDINGS = "POST /embeddings";
const RERANK = "POST /rerank";
const RESPONSES = "POST /responses";
const MODELS = "GET /models";
const USAGE = "GET /usage";
const BALANCE = "GET /balance";
/** Longer paths are no mistake of a client's settings. */
const PATH_CHARS_MAX = 500;

/**
 * Segments in front of a path that come from a wrong base URL: versions, an endpoint of Azure, and words of other services. They are
 * ignored, however often they stand there.
 */
const PREFIX =
  /^(?:\/(?:v\d+(?:(?:alpha|beta)\d*)?|api|beta|openai|anthropic|compatible-mode|inference|deployments\/[^/]+|projects\/[^/]+\/locations\/[^/]+\/(?:endpoints|publishers)\/[^/]+))+(?=\/)/;

/** A row: paths without their prefix, what is not offered ("" if the sentence with `use` is enough), and what to use instead. */
type Row = readonly [path: RegExp, says: string, use?: string];

/** The first match decides. No row matches a path that is served: a test compares them. */
const NOT_OFFERED: readonly Row[] = [
  // OpenAI: https://platform.openai.com/docs/api-reference
  [/^engines\/[^/]+\/completions$/, "Engines are called models here, and are named in the body.", COMPLETIONS],
  [/^engines(\/[^/]+)?$/, "Engines are called models here.", MODELS],
  [/^edits$/, "Edits are not offered here.", CHAT],
  [
    /^responses\/input_tokens(\/count)?$/,
    "Tokens are not counted in advance here: `usage` in each answer has them.",
    RESPONSES,
  ],
  [/^responses\/compact$/, "Responses are not compacted here. Send a shorter input.", RESPONSES],
  [/^responses\/[^/]+\/cancel$/, "A response cannot be cancelled here. Close the connection of its stream instead."],
  [
    /^chat\/completions\/chatcmpl[^/]*(\/messages)?$/,
    "Chat completions are not stored here; responses are.",
    RESPONSES,
  ],
  [/^conversations(\/|$)/, "Conversations are not offered here. Use `previous_response_id`.", RESPONSES],
  [/^images\/(edits|variations)$/, "Images are only made from a prompt here.", IMAGES],
  [/^audio(\/|$)/, "Audio is not offered here."],
  [/^realtime(\/|$)/, "The Realtime API is not offered here. For streams, set `stream` to true.", CHAT],
  [/^videos(\/|$)/, "Videos are not offered here."],
  [/^moderations$/, "Moderations are not offered here."],
  [
    /^(files|uploads)(\/|$)/,
    "Files are not offered here. Send their text, or a picture as an image part of a message.",
    CHAT,
  ],
  [/^vector_stores(\/|$)/, "Vector stores are not offered here. Make vectors and keep them yourself.", EMBEDDINGS],
  [/^containers(\/|$)/, "Containers are not offered here."],
  [/^batches(\/|$)/, "Batches are not offered here. Send each request by itself.", CHAT],
  [/^fine[_-]tun(ing|es)(\/|$)/, "Fine-tuning is not offered here."],
  [/^evals(\/|$)/, "Evals are not offered here."],
  [/^(assistants|threads|chatkit)(\/|$)/, "Assistants are not offered here.", RESPONSES],
  [
    /^(organization|organizations|projects)(\/|$)/,
    "Keys and people are managed in the panel. Usage is listed by the API.",
    USAGE,
  ],
  [/^dashboard\/billing(\/|$)/, "Billing is in the panel. What is left is told by the API.", BALANCE],
  [/^(credits|key|auth\/key|user\/info|key\/info)$/, "What is left is told by the API.", BALANCE],
  // Other APIs.
  [/^messages(\/|$)/, "This API is not offered here.", CHAT],
  [/^complete$/, "This API is not offered here.", COMPLETIONS],
  [/^(score|classify|tokenize|detokenize)$/, "This API is not offered here."],
  [/^(chat|generate)$/, "This API is not offered here.", CHAT],
  [/^(infill|fim\/completions)$/, "This API is not offered here.", COMPLETIONS],
  [/^(generate_stream|agents\/completions)$/, "This API is not offered here.", CHAT],
  [/^model\/[^/]+\/(invoke|converse)[\w-]*$/, "This API is not offered here.", CHAT],
  [
    /^(text\/chatcompletion\w*|services\/aigc\/(text|multimodal)-generation\/generation)$/,
    "This API is not offered here.",
    CHAT,
  ],
  [/^ocr$/, "This API is not offered here.", CHAT],
  [/^embed$/, "This API is not offered here.", EMBEDDINGS],
  [/^(tags|ps|show|version)$/, "This API is not offered here.", MODELS],
  [/^models\/[^/]+:(generate|streamGenerate)\w*$/, "This API is not offered here.", CHAT],
  [/^models\/[^/]+:(batchEmbed|embed)\w*$/, "This API is not offered here.", EMBEDDINGS],
  [/^(model\/info|openai\/deployments|deployments)$/, "This API is not offered here.", MODELS],
  // Names that are nearly right.
  [
    /^(chat\/completion|chat-completions|chat_completions|chatcompletions?|chat\/complete)$/,
    "The name is another one here.",
    CHAT,
  ],
  [/^embedding$/, "The name is another one here.", EMBEDDINGS],
  [/^images?\/(generate|generation|create)$/, "The name is another one here.", IMAGES],
  [/^response$/, "The name is another one here.", RESPONSES],
];

/** The endpoints that clients append to a base URL: found at the end of any path, as behind a base URL that already names one. */
const ENDINGS: readonly string[] = [CHAT, COMPLETIONS, IMAGES, EMBEDDINGS, RERANK, RESPONSES, MODELS];

/** A request without an endpoint. `base`: the base URL of the API on its host, as in `https://api.example.com/v1`. */
type Lost = { method: string; path: string; base: string };

/** What to use in place of a path that is not served, in one or two sentences; undefined if it resembles nothing. */
export function hintFor({ method, path: asked, base }: Lost, allowed: AllowedMethods): string | undefined {
  if (asked.length > PATH_CHARS_MAX) return undefined;
  // Paths have small letters here; clients that write others mean the same.
  const path = asked.toLowerCase();
  const rest = path.replace(PREFIX, "").slice(1);
  const [, says, use] = NOT_OFFERED.find(([pattern]) => pattern.test(rest)) ?? [];
  if (says !== undefined) return use === undefined ? says : `${says} Use ${addressOf(use, base)}.`;
  const ending = ENDINGS.find((one) => path.endsWith(pathOf(one)));
  // In the right place, with another method. An id may have capital letters.
  if ((asked === `/v1/${rest}` || allowed(asked).length > 0) && (ending === undefined || pathOf(ending) === `/${rest}`))
    return undefined;
  const meant = ending ?? servedAs(method, rest, allowed);
  if (meant === undefined) return undefined;
  const azure = /\/deployments\//.test(path) ? " Name the model in the field `model` of the body." : "";
  return `The base URL of this API is ${base}. Use ${addressOf(meant, base)}.${azure}`;
}

function pathOf(endpoint: string): string {
  return endpoint.slice(endpoint.indexOf("/"));
}

/** "POST /embeddings" as "POST https://api.example.com/v1/embeddings". */
function addressOf(endpoint: string, base: string): string {
  return endpoint.replace(" ", ` ${base}`);
}

/** The endpoint of this API that a path without its prefix names, with the method that fits; no id of the client is repeated. */
function servedAs(method: string, rest: string, allowed: AllowedMethods): string | undefined {
  const methods = allowed(`/v1/${rest}`);
  const [first] = methods;
  if (first === undefined) return undefined;
  const [family = "", id] = rest.split("/");
  const shown = id === undefined || !["models", "usage", "responses"].includes(family) ? rest : `${family}/{id}`;
  return `${methods.includes(method) ? method : first} /${shown}`;
}
