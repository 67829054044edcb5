import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";

/**
 * The routes that were tried for one request, as its receipt keeps them for admins: only if one of them failed or was skipped.
 * Most requests have none. Source: PRV-24.
 */

/** Entries of one receipt. Further ones are left out. */
const TRIED_MAX = 16;
const NAME_CHARS_MAX = 200;

/**
 * One attempt with a key of a route, or a route that was skipped, with their names at that time. `why`: `answered`; a failure kind of `catalog/provider_errors.ts`; or
 *
 * - `skipped`: its breaker was open, or none of its keys could be used, so it was not called
 * - `rejected`: it refused the request itself, so no further route was tried
 * - `broke_off`: its stream began, and broke off `ms` after its first event
 * - `ended`: the client left, or the replica shut down
 */
export const TriedRoute = Type.Object({
  routeId: Type.Number(),
  provider: Type.String(),
  upstreamModel: Type.String(),
  /** The name of the provider's key; null: the route was skipped. */
  key: Type.Union([Type.String(), Type.Null()]),
  /** From the beginning of the call to the whole answer, the first event of a stream, or the failure. */
  ms: Type.Number(),
  /** The HTTP status of a failure; null: there was no response, or none that says more. */
  status: Type.Union([Type.Number(), Type.Null()]),
  why: Type.String(),
});
export type TriedRoute = Static<typeof TriedRoute>;

const TriedRoutes = Type.Array(TriedRoute);

/** Where the tried routes of a request are collected: its hold. */
export type TriedHolder = { tried?: TriedRoute[] };

/** Adds a tried route to the hold. */
export function noteTried(hold: TriedHolder, { provider, upstreamModel, key, ms, ...tried }: TriedRoute): void {
  hold.tried ??= [];
  if (hold.tried.length >= TRIED_MAX) return;
  hold.tried.push({
    ...tried,
    provider: provider.slice(0, NAME_CHARS_MAX),
    upstreamModel: upstreamModel.slice(0, NAME_CHARS_MAX),
    key: key?.slice(0, NAME_CHARS_MAX) ?? null,
    ms: Math.round(ms),
  });
}

/** As JSON text for the receipt; null if there is nothing to keep. */
export function triedText({ tried }: TriedHolder): string | null {
  return tried === undefined ? null : JSON.stringify(tried);
}

/** What a receipt has; null if nothing. */
export function triedOf(stored: unknown): TriedRoute[] | null {
  return Value.Check(TriedRoutes, stored) ? stored : null;
}
