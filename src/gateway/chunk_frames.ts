import { topLevelSpans } from "../http/json_spans.ts";
import type { Span } from "../http/json_text.ts";
import { ownCopy } from "../platform/own_copy.ts";

/**
 * Frames: what stays the same in the events of a stream, as received and as sent. An event that has a frame is valid JSON if the values
 * in the frame's holes are. So only these are looked at, and all the rest is neither parsed nor searched. Which members of a chunk change
 * is learned from chunks with the same members in the same order: those whose values differ are holes. So it does not matter
 * which members a provider changes, nor where they stand. Source: STR-7.
 *
 *   received: head · value · behind · value · behind          sent: outHead · [value] · outBehind · [value] · outBehind
 */

/** How the events that are sent begin and end. Only events that are received in this form can have a frame. */
export const EVENT_START = "data: ";
export const EVENT_END = "\n\n";
/** A stream learns so many frames of a kind, and one more for each USES_A_FRAME chunks that had one: learning costs more than it saves once. */
const FRAMES_FREE = 8;
const USES_A_FRAME = 64;
/** Frames that are kept at once: the newest of each kind. */
const FRAMES_MAX = 4;
/** Orders of members that are remembered at once. */
const ORDERS_MAX = 4;
/** Layouts that are known in the process. */
const LAYOUTS_MAX = 1_000;
/** Chunks with more members are not learned from: a place is a bit. */
const MEMBERS_MAX = 30;
/** Larger chunks are not learned from. */
const LEARNED_CHARS_MAX = 16 * 1024;
const [QUOTE, BACKSLASH, SPACE, ZERO, ONE, NINE, ASCII_MAX] = [34, 92, 32, 48, 49, 57, 126] as const;
/** Longer numbers are checked by the expression below. */
const DIGITS_MAX = 20;
/** A JSON value that needs no parser to be checked: a string without escapes, a number, or a word. */
const PLAIN_VALUE = /^(?:"[^"\\\p{Cc}]*"|-?(?:0|[1-9]\d{0,20})(?:\.\d{1,20})?(?:[eE][+-]?\d{1,3})?|null|true|false)$/u;

/**
 * A value that changes. `text`: the one text in the choices, without its quotes. `timings`: counts so far, of which the last ones are read. `passes`: it is sent on as received. `behind`,
 * `outBehind`: what stands between it and the next one; the last ends the event.
 */
export type Hole = {
  what: "text" | "choices" | "usage" | "timings" | "value";
  passes: boolean;
  behind: string;
  outBehind: string;
};

/**
 * The members of a chunk in their order. `holes`: a bit for the place of each that has changed in some stream. All streams of the process
 * have the same: those of one provider need not learn anew which members it changes.
 */
type Layout = { holes: number };
/** What one stream knows of a layout. `values`: of the members in the first chunk that had it. `holes`: those of its frames. */
type Order = { readonly layout: Layout; readonly values: readonly string[]; holes: number };

/**
 * The last hole has the end of the event behind it. `isUnchanged`: what stays the same is sent as received. `repeatsUsage`: the usage of an
 * earlier chunk stands in what stays the same. `isReadAtEnd`: it has counts, so that the chunk that finishes is read as a whole.
 */
export type Frame = {
  order: Order;
  head: string;
  outHead: string;
  holes: readonly Hole[];
  isUnchanged: boolean;
  repeatsUsage: boolean;
  isReadAtEnd: boolean;
};

/** A chunk as received and as sent, where its members stand, and whether it reports any tokens. */
export type Learned = { payload: string; spans: ReadonlyMap<string, Span>; out: string; hasTokens: boolean };

/** Which members are not sent on as received, and which are never skipped over: they may say that the answer failed. */
type Rules = {
  edited: ReadonlySet<string>;
  isTelling: (name: string) => boolean;
  /** Members with counts so far: only those of the chunk that finishes are read. */
  readAtEnd: ReadonlySet<string>;
};

/** The frames of one stream, the newest first. */
export class ChunkFrames {
  /** Frames with the text of the choices as a hole. They are tried first. */
  readonly texts: Frame[] = [];
  /** Frames with all of the choices as a hole. */
  readonly choices: Frame[] = [];
  readonly textBudget = new FrameBudget();
  readonly choicesBudget = new FrameBudget();
  readonly #rules: Rules;
  #hasTexts = true;
  readonly #orders: Order[] = [];

  constructor(rules: Rules) {
    this.#rules = rules;
  }

