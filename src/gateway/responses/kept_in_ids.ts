import { isRecord } from "../../platform/records.ts";

/**
 * What a provider says beside a call and must get back with it: Gemini 3 refuses the next turn without its `thought_signature`. Items of
 * the Responses API have no place for it, and many clients send back only the fields that they know. All of them send the call's id. So
 * it rides there, in letters that an id may have, and is taken out before anything is sent to a provider. Source: RSP-14.
 */

/** Members of a call, beside those of OpenAI's: Gemini's, and those in which gateways put the same. */
const OF_CALL = ["extra_content", "provider_specific_fields", "thought_signature", "thoughtSignature"];
/** A member of the message that has the calls: OpenRouter's. It rides with the first of them. Source: RSP-15. */
const OF_MESSAGE = "reasoning_details";
const MEMBERS = [...OF_CALL, OF_MESSAGE];
const MARK = "__kept__";
/** The limit of a provider's own id. */
export const CALL_ID_CHARS_MAX = 512;
/** The largest that is kept of one call, as JSON. Signatures have up to some thousand characters. */
const KEPT_CHARS_MAX = 32 * 1024;
/** The limit of an id with what it keeps: base64 of UTF-8. */
export const KEEPING_ID_CHARS_MAX = CALL_ID_CHARS_MAX + MARK.length + 4 * KEPT_CHARS_MAX;

type Fields = Readonly<Record<string, unknown>>;

/** The members of a call, and of its message, that must come back, as JSON; undefined: there are none, or they are too large. */
export function keptOf(call: Fields, details?: readonly Fields[]): string | undefined {
  const said: Fields = details === undefined ? call : { ...call, [OF_MESSAGE]: details };
  const members = (details === undefined ? OF_CALL : MEMBERS).filter((name) => isFilled(said[name]));
  if (members.length === 0) return undefined;
  const json = JSON.stringify(Object.fromEntries(members.map((name) => [name, said[name]])));
  return json.length <= KEPT_CHARS_MAX ? json : undefined;
}

/** The id of a call that keeps `json`. */
export function keepingId(id: string, json: string): string {
  return `${id}${MARK}${Buffer.from(json).toString("base64url")}`;
}

/** A call's own id, and the members of the call, and of its message, that it keeps. An id that keeps nothing that can be read is the provider's own. */
export function readCallId(callId: string): { id: string; kept: Fields; ofMessage: Fields } {
  const at = callId.lastIndexOf(MARK);
  const members = at < 0 ? undefined : membersIn(callId.slice(at + MARK.length));
  if (members === undefined) return { id: callId, kept: {}, ofMessage: {} };
  const { [OF_MESSAGE]: details, ...kept } = members;
  return { id: callId.slice(0, at), kept, ofMessage: details === undefined ? {} : { [OF_MESSAGE]: details } };
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
  if (Array.isArray(value)) return value.length > 0;
  return isRecord(value) ? Object.keys(value).length > 0 : typeof value === "string" && value !== "";
}
