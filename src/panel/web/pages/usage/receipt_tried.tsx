import { t } from "@lingui/core/macro";
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
            {key !== null && `. ${t`Key: ${key}`}`}
          </span>
        </li>
      ))}
    </ol>
  );
}

/** Why the next route was tried, or how the request ended. */
const WHY: Readonly<Record<string, string>> = {
  answered: t`Answered`,
  skipped: t`Skipped: the route or its keys had failed before`,
  rejected: t`Refused the request`,
  broke_off: t`Cut off after its first event`,
  ended: t`Ended: the client disconnected, or the replica shut down`,
  connect: t`No connection`,
  hung_up: t`Closed the connection without an answer`,
  timeout: t`Too slow`,
  cut: t`Cut off`,
  address: t`Its address may not be called`,
  redirect: t`Sent a redirect`,
  encoded: t`Sent a compressed answer`,
  oversized: t`Sent too much`,
  no_memory: t`Ended: the replica had too little memory for the answer`,
  not_json: t`Sent no valid answer`,
  empty: t`Sent an answer with nothing in it`,
  rate_limited: t`Asked for a pause`,
  too_large: t`The request is above its rate limit`,
  context_length: t`The prompt is too long for its model`,
  credentials: t`Refused the provider key`,
  no_credit: t`Asked for credit`,
  unknown_model: t`Does not know the model`,
  unsupported: t`Cannot do what was asked for`,
  status: t`Failed`,
} satisfies Record<FailureKind | "answered" | "skipped" | "rejected" | "broke_off" | "ended", string>;
