import type { Deps } from "../deps.ts";
import { asRefusal, toEnvelope } from "../errors.ts";
import type { Body } from "../http/body.ts";
import { refusalOf } from "../http/refusal_of.ts";
import { factsOf, type RequestFacts } from "../http/request_facts.ts";
import { deadline } from "../platform/deadline.ts";
import { isRecord } from "../platform/records.ts";
import { streamResponse, waitingJsonResponse } from "./answers.ts";
import { eventOf } from "./chunks.ts";
import { KEEP_ALIVE, KEEP_ALIVE_AFTER_MS } from "./relay.ts";
import type { RequestRecord } from "./request_record.ts";
import { CLIENT_LEFT } from "./telemetry.ts";

/**
 * What a client is sent while no provider has begun to answer: its headers and a comment, then a comment every 15 seconds. Proxies and
 * clients give up on a connection that is silent for a minute, and models that reason are often silent for longer.
 *
 * Only a request that has waited for `STREAM_HEADERS_MS` (`JSON_HEADERS_MS` for an answer that is no stream) is answered in this way.
 * Everything else goes on as if it still had no response: other routes are tried, and its hold ends in `hold.ts`. What the request then
 * ends with is passed on: a stream or an answer as it is, an error as an event or a JSON body, because the status was sent.
 *
 * Source: STR-10, STR-11.
 */

/** What is sent while a client waits, and what tells it of an error. */
type Form = {
  filler: Uint8Array;
  response: (stream: ReadableStream<Uint8Array>, requestId: string) => Response;
  /** `envelope`: an error envelope as JSON. */
  errorText: (envelope: string) => string;
};

const UTF_8 = new TextEncoder();
const STREAM: Form = { filler: KEEP_ALIVE, response: streamResponse, errorText: eventOf };
/** White space before a JSON text means nothing. */
const JSON_ANSWER: Form = {
  filler: UTF_8.encode("\n"),
  response: waitingJsonResponse,
  errorText: (envelope) => envelope,
};

type Waiting = { request: Request; record: RequestRecord; raw: Body; streams: boolean };

/** The wait of a request; undefined: it gets no headers before it has its answer. `streams`: its endpoint has streams. */
export function waitOf(deps: Deps, { request, record, raw, streams }: Waiting): Wait | undefined {
  const { streamHeadersMs, jsonHeadersMs } = deps.config;
  const isStream = streams && isRecord(raw.value) && raw.value.stream === true;
  const afterMs = isStream ? streamHeadersMs : jsonHeadersMs;
  if (afterMs === 0) return undefined;
  return new Wait(deps, request, { record, afterMs, form: isStream ? STREAM : JSON_ANSWER });
}

type WaitOptions = { record: RequestRecord; afterMs: number; form: Form };

/**
 * The wait of one request for its answer. It does not keep the request's body: it lives as long as the stream that it passes on. No
 * method that a timer or a stream calls throws.
 */
export class Wait implements UnderlyingDefaultSource<Uint8Array> {
  /** What tells the client of an error. A step that knows better replaces it before a provider is called. */
  errorText: Form["errorText"];
  /** The client left after its headers were sent. */
  isLeft = false;
  /** Called when it leaves. */
  onLeft: (() => void) | undefined;
  readonly #deps: Deps;
  readonly #signal: AbortSignal;
  /** Dropped once the request has its answer: it reaches the request. */
  #facts: RequestFacts | undefined;
  readonly #record: RequestRecord;
  readonly #afterMs: number;
  readonly #form: Form;
  #answer: ((response: Response) => void) | undefined;
  #stopClock: (() => void) | undefined;
  /** Set once the headers are sent. */
  #controller: ReadableStreamDefaultController<Uint8Array> | undefined;
  /** The answer that is passed on. */
  #reader: ReadableStreamDefaultReader<Uint8Array> | undefined;
  /** The client can take more. */
  #isWanted = false;
  #isReading = false;
  /** The stream was closed or cancelled. */
  #isClosed = false;

  constructor(deps: Deps, request: Request, { record, afterMs, form }: WaitOptions) {
    this.#deps = deps;
    this.#signal = request.signal;
    this.#facts = factsOf(request);
    this.#record = record;
    this.#afterMs = afterMs;
    this.#form = form;
    this.errorText = form.errorText;
  }

