import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { ping } from "../platform/db_store.ts";
import { factsOf } from "../platform/request_facts.ts";

/** /healthz speaks of the process alone; /readyz of what metered work needs. Neither needs Redis or a provider. */
export function healthRoutes(deps: Deps) {
  return new Elysia()
    .get("/healthz", ({ request }) => answer(request, 200, { status: "ok" }))
    .get("/readyz", async ({ request }) => {
      const reason = await unreadiness(deps);
      return reason === undefined
        ? answer(request, 200, { status: "ready" })
        : answer(request, 503, { status: "not_ready", reason });
    });
}

function answer(request: Request, status: number, body: Record<string, string>): Response {
  return Response.json(body, { status, headers: { "x-request-id": factsOf(request).requestId } });
}

async function unreadiness(deps: Deps): Promise<string | undefined> {
  if (deps.gate.draining()) return "draining";
  if (!deps.ledger.ready()) return "spool_full";
  if (!(await ping(deps.db.sql))) return "database_unreachable";
  return undefined;
}
