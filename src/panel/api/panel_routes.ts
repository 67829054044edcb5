import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { aiRoutes } from "./ai.ts";
import { auditRoutes } from "./audit_routes.ts";
import { billingRoutes } from "./billing_routes.ts";
import { booksRoutes } from "./books_routes.ts";
import { brandRoutes } from "./brand_routes.ts";
import { domainsRoutes } from "./domains_routes.ts";
import { homeRoutes } from "./home_routes.ts";
import { keysRoutes } from "./keys_routes.ts";
import { modelsRoutes } from "./models_routes.ts";
import { offeringsRoutes } from "./offerings_routes.ts";
import { ordersRoutes } from "./orders_routes.ts";
import { peopleBillingRoutes } from "./people_billing_routes.ts";
import { peopleRoutes } from "./people_routes.ts";
import { playgroundRoutes } from "./playground_routes.ts";
import { providersRoutes } from "./providers_routes.ts";
import { requestsRoutes } from "./requests_routes.ts";
import { sessionRoutes } from "./session_routes.ts";
import { settingsRoutes } from "./settings_routes.ts";
import { usageRoutes } from "./usage_routes.ts";

/** Everything under /api/panel. A file of routes for each page's needs. */
export function panelRoutes(deps: Deps) {
  return new Elysia({ prefix: "/api/panel", normalize: false })
    .use(sessionRoutes(deps))
    .use(settingsRoutes(deps))
    .use(usageRoutes(deps))
    .use(requestsRoutes(deps))
    .use(playgroundRoutes(deps))
    .use(keysRoutes(deps))
    .use(homeRoutes(deps))
    .use(peopleRoutes(deps))
    .use(auditRoutes(deps))
    .use(billingRoutes(deps))
    .use(ordersRoutes(deps))
    .use(peopleBillingRoutes(deps))
    .use(offeringsRoutes(deps))
    .use(modelsRoutes(deps))
    .use(providersRoutes(deps))
    .use(booksRoutes(deps))
    .use(aiRoutes(deps))
    .use(domainsRoutes(deps))
    .use(brandRoutes(deps));
}

/** What the web app calls, by Eden: types only cross that border. */
export type PanelApi = ReturnType<typeof panelRoutes>;
