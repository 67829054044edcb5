import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { asRefusal, Refusal, toErrorResponse } from "../errors.ts";
import { setLimitHeaders } from "../gateway/limit_headers.ts";
import { RequestRecord } from "../gateway/request_record.ts";
import { CLIENT_LEFT } from "../gateway/telemetry.ts";
import { meteredRoutes, v1Routes } from "../gateway/v1_routes.ts";
import { clientAddress } from "../http/client_address.ts";
import { apiUrlOf, hostOf, malformedHost } from "../http/host.ts";
import { openapiOf } from "../http/openapi.ts";
import { refusalOf } from "../http/refusal_of.ts";
import { factsOf, noteFacts, type RequestFacts } from "../http/request_facts.ts";
import { countedResponse } from "../http/unread_answer.ts";
import { managementApi } from "../operations/management_api.ts";
import { MANAGEMENT } from "../operations/management_document.ts";
import { panelEndpoints } from "../panel/api/endpoints.ts";
import { payWebhooks } from "../panel/api/pay_webhooks.ts";
import { asPanelRefusal } from "../panel/api/refusals.ts";
import { statusDocuments } from "../panel/api/status_endpoints.ts";
import { oneClickEndpoints } from "../panel/api/unsubscribe_endpoints.ts";
import { apiDocsEndpoints } from "../panel/api_docs.ts";
import { pageOf, siteEndpoints } from "../panel/site.ts";
import { newRequestId } from "../platform/crypto.ts";
import { lazily } from "../platform/lazily.ts";
import type { Peer } from "../platform/runtime.ts";
import { within } from "../platform/time_limit.ts";
import { headOf } from "./head.ts";
import { healthRoutes } from "./health.ts";
import {
  type AllowedMethods,
  allowedMethods,
  asRoutable,
  meteredUrls,
  NO_ROUTE,
  routeNames,
  type Serve,
} from "./routing.ts";
import { hintFor } from "./wrong_places.ts";

/** A read of the panel that the database has not answered by then gets 503. */
const PANEL_READ_MS_MAX = 15_000;

/**
 * Browsers that have been here come back by TLS only, so that nobody between them and the first redirect can show a sign-in page. Thirty
 * days, because a reseller's domain may move to a service without TLS. Without subdomains, which may be somebody else's. Source: RFC 6797.
 */
const TLS_ONLY = `max-age=${30 * 24 * 3600}`;

export type App = {
  fetch(request: Request, peer: Peer): Promise<Response>;
  routes: { method: string; path: string }[];
};

/**
 * The whole HTTP surface of a replica. Every answer carries X-Request-Id; every error is the one envelope.
 * Source: API-4, ERR-1.
 */
export function createApp(deps: Deps): App {
  const metered = meteredRoutes(deps);
  const onError: OnError = ({ error, code, request }) => answerError(deps, allowed, { error, code, request });
  const { api, rest, routes } = elysiaApps(deps, metered, onError);
  const allowed = allowedMethods(routes);
  const nameOf = routeNames(routes);
  const isTls = deps.config.panelUrl.startsWith("https:");
  const meteredAt = meteredUrls(Object.entries(metered), nameOf);

  function serveRouted(request: Request, url: URL): Promise<Response> {
    if (url.pathname.startsWith("/v1/")) return leavingRead(request, api.handle(request));
    const handling = leavingRead(request, rest.handle(request)).then((response) => counted(deps, request, response));
    // A change is never given up: nobody would know whether it was made.
    if (request.method !== "GET") return handling;
    return within(PANEL_READ_MS_MAX, handling, () => new Refusal("service_unavailable"));
  }

  /** Metered requests go straight to their endpoint, without the router. */
  async function respond(request: Request, url: URL, metered: Serve | undefined): Promise<Response> {
    try {
      return await (metered === undefined ? serveRouted(request, url) : metered(request));
    } catch (error) {
      return onError({ error, code: "", request });
    }
  }

  return {
    routes,
    async fetch(received, peer) {
      const startedMs = deps.clock.nowMs();
      const requestId = newRequestId();
      const hot = received.method === "POST" ? meteredAt(received.url) : undefined;
      // With a missing or malformed Host header the runtime gives a URL that cannot be parsed.
      const url = hot === undefined ? URL.parse(received.url) : hot.url;
      if (url === null) {
        deps.metrics.ended(NO_ROUTE.name, 403, "host_not_allowed");
        return toErrorResponse(malformedHost(), requestId);
      }
      const request = hot === undefined ? asRoutable(received, url) : received;
      const facts: RequestFacts = {
        requestId,
        url,
        peerAddress: () =>
          clientAddress(peer.address(), request.headers.get("x-forwarded-for"), deps.config.trustedProxies),
        startedMs,
        accountId: 0,
        ...{ refusal: "", record: undefined, leaveRead: undefined, closes: false },
        trace: deps.tracing?.begin(request.headers.get("traceparent")),
      };
      noteFacts(request, facts);
      const handled = await respond(request, url, hot?.serve);
      try {
        const response = received.method === "HEAD" ? await headOf(handled) : handled;
        completeHead(deps, response, facts);
        if (isTls && hot === undefined) response.headers.set("strict-transport-security", TLS_ONLY);
        const status = response.status >= 500 && request.signal.aborted ? CLIENT_LEFT : response.status;
        deps.telemetry.answered(hot?.route ?? nameOf(request.method, url.pathname, status), facts, status);
        return response;
      } catch (error) {
        // Nobody will read it. A stream holds what it holds until it ends.
        void handled.body?.cancel();
        throw error;
      }
    },
  };
}

