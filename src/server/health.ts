import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { factsOf } from "../http/request_facts.ts";
import { ping } from "../platform/db_store.ts";

/**
 * /healthz and /readyz on the public port, because a load balancer checks the port that it sends traffic to. The internal
 * listener has the same endpoints.
 */
export function healthRoutes(deps: Deps) {
  const readiness = createReadiness(deps);
  const withRequestId = ({ request }: { request: Request }, answer: Response) => {
    answer.headers.set("x-request-id", factsOf(request).requestId);
    return answer;
  };
  return new Elysia()
    .get("/healthz", (context) => withRequestId(context, alive()))
    .get("/readyz", async (context) => withRequestId(context, await readiness()));
}

/** Answers /healthz: the process is alive. It checks nothing else. */
export function alive(): Response {
  return Response.json({ status: "ok" });
}

/**
 * Answers /readyz: whether metered work can be served, or the reason why not. Redis and providers are not required. Concurrent
 * checks share one query to the database.
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
