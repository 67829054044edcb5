import { isRecord } from "../../platform/records.ts";
import { Written } from "../written.ts";
import { EventText } from "./event_text.ts";
import { outputItemId } from "./item_ids.ts";
import { keepingId, keptOf } from "./kept_in_ids.ts";
import { CallItem, type ItemStatus, MessageItem, type OutputItem, ReasoningItem } from "./output_items.ts";
import { ReasoningDetails } from "./reasoning_details.ts";
import { type ResponseFacts, type ResponseState, responseJson } from "./response_object.ts";
import { type Seal, sealReasoning } from "./sealed_reasoning.ts";
import type { ToolNames } from "./tools.ts";

/**
 * Makes the output of a response, and its events, from chat completions: from the deltas of a stream, or from one whole
 * message. Source: RSP-8, RSP-9.
 */

/**
 * Maximum size of an output, in characters. It is kept until the end, because the last event repeats it. What the model writes beyond
 * the limits is counted, but is not in the output.
 */
export const OUTPUT_CHARS_MAX = 4 * 1024 * 1024;
/** Maximum size of all that the ids of calls keep. Beyond it they keep nothing. */
const KEPT_CHARS_MAX = 1024 * 1024;
/** Maximum number of items of an output. */
const ITEMS_MAX = 1_000;

export type OutputFacts = {
  response: ResponseFacts;
  names: ToolNames;
  /** Set if the client asked for sealed reasoning. */
  seal: Seal | undefined;
  /** What the ids of calls must keep may come behind the calls: these wait for the end of a stream. Source: RSP-14. */
  holdsCalls?: boolean;
  /** Called when an answer with calls has ended. `late`: what an id must keep came behind the name of its call. */
  onCallsEnded?: (late: boolean) => void;
};

type Fields = Readonly<Record<string, unknown>>;
/** A call. Its arguments, and what its id keeps, may arrive before the name: they wait for it. `name`: of a call that is held back. */
type OpenCall = { item: CallItem | undefined; callId: string; name: string; early: string; kept?: string | undefined };

export class Output {
  /** The text that the model wrote, for counting. */
  readonly written = new Written();
  /** A limit was reached: nothing more is added. */
  isFull = false;
  readonly #facts: OutputFacts;
  readonly #events: EventText;
  readonly #items: OutputItem[] = [];
  readonly #closed = new Set<OutputItem>();
  readonly #calls = new Map<number, OpenCall>();
  #firstCall: OpenCall | undefined;
  #reasoning: ReasoningItem | undefined;
  #message: MessageItem | undefined;
  readonly #details = new ReasoningDetails();
  /** Calls that are held back until all that their ids must keep has come. */
  readonly #held: OpenCall[] = [];
  #holdsCalls: boolean;
  #hasBegun = false;
  #isKeptLate = false;
  #keptChars = 0;

  constructor(facts: OutputFacts, { isStreamed }: { isStreamed: boolean }) {
    this.#facts = facts;
    this.#holdsCalls = !isStreamed || facts.holdsCalls === true;
    this.#events = new EventText(isStreamed);
  }

  /** The events since the last call. */
  events(): string {
    return this.#events.take();
  }

  /** Adds a delta of a chunk, or the message of a whole answer. */
  take(delta: unknown): void {
    this.#begin();
    if (!isRecord(delta)) return;
    const { reasoning_content, reasoning, reasoning_details, content, refusal, tool_calls } = delta;
    const detailsBefore = this.#details.all;
    this.#details.take(reasoning_details);
    this.#isKeptLate ||= detailsBefore === undefined && this.#details.all !== undefined && this.#calls.size > 0;
    this.#holdsCalls ||= this.#details.all !== undefined;
    // Some providers send the same text in both fields.
    this.#think(reasoning_content || reasoning);
    if (typeof content === "string") this.#say("output_text", content);
    else if (Array.isArray(content)) for (const part of content) this.#takePart(part);
    if (typeof refusal === "string") this.#say("refusal", refusal);
    if (Array.isArray(tool_calls)) for (const call of tool_calls) if (isRecord(call)) this.#call(call);
  }

