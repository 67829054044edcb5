import { isRecord } from "../../platform/records.ts";

/**
 * What a provider says beside a call and must get back with it: Gemini 3 refuses the next turn without its `thought_signature`. Items of
 * the Responses API have no place for it, and many clients send back only the fields that they know. All of them send the call's id. So
 * it rides there, in letters that an id may have, and is taken out before anything is sent to a provider. Source: RSP-14.
 */

/** Members of a call, beside those of OpenAI's: Gemini's, and those in which gateways put the same. */
const MEMBERS = ["extra_content", "provider_specific_fields", "thought_signature", "thoughtSignature"];
const MARK = "__kept__";
/** The limit of a provider's own id. */
export const CALL_ID_CHARS_MAX = 512;
/** The largest that is kept of one call, as JSON. Signatures have up to some thousand characters. */
const KEPT_CHARS_MAX = 32 * 1024;
/** The limit of an id with what it keeps: base64 of UTF-8. */
export const KEEPING_ID_CHARS_MAX = CALL_ID_CHARS_MAX + MARK.length + 4 * KEPT_CHARS_MAX;

type Fields = Readonly<Record<string, unknown>>;

/** The members of a call that must come back, as JSON; undefined: there are none, or they are too large. */
export function keptOf(call: Fields): string | undefined {
  const members = MEMBERS.filter((name) => isFilled(call[name]));
  if (members.length === 0) return undefined;
  const json = JSON.stringify(Object.fromEntries(members.map((name) => [name, call[name]])));
  return json.length <= KEPT_CHARS_MAX ? json : undefined;
}

/** The id of a call that keeps `json`. */
export function keepingId(id: string, json: string): string {
  return `${id}${MARK}${Buffer.from(json).toString("base64url")}`;
}

/** A call's own id, and the members that it keeps. An id that keeps nothing that can be read is the provider's own. */
export function readCallId(callId: string): { id: string; kept: Fields } {
  const at = callId.lastIndexOf(MARK);
  const kept = at < 0 ? undefined : membersIn(callId.slice(at + MARK.length));
  return kept === undefined ? { id: callId, kept: {} } : { id: callId.slice(0, at), kept };
}

function membersIn(letters: string): Fields | undefined {
  try {
    const value: unknown = JSON.parse(Buffer.from(letters, "base64url").toString());
    if (!isRecord(value)) return undefined;
    return Object.fromEntries(MEMBERS.filter((name) => isFilled(value[name])).map((name) => [name, value[name]]));
  } catch {
    return undefined;
  }
}

function isFilled(value: unknown): boolean {
  return isRecord(value) ? Object.keys(value).length > 0 : typeof value === "string" && value !== "";
}
