import type { Model } from "../../catalog/catalog.ts";
import { ProviderRejection } from "../../catalog/provider_errors.ts";
import type { Body } from "../../http/body.ts";
import { topLevelSpans } from "../../http/json_spans.ts";
import type { Namer } from "../end_users.ts";
import { checkSent, droppedNames, type Filtered } from "../filtering.ts";
import { CHAT_PARAMETERS, filterParameters } from "../parameters.ts";
import { type Prompt, promptOf } from "../prompt.ts";
import type { ChatBody } from "../request_shapes.ts";
import { type ChatRequest, INSTRUCTIONS } from "./to_chat.ts";

/** The request for routes that only have chat completions. */
export class ChatForm {
  readonly prompt: Prompt;
  readonly body: ChatBody;
  readonly raw: Body;
  readonly namer: Namer;
  readonly filtered: Filtered;
  readonly #places: readonly string[];
  readonly #reasoningPlaces: readonly (string | undefined)[];
  readonly #toolPlaces: readonly string[];
  readonly #dropped: readonly string[];

  readonly #fields: FieldNames;

  constructor({
    raw,
    model,
    namer,
    fields = FIELDS,
    ...chat
  }: { raw: Body; model: Model; namer: Namer; fields?: FieldNames } & ChatRequest) {
    this.#fields = fields;
    const { body, places, reasoningPlaces, toolPlaces, dropped } = chat;
    const text = JSON.stringify(body);
    const spans = topLevelSpans(text) ?? new Map();
    this.body = body as ChatBody;
    this.raw = { text, spans, value: body, room: raw.room };
    this.namer = namer;
    this.filtered = filterParameters({ list: CHAT_PARAMETERS, body, spans, by: model, namer });
    this.#places = places;
    this.#reasoningPlaces = reasoningPlaces;
    this.#toolPlaces = toolPlaces;
    this.#dropped = dropped;
    const { unsent } = this.filtered;
    checkSent(unsent && this.#named(unsent));
    this.prompt = promptOf(this.body, { raw: this.raw, changed: this.filtered.changed, model });
  }

  /** The paths in the client's request that were dropped. */
  droppedWith(byFilter: string | undefined): string | undefined {
    const ours = droppedNames(this.#dropped);
    if (byFilter === undefined) return ours;
    const theirs = byFilter
      .split(", ")
      .map((path) => this.#named(path))
      .join(", ");
    return ours === undefined ? theirs : `${ours}, ${theirs}`;
  }

  /** A provider's rejection, with the client's name of the field. */
  rejectionOf(error: unknown): unknown {
    if (!(error instanceof ProviderRejection) || error.param === null) return error;
    return new ProviderRejection(error.message, { status: error.status, param: this.#named(error.param) });
  }

  /** The path in the client's request of a path in the translation. */
  #named(path: string): string {
    const known = this.#fields.find(([field]) => field.test(path));
    return known ? path.replace(...known) : this.#inRequest(path);
  }

  /** Providers write an index as in `messages.3`, `messages[3]` or `messages.[3]`. Instructions have no parts here. */
  #inRequest(paths: string): string {
    const placeOf = (index: string) => this.#places[Number(index)] ?? "input";
    const pathOf = (i: string, rest: string) => {
      if (rest === ".reasoning_content") return this.#reasoningPlaces[Number(i)] ?? placeOf(i);
      return placeOf(i) === INSTRUCTIONS ? INSTRUCTIONS : placeOf(i) + rest;
    };
    return paths
      .replace(/\bmessages\.?\[?(\d+)\]?([\w.[\]-]*)/g, (_, i: string, rest: string) => pathOf(i, rest))
      .replace(/\btools\.?\[?(\d+)\]?(?:\.function)?/g, (path, i: string) => this.#toolPlaces[Number(i)] ?? path);
  }
}

/** The client's names of fields, by patterns of their names in chat completions. */
type FieldNames = readonly (readonly [RegExp, string])[];

/** Those of the Responses API. */
const FIELDS: FieldNames = [
  [/^messages$/, "input"],
  [/^max_(?:completion_)?tokens$/, "max_output_tokens"],
  [/^response_format(?:\.json_schema)?/, "text.format"],
  [/^reasoning_effort$/, "reasoning.effort"],
  [/^verbosity$/, "text.verbosity"],
];
