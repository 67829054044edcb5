/** Facts about a request that its handlers and its error answer share. */
export type RequestFacts = { requestId: string; peerAddress: string };

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
