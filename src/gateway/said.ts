import { isRecord } from "../platform/records.ts";
import { isCallPart, plainCall } from "./call_forms.ts";

/** What a choice says, and the text of a content that is none. Source: STR-6. */

type Fields = Readonly<Record<string, unknown>>;

export type PartName = "message" | "delta";

/** What a choice says: its message in a whole answer, its delta in a stream, or else the other one, or a text as in legacy completions. */
export function saidIn(choice: Fields, part: PartName): unknown {
  const other = choice[part === "delta" ? "message" : "delta"];
  if (isRecord(choice[part])) return choice[part];
  if (isRecord(other)) return other;
  return typeof choice.text === "string" ? { content: choice.text } : choice[part];
}

/** Whether a message or delta has more than its role: content, reasoning, a refusal, calls of tools, audio. */
export function saysSomething(message: unknown): boolean {
  return isRecord(message) && Object.entries(message).some(([name, value]) => name !== "role" && isFilled(value));
}

function isFilled(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/**
 * A message whose content is a list of parts, with the text in `content`, and what the model thought in `reasoning_content`. Parts of
 * other types are passed on as `content_parts`.
 */
export function withText(said: Fields, content: object): Fields {
  if (isData(content)) return { ...said, content: JSON.stringify(content) };
  const parts: readonly unknown[] = Array.isArray(content) ? content : [content];
  let text = "";
  let thought = "";
  const others: unknown[] = [];
  const calls: unknown[] = [];
  for (const part of parts) {
    if (typeof part === "string") text += part;
    else if (!isRecord(part)) continue;
    else if (isCallPart(part)) calls.push(plainCall(part));
    else if (part.type === "thinking" || part.type === "reasoning") thought += thoughtIn(part);
    else if (typeof part.text === "string") text += part.text;
    else others.push(part);
  }
  const { content: _, ...rest } = said;
  const hasReasoning = typeof said.reasoning_content === "string" && said.reasoning_content !== "";
  return {
    ...rest,
    content: text === "" && thought !== "" ? null : text,
    ...(thought !== "" && !hasReasoning && { reasoning_content: thought }),
    ...(others.length > 0 && { content_parts: others }),
    ...(calls.length > 0 && rest.tool_calls === undefined && { tool_calls: calls }),
  };
}

/** Whether a content is the data that was asked for, and not parts of it: Workers AI answers so to a `response_format`. */
function isData(content: object): boolean {
  const entries: readonly unknown[] = Array.isArray(content) ? content : [content];
  const isPart = (entry: unknown) =>
    typeof entry === "string" || (isRecord(entry) && ("type" in entry || "text" in entry));
  return entries.length > 0 && !entries.some(isPart);
}

/** The text of a part with thinking, which may be an object, or a list of texts. */
function thoughtIn({ thinking, reasoning, summary, text, content }: Fields, levels = 2): string {
  return thoughtText(thinking ?? reasoning ?? summary ?? text ?? content, levels);
}

function thoughtText(said: unknown, levels: number): string {
  if (typeof said === "string") return said;
  if (levels === 0) return "";
  if (isRecord(said)) return thoughtIn(said, levels - 1);
  return Array.isArray(said) ? said.map((one) => thoughtText(one, levels - 1)).join("") : "";
}

/** What a model thought, in the two members that have a text for it; and under other names. */
const THOUGHTS = ["reasoning_content", "reasoning"] as const;
const OTHER_THOUGHTS = ["thinking", "reasoning_text", "thought"] as const;

/** A message or delta whose reasoning is a text: some servers send an object or a list, or give it another name. */
export function withThought(said: Fields): Fields {
  let good = said;
  for (const name of THOUGHTS) {
    const thought = said[name];
    if (typeof thought === "object" && thought !== null) good = { ...good, [name]: thoughtText(thought, 2) };
  }
  for (const name of OTHER_THOUGHTS) {
    const thought = said[name];
    if (typeof thought !== "string") continue;
    const { [name]: _, ...others } = good;
    good = THOUGHTS.some((one) => typeof others[one] === "string") ? others : { ...others, reasoning_content: thought };
  }
  return good;
}
