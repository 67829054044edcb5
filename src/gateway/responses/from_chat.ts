import { errorIn, FrameBudget, LETTERS, type Relayed, type StreamRewriter } from "../chunks.ts";
import { parseObject } from "../upstream_chat.ts";
import { type ReportedUsage, reportedUsageOf } from "../usage_counts.ts";
import { EventFrame, hasFrame, type Slot } from "./event_frame.ts";
import { Output, type OutputFacts } from "./output.ts";
import { isRecord } from "./refusals.ts";
import { type CountedUsage, type ResponseState, usageJson } from "./response_object.ts";

/** Translates answers of chat completions into responses: whole ones, and streams chunk by chunk. Source: RSP-8, RSP-9, RSP-10. */

/** Why an answer is incomplete, by the chat's finish_reason. */
const INCOMPLETE: Readonly<Record<string, string>> = {
  length: "max_output_tokens",
  max_tokens: "max_output_tokens",
  content_filter: "content_filter",
};

/** The status of an answer that ended normally. */
function stateOf(finish: string | undefined): Pick<ResponseState, "status" | "incompleteReason"> {
  const incompleteReason = INCOMPLETE[finish ?? ""];
  return { status: incompleteReason === undefined ? "completed" : "incomplete", incompleteReason };
}

/** The response for a whole chat answer, made once the charge is known. */
export type WholeResponse = { completionText: string; completionChars: number; text: (usage: CountedUsage) => string };

/** Translates a whole answer by its first choice. `value` is the parsed answer. */
export function fromChatAnswer(value: Readonly<Record<string, unknown>>, facts: OutputFacts): WholeResponse {
  const output = new Output(facts, { isStreamed: false });
  const [choice] = Array.isArray(value.choices) ? (value.choices as unknown[]) : [];
  if (isRecord(choice)) output.take(choice.message);
  const state = stateOf(isRecord(choice) ? finishOf(choice) : undefined);
  return {
    completionText: output.written.text,
    completionChars: output.written.length,
    text: (usage) => output.end({ ...state, usage: usageJson(usage) }),
  };
}

function finishOf({ finish_reason: finish }: Readonly<Record<string, unknown>>): string | undefined {
  return typeof finish === "string" && finish !== "" ? finish : undefined;
}

/** Whether a chunk has content for the client. A failure before the first such chunk can be tried on another route. */
export function beginsAnswer({ choices, usage }: Readonly<Record<string, unknown>>): boolean {
  if (!Array.isArray(choices) || isRecord(usage)) return true;
  const [choice] = choices as unknown[];
  if (!isRecord(choice)) return false;
  if (finishOf(choice) !== undefined) return true;
  return (
    isRecord(choice.delta) && Object.entries(choice.delta).some(([name, value]) => name !== "role" && hasText(value))
  );
}

function hasText(value: unknown): boolean {
  return value !== undefined && value !== null && value !== "" && !(Array.isArray(value) && value.length === 0);
}

/** Turns the chunks of a chat stream into the events of a response. */
export class ResponseEvents implements StreamRewriter {
  finished = false;
  readonly endsWithDone = true;
  readonly isOver = false;
  rewritten = "";
  readonly #output: Output;
  /** The frame of chunks that bring nothing but a text. */
  #frame: EventFrame | undefined;
  readonly #budget = new FrameBudget();
  #finish: string | undefined;
  #usage: ReportedUsage | undefined;
  #rawUsage: unknown;
  #counted: CountedUsage | undefined;

  constructor(facts: OutputFacts) {
    this.#output = new Output(facts, { isStreamed: true });
  }

