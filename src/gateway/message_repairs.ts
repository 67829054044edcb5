import type { Facts } from "../catalog/dialects.ts";
import { isRecord } from "../platform/records.ts";
import { LegacyCalls } from "./legacy_functions.ts";

/** Messages in the form that a route takes, by its facts. Source: DIA-4, DIA-7, DIA-8, DIA-9. */

type Fields = Readonly<Record<string, unknown>>;

/** The text of a tool message whose output is an image that follows it. */
export const IMAGE_FOLLOWS = "(The output follows as an image.)";
/** Between system messages that become one, and between the texts of one content. */
const BETWEEN_MESSAGES = "\n\n";
const BETWEEN_TEXTS = "\n";
/** What a legacy call, or the answer to one, is longer as a tool call: its id, and names of fields. */
const CALL_BYTES = 96;

/** The messages as the route takes them: the list itself if it takes them as they are. */
export function repairMessages(messages: readonly unknown[], facts: Facts): readonly unknown[] {
  const repair = new Repair(facts);
  for (const message of messages) repair.add(message);
  return repair.done() ?? messages;
}

/** Where a repaired message comes from: the index of a message, and of each part of its content the message and the part, if they moved. */
export type RepairedFrom = { at: number; parts?: readonly (readonly [message: number, part: number])[] };

/** Where each of the messages that `repairMessages` returns comes from. */
export function repairedFrom(messages: readonly unknown[], facts: Facts): readonly RepairedFrom[] {
  const from: RepairedFrom[] = [];
  const repair = new Repair(facts, from);
  for (const message of messages) repair.add(message);
  repair.done();
  return from;
}

/** The most that the repairs of any route add: messages, and bytes. The prompt is reserved before its route is known. Source: MON-3. */
export function addedByRepairs(messages: readonly unknown[]): { messages: number; bytes: number } {
  const added = { messages: 0, bytes: 0 };
  for (const message of messages) {
    if (!isRecord(message)) continue;
    if (message.role === "function" || message.function_call !== undefined) added.bytes += CALL_BYTES;
    if (message.role !== "tool" || !Array.isArray(message.content) || !message.content.some(isImage)) continue;
    added.messages += 1;
    added.bytes += IMAGE_FOLLOWS.length;
  }
  return added;
}

class Repair {
  readonly #facts: Facts;
  readonly #sent: unknown[] = [];
  /** Of each message in `#sent`, if anybody asks. */
  readonly #from: RepairedFrom[] | undefined;
  /** The messages that were added. */
  #count = 0;
  #isChanged = false;
  #calls: LegacyCalls | undefined;
  /** Images of the tool messages before, which a message of the user will have. */
  #images: { part: Fields; from: readonly [message: number, part: number] }[] = [];

  constructor(facts: Facts, from?: RepairedFrom[]) {
    this.#facts = facts;
    this.#from = from;
  }

  add(message: unknown): void {
    const repaired = isRecord(message) ? this.#repaired(message) : message;
    if (repaired !== message) this.#isChanged = true;
    const role = isRecord(repaired) ? repaired.role : undefined;
    if (role !== "tool") this.#addImages();
    const last = this.#sent.at(-1);
    if (role === "system" && this.#facts.systemMessages === "merged" && isRecord(last) && last.role === "system") {
      this.#sent[this.#sent.length - 1] = { ...last, content: joined(last.content, (repaired as Fields).content) };
      this.#from?.push({ at: this.#from.pop()?.at ?? 0, parts: [] });
      this.#isChanged = true;
    } else {
      this.#sent.push(repaired);
      this.#from?.push({ at: this.#count, ...(repaired !== message && keptParts(message, this.#count)) });
    }
    this.#count += 1;
  }

  /** undefined: nothing was changed. */
  done(): readonly unknown[] | undefined {
    this.#addImages();
    return this.#isChanged ? this.#sent : undefined;
  }

  #repaired(message: Fields): Fields {
    const { developerRole, contentForm, toolCallContent, toolImages, functions } = this.#facts;
    let repaired = message;
    if (message.role === "developer" && developerRole === "system") repaired = { ...repaired, role: "system" };
    if (functions === "tools" && (message.role === "function" || message.function_call !== undefined)) {
      this.#calls ??= new LegacyCalls();
      repaired = this.#calls.converted(repaired);
    }
    if (repaired.role === "tool" && toolImages === "moved") repaired = this.#withoutImages(repaired);
    if (contentForm === "text") repaired = withTextAlone(repaired);
    if (toolCallContent !== "any" && Array.isArray(repaired.tool_calls) && isTextless(repaired.content))
      repaired = withContent(repaired, toolCallContent === "null" ? null : "");
    return repaired;
  }

  #withoutImages(message: Fields): Fields {
    const { content } = message;
    if (!Array.isArray(content) || !content.some(isImage)) return message;
    for (const [j, part] of content.entries()) if (isImage(part)) this.#images.push({ part, from: [this.#count, j] });
    const others = content.filter((part) => !isImage(part));
    return { ...message, content: others.length === 0 ? IMAGE_FOLLOWS : others };
  }

  #addImages(): void {
    if (this.#images.length === 0) return;
    this.#sent.push({ role: "user", content: this.#images.map(({ part }) => part) });
    this.#from?.push({ at: this.#images[0]?.from[0] ?? 0, parts: this.#images.map(({ from }) => from) });
    this.#images = [];
  }
}

function isImage(part: unknown): part is Fields {
  return isRecord(part) && part.type === "image_url";
}

/** Where the parts of a changed message are in it: only images leave a content that stays a list. */
function keptParts(message: unknown, at: number): Pick<RepairedFrom, "parts"> | undefined {
  const content: unknown = isRecord(message) ? message.content : undefined;
  if (!Array.isArray(content)) return undefined;
  return { parts: content.flatMap((part, j) => (isImage(part) ? [] : [[at, j] as const])) };
}

/** A content that is a list of nothing but texts, as one text. */
function withTextAlone(message: Fields): Fields {
  const { content } = message;
  if (!Array.isArray(content)) return message;
  const texts = content.map((part) => (isRecord(part) && part.type === "text" ? part.text : undefined));
  if (!texts.every((text) => typeof text === "string")) return message;
  return { ...message, content: texts.join(BETWEEN_TEXTS) };
}

function isTextless(content: unknown): boolean {
  return (
    content === undefined || content === null || content === "" || (Array.isArray(content) && content.length === 0)
  );
}

function withContent(message: Fields, content: null | ""): Fields {
  return message.content === content ? message : { ...message, content };
}

/** Two contents as one: a text, unless one of them is a list. */
function joined(first: unknown, second: unknown): unknown {
  if (typeof first === "string" && typeof second === "string") return `${first}${BETWEEN_MESSAGES}${second}`;
  return [...partsOf(first), ...partsOf(second)];
}

function partsOf(content: unknown): unknown[] {
  if (Array.isArray(content)) return content;
  return typeof content === "string" ? [{ type: "text", text: content }] : [];
}
