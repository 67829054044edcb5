import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { asRefusal, Refusal, toErrorResponse } from "../errors.ts";
import type { Endpoint } from "../gateway/telemetry.ts";
import { meteredRoutes, v1Routes } from "../gateway/v1_routes.ts";
import { clientAddress } from "../http/client_address.ts";
import { hostOf, malformedHost } from "../http/host.ts";
import { openapiOf } from "../http/openapi.ts";
import { factsOf, noteFacts, type RequestFacts } from "../http/request_facts.ts";
import { panelRoutes } from "../panel/api/panel_routes.ts";
import { asPanelRefusal } from "../panel/api/panel_session.ts";
import { apiDocsRoutes } from "../panel/api_docs.ts";
import { pageOf, siteRoutes } from "../panel/site.ts";
import { newRequestId } from "../platform/crypto.ts";
import { isPassing } from "../platform/db.ts";
import { type Peer, within } from "../platform/runtime.ts";
import { headOf } from "./head.ts";
import { healthRoutes } from "./health.ts";

/** APIs that clients look for and that are not offered. Source: rulings › Out of contract. */
const OUT_OF_CONTRACT = /^\/v1\/(responses|messages|embeddings)(\/|$)/;
/** A reader of the panel is told so when the database has not answered by then. */
const PANEL_READ_MS_MAX = 15_000;
/** What metrics and log say of a request whose client left before its answer, which nobody read. */
const CLIENT_LEFT = 499;
/** Different URLs of metered routes that are remembered: a host has one or two. */
const METERED_URLS_MAX = 1_000;
/** What they call a request to no route of ours, whatever its path: a page of the panel, an API's path, or neither. */
const PAGE: Endpoint = { name: "page", isApi: false };
const NO_API_ROUTE: Endpoint = { name: "none", isApi: true };
const NO_ROUTE: Endpoint = { name: "none", isApi: false };

export type App = {
  fetch(request: Request, peer: Peer): Promise<Response>;
  routes: { method: string; path: string }[];
};

/**
 * The whole HTTP surface of a replica. Every answer carries X-Request-Id; every error is the one envelope.
 * Source: contract › What the service does 7, › Errors.
 */
export function createApp(deps: Deps): App {
  // An app of its own for the API: where any route of an app reads a cookie, all of them parse cookies and have their answers
  // built a second time, as streams.
  const metered = meteredRoutes(deps);
  const api = withErrors().use(v1Routes(deps, metered));
  const panel = panelRoutes(deps);
  const openapi = openapiOf([...api.routes, ...panel.routes]);
  const apps = {
    api,
    rest: withErrors().use(healthRoutes(deps)).use(panel).use(siteRoutes(deps)).use(apiDocsRoutes(deps, openapi)),
  };
  const routes = [...apps.api.routes, ...apps.rest.routes];
  const allowed = allowedMethods(routes);
  const nameOf = routeNames(routes);
  const meteredAt = meteredUrls(Object.entries(metered), nameOf);

  function withErrors() {
    return new Elysia({ normalize: false }).onError(({ error, code, request }) =>
      answerError(deps, allowed, error, String(code), request),
    );
  }

  /** The answer of all but the API. A change is never given up: whether it was made would be unknown. */
  function readInTime(request: Request): Promise<Response> {
    const handling = apps.rest.handle(request);
    if (request.method !== "GET") return handling;
    const late = () => new Refusal("service_unavailable");
    return within(PANEL_READ_MS_MAX, handling, late).catch((error) => answerError(deps, allowed, error, "", request));
  }

  return {
    routes,
    async fetch(received, peer) {
      const startedMs = deps.clock.nowMs();
      const requestId = newRequestId();
      const hot = received.method === "POST" ? meteredAt(received.url) : undefined;
      // A Host header that is missing or no host at all leaves the runtime without an address to speak of.
      const url = hot === undefined ? URL.parse(received.url) : hot.url;
      if (url === null) {
        deps.metrics.ended(NO_ROUTE.name, 403, "host_not_allowed");
        return toErrorResponse(malformedHost(), requestId);
      }
      const request = hot === undefined ? asRoutable(received, url) : received;
      const peerAddress = () =>
        clientAddress(peer.address(), request.headers.get("x-forwarded-for"), deps.config.trustedProxies);
      const facts: RequestFacts = {
        requestId,
        url,
        peerAddress,
        startedMs,
        accountId: 0,
        refusal: "",
        record: undefined,
        trace: deps.tracing?.begin(request.headers.get("traceparent")),
      };
      noteFacts(request, facts);
      const handled = await (hot === undefined ? routed(request, url) : served(request, hot.serve));
      const response = received.method === "HEAD" ? await headOf(handled) : handled;
      // What does not say that it may be kept, may not.
      if (!response.headers.has("cache-control")) response.headers.set("cache-control", "no-store");
      // So that the next request of this client goes to another replica, and none meets a connection that is being closed.
      if (deps.gate.draining()) response.headers.set("connection", "close");
      // Whoever has left was not failed.
      const status = response.status >= 500 && request.signal.aborted ? CLIENT_LEFT : response.status;
      deps.telemetry.answered(hot?.route ?? nameOf(request.method, url.pathname, status), facts, status);
      return response;
    },
  };

  function routed(request: Request, url: URL): Promise<Response> {
    return url.pathname.startsWith("/v1/") ? apps.api.handle(request) : readInTime(request);
  }

  async function served(request: Request, serve: Serve): Promise<Response> {
    try {
      return await serve(request);
    } catch (error) {
      return answerError(deps, allowed, error, "", request);
    }
  }
}