  /** Learns the frame around the choices of a chunk, and around whatever else has changed. */
  learn(learned: Learned): void {
    const { payload, spans } = learned;
    if (payload.length > LEARNED_CHARS_MAX || spans.size > MEMBERS_MAX || !spans.has("choices")) return;
    if (!this.choicesBudget.take()) return;
    const order = this.#orderOf(learned);
    const frame = frameOf(learned, order, this.#rules);
    if (frame === undefined) return;
    // What has the same order has no more holes than this.
    forget(this.choices, order);
    forget(this.texts, order);
    keep(this.choices, frame);
  }

  /** Learns the frame around the only text of a chunk whose choices have `frame`. */
  learnText(frame: Frame, choices: TextChoices): void {
    if (this.#hasTexts && this.textBudget.take()) keep(this.texts, textFrameOf(frame, choices));
  }

  /** From here on, what is sent depends on more than a chunk's own text. */
  forgetTexts(): void {
    this.#hasTexts = false;
    this.texts.length = 0;
  }

  /** The order of a chunk's members, in which what differs from the chunks before is a hole. */
  #orderOf({ payload, spans }: Learned): Order {
    const layout = layoutOf(spans);
    const known = this.#orders.findIndex((order) => order.layout === layout);
    const order = this.#orders[known];
    if (order === undefined) return this.#begin(layout, { payload, spans });
    let place = 0;
    for (const [name, { start, end }] of spans) {
      const at = place++;
      if (isHole(order, at) || payload.slice(start, end) === order.values[at]) continue;
      // From here on it is learned anew: with another value of such a member, a chunk says something else.
      if (this.#rules.isTelling(name)) {
        this.#orders.splice(known, 1);
        return this.#begin(layout, { payload, spans });
      }
      order.holes |= 1 << at;
      layout.holes |= order.holes;
    }
    return order;
  }

  #begin(layout: Layout, { payload, spans }: Pick<Learned, "payload" | "spans">): Order {
    if (this.#orders.length >= ORDERS_MAX) this.#orders.length = 0;
    const { holes } = layout;
    const values = [...spans.values()].map(({ start, end }, place) =>
      isHole(layout, place) ? "" : ownCopy(payload.slice(start, end)),
    );
    const order = { layout, values, holes };
    this.#orders.push(order);
    return order;
  }
}

/** By the names of the members in their order. */
const layouts = new Map<string, Layout>();

function layoutOf(spans: ReadonlyMap<string, Span>): Layout {
  const names = [...spans.keys()];
  const key = JSON.stringify(names);
  let layout = layouts.get(key);
  if (layout === undefined) {
    if (layouts.size >= LAYOUTS_MAX) layouts.clear();
    layout = { holes: 1 << names.indexOf("choices") };
    layouts.set(ownCopy(key), layout);
  }
  return layout;
}

function isHole({ holes }: Pick<Layout, "holes">, place: number): boolean {
  return (holes & (1 << place)) !== 0;
}

/** Whether a stream may learn another frame. */
class FrameBudget {
  /** Chunks that had a frame. */
  used = 0;
  #learned = 0;

  take(): boolean {
    if (this.#learned >= FRAMES_FREE + this.used / USES_A_FRAME) return false;
    this.#learned++;
    return true;
  }
}

/**
 * Whether a part of a text is a string without escapes, or a whole number, of ASCII characters. It is the cheap case of `isValue`, without
 * a string of its own: most values that change are ids and times.
 */
export function isPlainAt(text: string, start: number, end: number): boolean {
  const first = text.charCodeAt(start);
  if (first === QUOTE) {
    if (end - start < 2 || text.charCodeAt(end - 1) !== QUOTE) return false;
    for (let i = start + 1; i < end - 1; i++) {
      const code = text.charCodeAt(i);
      if (code < SPACE || code > ASCII_MAX || code === QUOTE || code === BACKSLASH) return false;
    }
    return true;
  }
  if (first < ONE || first > NINE || end - start > DIGITS_MAX) return false;
  for (let i = start + 1; i < end; i++) {
    const code = text.charCodeAt(i);
    if (code < ZERO || code > NINE) return false;
  }
  return true;
}

/** Whether the text of a hole is one JSON value on one line. */
export function isValue(text: string): boolean {
  return PLAIN_VALUE.test(text) || parsedLine(text) !== undefined;
}

/** The parsed value; undefined if it is not JSON. The slow path then decides whether the payload is an error. */
export function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return undefined;
  }
}

/** As `parsed`, but undefined for JSON with line breaks: in an event as it was received they end a line. */
export function parsedLine(json: string): unknown {
  return json.includes("\n") || json.includes("\r") ? undefined : parsed(json);
}

