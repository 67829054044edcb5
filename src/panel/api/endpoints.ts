import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { aiEndpoints } from "./ai_endpoints.ts";
import { billingEndpoints } from "./billing_endpoints.ts";
import { brandEndpoints } from "./brand_endpoints.ts";
import { domainsEndpoints } from "./domains_endpoints.ts";
import { homeEndpoints } from "./home_endpoints.ts";
import { keysEndpoints } from "./keys_endpoints.ts";
import { modelsEndpoints } from "./models_endpoints.ts";
import { offeringsEndpoints } from "./offerings_endpoints.ts";
import { operationsEndpoints } from "./operations_endpoints.ts";
import { ordersEndpoints } from "./orders_endpoints.ts";
import { peopleBillingEndpoints } from "./people_billing_endpoints.ts";
import { peopleEndpoints } from "./people_endpoints.ts";
import { playgroundEndpoints } from "./playground_endpoints.ts";
import { providersEndpoints } from "./providers_endpoints.ts";
import { sessionEndpoints } from "./session_endpoints.ts";
import { settingsEndpoints } from "./settings_endpoints.ts";
import { statementEndpoints } from "./statement_endpoints.ts";
import { usageEndpoints } from "./usage_endpoints.ts";

/** Everything under /api/panel: one file of endpoints per page of the panel. */
export function panelEndpoints(deps: Deps) {
  return new Elysia({ prefix: "/api/panel", normalize: false })
    .use(sessionEndpoints(deps))
    .use(settingsEndpoints(deps))
    .use(usageEndpoints(deps))
    .use(playgroundEndpoints(deps))
    .use(keysEndpoints(deps))
    .use(homeEndpoints(deps))
    .use(peopleEndpoints(deps))
    .use(billingEndpoints(deps))
    .use(statementEndpoints(deps))
    .use(ordersEndpoints(deps))
    .use(peopleBillingEndpoints(deps))
    .use(offeringsEndpoints(deps))
    .use(modelsEndpoints(deps))
    .use(providersEndpoints(deps))
    .use(operationsEndpoints(deps))
    .use(aiEndpoints(deps))
    .use(domainsEndpoints(deps))
    .use(brandEndpoints(deps));
}

/** The types that the web app calls through Eden. Only types cross that border. */
export type PanelApi = ReturnType<typeof panelEndpoints>;