type Serve = (request: Request) => Promise<Response>;
/** A metered route as it is asked for under one URL, which is parsed: not to be changed. */
type MeteredUrl = { url: URL; route: Endpoint; serve: Serve };

/**
 * Finds the metered route of a whole URL, as POST. Those that were asked for are remembered, parsed; never with a query, which may
 * say more than they need.
 */
function meteredUrls(
  metered: [path: string, serve: Serve][],
  nameOf: NameOf,
): (href: string) => MeteredUrl | undefined {
  const known = new Map<string, MeteredUrl>();
  const find = (href: string): MeteredUrl | undefined => {
    const [path, serve] = metered.find(([path]) => href.endsWith(path)) ?? [];
    if (path === undefined || serve === undefined) return undefined;
    const url = URL.parse(href);
    if (url === null || url.href !== href || url.pathname !== path) return undefined;
    const found = { url, route: nameOf("POST", path, 200), serve };
    if (known.size >= METERED_URLS_MAX) known.clear();
    known.set(href, found);
    return found;
  };
  return (href) => known.get(href) ?? find(href);
}

/** What SDKs send and routers do not know: HEAD for GET, doubled slashes, a slash at the end. Sets the path of `url` right. */
function asRoutable(request: Request, url: URL): Request {
  const path = url.pathname;
  if (!/\/\/|.\/$/.test(path) && request.method !== "HEAD") return request;
  url.pathname = path.replace(/\/{2,}/g, "/").replace(/(.)\/$/, "$1");
  return new Request(url, { ...readParts(request), method: request.method === "HEAD" ? "GET" : request.method });
}

function readParts(request: Request): RequestInit {
  return {
    headers: request.headers,
    body: request.body,
    signal: request.signal,
    ...(request.body && { duplex: "half" }),
  } as RequestInit;
}

async function answerError(
  deps: Deps,
  allowed: AllowedMethods,
  error: unknown,
  code: string,
  request: Request,
): Promise<Response> {
  const facts = factsOf(request);
  const { requestId } = facts;
  const answer = code === "NOT_FOUND" ? await elsewhere(deps, allowed, request) : refusalOf(deps, error, request);
  if (answer instanceof Response) return answer;
  facts.refusal = answer.code;
  if (answer.code === "internal_error") deps.log.error({ err: error, requestId }, "a request failed");
  return toErrorResponse(answer, requestId);
}

/** A database that is away is our trouble that passes, and says so; everything else unforeseen is internal. */
function refusalOf(deps: Deps, error: unknown, request: Request): Refusal {
  if (!isPassing(error)) return isPanelPath(request) ? asPanelRefusal(error) : asRefusal(error);
  deps.log.warn({ err: error }, "the database does not answer");
  return new Refusal("service_unavailable");
}

function isPanelPath(request: Request): boolean {
  return factsOf(request).url.pathname.startsWith("/api/panel/");
}

/** What is no route is a page of the panel, which the app in the browser knows, or a refusal that says what is wrong. */
async function elsewhere(deps: Deps, allowed: AllowedMethods, request: Request): Promise<Response | Refusal> {
  try {
    await hostOf(deps, request);
    const page = await pageOf(deps, request);
    if (page) return page;
  } catch (error) {
    return refusalOf(deps, error, request);
  }
  const path = factsOf(request).url.pathname;
  const allow = allowed(path);
  if (allow.length > 0) return new Refusal("method_not_allowed", { allow: allow.join(", ") });
  if (OUT_OF_CONTRACT.test(path)) {
    return new Refusal("not_found", { message: "This API is not offered here. Use POST /v1/chat/completions." });
  }
  return new Refusal("not_found");
}

type NameOf = (method: string, path: string, status: number) => Endpoint;

/** Which route a request went to. Paths are a client's to make up; names are not. */
function routeNames(routes: { method: string; path: string }[]): NameOf {
  const named = routes.map(({ method, path }) => ({
    method,
    path,
    route: { name: `${method} ${path}`, isApi: isApiPath(path) },
  }));
  const isPattern = (path: string) => /[:*]/.test(path);
  const exact = new Map(named.filter(({ path }) => !isPattern(path)).map(({ route }) => [route.name, route]));
  const patterns = named.filter(({ path }) => isPattern(path));
  return (method, path, status) =>
    exact.get(`${method} ${path}`) ??
    patterns.find((pattern) => pattern.method === method && matches(pattern.path, path))?.route ??
    (isApiPath(path) ? NO_API_ROUTE : status < 400 ? PAGE : NO_ROUTE);
}

function isApiPath(path: string): boolean {
  return path.startsWith("/v1/") || path.startsWith("/api/");
}

type AllowedMethods = (path: string) => string[];

function allowedMethods(routes: { method: string; path: string }[]): AllowedMethods {
  return (path) => {
    const methods = routes.filter((route) => matches(route.path, path)).map((route) => route.method);
    return [...new Set(methods.includes("GET") ? [...methods, "HEAD"] : methods)];
  };
}

function matches(pattern: string, path: string): boolean {
  if (pattern.endsWith("/*")) return path.startsWith(pattern.slice(0, -1)) && path.length >= pattern.length;
  const parts = pattern.split("/");
  const given = path.split("/");
  return parts.length === given.length && parts.every((part, i) => part.startsWith(":") || part === given[i]);
}
