import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { ping } from "../platform/db_store.ts";

/** /healthz speaks of the process alone; /readyz of what metered work needs. Neither needs Redis or a provider. */
export function healthRoutes(deps: Deps) {
  return new Elysia()
    .get("/healthz", () => Response.json({ status: "ok" }))
    .get("/readyz", async () => {
      const reason = await unreadiness(deps);
      return Response.json(reason === undefined ? { status: "ready" } : { status: "not_ready", reason }, {
        status: reason === undefined ? 200 : 503,
      });
    });
}

async function unreadiness(deps: Deps): Promise<string | undefined> {
  if (deps.gate.draining()) return "draining";
  if (!deps.ledger.ready()) return "spool_full";
  if (!(await ping(deps.db.sql))) return "database_unreachable";
  return undefined;
}
