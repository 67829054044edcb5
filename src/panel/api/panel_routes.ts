import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { aiRoutes } from "./ai.ts";
import { sessionRoutes } from "./session_routes.ts";

/** Everything under /api/panel. A file of routes for each page's needs. */
export function panelRoutes(deps: Deps) {
  return new Elysia({ prefix: "/api/panel", normalize: false }).use(sessionRoutes(deps)).use(aiRoutes(deps));
}

/** What the web app calls, by Eden: types only cross that border. */
export type PanelApi = ReturnType<typeof panelRoutes>;