  /**
   * Ends the response and returns it as JSON. Writes the last events of its items, unless it failed, and its final
   * event.
   */
  end(state: Omit<ResponseState, "items">): string {
    this.#begin();
    const { status } = state;
    if (status !== "failed" && this.#calls.size > 0) this.#facts.onCallsEnded?.(this.#isKeptLate);
    const itemStatus: ItemStatus = status === "completed" ? "completed" : "incomplete";
    this.#openHeld();
    const first = this.#firstCall;
    if (first?.item !== undefined && this.#details.all !== undefined) first.item.rename(this.#idOf(first));
    if (status !== "failed") {
      // Without any item, some clients repeat the request again and again.
      if (status === "completed" && this.#message === undefined && this.#calls.size === 0)
        this.#message = this.#add("msg", (place) => new MessageItem(place, this.#events));
      for (const item of this.#items) this.#close(item, itemStatus);
    }
    // An item that was closed before the end is complete.
    const items = this.#items.map((item) => item.json(this.#closed.has(item) ? "completed" : itemStatus));
    const response = responseJson(this.#facts.response, { ...state, items });
    this.#events.write(`response.${status}`, `"response":${response}`);
    return response;
  }

  #begin(): void {
    if (this.#hasBegun) return;
    this.#hasBegun = true;
    const response = `"response":${responseJson(this.#facts.response, { status: "in_progress", items: [] })}`;
    this.#events.write("response.created", response);
    this.#events.write("response.in_progress", response);
  }

  /** Adds a part of a content that is a list: text, or thinking, which has its own list of texts. */
  #takePart(part: unknown): void {
    if (!isRecord(part)) return;
    const { type, text, thinking } = part;
    if (type === "text" && typeof text === "string") this.#say("output_text", text);
    if (type !== "thinking" && type !== "reasoning") return;
    const thoughts: unknown[] = Array.isArray(thinking) ? thinking : [{ text: text ?? thinking }];
    for (const thought of thoughts) if (isRecord(thought)) this.#think(thought.text);
  }

  #think(delta: unknown): void {
    if (typeof delta !== "string") return;
    const text = this.#fitting(delta);
    if (text === "") return;
    if (!this.#holdsCalls) this.#openHeld();
    const { seal } = this.#facts;
    const sealed = seal && ((text: string) => sealReasoning(seal, text));
    this.#reasoning ??= this.#add("rs", (place) => new ReasoningItem(place, this.#events, sealed));
    this.#reasoning?.add(text);
  }

  #say(kind: "output_text" | "refusal", delta: string): void {
    const text = this.#fitting(delta);
    if (text === "") return;
    if (!this.#holdsCalls) this.#openHeld();
    this.#closeReasoning();
    this.#message ??= this.#add("msg", (place) => new MessageItem(place, this.#events));
    this.#message?.add(kind, text);
  }

  /**
   * Adds a part of a call. Calls stay open until the end, because providers may send parts of several calls in turn.
   */
  #call(part: Fields): void {
    const { index, id, function: called } = part;
    if (!isRecord(called)) return;
    const callId = typeof id === "string" ? id : "";
    const name = typeof called.name === "string" ? called.name : "";
    const given = called.arguments ?? "";
    const said = typeof given === "string" ? given : JSON.stringify(given);
    const args = this.#fitting(name + said).slice(name.length);
    if (this.isFull && args === "") return;
    const call = this.#callOf({ index, callId, name });
    const keptBefore = call.kept;
    call.kept ??= this.#fittingKept(keptOf(part));
    const isLate = keptBefore === undefined && call.kept !== undefined && call.name !== "";
    this.#isKeptLate ||= isLate;
    if (call.item !== undefined) {
      // The client has read an id that does not keep it. The item has one that does when it is done.
      if (isLate) call.item.rename(this.#idOf(call));
      call.item.add(args);
      return;
    }
    call.early += args;
    const isNamed = name !== "" && call.name === "";
    call.name ||= name;
    // What comes whole loses nothing by waiting, and what its id must keep may come behind it.
    if (isNamed && (this.#holdsCalls || this.#held.length > 0 || isWhole(args))) this.#hold(call);
    else if (call.name !== "" && !this.#held.includes(call)) this.#open(call);
  }

  /** A call that has no room for its item is left out. */
  #hold(call: OpenCall): void {
    if (this.#items.length + this.#held.length < ITEMS_MAX) this.#held.push(call);
    else this.isFull = true;
  }

  #openHeld(): void {
    for (const call of this.#held.splice(0)) this.#open(call);
  }

  /** Adds the item of a call. */
  #open(call: OpenCall): void {
    this.#closeReasoning();
    this.#closeMessage();
    const tool = this.#facts.names.toolOf(call.name);
    call.item = this.#add(tool.isCustom ? "ctc" : "fc", (place) => {
      call.callId ||= `call_${place.id.slice(place.id.indexOf("_") + 1)}`;
      return new CallItem(place, this.#events, { callId: this.#idOf(call), tool });
    });
    call.item?.add(call.early);
  }

  /** The id of a call with what it keeps; the first one keeps the details of the reasoning too. */
  #idOf(call: OpenCall): string {
    const details = call === this.#firstCall ? this.#details.all : undefined;
    const all = details === undefined ? undefined : keptOf(JSON.parse(call.kept ?? "{}"), details);
    const kept = all ?? call.kept;
    return kept === undefined ? call.callId : keepingId(call.callId, kept);
  }

  /** The call that a part belongs to. Some providers omit the index, and some give all calls the index 0. */
  #callOf({ index, callId, name }: { index: unknown; callId: string; name: string }): OpenCall {
    const at =
      typeof index === "number" ? index : callId === "" && name === "" ? this.#calls.size - 1 : this.#calls.size;
    const open = this.#calls.get(at);
    const isOther = open !== undefined && name !== "" && callId !== "" && open.callId !== "" && open.callId !== callId;
    if (open !== undefined && !isOther) {
      open.callId ||= callId;
      return open;
    }
    const call: OpenCall = { item: undefined, callId, name: "", early: "" };
    this.#firstCall ??= call;
    // The earlier call of this index is complete.
    if (isOther) this.#calls.set(-1 - this.#calls.size, open);
    this.#calls.set(at, call);
    return call;
  }

  #closeReasoning(): void {
    if (this.#reasoning === undefined) return;
    this.#close(this.#reasoning, "completed");
    this.#reasoning = undefined;
  }

  #closeMessage(): void {
    if (this.#message === undefined) return;
    this.#close(this.#message, "completed");
    this.#message = undefined;
  }

  #close(item: OutputItem, status: ItemStatus): void {
    if (this.#closed.has(item)) return;
    if (status === "completed") this.#closed.add(item);
    item.close(status);
  }

  /** Adds an item. Returns undefined if the output is full. */
  #add<T extends OutputItem>(
    kind: "rs" | "msg" | "fc" | "ctc",
    make: (place: { id: string; index: number }) => T,
  ): T | undefined {
    const index = this.#items.length;
    if (index >= ITEMS_MAX) {
      this.isFull = true;
      return undefined;
    }
    const item = make({ id: outputItemId(kind, this.#facts.response.id, index), index });
    this.#items.push(item);
    return item;
  }

  #fittingKept(kept: string | undefined): string | undefined {
    const chars = this.#keptChars + (kept?.length ?? 0);
    if (kept === undefined || chars > KEPT_CHARS_MAX) return undefined;
    this.#keptChars = chars;
    return kept;
  }

  /** Counts a piece of what the model wrote, and returns the part of it that the output has room for. */
  #fitting(piece: string): string {
    const room = this.isFull ? 0 : OUTPUT_CHARS_MAX - this.written.length;
    this.written.add(piece, piece.length);
    if (piece.length <= room) return piece;
    this.isFull = true;
    // The cut may be within a character of two units.
    return piece.slice(0, room).toWellFormed();
  }
}

/** Whether the arguments of a call have come at once. */
function isWhole(args: string): boolean {
  return args.startsWith("{") && args.endsWith("}");
}
