import { isRecord } from "../platform/records.ts";

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
  for (const part of parts) {
    if (typeof part === "string") text += part;
    else if (!isRecord(part)) continue;
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
  };
}

/** Whether a content is the data that was asked for, and not parts of it: Workers AI answers so to a `response_format`. */
function isData(content: object): boolean {
  const entries: readonly unknown[] = Array.isArray(content) ? content : [content];
  const isPart = (entry: unknown) =>
    typeof entry === "string" || (isRecord(entry) && ("type" in entry || "text" in entry));
  return entries.length > 0 && !entries.some(isPart);
}

/** The text of a part with thinking, which may be a list of texts. */
function thoughtIn({ thinking, reasoning, summary, text }: Fields): string {
  const said = thinking ?? reasoning ?? summary ?? text;
  if (typeof said === "string") return said;
  if (!Array.isArray(said)) return "";
  return said.map((one) => (isRecord(one) && typeof one.text === "string" ? one.text : "")).join("");
}
