import type { ErrorCode } from "../errors.ts";
import type { AnswerKind } from "./metrics.ts";
import type { Trace } from "./tracing.ts";

/** Facts about a request that its handlers, its error answer and its line in the log share. */
export type RequestFacts = {
  requestId: string;
  /** What it asks for, parsed: not to be changed. */
  url: URL;
  /** Where the client is, as far as trusted proxies tell. Hardly any request needs it. */
  peerAddress: () => string;
  /** When it came, by the monotonic clock. */
  startedMs: number;
  /** Who is signed in to the panel; 0: nobody, or it is not the panel's. */
  accountId: number;
  /** What it was refused with; "": nothing. */
  refusal: ErrorCode | "";
  /** Of a request that came through the door of the gateway. */
  trail: Trail | undefined;
  /** Where traces are made. */
  trace: Trace | undefined;
};

/**
 * What has become known of a request on its way. The door and the flow fill it in; moments are of the monotonic clock, in ms,
 * and 0 as long as it has not come so far.
 */
export type Trail = {
  requestId: string;
  /** 0: nobody's, as far as is known. */
  accountId: number;
  keyId: number;
  /** As much of the key as the panel shows at its front; "": it is none of ours, or the panel chose it. */
  keyPrefix: string;
  /** "" as long as it named no model of the catalog. */
  modelId: string;
  host: string;
  /** The ledger granted it. */
  held: boolean;
  /** Its hold ended charged. */
  settled: boolean;
  /** What it asks for. */
  kind: AnswerKind;
  /** The route that was tried last: the one that served, if any did. */
  route: { readonly id: number; readonly providerName: string } | undefined;
  /** The ledger was asked, and said yes. */
  askedMs: number;
  heldMs: number;
  /** Or said no. */
  refusedMs: number;
  /** The provider was called, and had answered: wholly, or with the first event of a stream. */
  dispatchedMs: number;
  answeredMs: number;
  /** The ledger was told of the end, and had taken it. */
  settlingMs: number;
  settledMs: number;
  /** The same, where the hold ended uncharged. */
  releasingMs: number;
  releasedMs: number;
  /** How it ended for the ledger, once it has. */
  end: string;
  /** Of a body that the flow made, all that was handed to the client's connection. */
  bytesOut: number;
  /** Of a stream whose answer has begun: what its line will say. */
  begun: { route: string; startedMs: number; firstByteMs: number } | undefined;
  /** Of a stream: it is over, and its hold has ended. */
  over: boolean;
  /** The request's own: its provider is told of it. */
  trace: Trace | undefined;
};

const facts = new WeakMap<Request, RequestFacts>();

/** Notes the facts of a request, once, where it comes in. */
export function noteFacts(request: Request, noted: RequestFacts): void {
  facts.set(request, noted);
}

/** The facts of a request that came in through `createApp(...).fetch`. */
export function factsOf(request: Request): RequestFacts {
  const noted = facts.get(request);
  if (noted === undefined) throw new Error("a request came in past the door");
  return noted;
}
