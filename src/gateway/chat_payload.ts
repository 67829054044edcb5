import type { Route } from "../catalog/catalog.ts";
import type { Facts } from "../catalog/dialects.ts";
import { ProviderFailure } from "../catalog/provider_errors.ts";
import type { Body } from "../http/body.ts";
import { patch } from "../http/json_spans.ts";
import { isRecord } from "../platform/records.ts";
import type { Namer } from "./end_users.ts";
import type { Filtered, OwnRules } from "./filtering.ts";
import { toolsOf } from "./legacy_functions.ts";
import { repairMessages } from "./message_repairs.ts";
import { CHAT_PARAMETERS, filterParameters, hasSameRules } from "./parameters.ts";
import type { ChatBody } from "./request_shapes.ts";

/**
 * The body of a chat request for a route: the client's bytes, without dropped parameters, and with what the route's facts ask for. A body
 * that no fact concerns is sent as it was received. Source: DIA-3, DIA-4, DIA-5, DIA-6, DIA-7, DIA-8, DIA-9.
 */

/** A chat request, as the client sent it and as it was filtered. */
export type ChatToSend = {
  body: ChatBody;
  raw: Body;
  namer: Namer;
  /** The body filtered by the model's rules: what any of its routes allows, without what all of them drop. */
  filtered: Filtered;
  model: OwnRules;
  /** The output cap that was reserved; null: the client's own, if it sent one. */
  capTokens: number | null;
};

/** The body for a provider. `dropped`: the parameters that are not sent on, for the header `x-dropped-params`. */
export type Payload = { text: string; dropped: string | undefined };

/** By field: its new JSON; null: it is removed. */
type Edits = Map<string, string | null>;
type Fields = Readonly<Record<string, unknown>>;

/** Throws ProviderFailure if a part of a message may not be sent to this route. */
export function chatPayload(request: ChatToSend, route: Route): Payload {
  const { body, raw } = request;
  const { changed, dropped, unsent } = filteredFor(request, route);
  if (unsent !== undefined) throw new ProviderFailure("unknown_model", `the route does not take ${unsent}`);
  const edits: Edits = new Map();
  for (const [name, value] of changed) edits.set(name, value === undefined ? null : JSON.stringify(value));
  if (route.upstreamModel !== body.model) edits.set("model", JSON.stringify(route.upstreamModel));
  const sent = new Sent(body, changed);
  setStream(edits, sent, route.facts);
  setCap(edits, request, route.facts);
  setTools(edits, sent, route.facts);
  // An empty list stops at nothing, and OpenAI refuses it.
  if (isEmptyList(sent.value("stop"))) remove(edits, sent, "stop");
  const messages = sent.value("messages");
  const repaired = Array.isArray(messages) ? repairMessages(messages, route.facts) : messages;
  if (repaired !== messages) edits.set("messages", JSON.stringify(repaired));
  return { text: patch(raw.text, raw.spans, edits), dropped };
}

/** What a route allows of a request. Nearly always all routes have the same rules: then it is what was filtered for the reserve. */
export function filteredFor({ body, raw, namer, filtered, model }: ChatToSend, route: Route): Filtered {
  if (hasSameRules(route, model)) return filtered;
  return filterParameters({ list: CHAT_PARAMETERS, body, spans: raw.spans, by: route, namer });
}

/** The fields of a body after the filter. */
class Sent {
  readonly #fields: Fields;
  readonly #changed: ReadonlyMap<string, unknown>;

  constructor(fields: Fields, changed: ReadonlyMap<string, unknown>) {
    this.#fields = fields;
    this.#changed = changed;
  }

  /** undefined: it is not sent. */
  value(name: string): unknown {
    return this.#changed.has(name) ? this.#changed.get(name) : this.#fields[name];
  }
}

/** A stream is asked for its usage. Without a stream, providers refuse `stream_options`. Source: STR-3, DIA-6. */
function setStream(edits: Edits, sent: Sent, { streamOptions }: Facts): void {
  const options = sent.value("stream_options");
  const isAsked = streamOptions === "sent" && sent.value("stream") === true;
  if (isAsked) edits.set("stream_options", JSON.stringify({ ...Object(options), include_usage: true }));
  else if (options !== undefined) edits.set("stream_options", null);
}

/** The output cap has the name that the route takes, whoever pays and whoever set it. Source: DIA-3. */
function setCap(edits: Edits, { body, raw, capTokens }: ChatToSend, { capField }: Facts): void {
  const other = capField === "max_tokens" ? "max_completion_tokens" : "max_tokens";
  const cap = capTokens ?? body.max_completion_tokens ?? body.max_tokens ?? null;
  if (raw.spans.has(other)) edits.set(other, null);
  // The client's own cap under the right name stays as it is.
  if (cap !== null && cap !== body[capField]) edits.set(capField, String(cap));
}

/**
 * A request without tools has nothing that is about tools: providers refuse an empty list, and choices without tools. Legacy functions
 * become tools for routes that take no others. Source: DIA-5, DIA-9.
 */
function setTools(edits: Edits, sent: Sent, { functions: form }: Facts): void {
  const functions = sent.value("functions");
  const given = sent.value("tools") ?? undefined;
  const hasFunctions = Array.isArray(functions) && functions.length > 0;
  if (isEmptyList(given)) for (const name of ["tools", "tool_choice", "parallel_tool_calls"]) remove(edits, sent, name);
  if (isEmptyList(functions)) remove(edits, sent, "functions");
  if (!hasFunctions && !isRecord(sent.value("function_call"))) remove(edits, sent, "function_call");
  if (hasFunctions && form === "tools") {
    const { tools, choice } = toolsOf(functions, sent.value("function_call"));
    for (const name of ["functions", "function_call"]) remove(edits, sent, name);
    if (given !== undefined && !isEmptyList(given)) return;
    edits.set("tools", JSON.stringify(tools));
    if (choice !== undefined) edits.set("tool_choice", JSON.stringify(choice));
  } else if (given === undefined) {
    // A choice of a certain tool stays: the provider says that there is none.
    if (!isRecord(sent.value("tool_choice")) && sent.value("tool_choice") !== "required")
      remove(edits, sent, "tool_choice");
    remove(edits, sent, "parallel_tool_calls");
  }
}

function remove(edits: Edits, sent: Sent, name: string): void {
  if (sent.value(name) !== undefined) edits.set(name, null);
}

function isEmptyList(value: unknown): boolean {
  return Array.isArray(value) && value.length === 0;
}
