import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { Refusal } from "../errors.ts";
import { described } from "../http/openapi.ts";
import { inTime } from "../platform/in_time.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { chat, image, rateIdOf, serveMetered } from "./flow.ts";
import { getModel, listModels } from "./models.ts";
import { getBalance, listUsage } from "./v1_account.ts";
import { CREATE_CHAT, CREATE_IMAGE, GET_BALANCE, GET_MODEL, LIST_MODELS, LIST_USAGE } from "./v1_operations.ts";

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

async function unmetered(
  deps: Deps,
  request: Request,
  answer: (caller: Caller) => Promise<Response>,
): Promise<Response> {
  const caller = await authenticate(deps, request);
  await deps.limiter.take(rateIdOf(caller), caller.key);
  return await answer(caller);
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
