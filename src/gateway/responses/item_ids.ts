/**
 * Ids of responses and of their items. A response has the digits of its request's id, and so have its items, with their place: an id
 * alone says where to look. Source: RSP-8, RSP-12.
 */

const PLACE_DIGITS = 4;
const RESPONSE = /^resp_([0-9a-f]{32})$/;
const ITEM = /^[a-z]{1,8}_([0-9a-f]{32})(i?)([0-9a-f]{4})$/;

/** The place of an item: in what the model was given, or in what it answered. */
export type ItemPlace = { requestId: string; list: "input" | "output"; index: number };

export function responseIdOf(requestId: string): string {
  return `resp_${requestId.replaceAll("-", "")}`;
}

/** The request of a response; undefined if the id is none of ours. */
export function requestOf(responseId: string): string | undefined {
  const [, hex] = RESPONSE.exec(responseId) ?? [];
  return hex === undefined ? undefined : uuidOf(hex);
}

/** The id of an item of the output of the response `responseId`. */
export function outputItemId(kind: string, responseId: string, index: number): string {
  return `${kind}_${digitsOf(responseId)}${placeOf(index)}`;
}

/** The id of an item that the model was given. */
export function inputItemId(kind: string, responseId: string, index: number): string {
  return `${kind}_${digitsOf(responseId)}i${placeOf(index)}`;
}

/** Where an item is; undefined if the id does not say it. */
export function placeOfItem(itemId: string): ItemPlace | undefined {
  const [, hex, input, place] = ITEM.exec(itemId) ?? [];
  if (hex === undefined || place === undefined) return undefined;
  return { requestId: uuidOf(hex), list: input === "i" ? "input" : "output", index: Number.parseInt(place, 16) };
}

function digitsOf(responseId: string): string {
  return responseId.slice(responseId.indexOf("_") + 1);
}

function placeOf(index: number): string {
  return index.toString(16).padStart(PLACE_DIGITS, "0");
}

function uuidOf(hex: string): string {
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
