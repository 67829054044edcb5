import { type Static, Type } from "@sinclair/typebox";
import type { Call } from "./journal.ts";

const RULES_MAX = 1_000;
const GATES_MAX = 10_000;
const count = Type.Integer({ minimum: 0 });

/**
 * How one call is answered, instead of normally. Every field is optional, and fields combine where that makes sense.
 * A "chunk" is a content event of a stream (text, reasoning or tool arguments). Role, finish and usage events are not chunks.
 * In a JSON answer, each half of the body is a chunk.
 */
export const Behaviour = Type.Partial(
  Type.Object(
    {
      /** 400 or more without `body`: an error in OpenAI's format. Below 400: the normal answer with this status. */
      status: Type.Integer({ minimum: 200, maximum: 599 }),
      /** Sent as it is, in place of the answer. */
      body: Type.String(),
      contentType: Type.String(),
      headers: Type.Record(Type.String(), Type.String()),
      /** Answers 302, or `status`, with this Location. */
      redirectTo: Type.String(),
      /** Answers an HTML page, as a proxy or a captive portal does. */
      html: Type.Boolean(),
      /** Sends gzipped spaces before the body: this many bytes once inflated, `true` for 256 MiB. `headers` may set another `content-encoding`. */
      gzipBomb: Type.Union([Type.Boolean(), count]),

      /** Sends nothing before the gate of this name is opened. */
      gate: Type.String(),
      /** Sends nothing more after this many chunks (0: after the headers) before this gate is opened. */
      gateInside: Type.Object({ gate: Type.String(), afterChunks: count }),
      /** Waits before the headers. */
      delayMs: count,
      /** Sends the headers immediately, then waits before the first byte of the body. */
      firstByteDelayMs: count,
      /** Waits before each chunk, in place of the provider's pace. */
      chunkDelayMs: count,
      /** Never finishes. connect: does not read the body; headers: sends nothing; first_byte: sends only headers; mid_stream: stops after `cutAfterChunks`, by default half the chunks. */
      hang: Type.Union([
        Type.Literal("connect"),
        Type.Literal("headers"),
        Type.Literal("first_byte"),
        Type.Literal("mid_stream"),
      ]),
      /** Closes the socket without an answer. */
      cutBeforeHeaders: Type.Boolean(),
      /** Closes the socket after this many bytes of the body; 0: after the headers. */
      cutAfterBytes: count,
      cutAfterChunks: count,
      /** Waits between the last byte and the close, so that the byte arrives before it. */
      cutDelayMs: count,
      /** Waits there until this gate is opened. */
      cutGate: Type.String(),
      /** After the first chunk, sends content events, one line, or comments without end, until the caller leaves. */
      endless: Type.Union([Type.Literal("events"), Type.Literal("line"), Type.Literal("comments")]),
      /** Closes the socket of an endless stream when the caller has taken nothing for this long. */
      cutWhenBlockedMs: count,

      /** Writes this many bytes at a time and flushes each: splits lines and multi-byte characters. */
      splitEvery: Type.Integer({ minimum: 1 }),
      /** Sends no Content-Length, even if the body is one piece. */
      chunked: Type.Boolean(),
      /** Adds a content event whose text has this many bytes. In JSON, as many spaces before the body. */
      giantLineBytes: count,
      crlf: Type.Boolean(),
      /** Sends a comment line before each event, as some providers do to keep a connection open. */
      commentLines: Type.Boolean(),
      endWithoutDone: Type.Boolean(),
      endWithoutFinish: Type.Boolean(),
      /** After this many chunks, sends an error event and ends without `[DONE]`. */
      errorEventAfterChunks: count,

      omitUsage: Type.Boolean(),
      /** Replaces fields of the usage object with any value. `total_tokens` is recomputed unless given. NaN is sent as a bare NaN. */
      usage: Type.Record(Type.String(), Type.Unknown()),
      /** Sent as raw text in place of the usage object. */
      usageRaw: Type.String(),
      /** Which event of a stream has the usage, if it was asked for: a separate one (default), the finish event, or every event. */
      usageIn: Type.Union([Type.Literal("own"), Type.Literal("finish"), Type.Literal("every")]),

      /** Exactly this many content tokens, regardless of the request's cap. */
      tokens: Type.Integer({ minimum: 0, maximum: 1_000_000 }),
      content: Type.String(),
      /** The model name in the answer. */
      modelName: Type.String(),
      /** Fields of each image; `none`: data items with neither, `empty`: an empty data list. */
      imageReturn: Type.Union([
        Type.Literal("url"),
        Type.Literal("b64"),
        Type.Literal("both"),
        Type.Literal("none"),
        Type.Literal("empty"),
      ]),
      imageUrl: Type.String(),
      /** The form of embeddings, whatever was asked for. */
      embeddingReturn: Type.Union([Type.Literal("float"), Type.Literal("base64")]),
      /** Sends the embeddings in the opposite order, each with its index. */
      embeddingsReversed: Type.Boolean(),
    },
    { additionalProperties: false },
  ),
);
export type Behaviour = Static<typeof Behaviour>;

/** Selects the calls that a rule applies to. The call's body is complete, except for the `connect` hang, where it is empty. */
export type CallPredicate = (call: Readonly<Call>) => boolean;

/** The configured behaviours. A call gets the first of: the oldest `next`, once; the latest `when` that matches; `always`. */
export class Behaviours {
  #queue: Behaviour[];
  #rules: { predicate: CallPredicate; behaviour: Behaviour }[] = [];
  #always: Behaviour | undefined;
  readonly #openGates = new Set<string>();

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

  /** Lets every answer pass that waits at this gate, or will. */
  open(gate: string): void {
    if (this.#openGates.size >= GATES_MAX) throw new RangeError(`more than ${GATES_MAX} gates are open`);
    this.#openGates.add(gate);
  }

  isOpen(gate: string): boolean {
    return this.#openGates.has(gate);
  }

  /** Answers that wait at a gate wait on. */
  clear(): void {
    this.#openGates.clear();
    this.#queue = [];
    this.#rules = [];
    this.#always = undefined;
  }

  /** The behaviour for this call. `next` and `always` apply to model calls only, so a health probe or an image fetch does not use them up. */
  take(call: Readonly<Call>): Behaviour | undefined {
    if (call.generation) {
      const queued = this.#queue.shift();
      if (queued) return queued;
    }
    return (
      this.#rules.find(({ predicate }) => predicate(call))?.behaviour ?? (call.generation ? this.#always : undefined)
    );
  }

  /** Whether this call hangs before its body is read; removes such a behaviour from the queue. Called when the headers arrive. */
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

/** Whether the answer is faulty: no caller should accept it as complete. Cuts are recorded separately. */
export function isFaulty(behaviour: Behaviour): boolean {
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
