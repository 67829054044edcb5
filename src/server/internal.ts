import packageFacts from "../../package.json" with { type: "json" };
import type { Deps } from "../deps.ts";
import { asRefusal, Refusal, toErrorResponse } from "../errors.ts";
import { newRequestId } from "../platform/crypto.ts";
import { isPassing } from "../platform/db.ts";
import { runtimeName } from "../platform/runtime.ts";
import { createDomainAsk } from "./domain_ask.ts";
import { headOf } from "./head.ts";
import { alive, createReadiness } from "./health.ts";

export type InternalDeps = Pick<Deps, "metrics" | "gate" | "ledger" | "db" | "hosts" | "clock" | "log">;

/**
 * The endpoints of the internal port, which must never be public: /metrics, /healthz, /readyz, /version, and /ask, which tells
 * a TLS proxy for which domains it may get certificates.
 */
export function createInternalApp(deps: InternalDeps): (request: Request) => Promise<Response> {
  const { metrics } = deps;
  const answers = new Map<string, (url: URL) => Response | Promise<Response>>([
    ["/metrics", async () => new Response(await metrics.text(), { headers: { "content-type": metrics.contentType } })],
    ["/healthz", alive],
    ["/readyz", createReadiness(deps)],
    ["/version", () => Response.json({ version: packageFacts.version, runtime: runtimeName })],
    ["/ask", createDomainAsk(deps)],
  ]);
  return async ({ method, url }) => {
    const requestId = newRequestId();
    try {
      const asked = URL.parse(url);
      const answer = answers.get(asked?.pathname ?? "");
      if (asked === null || answer === undefined) throw new Refusal("not_found");
      if (method !== "GET" && method !== "HEAD") throw new Refusal("method_not_allowed", { allow: "GET, HEAD" });
      const response = await answer(asked);
      response.headers.set("cache-control", "no-store");
      response.headers.set("x-request-id", requestId);
      return method === "HEAD" ? await headOf(response) : response;
    } catch (error) {
      return toErrorResponse(refusalOf(deps, error, requestId), requestId);
    }
  };
}

/** An unreachable database is 503, since it passes; anything else unforeseen is internal_error. */
function refusalOf({ log }: InternalDeps, error: unknown, requestId: string): Refusal {
  if (isPassing(error)) return new Refusal("service_unavailable");
  const refusal = asRefusal(error);
  if (refusal.code === "internal_error") log.error({ err: error, requestId }, "an internal request failed");
  return refusal;
}
