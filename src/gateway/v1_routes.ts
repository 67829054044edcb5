import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { described } from "../http/openapi.ts";
import { inTime } from "../platform/time_limit.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { EMBEDDINGS } from "./embeddings.ts";
import { CHAT, IMAGES, serveMetered } from "./flow.ts";
import { getImageFile } from "./image_files.ts";
import { getModel, listModels, modelNotFound } from "./models.ts";
import { RESPONSES } from "./responses/endpoint.ts";
import { deleteResponse, getResponse, listInputItems } from "./responses/stored_endpoints.ts";
import { getBalance, getUsage, listUsage } from "./v1_account.ts";
import {
  CREATE_CHAT,
  CREATE_EMBEDDING,
  CREATE_IMAGE,
  CREATE_RESPONSE,
  DELETE_RESPONSE,
  GET_BALANCE,
  GET_IMAGE_FILE,
  GET_MODEL,
  GET_RESPONSE,
  GET_USAGE,
  LIST_INPUT_ITEMS,
  LIST_MODELS,
  LIST_USAGE,
} from "./v1_operations.ts";

/**
 * The metered endpoints by path; all are POST. Nearly all requests are for these, so `server/app.ts` calls them directly: the
 * framework would cost half as much again as authenticating and admitting the request.
 */
export function meteredRoutes(deps: Deps) {
  return {
    "/v1/chat/completions": (request: Request) => serveMetered(deps, request, CHAT),
    "/v1/images/generations": (request: Request) => serveMetered(deps, request, IMAGES),
    "/v1/embeddings": (request: Request) => serveMetered(deps, request, EMBEDDINGS),
    "/v1/responses": (request: Request) => serveMetered(deps, request, RESPONSES),
  } as const;
}

/** The endpoints under /v1. Bodies are read in `admission.ts`, never by the framework, because the client's bytes are sent on. */
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
      // Without inTime: a long read has a time limit of its own.
      ({ request }) => unmetered(deps, request, (caller) => listUsage(deps, caller, new URL(request.url).searchParams)),
      { detail: described(LIST_USAGE) },
    )
    .get(
      "/usage/:requestId",
      ({ request, params }) => unmetered(deps, request, (caller) => inTime(getUsage(deps, caller, params.requestId))),
      { detail: described(GET_USAGE) },
    )
    .post("/chat/completions", ({ request }) => metered["/v1/chat/completions"](request), {
      parse: "none",
      detail: described(CREATE_CHAT),
    })
    .post("/images/generations", ({ request }) => metered["/v1/images/generations"](request), {
      parse: "none",
      detail: described(CREATE_IMAGE),
    })
    .get("/images/files/:token", ({ request, params }) => getImageFile(deps, request, params.token), {
      detail: described(GET_IMAGE_FILE),
    })
    .post("/responses", ({ request }) => metered["/v1/responses"](request), {
      parse: "none",
      detail: described(CREATE_RESPONSE),
    })
    .get(
      "/responses/:id",
      ({ request, params }) => unmetered(deps, request, (caller) => getResponse(deps, caller, params.id)),
      { detail: described(GET_RESPONSE) },
    )
    .delete(
      "/responses/:id",
      ({ request, params }) => unmetered(deps, request, (caller) => deleteResponse(deps, caller, params.id)),
      { detail: described(DELETE_RESPONSE) },
    )
    .get(
      "/responses/:id/input_items",
      ({ request, params: { id } }) =>
        unmetered(deps, request, (caller) =>
          listInputItems(deps, caller, { id, params: new URL(request.url).searchParams }),
        ),
      { detail: described(LIST_INPUT_ITEMS) },
    )
    .post("/embeddings", ({ request }) => metered["/v1/embeddings"](request), {
      parse: "none",
      detail: described(CREATE_EMBEDDING),
    });
}

async function unmetered(
  deps: Deps,
  request: Request,
  answer: (caller: Caller) => Promise<Response>,
): Promise<Response> {
  const caller = await authenticate(deps, request);
  await caller.limits.take();
  return await answer(caller);
}

/** The model id in a path. Its slashes may be sent as they are, or as %2F. */
function modelIdOf(url: string): string {
  const raw = new URL(url).pathname.slice("/v1/models/".length);
  try {
    return decodeURIComponent(raw);
  } catch {
    throw modelNotFound(raw);
  }
}
