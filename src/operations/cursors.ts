import { createHmac, timingSafeEqual } from "node:crypto";
import { Refusal } from "../errors.ts";
import { deriveKey } from "../platform/crypto.ts";

/**
 * Cursors of the management API: where the next page of a list begins, with a MAC over the token, the list and its filter. So a cursor is of
 * one list for one token, and nobody makes up another. Source: MGT-6.
 */

const PURPOSE = "cursors";
const MAC_BYTES = 16;
const FORM = /^([A-Za-z0-9_-]{1,200})\.([A-Za-z0-9_-]{22})$/;

export type CursorScope = {
  tokenId: number;
  operation: string;
  /** Without the page's size, which may change between pages. */
  filter: Readonly<Record<string, unknown>>;
};

/** The cursor for what `before` is on the next page. */
export function toCursor(secretKey: Uint8Array, scope: CursorScope, before: string | number): string {
  const place = Buffer.from(JSON.stringify(before)).toString("base64url");
  return `${place}.${macOf(secretKey, scope, place).toString("base64url")}`;
}

/** What a cursor stands for. Throws invalid_request for one that was changed, or is of another list, filter or token. */
export function fromCursor(secretKey: Uint8Array, scope: CursorScope, cursor: string): unknown {
  const [, place = "", mac = ""] = FORM.exec(cursor) ?? [];
  const given = Buffer.from(mac, "base64url");
  if (given.length !== MAC_BYTES || !timingSafeEqual(given, macOf(secretKey, scope, place)))
    throw new Refusal("invalid_request", {
      message: "The cursor is not one of this list: use nextCursor of the page before, with the same token and filter.",
      param: "cursor",
    });
  return JSON.parse(Buffer.from(place, "base64url").toString());
}

function macOf(secretKey: Uint8Array, { tokenId, operation, filter }: CursorScope, place: string): Buffer {
  const sorted = Object.entries(filter).sort(([a], [b]) => (a < b ? -1 : 1));
  const text = JSON.stringify([tokenId, operation, sorted, place]);
  return createHmac("sha256", deriveKey(secretKey, PURPOSE)).update(text).digest().subarray(0, MAC_BYTES);
}