  get relayed(): Relayed {
    const { text, length: chars } = this.#output.written;
    return { text, chars, usage: this.#usage, rawUsage: this.#rawUsage };
  }

  get usage(): ReportedUsage | undefined {
    return this.#usage;
  }

  rewriteEvent(received: string, at: number): number {
    const frame = this.#frame;
    const end = frame === undefined ? -1 : frame.match(received, at);
    if (frame === undefined || end < 0) return -1;
    this.#budget.used++;
    this.#output.takeText(frame.text, end - at);
    this.rewritten = this.#output.events();
    return end;
  }

  rewrite(payload: string): string | undefined {
    const chunk: unknown = JSON.parse(payload);
    if (!isRecord(chunk)) throw new Error("the provider sent an event that is not a JSON object");
    if (errorIn(chunk) !== undefined) throw new Error("the provider sent an error event");
    if (isRecord(chunk.usage)) this.#noteUsage(chunk.usage);
    const [choice] = Array.isArray(chunk.choices) ? (chunk.choices as unknown[]) : [];
    if (isRecord(choice)) {
      this.#output.take(choice.delta);
      this.#finish ??= finishOf(choice);
      this.finished = this.#finish !== undefined;
    }
    if (onlyTextOf(chunk) !== undefined && this.#budget.take()) this.#frame = textFrameOf(payload);
    return this.#output.events() || undefined;
  }

  counted(usage: CountedUsage): void {
    this.#counted = usage;
  }

  lastEvents(): string {
    this.#output.end({ ...stateOf(this.#finish), usage: this.#usageJson() });
    return this.#output.events();
  }

  errorEvents(error: string | undefined): string {
    this.#output.end({ status: "failed", error: responseError(error), usage: this.#usageJson() });
    return this.#output.events();
  }

  /** The last valid usage counts. */
  #noteUsage(raw: unknown): void {
    const usage = reportedUsageOf(raw);
    if (usage !== undefined || this.#usage === undefined) this.#rawUsage = raw;
    this.#usage = usage ?? this.#usage;
  }

  /** Undefined if nothing was charged. */
  #usageJson(): string | undefined {
    return this.#counted && usageJson(this.#counted);
  }
}

/** The text of a chunk that brings nothing else; undefined if it has no text, or more. */
function onlyTextOf({ choices, usage }: Readonly<Record<string, unknown>>): string | undefined {
  const [choice] = Array.isArray(choices) ? (choices as unknown[]) : [];
  if (isRecord(usage) || !isRecord(choice) || finishOf(choice) !== undefined || !isRecord(choice.delta))
    return undefined;
  const { content, reasoning_content, reasoning, refusal, tool_calls } = choice.delta;
  const hasMore = [reasoning_content, reasoning, refusal, tool_calls].some(hasText);
  return typeof content === "string" && content !== "" && !hasMore ? content : undefined;
}

/** The frame around the text of a chunk, and around the letters at its end; undefined if it has none. */
function textFrameOf(payload: string): EventFrame | undefined {
  if (!hasFrame(payload)) return undefined;
  const { value = {}, spans } = parseObject(payload) ?? {};
  const choices = spans?.get("choices");
  const text = onlyTextOf(value);
  if (choices === undefined || text === undefined) return undefined;
  const json = JSON.stringify(text);
  const start = payload.lastIndexOf(json, choices.end);
  if (start < choices.start) return undefined;
  const end = start + json.length;
  // Checked by putting another text there.
  const other = `${text}~`;
  const changed = parseObject(payload.slice(0, start) + JSON.stringify(other) + payload.slice(end));
  if (changed === undefined || onlyTextOf(changed.value) !== other) return undefined;
  const slots: Slot[] = [{ kind: "text", start: start + 1, end: end - 1 }];
  const last = [...(spans?.values() ?? [])].at(-1);
  if (last !== undefined && last.start > choices.end && payload[last.start] === '"') {
    const letters = { start: last.start + 1, end: last.end - 1 };
    if (LETTERS.test(payload.slice(letters.start, letters.end))) slots.push({ kind: "letters", ...letters });
  }
  return new EventFrame("data: ", payload, slots);
}

/**
 * The error of a response that failed in mid-stream. Clients know few codes; after this one they try again.
 * `error`: an error envelope as JSON.
 */
export function responseError(error: string | undefined): NonNullable<ResponseState["error"]> {
  const envelope: unknown = error === undefined ? undefined : JSON.parse(error);
  const { message } = isRecord(envelope) && isRecord(envelope.error) ? envelope.error : {};
  return { code: "server_error", message: typeof message === "string" ? message : "The response failed." };
}
