import { isRecord } from "../platform/records.ts";
import { withTextArguments } from "./call_numbers.ts";
import { type Fields, type Filtering, filterEntries, filterMembers, type Origin } from "./filtering.ts";

/**
 * What of a chat's messages is sent on. Members that are not listed are left out and named. A part that may not be sent is part of the
 * prompt, so its request is refused. Forms of other APIs become those of a chat. Source: PRV-1, PRV-29, PRV-31.
 */

const MESSAGE_MEMBERS: ReadonlySet<string> = new Set(
  `role content name tool_calls tool_call_id function_call refusal reasoning reasoning_content reasoning_details annotations
  prefix partial extra_content`.split(/\s+/),
);
/** Gemini's own member of messages and calls. Other vendors may refuse it in either, and then in both. */
const EXTRA = "extra_content";
/** Members that contain images, audio or files, or name those that the provider has. They are part of the prompt. */
export const MEDIA_MEMBERS: readonly string[] = ["audio", "images", "video", "file_ids", "attachments"];

/** A type of part: the member with its content, which may have another name, and others that it may have. */
type PartType = { known: ReadonlySet<string>; content: readonly string[] };

/** Files, audio and video are missing: they cost extra, or are read from the operator's storage. */
const PARTS: ReadonlyMap<unknown, PartType> = new Map(
  Object.entries<PartType>({
    text: { known: new Set(["type", "text"]), content: ["text"] },
    image_url: { known: new Set(["type", "image_url"]), content: ["image_url"] },
    refusal: { known: new Set(["type", "refusal"]), content: ["refusal"] },
    thinking: { known: new Set(["type", "thinking", "text", "signature"]), content: ["thinking", "text"] },
    reasoning: { known: new Set(["type", "reasoning", "text"]), content: ["reasoning", "text"] },
  }),
);
/** What a model thought, encrypted: only the provider that wrote it can read it. It is no part of the prompt. */
const SEALED_PART = "redacted_thinking";

/** A message that is sent. */
type Sent = { message: Fields; origin: Origin };

/** The messages that are sent: the list itself if all pass unchanged. */
export function filterMessages(messages: unknown, filtering: Filtering): unknown {
  if (!Array.isArray(messages)) return undefined;
  let passes: unknown[] | undefined;
  let origins: Origin[] | undefined;
  for (const [i, message] of messages.entries()) {
    const path = `messages.${i}`;
    const kept = isRecord(message) ? filterMessage(message, path, filtering) : [];
    if (kept !== message) passes ??= messages.slice(0, i);
    if (Array.isArray(kept)) {
      origins ??= messages.slice(0, i).map((_, before) => ({ path: `messages.${before}` }));
      for (const { message: one, origin } of kept) {
        passes?.push(one);
        origins.push(origin);
      }
    } else {
      passes?.push(kept);
      origins?.push({ path });
    }
  }
  if (origins !== undefined) filtering.origins.set("messages", origins);
  return passes ?? messages;
}

/** The message as it is sent: a list of messages if it becomes several, or if its parts move. */
function filterMessage(given: Fields, path: string, filtering: Filtering): Fields | readonly Sent[] {
  const message = withGoodCalls(withoutEmpty(given), path, filtering);
  for (const name of MEDIA_MEMBERS)
    if (isFilled(message[name]) && !filtering.allows("messages", name)) filtering.unsent ??= `${path}.${name}`;
  const passes = filterMembers(message, { field: "messages", path, known: MESSAGE_MEMBERS }, filtering);
  const { content } = message;
  if (!Array.isArray(content)) return passes;
  const blocks = new ToolBlocks(message, filtering);
  const places: string[] = [];
  const parts = filterEntries(content, (part, j) => {
    const at = `${path}.content.${j}`;
    const kept = blocks.takes(part, at) ? undefined : filterPart(part, at, filtering);
    if (kept !== undefined) places.push(at);
    return kept;
  });
  if (parts === content) return passes;
  if (parts.length === content.length) return { ...passes, content: parts };
  return blocks.turned({ message: { ...passes, content: parts }, origin: { path, parts: places } });
}

/**
 * A message without members that say nothing: SDKs send an answer back with all of its members, and providers refuse `function_call: null`
 * and `tool_calls: []`. A content may be null.
 */
function withoutEmpty(message: Fields): Fields {
  let kept: Record<string, unknown> | undefined;
  for (const name in message) {
    const value = message[name];
    const isEmpty =
      value === null ? name !== "content" : name === "tool_calls" && Array.isArray(value) && value.length === 0;
    if (!isEmpty) continue;
    kept ??= { ...message };
    delete kept[name];
  }
  return kept ?? message;
}

/** A message whose calls have a type, and arguments that are a text: some clients send the parsed object back. */
function withGoodCalls(message: Fields, path: string, filtering: Filtering): Fields {
  const { tool_calls: calls } = message;
  if (!Array.isArray(calls)) return message;
  const good = filterEntries(calls, (given, i) => {
    const call = withoutExtra(given, `${path}.tool_calls.${i}`, filtering);
    if (!isRecord(call) || !isRecord(call.function)) return call;
    const called = withTextArguments(call.function);
    if (called === call.function && typeof call.type === "string") return call;
    return { ...call, type: call.type ?? "function", function: called };
  });
  return good === calls ? message : { ...message, tool_calls: good };
}

