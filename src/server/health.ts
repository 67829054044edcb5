import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { factsOf } from "../http/request_facts.ts";
import { ping } from "../platform/db_store.ts";

/**
 * /healthz and /readyz, for the public port: whoever sends traffic to a port asks that very port whether to go on. The
 * internal listener says the same.
 */
export function healthRoutes(deps: Deps) {
  const readiness = createReadiness(deps);
  const noted = ({ request }: { request: Request }, answer: Response) => {
    answer.headers.set("x-request-id", factsOf(request).requestId);
    return answer;
  };
  return new Elysia()
    .get("/healthz", (context) => noted(context, alive()))
    .get("/readyz", async (context) => noted(context, await readiness()));
}

/** What /healthz says: it speaks of the process alone. */
export function alive(): Response {
  return Response.json({ status: "ok" });
}

/**
 * What /readyz says: whether there is what metered work needs, and if not, one word why. It needs neither Redis nor a
 * provider. However many ask at once, the database is asked once.
 */
export function createReadiness(deps: Pick<Deps, "gate" | "ledger" | "db">): () => Promise<Response> {
  let asking: Promise<boolean> | undefined;
  const databaseAnswers = () => {
    asking ??= ping(deps.db.sql).finally(() => {
      asking = undefined;
    });
    return asking;
  };
  const unreadiness = async () => {
    if (deps.gate.draining()) return "draining";
    if (!deps.ledger.ready()) return "spool_full";
    if (!(await databaseAnswers())) return "database_unreachable";
    return undefined;
  };
  return async () => {
    const reason = await unreadiness();
    return reason === undefined
      ? Response.json({ status: "ready" })
      : Response.json({ status: "not_ready", reason }, { status: 503 });
  };
}
