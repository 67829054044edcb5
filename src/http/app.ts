import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { asRefusal, Refusal, toErrorResponse } from "../errors.ts";
import { hostOf } from "../gateway/door.ts";
import { v1Routes } from "../gateway/v1_routes.ts";
import { asPanelRefusal } from "../panel/api/frame.ts";
import { panelRoutes } from "../panel/api/panel_routes.ts";
import { pageOf, siteRoutes } from "../panel/site.ts";
import { newRequestId } from "../platform/crypto.ts";
import { isPassing } from "../platform/db.ts";
import { factsOf, noteFacts } from "../platform/request_facts.ts";
import { clientAddress } from "./client_address.ts";
import { healthRoutes } from "./health.ts";

/** APIs that clients look for and that are not offered. Source: rulings › Out of contract. */
const OUT_OF_CONTRACT = /^\/v1\/(responses|messages|embeddings)(\/|$)/;

export type App = {
  fetch(request: Request, peer: { address: string }): Promise<Response>;
  routes: { method: string; path: string }[];
};

/**
 * The whole HTTP surface of a replica. Every answer carries X-Request-Id; every error is the one envelope.
 * Source: contract › What the service does 7, › Errors.
 */
export function createApp(deps: Deps): App {
  const app = new Elysia({ normalize: false })
    .onError(({ error, code, request }) => answerError(deps, allowed, error, String(code), request))
    .use(healthRoutes(deps))
    .use(v1Routes(deps))
    .use(panelRoutes(deps))
    .use(siteRoutes(deps));
  const allowed = allowedMethods(app.routes);

  return {
    routes: app.routes,
    async fetch(received, peer) {
      const requestId = newRequestId();
      // A Host header that is missing or no host at all leaves the runtime without an address to speak of.
      if (!URL.canParse(received.url)) return toErrorResponse(new Refusal("host_not_allowed"), requestId);
      const request = asRoutable(received);
      const peerAddress = clientAddress(
        peer.address,
        request.headers.get("x-forwarded-for"),
        deps.config.trustedProxies,
      );
      noteFacts(request, { requestId, peerAddress });
      const response = await app.handle(request);
      return received.method === "HEAD" ? new Response(null, response) : response;
    },
  };
}

/** What SDKs send and routers do not know: HEAD for GET, doubled slashes, a slash at the end. */
function asRoutable(request: Request): Request {
  const url = new URL(request.url);
  const path = url.pathname.replace(/\/{2,}/g, "/").replace(/(.)\/$/, "$1");
  if (path === url.pathname && request.method !== "HEAD") return request;
  url.pathname = path;
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
  const { requestId } = factsOf(request);
  const answer = code === "NOT_FOUND" ? await elsewhere(deps, allowed, request) : refusalOf(deps, error, request);
  if (answer instanceof Response) return answer;
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
  return new URL(request.url).pathname.startsWith("/api/panel/");
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
  const path = new URL(request.url).pathname;
  const allow = allowed(path);
  if (allow.length > 0) return new Refusal("method_not_allowed", { allow: allow.join(", ") });
  if (OUT_OF_CONTRACT.test(path)) {
    return new Refusal("not_found", { message: "This API is not offered here. Use POST /v1/chat/completions." });
  }
  return new Refusal("not_found");
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
