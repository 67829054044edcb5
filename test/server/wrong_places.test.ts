import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { allowedMethods } from "../../src/server/routing.ts";
import { hintFor } from "../../src/server/wrong_places.ts";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { PANEL } from "../panel/panel_client.ts";

/** Clients that ask in the wrong place are told the right one, on the host that they used. Source: API-10. */

const BASE = "http://api.tollgate.test/v1";
const RESELLER = "ai.acme.test";
const routes = [...readFileSync("docs/routes.md", "utf8").matchAll(/^\| ([A-Z]+) \| `(\/[^`]+)` \|/gm)].map(
  ([, method = "", path = ""]) => ({ method, path }),
);

/** Requests, and the endpoint that the answer names; null: the API has none for this, and the answer says so. */
const LOST: readonly (readonly [request: string, use: string | null])[] = [
  ["POST /chat/completions", "POST /chat/completions"],
  ["POST /v1/v1/chat/completions", "POST /chat/completions"],
  ["POST /v1/v1/v1/embeddings", "POST /embeddings"],
  ["POST //chat//completions/", "POST /chat/completions"],
  ["GET /v1/v1/models", "GET /models"],
  ["GET /v1/v1/models/vendor/chat-b", "GET /models/{id}"],
  ["GET /models", "GET /models"],
  ["GET /models/chat-a", "GET /models/{id}"],
  ["POST /models", "GET /models"],
  ["GET /chat/completions", "POST /chat/completions"],
  ["POST /responses", "POST /responses"],
  ["DELETE /responses/resp_1", "DELETE /responses/{id}"],
  ["GET /balance", "GET /balance"],
  ["GET /usage", "GET /usage"],
  ["POST /images/generations", "POST /images/generations"],
  ["POST /openai/deployments/mine/chat/completions?api-version=2024-10-21", "POST /chat/completions"],
  ["POST /openai/deployments/files/embeddings?api-version=2024-10-21", "POST /embeddings"],
  ["POST /v1/openai/deployments/mine/images/generations", "POST /images/generations"],
  ["POST /openai/v1/responses", "POST /responses"],
  ["GET /openai/models?api-version=2024-10-21", "GET /models"],
  ["POST /api/v1/chat/completions", "POST /chat/completions"],
  ["GET /api/models", "GET /models"],
  ["POST /v1beta/openai/chat/completions", "POST /chat/completions"],
  ["POST /compatible-mode/v1/chat/completions", "POST /chat/completions"],
  ["POST /some/proxy/chat/completions", "POST /chat/completions"],
  ["POST /v1/chat/completions/chat/completions", "POST /chat/completions"],
  ["GET /v1/chat/completions/models", "GET /models"],
  ["POST /V1/Chat/Completions", "POST /chat/completions"],
  ["POST /beta/chat/completions", "POST /chat/completions"],
  ["POST /v1/projects/p/locations/l/endpoints/openapi/chat/completions", "POST /chat/completions"],
  ["POST /v1/projects/p/locations/l/publishers/google/models/g:generateContent", "POST /chat/completions"],
  ["POST /client/v4/accounts/a/ai/v1/chat/completions", "POST /chat/completions"],
  ["POST /model/vendor.model/invoke-with-response-stream", "POST /chat/completions"],
  ["POST /model/vendor.model/converse", "POST /chat/completions"],
  ["POST /anthropic/v1/messages", "POST /chat/completions"],
  ["POST /v1/text/chatcompletion_v2", "POST /chat/completions"],
  ["POST /api/v1/services/aigc/text-generation/generation", "POST /chat/completions"],
  ["POST /generate_stream", "POST /chat/completions"],
  ["POST /infill", "POST /completions"],
  ["POST /v1/fim/completions", "POST /completions"],
  ["POST /v1/chat/completion", "POST /chat/completions"],
  ["POST /v1/chat_completions", "POST /chat/completions"],
  ["POST /v1/embedding", "POST /embeddings"],
  ["POST /v1/images/generate", "POST /images/generations"],
  ["POST /v1/response", "POST /responses"],
  ["GET /openai/deployments?api-version=2024-10-21", "GET /models"],
  ["GET /api/v1/credits", "GET /balance"],
  ["GET /api/v1/auth/key", "GET /balance"],
  ["POST /v1/responses/responses", "POST /responses"],
  ["POST /completions", "POST /completions"],
  ["POST /openai/deployments/mine/completions?api-version=2024-10-21", "POST /completions"],
  ["POST /v1/engines/davinci/completions", "POST /completions"],
  ["POST /v1/engines/ada/embeddings", "POST /embeddings"],
  ["GET /v1/engines", "GET /models"],
  ["GET /v1/engines/davinci", "GET /models"],
  ["POST /v1/edits", "POST /chat/completions"],
  ["POST /v2/rerank", "POST /rerank"],
  ["POST /rerank", "POST /rerank"],
  ["POST /v1/responses/input_tokens", "POST /responses"],
  ["POST /responses/input_tokens", "POST /responses"],
  ["POST /v1/responses/compact", "POST /responses"],
  ["GET /v1/chat/completions/chatcmpl-1", "POST /responses"],
  ["POST /v1/conversations", "POST /responses"],
  ["POST /v1/images/edits", "POST /images/generations"],
  ["POST /v1/images/variations", "POST /images/generations"],
  ["POST /v1/audio/speech", null],
  ["POST /v1/audio/transcriptions", null],
  ["POST /v1/realtime/client_secrets", "POST /chat/completions"],
  ["POST /v1/videos", null],
  ["POST /v1/moderations", null],
  ["GET /v1/files", "POST /chat/completions"],
  ["GET /v1/files/file-1/content", "POST /chat/completions"],
  ["POST /v1/uploads", "POST /chat/completions"],
  ["POST /v1/vector_stores", "POST /embeddings"],
  ["POST /v1/containers", null],
  ["POST /v1/batches", "POST /chat/completions"],
  ["POST /v1/fine_tuning/jobs", null],
  ["POST /v1/fine-tunes", null],
  ["POST /v1/evals", null],
  ["POST /v1/assistants", "POST /responses"],
  ["POST /v1/threads/thread_1/messages", "POST /responses"],
  ["GET /v1/organization/usage/embeddings", "GET /usage"],
  ["GET /v1/dashboard/billing/subscription", "GET /balance"],
  ["POST /v1/messages", "POST /chat/completions"],
  ["POST /v1/messages/count_tokens", "POST /chat/completions"],
  ["POST /messages", "POST /chat/completions"],
  ["POST /v1/complete", "POST /completions"],
  ["POST /v2/chat", "POST /chat/completions"],
  ["POST /api/chat", "POST /chat/completions"],
  ["POST /api/generate", "POST /chat/completions"],
  ["GET /api/tags", "GET /models"],
  ["POST /api/embed", "POST /embeddings"],
  ["POST /v1beta/models/gemini:generateContent", "POST /chat/completions"],
  ["POST /v1/models/gemini:embedContent", "POST /embeddings"],
];

let shop: Shop;
let secret: string;
beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  await shop.world.addReseller(RESELLER);
  ({ secret } = await shop.customer());
});
afterAll(() => shop.close());

const ask = (request: string, { host, key = secret }: { host?: string; key?: string } = {}) => {
  const [method = "", path = ""] = request.split(" ");
  return shop.call(path, {
    method,
    ...(host !== undefined && { host }),
    ...(key !== "" && { secret: key }),
    ...(method === "POST" && { body: {} }),
    headers: { accept: "*/*" },
  });
};

describe("a request in the wrong place", () => {
  test("every kind gets 404 in the envelope, with the endpoint to use and its whole address, and nothing is charged", async () => {
    await withoutEffect(shop, async () => {
      for (const [request, use] of LOST) {
        const answer = await ask(request);
        expect([request, answer.status]).toEqual([request, 404]);
        expectRefusal(answer, "not_found");
        const { message } = answer.json.error;
        const named = /Use ([A-Z]+ \S+?)\.(?: |$)/.exec(message)?.[1] ?? null;
        expect([request, named]).toEqual([request, use === null ? null : use.replace(" ", ` ${BASE}`)]);
        if (use === null) expect([request, message]).toEqual([request, expect.stringContaining("not offered here.")]);
      }
    });
  });

  test("the address is that of the host: the alias, the base URL for the panel's host, and a reseller's own domain alone", async () => {
    for (const [host, base] of [
      ["tollgate.test", "http://tollgate.test/v1"],
      [PANEL, BASE],
      [RESELLER, `http://${RESELLER}/v1`],
    ] as const) {
      const answer = await ask("POST /chat/completions", { host });
      expectRefusal(answer, "not_found");
      expect(answer.json.error.message).toBe(`The base URL of this API is ${base}. Use POST ${base}/chat/completions.`);
    }
  });

  test("a key in the request makes it a request for the API, on a host that has pages", async () => {
    for (const request of ["GET /models", "GET /usage", "GET /nothing", "GET /"]) {
      for (const host of [PANEL, RESELLER]) {
        expectRefusal(await ask(request, { host }), "not_found");
        const page = await ask(request, { host, key: "" });
        expect([request, host, page.status, page.headers.get("content-type")]).toEqual([
          request,
          host,
          200,
          "text/html; charset=utf-8",
        ]);
      }
    }
    for (const name of ["api-key", "x-api-key"])
      expectRefusal(await shop.call("/openai/models", { host: PANEL, headers: { [name]: "k" } }), "not_found");
  });

  test("a path that resembles nothing is told the base URL; the client's path is not repeated", async () => {
    for (const path of ["/v1/nothing<b>", "/v1", "/", `/v1/${"models/".repeat(200)}v1`]) {
      const answer = await ask(`GET ${path}`);
      if (answer.status === 404) expect(answer.text).not.toContain("<b>");
      expect([path, answer.status]).toEqual([path, 404]);
    }
    expect((await ask("GET /v1/nothing")).json.error.message).toBe(
      `No endpoint exists at this path. The base URL of this API is ${BASE}.`,
    );
    // The panel's own paths are not the API's.
    expect((await ask("GET /api/panel/models")).json.error.message).not.toContain(BASE);
  });
});

test("no hint stands in the way of a path that is served, with its methods and with others", () => {
  const allowed = allowedMethods(routes);
  const served = routes.filter(({ path }) => path.startsWith("/v1/"));
  expect(served.length).toBeGreaterThan(10);
  for (const { path: pattern } of served) {
    const path = pattern.replace("*", "chat-a").replace(/:\w+/, "some-id");
    for (const method of ["GET", "POST", "DELETE", "PUT"])
      expect([method, path, hintFor({ method, path, base: BASE }, allowed)]).toEqual([method, path, undefined]);
  }
});