  /** The request has its hold: from now on it waits for a provider. */
  begin(): void {
    this.#stopClock = deadline(this.#afterMs, this.#onLate);
  }

  /**
   * What `serving` resolves to, or before that a response that passes it on later. Rejects as `serving` does, unless the headers were
   * sent: then `failed` is called with what was thrown, and returns the error that the client is told.
   */
  answer(serving: Promise<Response>, failed: (error: unknown) => unknown): Promise<Response> {
    return new Promise((resolve, reject) => {
      this.#answer = resolve;
      serving.then(
        (response) => {
          if (this.#controller === undefined) resolve(response);
          else this.#passOn(response);
          this.#forget();
        },
        (error: unknown) => {
          if (this.#controller === undefined) reject(error);
          else this.#fail(failed(error));
          this.#forget();
        },
      );
    });
  }

  /** The wait is over. What reaches the request's body is dropped. */
  #forget(): void {
    this.#stopClock?.();
    this.#answer = undefined;
    this.#facts = undefined;
    this.errorText = this.#form.errorText;
  }

  readonly #onLate = (): void => {
    // A client that has left reads no headers.
    if (this.#signal.aborted) return;
    // No read-ahead: `pull` means that the client has taken what came before.
    const stream = new ReadableStream<Uint8Array>(this, { highWaterMark: 0 });
    this.#record.wait = { status: undefined, report: undefined };
    this.#answer?.(this.#form.response(stream, this.#record.requestId));
    this.#rewind();
  };

  #rewind(): void {
    this.#stopClock = deadline(Math.min(this.#afterMs, KEEP_ALIVE_AFTER_MS), this.#onSilence);
  }

  readonly #onSilence = (): void => {
    if (this.#isWanted) this.#send(this.#form.filler);
    this.#rewind();
  };

  /** Called by the stream, like `pull` and `cancel`. */
  start(controller: ReadableStreamDefaultController<Uint8Array>): void {
    this.#controller = controller;
    // Sent with the headers: a runtime may keep them until there is something to send.
    controller.enqueue(this.#form.filler);
  }

  pull(): void {
    this.#isWanted = true;
    this.#read();
  }

  /** The client left. */
  async cancel(reason: unknown): Promise<void> {
    this.#isClosed = true;
    this.isLeft = true;
    this.#stopClock?.();
    // Once a response has begun, Deno does not abort the signal of its request.
    this.onLeft?.();
    await this.#reader?.cancel(reason);
  }

  #passOn({ body }: Response): void {
    this.#deps.telemetry.waited(this.#record, 200);
    // Without a body the client has left, and its stream has ended.
    this.#reader = body?.getReader();
    if (this.#reader === undefined) this.#close();
    else if (this.#isClosed) void this.#reader.cancel().catch(() => {});
    // Also what ends the answer while the client takes nothing ends its connection.
    this.#reader?.closed.catch(this.#cut);
    this.#read();
  }

  #read(): void {
    if (this.#reader === undefined || this.#isReading || !this.#isWanted) return;
    this.#isReading = true;
    this.#reader.read().then(({ done, value }) => {
      this.#isReading = false;
      if (done) this.#close();
      else this.#send(value);
    }, this.#cut);
  }

  #fail(error: unknown): void {
    const { requestId } = this.#record;
    const isLeft = this.isLeft || this.#signal.aborted;
    const refusal = refusalOf(this.#deps.log, error, { requestId, as: asRefusal });
    if (this.#facts !== undefined) this.#facts.refusal = refusal.code;
    this.#deps.telemetry.waited(this.#record, isLeft ? CLIENT_LEFT : 200);
    if (!this.#isClosed) this.#send(UTF_8.encode(this.errorText(JSON.stringify(toEnvelope(refusal, requestId)))));
    this.#close();
  }

  #send(bytes: Uint8Array): void {
    if (this.#isClosed) return;
    this.#isWanted = false;
    this.#controller?.enqueue(bytes);
  }

  #close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#controller?.close();
  }

  readonly #cut = (error: unknown): void => {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#controller?.error(error);
  };
}