function forget(frames: Frame[], order: Order): void {
  for (let i = frames.length - 1; i >= 0; i--) if (frames[i]?.order === order) frames.splice(i, 1);
}

function keep(frames: Frame[], frame: Frame | undefined): void {
  if (frame === undefined) return;
  frames.unshift(copied(frame));
  if (frames.length > FRAMES_MAX) frames.pop();
}

/** The frame of a chunk with these holes; undefined if they are not sent in the order in which they were received. */
function frameOf(
  { payload, spans, out, hasTokens }: Learned,
  order: Order,
  { edited, readAtEnd }: Rules,
): Frame | undefined {
  const outSpans = out === payload ? spans : topLevelSpans(out);
  if (outSpans === undefined) return undefined;
  const holes = [...spans].filter((_, place) => isHole(order, place));
  const passing = holes.filter(([name]) => name === "choices" || !edited.has(name));
  const outPlaces = passing.map(([name]) => outSpans.get(name));
  const received = segmentsOf(
    payload,
    holes.map(([, span]) => span),
  );
  const sent = segmentsOf(out, outPlaces);
  if (received === undefined || sent === undefined) return undefined;
  let at = 0;
  return {
    order,
    head: EVENT_START + received[0],
    outHead: EVENT_START + sent[at++],
    holes: holes.map(([name], i) => {
      const passes = name === "choices" || !edited.has(name);
      const what = name === "choices" || name === "usage" ? name : readAtEnd.has(name) ? "timings" : "value";
      return { what, passes, behind: received[i + 1] ?? "", outBehind: passes ? (sent[at++] ?? "") : "" };
    }),
    isUnchanged: out === payload,
    repeatsUsage: hasTokens && !holes.some(([name]) => name === "usage"),
    isReadAtEnd: [...readAtEnd].some((name) => spans.has(name)),
  };
}

/** What stands before, between and behind these places, the last with the end of the event; undefined if they are not in order. */
function segmentsOf(text: string, places: readonly (Span | undefined)[]): string[] | undefined {
  const segments: string[] = [];
  let from = 0;
  for (const place of places) {
    if (place === undefined || place.start < from) return undefined;
    segments.push(text.slice(from, place.start));
    from = place.end;
  }
  segments.push(text.slice(from) + EVENT_END);
  return segments;
}

/** The choices of a chunk with one text. `outOf`: the choices as sent, for choices as received with another text. */
export type TextChoices = { text: string; raw: string; out: string; outOf: (raw: string) => string | undefined };

/** The frame around the only text of a chunk's choices; undefined if there is more than the text that may change what is sent. */
function textFrameOf(frame: Frame, { text, raw, out, outOf }: TextChoices): Frame | undefined {
  const json = JSON.stringify(text);
  const inParts = splitAt(raw, json);
  const outParts = splitAt(out, json);
  if (inParts === undefined || outParts === undefined) return undefined;
  // Checked by putting another text there.
  const other = JSON.stringify(`${text}~`).slice(1, -1);
  if (outOf(inParts.join(other)) !== outParts.join(other)) return undefined;
  const [before, after] = inParts;
  const [outBefore, outAfter] = outParts;
  const place = frame.holes.findIndex(({ what }) => what === "choices");
  const holes = frame.holes.map((hole, i) => {
    if (i !== place) return { ...hole };
    return { ...hole, what: "text" as const, behind: after + hole.behind, outBehind: outAfter + hole.outBehind };
  });
  const framed = { ...frame, holes };
  const previous = holes[place - 1];
  if (previous === undefined) framed.head += before;
  else previous.behind += before;
  // In what is sent, the text before it ends at the last hole that passes.
  const sent = holes.slice(0, place).findLast(({ passes }) => passes);
  if (sent === undefined) framed.outHead += outBefore;
  else sent.outBehind += outBefore;
  return framed;
}

/** What stands before and behind the last occurrence of a string, with its quotes. */
function splitAt(choices: string, json: string): [string, string] | undefined {
  const at = choices.lastIndexOf(json);
  return at < 0 ? undefined : [choices.slice(0, at + 1), choices.slice(at + json.length - 1)];
}

/** The frame with strings of its own: it lives as long as the stream. */
function copied({ head, outHead, holes, ...facts }: Frame): Frame {
  return {
    ...facts,
    head: ownCopy(head),
    outHead: ownCopy(outHead),
    holes: holes.map((hole) => ({ ...hole, behind: ownCopy(hole.behind), outBehind: ownCopy(hole.outBehind) })),
  };
}
