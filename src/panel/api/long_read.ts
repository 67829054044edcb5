import type { Deps } from "../../deps.ts";
import type { Db } from "../../platform/db.ts";
import type { Person } from "./panel_session.ts";

type Asked = { person: Person; signal: AbortSignal; readMsMax?: number; waitMsMax?: number };

/**
 * Reads what may take long, on the connections kept for that, for as long as its page waits. It counts to the one who signed in,
 * whosever account is shown. Throws what `work` throws, too_many_requests, service_unavailable.
 */
export function longRead<T>(
  { longReads }: Pick<Deps, "longReads">,
  { person, ...options }: Asked,
  work: (deps: { db: Db }) => Promise<T>,
): Promise<T> {
  const { accountId, tenantId } = person.session;
  return longReads.run({ door: "panel", accountId, tenantId }, options, work);
}
