import { type Static, Type } from "@sinclair/typebox";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { refuseRepeated } from "../../http/query.ts";
import { isRecord } from "../../platform/records.ts";
import { jsonResponse } from "../answers.ts";
import type { Caller } from "../authenticate.ts";
import { inputItemId, requestOf, responseIdOf } from "./item_ids.ts";
import { inputItemsOf } from "./recall.ts";
import { refusal } from "./refusals.ts";
import type { StoredResponse } from "./stored_responses.ts";

/** GET and DELETE /v1/responses/{id}, GET /v1/responses/{id}/input_items. None is metered. Source: RSP-12. */

const ITEMS_DEFAULT = 20;
const ID_CHARS_MAX = 128;

export const InputItemsQuery = Type.Object({
  limit: Type.Optional(
    Type.Integer({ minimum: 1, maximum: 100, default: ITEMS_DEFAULT, description: "Items per page." }),
  ),
  order: Type.Optional(
    Type.Union([Type.Literal("asc"), Type.Literal("desc")], {
      default: "desc",
      description: "desc: the last item first.",
    }),
  ),
  after: Type.Optional(
    Type.String({ minLength: 1, maxLength: ID_CHARS_MAX, description: "The last_id of the previous page." }),
  ),
});
type InputItemsQuery = Static<typeof InputItemsQuery>;

const checkQuery = checker(InputItemsQuery);
/** The prefix of an item's id, by its type. */
const KINDS: Readonly<Record<string, string>> = {
  message: "msg",
  function_call: "fc",
  function_call_output: "fco",
  custom_tool_call: "ctc",
  custom_tool_call_output: "ctco",
  reasoning: "rs",
};

/** Throws not_found. */
export async function getResponse(deps: Deps, caller: Caller, id: string): Promise<Response> {
  return jsonResponse(deps, caller, { text: (await find(deps, caller, id)).response });
}

/** Throws not_found. */
export async function deleteResponse(deps: Deps, caller: Caller, id: string): Promise<Response> {
  const request = requestOf(id);
  const isGone = request !== undefined && (await deps.storedResponses.remove(caller.key.accountId, request));
  if (!isGone) throw notStored(deps);
  return jsonResponse(deps, caller, { text: JSON.stringify({ id, object: "response", deleted: true }) });
}

/** All that the model was given, with the conversation of `previous_response_id`. Throws not_found, invalid_request. */
export async function listInputItems(
  deps: Deps,
  caller: Caller,
  { id, params }: { id: string; params: URLSearchParams },
): Promise<Response> {
  const { limit = ITEMS_DEFAULT, order = "desc", after } = readQuery(params);
  const items = listedItems(await find(deps, caller, id));
  if (order === "desc") items.reverse();
  const from = after === undefined ? 0 : items.findIndex((item) => item.id === after) + 1;
  if (after !== undefined && from === 0) throw refusal("after", "No item of this response has the id in after.");
  const data = items.slice(from, from + limit);
  const page = { first_id: data[0]?.id ?? null, last_id: data.at(-1)?.id ?? null };
  const list = { object: "list", data, ...page, has_more: from + limit < items.length };
  return jsonResponse(deps, caller, { text: JSON.stringify(list) });
}

async function find(deps: Deps, { key }: Caller, id: string): Promise<StoredResponse> {
  const request = requestOf(id);
  if (request === undefined) throw notStored(deps);
  const [found] = await deps.storedResponses.find(key.accountId, { ids: [request], itemIds: [] });
  if (found === undefined) throw notStored(deps);
  return found;
}

function notStored({ storedResponses: { keepHours } }: Deps): Refusal {
  const message =
    keepHours === 0
      ? "Nothing is stored here, so a response cannot be fetched. Send the whole conversation to POST /v1/responses."
      : `There is no stored response with this id. Responses are kept for ${keepHours} hours, unless their request says store: false.`;
  return new Refusal("not_found", { message });
}

/** The items in the form of the API: with an id, and the text of a message as a part. */
function listedItems(stored: StoredResponse): Record<string, unknown>[] {
  const responseId = responseIdOf(stored.id);
  return inputItemsOf(stored).map((item, i) => {
    const { type = "message", id, ...fields } = isRecord(item) ? item : {};
    const kind = (typeof type === "string" ? KINDS[type] : undefined) ?? "item";
    const listed = { id: typeof id === "string" ? id : inputItemId(kind, responseId, i), type, ...fields };
    if (type !== "message" || !("content" in fields) || typeof fields.content !== "string") return listed;
    const part = "role" in fields && fields.role === "assistant" ? "output_text" : "input_text";
    return { ...listed, content: [{ type: part, text: fields.content }] };
  });
}

function readQuery(params: URLSearchParams): InputItemsQuery {
  refuseRepeated(params);
  const given: Record<string, unknown> = {};
  for (const name of Object.keys(InputItemsQuery.properties)) {
    const value = params.get(name);
    if (value !== null) given[name] = name === "limit" && /^\d{1,9}$/.test(value) ? Number(value) : value;
  }
  return checkQuery(given);
}
