import { Refusal } from "../errors.ts";
import { isPassing } from "../platform/db.ts";
import type { Log } from "../platform/log.ts";

/** `as`: how what is thrown becomes a refusal, if the database is not the reason. */
type RefusalOptions = { requestId: string; as: (thrown: unknown) => Refusal };

/** The refusal that a client gets for what was thrown. An unreachable database is 503, since it passes. Logs what an operator should know of. */
export function refusalOf(
  log: Pick<Log, "warn" | "error">,
  thrown: unknown,
  { requestId, as }: RefusalOptions,
): Refusal {
  if (isPassing(thrown)) {
    log.warn({ err: thrown }, "the database does not answer");
    return new Refusal("service_unavailable");
  }
  const refusal = as(thrown);
  if (refusal.code === "internal_error") log.error({ err: thrown, requestId }, "a request failed");
  return refusal;
}
