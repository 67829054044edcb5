import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { factsOf } from "../platform/request_facts.ts";
import { identify, inTime, withBody } from "./door.ts";
import { chat, image } from "./flow.ts";
import { countingRefusals } from "./refusals.ts";
import { getBalance } from "./v1_balance.ts";
import { getModel, listModels } from "./v1_models.ts";
import { listUsage } from "./v1_usage.ts";

/** The routes under /v1. Bodies are read by the flow, never by the framework: they go on as they came. */
export function v1Routes(deps: Deps) {
  return new Elysia({ prefix: "/v1", normalize: false })
    .get("/models", ({ request }) => unmetered(deps, request, (caller) => listModels(deps, caller)))
    .get("/models/*", ({ request }) =>
      unmetered(deps, request, (caller) => getModel(deps, caller, modelIdOf(request.url))),
    )
    .get("/balance", ({ request }) => unmetered(deps, request, (caller) => getBalance(deps, caller)))
    .get("/usage", ({ request }) =>
      unmetered(deps, request, (caller) => listUsage(deps, caller, new URL(request.url).searchParams)),
    )
    .post("/chat/completions", ({ request }) => metered(deps, request, chat), { parse: "none" })
    .post("/images/generations", ({ request }) => metered(deps, request, image), { parse: "none" });
}

type Caller = Awaited<ReturnType<typeof identify>>;

async function unmetered(
  deps: Deps,
  request: Request,
  answer: (caller: Caller) => Promise<Response>,
): Promise<Response> {
  const caller = await identify(deps, request, factsOf(request).requestId);
  await deps.limiter.take(`key:${caller.key.keyId}`);
  return await inTime(answer(caller));
}

async function metered(deps: Deps, request: Request, serve: typeof chat): Promise<Response> {
  const caller = await identify(deps, request, factsOf(request).requestId);
  return await countingRefusals(deps, caller.trail, () =>
    withBody(deps, `key:${caller.key.keyId}`, request, (raw, leave) => serve(deps, caller, raw, leave)),
  );
}

/** A model id may hold slashes, sent as such or as %2F. */
function modelIdOf(url: string): string {
  const raw = new URL(url).pathname.slice("/v1/models/".length);
  try {
    return decodeURIComponent(raw);
  } catch {
    throw new Refusal("model_not_found", { param: "model" });
  }
}
