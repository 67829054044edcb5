import { Elysia } from "elysia";
import type { Deps } from "../deps.ts";
import { described } from "../http/openapi.ts";
import { countedResponse } from "../http/unread_answer.ts";
import { inTime } from "../platform/time_limit.ts";
import { readerOf } from "./answers.ts";
import { authenticate, type Caller } from "./authenticate.ts";
import { getImageFile } from "./image_files.ts";
import { serveMetered } from "./metered.ts";
import { METERED_ENDPOINTS } from "./metered_endpoints.ts";
import { getModel, listModels, modelNotFound } from "./models.ts";
import { deleteResponse, getResponse, listInputItems } from "./responses/stored_endpoints.ts";
import { getBalance, getUsage, listUsage } from "./v1_account.ts";
import {
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
export function meteredRoutes(deps: Deps): Readonly<Record<string, (request: Request) => Promise<Response>>> {
  return Object.fromEntries(
    METERED_ENDPOINTS.map((endpoint) => [
      `/v1${endpoint.path}`,
      (request: Request) => serveMetered(deps, request, endpoint),
    ]),
  );
}

/** The endpoints under /v1. Bodies are read in `admission.ts`, never by the framework, because the client's bytes are sent on. */
export function v1Routes(deps: Deps, metered = meteredRoutes(deps)) {
  const routes = new Elysia({ prefix: "/v1", normalize: false });
  for (const { path, operation } of METERED_ENDPOINTS) {
    const serve = metered[`/v1${path}`];
    if (serve !== undefined)
      routes.post(path, ({ request }) => serve(request), { parse: "none", detail: described(operation) });
  }
  return routes
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
      ({ request }) => keyed(deps, request, (caller) => listUsage(deps, caller, new URL(request.url).searchParams)),
      { detail: described(LIST_USAGE) },
    )
    .get(
      "/usage/:requestId",
      ({ request, params }) => unmetered(deps, request, (caller) => inTime(getUsage(deps, caller, params.requestId))),
      { detail: described(GET_USAGE) },
    )
    .get("/images/files/:token", ({ request, params }) => getImageFile(deps, request, params.token), {
      detail: described(GET_IMAGE_FILE),
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
    );
}

type Serve = (caller: Caller) => Promise<Response>;

/** A request that is not metered, and reads on the connections that everyone shares. */
function unmetered(deps: Deps, request: Request, serve: Serve): Promise<Response> {
  return keyed(deps, request, async (caller) => {
    const { accountId, tenantId } = caller.key;
    await deps.readPlaces.enter(request, { side: "api", accountId, tenantId });
    return await serve(caller);
  });
}

async function keyed(deps: Deps, request: Request, answer: Serve): Promise<Response> {
  const caller = await authenticate(deps, request);
  await caller.limits.take();
  return await countedResponse(await answer(caller), readerOf(deps, caller));
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
