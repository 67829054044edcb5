import { type Static, Type } from "@sinclair/typebox";
import type { Call } from "./journal.ts";

const RULES_MAX = 1_000;
const count = Type.Integer({ minimum: 0 });

/**
 * How one call is to be answered instead of well. Every field is optional; they combine where that makes sense.
 * A "chunk" is a content event of a stream (text, reasoning or tool arguments): the role, finish and usage events do not count.
 * Of a JSON answer, each half of the body is one chunk.
 */
export const Behaviour = Type.Partial(
  Type.Object(
    {
      /** From 400 up without a `body`: an error in OpenAI's shape. Below: the normal answer with this status. */
      status: Type.Integer({ minimum: 200, maximum: 599 }),
      /** Sent as it stands in place of the answer. */
      body: Type.String(),
      contentType: Type.String(),
      headers: Type.Record(Type.String(), Type.String()),
      /** 302, or `status`, with this Location. */
      redirectTo: Type.String(),
      /** An HTML page, as a proxy or a captive portal would send it. */
      html: Type.Boolean(),
      /** Gzipped spaces before the body: this many bytes once inflated, `true` for 256 MiB. `headers` may give it another `content-encoding`. */
      gzipBomb: Type.Union([Type.Boolean(), count]),

      /** Wait before the headers. */
      delayMs: count,
      /** Headers at once, then a wait before the first byte of the body. */
      firstByteDelayMs: count,
      /** Wait before each chunk, in place of the provider's pace. */
      chunkDelayMs: count,
      /** Never finishes. connect: the body is not even read; headers: no headers; first_byte: headers alone; mid_stream: after `cutAfterChunks`, else half the chunks. */
      hang: Type.Union([
        Type.Literal("connect"),
        Type.Literal("headers"),
        Type.Literal("first_byte"),
        Type.Literal("mid_stream"),
      ]),
      /** The socket is closed without an answer. */
      cutBeforeHeaders: Type.Boolean(),
      /** The socket is closed after this many bytes of body, 0: after the headers. */
      cutAfterBytes: count,
      cutAfterChunks: count,
      /** Wait between the last byte and the cut, so that the byte surely arrives before it. */
      cutDelayMs: count,
      /** After the first chunk more and more, until the caller gives up: content events, one line, or comments. */
      endless: Type.Union([Type.Literal("events"), Type.Literal("line"), Type.Literal("comments")]),

      /** Writes of this many bytes, each flushed: splits lines and multi-byte characters. */
      splitEvery: Type.Integer({ minimum: 1 }),
      /** No length beforehand, even of a body that is one piece. */
      chunked: Type.Boolean(),
      /** One extra content event whose text has this many bytes; of JSON, as many spaces before the body. */
      giantLineBytes: count,
      crlf: Type.Boolean(),
      /** A comment line before each event, as some providers send to keep a connection open. */
      commentLines: Type.Boolean(),
      endWithoutDone: Type.Boolean(),
      endWithoutFinish: Type.Boolean(),
      /** After this many chunks an error event, then the end without `[DONE]`. */
      errorEventAfterChunks: count,

      omitUsage: Type.Boolean(),
      /** Replaces fields of the usage object by any value at all. `total_tokens` follows unless it is given. NaN goes out as a bare NaN. */
      usage: Type.Record(Type.String(), Type.Unknown()),
      /** Raw text in place of the usage object. */
      usageRaw: Type.String(),
      /** Where a stream carries usage when it was asked for: in an event of its own (default), in the finish event, or in every event. */
      usageIn: Type.Union([Type.Literal("own"), Type.Literal("finish"), Type.Literal("every")]),

      /** Exactly this many content tokens, whatever cap the request names. */
      tokens: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
      content: Type.String(),
      /** The model name in the answer. */
      modelName: Type.String(),
      /** What each image carries; `none`: data with neither, `empty`: no data. */
      imageReturn: Type.Union([
        Type.Literal("url"),
        Type.Literal("b64"),
        Type.Literal("both"),
        Type.Literal("none"),
        Type.Literal("empty"),
      ]),
      imageUrl: Type.String(),
    },
    { additionalProperties: false },
  ),
);
export type Behaviour = Static<typeof Behaviour>;

/** Which calls a rule is for. The call's body is complete, but for the `connect` hang, where it is empty. */
export type CallPredicate = (call: Readonly<Call>) => boolean;

/** The behaviours that are set, and which of them the next call gets: `next` once, else the latest `when` that matches, else `always`. */
export class Behaviours {
  #queue: Behaviour[];
  #rules: { predicate: CallPredicate; behaviour: Behaviour }[] = [];
  #always: Behaviour | undefined;

  constructor(script: readonly Behaviour[] = []) {
    this.#queue = [...script];
  }

  next(behaviour: Behaviour): void {
    if (this.#queue.length >= RULES_MAX) throw new RangeError(`more than ${RULES_MAX} behaviours are queued`);
    this.#queue.push(behaviour);
  }

  always(behaviour: Behaviour | undefined): void {
    this.#always = behaviour;
  }

  when(predicate: CallPredicate, behaviour: Behaviour): void {
    if (this.#rules.length >= RULES_MAX) throw new RangeError(`more than ${RULES_MAX} rules are set`);
    this.#rules.unshift({ predicate, behaviour });
  }

  clear(): void {
    this.#queue = [];
    this.#rules = [];
    this.#always = undefined;
  }

  /** The behaviour for this call. Only calls of a model use up `next` and meet `always`, so that a health probe or an image fetch steals neither. */
  take(call: Readonly<Call>): Behaviour | undefined {
    if (call.generation) {
      const queued = this.#queue.shift();
      if (queued) return queued;
    }
    return (
      this.#rules.find(({ predicate }) => predicate(call))?.behaviour ?? (call.generation ? this.#always : undefined)
    );
  }

  /** Whether this call is to hang before its body is read; uses up a queued one. Asked as the headers arrive. */
  takeUnreadHang(call: Readonly<Call>): boolean {
    if (!call.generation) return false;
    const first = this.#queue[0];
    if (first?.hang === "connect") {
      this.#queue.shift();
      return true;
    }
    return !first && this.#rules.length === 0 && this.#always?.hang === "connect";
  }
}

/** Whether an answer with this behaviour is one that no caller should take for a good one. */
export function spoils(behaviour: Behaviour): boolean {
  return (
    (behaviour.status ?? 200) >= 300 ||
    behaviour.redirectTo !== undefined ||
    behaviour.html === true ||
    Boolean(behaviour.gzipBomb) ||
    behaviour.endWithoutDone === true ||
    behaviour.endWithoutFinish === true ||
    behaviour.errorEventAfterChunks !== undefined ||
    behaviour.endless !== undefined
  );
}
