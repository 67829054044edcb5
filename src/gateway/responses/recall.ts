import type { Deps } from "../../deps.ts";
import type { Body } from "../../http/body.ts";
import { isRecord } from "../../platform/records.ts";
import type { Caller } from "../authenticate.ts";
import { placeOfItem, requestOf } from "./item_ids.ts";
import { refusal } from "./refusals.ts";
import { type InputItem, ITEMS_MAX, isKnownItem, isReasoningId, type ResponsesBody, withContext } from "./request.ts";
import type { StoredResponse } from "./stored_responses.ts";

/**
 * Puts what a request refers to in the place of the references: the conversation of `previous_response_id` before its input, and the
 * items of `item_reference`. The request is then one that contains the whole conversation, and is counted and charged as such.
 * Source: RSP-3, RSP-12.
 */

/** Responses that one request may refer to. */
const RESPONSES_MAX = 100;
/** Other ids are not looked up. */
const ITEM_ID = /^[\w.:-]{1,100}$/;

const INSTEAD = "Send the whole conversation in input, and store: false.";

/** The request without references. Throws invalid_request for what is not stored, and what `keepInstead` throws if it is too large. */
export async function recall(deps: Deps, { key }: Caller, { raw, body }: { raw: Body; body: ResponsesBody }) {
  const wanted = wantedBy(body);
  const { keepHours } = deps.storedResponses;
  const nothing = wanted.ids.length === 0 && wanted.itemIds.length === 0;
  const found = keepHours === 0 || nothing ? [] : await deps.storedResponses.find(key.accountId, wanted);
  const chars = found.reduce((sum, { input, response }) => sum + input.length + response.length, 0);
  if (chars > deps.config.bodyBytesMax)
    throw refusal(
      body.previous_response_id ? "previous_response_id" : "input",
      `The conversation that the request refers to is larger than ${deps.config.bodyBytesMax} bytes.`,
    );
  raw.room.grow(chars);
  const memory = new Recalled(found, keepHours);
  const before = body.previous_response_id ? memory.conversation(body.previous_response_id) : [];
  const own: readonly InputItem[] =
    typeof body.input === "string" ? [{ role: "user", content: body.input }] : body.input;
  if (before.length + own.length > ITEMS_MAX)
    throw refusal("input", `The conversation has more than ${ITEMS_MAX} items.`);
  const items = own.map((item, i) => (isReference(item) ? memory.item(item, `input.${i}`) : item));
  return withContext(body, before, items);
}

type Reference = InputItem & { type: "item_reference"; id: string };

function isReference(item: InputItem): item is Reference {
  return item.type === "item_reference";
}

/** The responses and items to look up. Ids that cannot exist are left out. */
function wantedBy({ previous_response_id: previous, input }: ResponsesBody): { ids: string[]; itemIds: string[] } {
  const ids = new Set<string>();
  const itemIds = new Set<string>();
  const request = previous ? requestOf(previous) : undefined;
  if (request !== undefined) ids.add(request);
  for (const item of typeof input === "string" ? [] : input) {
    if (!isReference(item)) continue;
    const place = placeOfItem(item.id);
    if (place !== undefined) ids.add(place.requestId);
    else if (ITEM_ID.test(item.id)) itemIds.add(item.id);
  }
  if (ids.size > RESPONSES_MAX || itemIds.size > RESPONSES_MAX)
    throw refusal("input", `A request can refer to items of at most ${RESPONSES_MAX} responses.`);
  return { ids: [...ids], itemIds: [...itemIds] };
}

/** What was found, parsed where it is used. */
class Recalled {
  readonly #found: ReadonlyMap<string, StoredResponse>;
  readonly #keepHours: number;
  readonly #lists = new Map<string, readonly unknown[]>();

  constructor(found: readonly StoredResponse[], keepHours: number) {
    this.#found = new Map(found.map((one) => [one.id, one]));
    this.#keepHours = keepHours;
  }

  /** All that the model was given for a response, and what it answered. */
  conversation(responseId: string): InputItem[] {
    const id = requestOf(responseId);
    if (id === undefined || !this.#found.has(id)) throw this.#gone("previous_response_id", "The response");
    return [...this.#list(id, "input"), ...this.#list(id, "output")].filter(isKnownItem);
  }

  /** The item of a reference; the reference itself if it leads to reasoning that is gone, which no answer depends on. */
  item(reference: Reference, path: string): InputItem {
    const item = this.#find(reference.id);
    if (isKnownItem(item)) return item;
    if (isReasoningId(reference.id)) return reference;
    throw this.#gone(path, "The item");
  }

  #find(itemId: string): unknown {
    const place = placeOfItem(itemId);
    if (place !== undefined && this.#found.has(place.requestId)) {
      const list = this.#list(place.requestId, place.list);
      const at = list[place.index];
      return place.list === "input" || hasId(at, itemId) ? at : list.find((item) => hasId(item, itemId));
    }
    for (const id of this.#found.keys()) {
      const item = this.#list(id, "output").find((one) => hasId(one, itemId));
      if (item !== undefined) return item;
    }
    return undefined;
  }

  #list(id: string, list: "input" | "output"): readonly unknown[] {
    const name = `${id} ${list}`;
    const known = this.#lists.get(name);
    if (known !== undefined) return known;
    const stored = this.#found.get(id);
    const items = stored === undefined ? [] : list === "input" ? inputItemsOf(stored) : outputItemsOf(stored);
    this.#lists.set(name, items);
    return items;
  }

  #gone(param: string, what: string): Error {
    if (this.#keepHours === 0)
      return refusal(param, `Nothing is stored here, so ${param} leads to nothing. ${INSTEAD}`);
    return refusal(
      param,
      `${what} is not stored. Responses are kept for ${this.#keepHours} hours, unless their request says store: false. ${INSTEAD}`,
    );
  }
}

function hasId(item: unknown, id: string): boolean {
  return isRecord(item) && item.id === id;
}

/** The items that the model was given. */
export function inputItemsOf({ input }: StoredResponse): readonly unknown[] {
  const value: unknown = JSON.parse(input);
  return Array.isArray(value) ? value : [{ role: "user", content: value }];
}

function outputItemsOf({ response }: StoredResponse): readonly unknown[] {
  const value: unknown = JSON.parse(response);
  return isRecord(value) && Array.isArray(value.output) ? value.output : [];
}