/** Whoever read on the connections that everyone shares leaves its place when it is answered. */
function leavingRead<T>(request: Request, handling: Promise<T>): Promise<T> {
  return handling.finally(() => factsOf(request).leaveRead?.());
}

/** An answer of the panel or of the management API counts as held until it is read, as those of the gateway do. */
function counted({ answerMemory }: Deps, request: Request, response: Response): Promise<Response> {
  const owner = { accountId: factsOf(request).accountId, tenantId: 0 };
  return countedResponse(response, { memory: answerMemory, owner, signal: request.signal });
}

/** Adds the headers that every answer has. */
function completeHead(deps: Deps, { headers }: Response, { record, closes }: RequestFacts): void {
  // An answer may be cached only where it says so itself.
  if (!headers.has("cache-control")) headers.set("cache-control", "no-store");
  if (record instanceof RequestRecord && record.limits !== undefined) setLimitHeaders(headers, record.limits);
  // The client's next request then opens a new connection, to another replica.
  if (closes || deps.gate.draining()) headers.set("connection", "close");
}

type Failure = { error: unknown; code: string | number; request: Request };
type OnError = (failure: Failure) => Promise<Response>;

/**
 * Two Elysia apps. The API has its own: where any endpoint of an app reads a cookie, Elysia parses cookies for all of them, and
 * builds their answers a second time, as streams.
 */
function elysiaApps(deps: Deps, metered: ReturnType<typeof meteredRoutes>, onError: OnError) {
  const withErrors = () => new Elysia({ normalize: false }).onError(onError);
  const api = withErrors().use(v1Routes(deps, metered));
  const panel = panelEndpoints(deps);
  const management = managementApi(deps);
  // They take a tenth of a second of a processor, and most replicas are never asked.
  const documents = {
    customers: lazily(() => openapiOf([...api.routes, ...panel.routes])),
    management: lazily(() => openapiOf(management.routes, MANAGEMENT)),
  };
  const rest = withErrors()
    .use(healthRoutes(deps))
    .use(panel)
    .use(management)
    .use(payWebhooks(deps))
    .use(oneClickEndpoints(deps))
    .use(statusDocuments(deps))
    .use(siteEndpoints(deps))
    .use(apiDocsEndpoints(deps, documents));
  return { api, rest, routes: [...api.routes, ...rest.routes] };
}

async function answerError(deps: Deps, allowed: AllowedMethods, { error, code, request }: Failure): Promise<Response> {
  const facts = factsOf(request);
  const { requestId } = facts;
  const answer = code === "NOT_FOUND" ? await pageOrRefusal(deps, allowed, request) : refused(deps, error, request);
  if (answer instanceof Response) return answer;
  facts.refusal = answer.code;
  return toErrorResponse(answer, requestId, isPanelPath(request));
}

function refused({ log }: Deps, error: unknown, request: Request): Refusal {
  const { requestId } = factsOf(request);
  return refusalOf(log, error, { requestId, as: isPanelPath(request) ? asPanelRefusal : asRefusal });
}

function isPanelPath(request: Request): boolean {
  return factsOf(request).url.pathname.startsWith("/api/panel/");
}

/**
 * For a path without an endpoint: a page of the panel, which the app in the browser routes, or the refusal that fits. A path that is
 * served with another method, as `/v1/responses/input_tokens` is read as a response's id, may still be one of another API.
 */
async function pageOrRefusal(deps: Deps, allowed: AllowedMethods, request: Request): Promise<Response | Refusal> {
  const { pathname: path } = factsOf(request).url;
  let base: string;
  try {
    base = apiUrlOf(deps, await hostOf(deps, request));
    const page = await pageOf(deps, request);
    if (page) return page;
  } catch (error) {
    return refused(deps, error, request);
  }
  const hint = isPanelPath(request) ? undefined : hintFor({ method: request.method, path, base }, allowed);
  if (hint !== undefined) return new Refusal("not_found", { message: hint });
  const allow = allowed(path);
  if (allow.length > 0) return new Refusal("method_not_allowed", { allow: allow.join(", ") });
  const message = `No endpoint exists at this path. The base URL of this API is ${base}.`;
  return new Refusal("not_found", isPanelPath(request) ? {} : { message });
}
