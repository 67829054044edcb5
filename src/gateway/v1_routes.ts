import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { described } from "../http/openapi.ts";
import { inTime } from "../platform/time_limit.ts";
import { identify, withBody } from "./door.ts";
import { chat, image } from "./flow.ts";
import { serveOnce } from "./idempotency.ts";
import { countRefusal } from "./refusals.ts";
import { getBalance } from "./v1_balance.ts";
import { getModel, listModels } from "./v1_models.ts";
import { CREATE_CHAT, CREATE_IMAGE, GET_BALANCE, GET_MODEL, LIST_MODELS, LIST_USAGE } from "./v1_operations.ts";
import { listUsage } from "./v1_usage.ts";

/**
 * The metered routes by their paths, all POST. Nearly every request is one of theirs: `http/app.ts` hands those to them as they
 * stand, without the framework, whose own work costs as much as half of the door's.
 */
export function meteredRoutes(deps: Deps) {
  return {
    "/v1/chat/completions": (request: Request) => serveMetered(deps, request, chat),
    "/v1/images/generations": (request: Request) => serveMetered(deps, request, image),
  } as const;
}

/**
 * The routes under /v1, each with what it says of itself. Bodies are read by the flow, never by the framework: they go on as they
 * came.
 */
export function v1Routes(deps: Deps, metered = meteredRoutes(deps)) {
  return new Elysia({ prefix: "/v1", normalize: false })
    .get("/models", ({ request }) => unmetered(deps, request, (caller) => inTime(listModels(deps, caller))), {
      detail: described(LIST_MODELS),
    })
    .get(
      "/models/*",
      ({ request }) => unmetered(deps, request, (caller) => inTime(getModel(deps, caller, modelIdOf(request.url)))),
      { detail: described(GET_MODEL) },
    )
    .get("/balance", ({ request }) => unmetered(deps, request, (caller) => inTime(getBalance(deps, caller))), {
      detail: described(GET_BALANCE),
    })
    .get(
      "/usage",
      // A long read has a time limit of its own.
      ({ request }) => unmetered(deps, request, (caller) => listUsage(deps, caller, new URL(request.url).searchParams)),
      { detail: described(LIST_USAGE) },
    )
    .post("/chat/completions", ({ request }) => metered["/v1/chat/completions"](request), {
      parse: "none",
      detail: described(CREATE_CHAT),
    })
    .post("/images/generations", ({ request }) => metered["/v1/images/generations"](request), {
      parse: "none",
      detail: described(CREATE_IMAGE),
    });
}

type Caller = Awaited<ReturnType<typeof identify>>;

async function unmetered(
  deps: Deps,
  request: Request,
  answer: (caller: Caller) => Promise<Response>,
): Promise<Response> {
  const caller = await identify(deps, request);
  await deps.limiter.take(limitIdOf(caller), caller.key);
  return await answer(caller);
}

function limitIdOf({ key }: Caller): string {
  return `key:${key.keyId}`;
}

async function serveMetered(deps: Deps, request: Request, serve: typeof chat): Promise<Response> {
  const caller = await identify(deps, request);
  try {
    return await withBody(deps, { limitId: limitIdOf(caller), owner: caller.key }, request, (raw, leave) =>
      serveOnce(deps, { caller, request, raw, leave }, serve),
    );
  } catch (error) {
    countRefusal(deps, caller.trail, error);
    throw error;
  }
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
