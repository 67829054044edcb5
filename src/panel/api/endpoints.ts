import { Elysia } from "elysia";
import type { Deps } from "../../deps.ts";
import { aiEndpoints } from "./ai_endpoints.ts";
import { auditEndpoints } from "./audit_endpoints.ts";
import { billingEndpoints } from "./billing_endpoints.ts";
import { brandEndpoints } from "./brand_endpoints.ts";
import { domainsEndpoints } from "./domains_endpoints.ts";
import { emailChangeEndpoints } from "./email_change_endpoints.ts";
import { homeEndpoints } from "./home_endpoints.ts";
import { identityEndpoints } from "./identity_endpoints.ts";
import { incidentsEndpoints } from "./incidents_endpoints.ts";
import { invoicesEndpoints } from "./invoices_endpoints.ts";
import { joinEndpoints } from "./join_endpoints.ts";
import { keysEndpoints } from "./keys_endpoints.ts";
import { lossesEndpoints } from "./losses_endpoints.ts";
import { markupEndpoints } from "./markup_endpoints.ts";
import { measuredEndpoints } from "./measured_endpoints.ts";
import { membersEndpoints } from "./members_endpoints.ts";
import { messagesEndpoints } from "./messages_endpoints.ts";
import { modelPricesEndpoints } from "./model_prices_endpoints.ts";
import { modelsEndpoints } from "./models_endpoints.ts";
import { offeringsEndpoints } from "./offerings_endpoints.ts";
import { operationsEndpoints } from "./operations_endpoints.ts";
import { ordersEndpoints } from "./orders_endpoints.ts";
import { passkeyEndpoints } from "./passkey_endpoints.ts";
import { paymentsEndpoints } from "./payments_endpoints.ts";
import { peopleBillingEndpoints } from "./people_billing_endpoints.ts";
import { peopleEndpoints } from "./people_endpoints.ts";
import { playgroundEndpoints } from "./playground_endpoints.ts";
import { priceImportEndpoints } from "./price_import_endpoints.ts";
import { pricesEndpoints } from "./prices_endpoints.ts";
import { privacyEndpoints } from "./privacy_endpoints.ts";
import { providersEndpoints } from "./providers_endpoints.ts";
import { renewalsEndpoints } from "./renewals_endpoints.ts";
import { routesEndpoints } from "./routes_endpoints.ts";
import { sessionEndpoints } from "./session_endpoints.ts";
import { settingsEndpoints } from "./settings_endpoints.ts";
import { signUpEndpoints } from "./sign_up_endpoints.ts";
import { statementEndpoints } from "./statement_endpoints.ts";
import { statusEndpoints } from "./status_endpoints.ts";
import { tokensEndpoints } from "./tokens_endpoints.ts";
import { unsubscribeEndpoints } from "./unsubscribe_endpoints.ts";
import { usageEndpoints } from "./usage_endpoints.ts";
import { vouchersEndpoints } from "./vouchers_endpoints.ts";
import { webhooksEndpoints } from "./webhooks_endpoints.ts";

/** Everything under /api/panel: one file of endpoints per page of the panel. In three parts, because the types of one long chain are too deep. */
export function panelEndpoints(deps: Deps) {
  return new Elysia({ prefix: "/api/panel", normalize: false })
    .use(ownEndpoints(deps))
    .use(sellingEndpoints(deps))
    .use(serviceEndpoints(deps));
}

/** A signed-in person's own pages. */
function ownEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(sessionEndpoints(deps))
    .use(settingsEndpoints(deps))
    .use(privacyEndpoints(deps))
    .use(passkeyEndpoints(deps))
    .use(identityEndpoints(deps))
    .use(emailChangeEndpoints(deps))
    .use(usageEndpoints(deps))
    .use(playgroundEndpoints(deps))
    .use(membersEndpoints(deps))
    .use(joinEndpoints(deps))
    .use(keysEndpoints(deps))
    .use(homeEndpoints(deps))
    .use(billingEndpoints(deps))
    .use(aiEndpoints(deps))
    .use(tokensEndpoints(deps))
    .use(webhooksEndpoints(deps));
}

/** Selling: offerings, people, orders and payments. */
function sellingEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(peopleEndpoints(deps))
    .use(peopleBillingEndpoints(deps))
    .use(statementEndpoints(deps))
    .use(markupEndpoints(deps))
    .use(ordersEndpoints(deps))
    .use(vouchersEndpoints(deps))
    .use(invoicesEndpoints(deps))
    .use(paymentsEndpoints(deps))
    .use(renewalsEndpoints(deps))
    .use(offeringsEndpoints(deps))
    .use(pricesEndpoints(deps))
    .use(signUpEndpoints(deps))
    .use(measuredEndpoints(deps))
    .use(modelPricesEndpoints(deps));
}

/** Models, providers, domains and operations. */
function serviceEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(modelsEndpoints(deps))
    .use(routesEndpoints(deps))
    .use(priceImportEndpoints(deps))
    .use(lossesEndpoints(deps))
    .use(providersEndpoints(deps))
    .use(operationsEndpoints(deps))
    .use(auditEndpoints(deps))
    .use(messagesEndpoints(deps))
    .use(unsubscribeEndpoints(deps))
    .use(domainsEndpoints(deps))
    .use(brandEndpoints(deps))
    .use(incidentsEndpoints(deps))
    .use(statusEndpoints(deps));
}

/** The types of the endpoints, for the web app's client Eden. The web app imports nothing else from here. */
export type PanelApi = ReturnType<typeof panelEndpoints>;