/** A call without what another vendor said beside it, if the route does not take it. */
function withoutExtra(call: unknown, path: string, filtering: Filtering): unknown {
  if (!isRecord(call) || call[EXTRA] === undefined || !filtering.leavesOut("messages", EXTRA)) return call;
  const { [EXTRA]: _, ...others } = call;
  filtering.drop(`${path}.${EXTRA}`);
  return others;
}

/** Anthropic's blocks of tools in one message: its calls, and results that are messages of their own in a chat. Source: PRV-31. */
class ToolBlocks {
  readonly #role: unknown;
  readonly #own: readonly unknown[];
  readonly #filtering: Filtering;
  readonly #calls: { call: unknown; path: string }[] = [];
  readonly #results: Sent[] = [];

  constructor({ role, tool_calls: own }: Fields, filtering: Filtering) {
    this.#role = role;
    this.#own = Array.isArray(own) ? own : [];
    this.#filtering = filtering;
  }

  /** Takes a part that is such a block. */
  takes(part: unknown, path: string): boolean {
    if (!isRecord(part)) return false;
    const { type, id, name, input, tool_use_id: called, content } = part;
    if (type === "tool_use" && this.#role === "assistant" && typeof id === "string" && typeof name === "string") {
      const call = { name, arguments: typeof input === "string" ? input : JSON.stringify(input ?? {}) };
      // Some clients send a call in both forms.
      const isThere = this.#own.some((own) => isRecord(own) && own.id === id);
      if (!isThere) this.#calls.push({ call: { id, type: "function", function: call }, path });
      return true;
    }
    if (type !== "tool_result" || this.#role !== "user" || typeof called !== "string") return false;
    const message = { role: "tool", tool_call_id: called, content: this.#outputOf(content, `${path}.content`) };
    this.#results.push({ message, origin: { path } });
    return true;
  }

  #outputOf(content: unknown, path: string): unknown {
    if (content === undefined || content === null) return "";
    if (!Array.isArray(content)) {
      if (typeof content !== "string") this.#filtering.unsent ??= path;
      return content;
    }
    return filterEntries(content, (part, j) => filterPart(part, `${path}.${j}`, this.#filtering));
  }

  /** The messages for the message whose content has no such blocks any more: results directly follow the calls before them. */
  turned({ message, origin }: Sent): readonly Sent[] {
    const hasParts = Array.isArray(message.content) && message.content.length > 0;
    const own = this.#own.map((call, k) => ({ call, path: `${origin.path}.tool_calls.${k}` }));
    const calls = [...own, ...this.#calls];
    if (calls.length > 0) {
      const content = hasParts ? message.content : null;
      const called = { ...message, content, tool_calls: calls.map(({ call }) => call) };
      return [{ message: called, origin: { ...origin, calls: calls.map(({ path }) => path) } }];
    }
    if (!hasParts && this.#results.length === 0) this.#filtering.unsent ??= `${origin.path}.content.0`;
    return hasParts ? [...this.#results, { message, origin }] : this.#results;
  }
}

/** Neither absent, nor an empty list, object or text. */
function isFilled(value: unknown): boolean {
  if (typeof value === "object" && value !== null) return Object.keys(value).length > 0;
  return value !== undefined && value !== null && value !== "";
}

/** Parts of the Responses API and of Anthropic's, and parts without a type, as a chat has them. */
function asChatPart(part: unknown): unknown {
  if (!isRecord(part)) return part;
  const { type = "input_text", image_url: image, source } = part;
  if ((type === "input_text" || type === "output_text") && typeof part.text === "string")
    return { ...part, type: "text" };
  if ((type === "input_image" || type === "image_url") && typeof image === "string")
    return { type: "image_url", image_url: imageOf(part) };
  const url = type === "image" && isRecord(source) ? urlOfSource(source) : undefined;
  return url === undefined ? part : { type: "image_url", image_url: { url } };
}

/** Anthropic's source of an image, as a URL. */
function urlOfSource({ type, url, media_type: mediaType, data }: Fields): string | undefined {
  if (type === "url") return typeof url === "string" ? url : undefined;
  const isData = type === "base64" && typeof mediaType === "string" && typeof data === "string";
  return isData ? `data:${mediaType};base64,${data}` : undefined;
}

function imageOf({ image_url: url, detail }: Fields): Fields {
  return { url, ...(typeof detail === "string" && { detail }) };
}

function filterPart(given: unknown, path: string, filtering: Filtering): unknown {
  const part = asChatPart(given);
  if (isRecord(part)) {
    const type = PARTS.get(part.type);
    if (type?.content.some((name) => hasContent(part[name])))
      return filterMembers(part, { field: "content", path, known: type.known }, filtering);
    if (typeof part.type === "string" && filtering.allows("content", part.type)) return part;
    if (part.type === SEALED_PART) {
      filtering.drop(path);
      return undefined;
    }
  }
  filtering.unsent ??= path;
  return undefined;
}

/** A text, texts, or the address of an image. */
function hasContent(value: unknown): boolean {
  return typeof value === "string" || Array.isArray(value) || (isRecord(value) && typeof value.url === "string");
}
