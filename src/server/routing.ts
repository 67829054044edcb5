import type { Endpoint } from "../gateway/telemetry.ts";

/** Which endpoint a method and a path belong to: for metrics and logs, for 405, and for the short way of metered requests. */

type Route = { method: string; path: string };

/** Distinct URLs of metered endpoints that are remembered. A host has one or two. */
const METERED_URLS_MAX = 1_000;
/** Names for requests that no endpoint serves, so that clients cannot make up labels. */
const PAGE: Endpoint = { name: "page", isApi: false };
const NO_API_ROUTE: Endpoint = { name: "none", isApi: true };
export const NO_ROUTE: Endpoint = { name: "none", isApi: false };

export type NameOf = (method: string, path: string, status: number) => Endpoint;

/** Returns what names the endpoint of a request: "GET /v1/models/*", "page" or "none", never the client's own path. */
export function routeNames(routes: readonly Route[]): NameOf {
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

export type AllowedMethods = (path: string) => string[];

/** Returns what lists the methods that a path answers, for the Allow header; none for an unknown path. */
export function allowedMethods(routes: readonly Route[]): AllowedMethods {
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

export type Serve = (request: Request) => Promise<Response>;
/** A metered endpoint under one URL. The parsed URL is shared between requests: do not change it. */
type MeteredUrl = { url: URL; route: Endpoint; serve: Serve };

/**
 * Returns what finds the metered endpoint of a whole URL, for POST. Found URLs are remembered with what they parse to. URLs
 * with a query are not: the query may hold anything.
 */
export function meteredUrls(
  metered: readonly [path: string, serve: Serve][],
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

/** Methods that no new Request can have. No endpoint has them either, so such a request is refused as it is. */
const NOT_COPIED = new Set(["CONNECT", "TRACE", "TRACK"]);

/**
 * The request as routers expect it: HEAD becomes GET, doubled slashes and a slash at the end are removed, as SDKs send them.
 * Changes the path of `url` to match.
 */
export function asRoutable(request: Request, url: URL): Request {
  const path = url.pathname;
  if (!/\/\/|.\/$/.test(path) && request.method !== "HEAD") return request;
  url.pathname = path.replace(/\/{2,}/g, "/").replace(/(.)\/$/, "$1");
  if (NOT_COPIED.has(request.method.toUpperCase())) return request;
  const init = {
    method: request.method === "HEAD" ? "GET" : request.method,
    headers: request.headers,
    body: request.body,
    signal: request.signal,
    ...(request.body && { duplex: "half" }),
  };
  return new Request(url, init as RequestInit);
}
