import type { ErrorCode } from "../errors.ts";
import type { Trace } from "../platform/tracing.ts";

/** Facts about a request that its handlers, its error response and its log line share. */
export type RequestFacts = {
  requestId: string;
  /** The parsed URL. Do not change it: requests to the same URL share it. */
  url: URL;
  /** The client's address, as far as trusted proxies report it. Computed when called: few requests need it. */
  peerAddress: () => string;
  /** When the request arrived, by the monotonic clock. */
  startedMs: number;
  /** The account that is signed in to the panel, or that an image address names; 0 if none. */
  accountId: number;
  /** The code of the error response; "" if the request was not refused. */
  refusal: ErrorCode | "";
  /** The gateway's record of the request (a `RequestRecord`), if the request reached the gateway. */
  record: object | undefined;
  /** Leaves the place among the readers of Postgres that the request has; undefined: it has none. Idempotent. */
  leaveRead: (() => void) | undefined;
  /** Whether the connection is closed after the answer. */
  closes: boolean;
  /** The request's trace; undefined if tracing is off. */
  trace: Trace | undefined;
};

const facts = new WeakMap<Request, RequestFacts>();

/** Stores the facts of a request. Called once, when it arrives. */
export function noteFacts(request: Request, noted: RequestFacts): void {
  facts.set(request, noted);
}

/** Closes the connection of a request once it is answered. */
export function closeAfterAnswer(request: Request): void {
  const noted = facts.get(request);
  if (noted !== undefined) noted.closes = true;
}

/** The facts of a request that arrived through `createApp(...).fetch`. */
export function factsOf(request: Request): RequestFacts {
  const noted = facts.get(request);
  if (noted === undefined) throw new Error("the request did not come through createApp");
  return noted;
}
