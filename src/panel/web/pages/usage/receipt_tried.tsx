import type { FailureKind } from "../../../../catalog/provider_errors.ts";
import { formatTook } from "../../format.ts";
import { inPlace } from "../../ui/in_place.tsx";
import type { Receipt } from "./receipts.ts";

/** The routes and keys that were tried for a request, in order, for admins. */

type Tried = NonNullable<Receipt["tried"]>;

export function TriedRoutes({ tried }: { tried: Tried }) {
  return (
    <ol className="grid gap-2 text-14">
      {inPlace(tried, ({ provider, upstreamModel, key, ms, status, why }) => (
        <li className="grid">
          <span className="flex items-baseline justify-between gap-4">
            <span className="min-w-0 wrap-anywhere">
              {provider}, <span className="font-mono text-12">{upstreamModel}</span>
            </span>
            {why !== "skipped" && <span className="flex-none tabular-nums">{formatTook(ms)}</span>}
          </span>
          <span className="text-13 text-ink-2">
            {WHY[why] ?? why}
            {status !== null && ` (${status})`}
            {key !== null && `. Key: ${key}`}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Why the next route was tried, or how the request ended. */
const WHY: Readonly<Record<string, string>> = {
  answered: "Answered",
  skipped: "Skipped: the route or its keys had failed before",
  rejected: "Refused the request",
  broke_off: "Cut off after its first event",
  ended: "Ended: the client disconnected, or the replica shut down",
  connect: "No connection",
  hung_up: "Closed the connection without an answer",
  timeout: "Too slow",
  cut: "Cut off",
  address: "Its address may not be called",
  redirect: "Sent a redirect",
  encoded: "Sent a compressed answer",
  oversized: "Sent too much",
  no_memory: "Ended: the replica had too little memory for the answer",
  not_json: "Sent no valid answer",
  empty: "Sent an answer with nothing in it",
  rate_limited: "Asked for a pause",
  too_large: "The request is above its rate limit",
  context_length: "The prompt is too long for its model",
  credentials: "Refused the provider key",
  no_credit: "Asked for credit",
  unknown_model: "Does not know the model",
  unsupported: "Cannot do what was asked for",
  status: "Failed",
} satisfies Record<FailureKind | "answered" | "skipped" | "rejected" | "broke_off" | "ended", string>;
