import { afterEach, describe, expect, test } from "bun:test";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import {
  DIALECT_NAMES,
  DIALECTS,
  type DialectName,
  factsOf,
  PROBE_CALLS_MAX,
  USUAL_FACTS,
} from "../../src/catalog/dialects.ts";
import { testProvider } from "../../src/catalog/provider_check.ts";
import { encrypt } from "../../src/platform/crypto.ts";
import { type FakeProvider, startFakeProvider } from "../fake_provider.ts";
import { quietLog } from "../platform/quiet_log.ts";

/** What a probe proposes for providers that play each dialect, and that it survives providers that are none. Source: DIA-13, DIA-14. */

const SECRET_KEY = Buffer.alloc(32, 7);
const CAP_TOKENS = 16;

const running: { stop(): Promise<void> }[] = [];
afterEach(async () => {
  for (const one of running.splice(0)) await one.stop();
});

async function playing(dialect: DialectName): Promise<FakeProvider> {
  const provider = await startFakeProvider({ dialect });
  running.push(provider);
  return provider;
}

/** A server that answers the list of models, and everything else as told. */
async function answering(
  status: number,
  type: string,
  body: string | null,
  list: object = { data: [{ id: "up" }] },
): Promise<{ port: number; apiKey: string; calls: () => number }> {
  let calls = 0;
  const server: Server = createServer((request, response) => {
    if (request.url === "/v1/models")
      return void response.setHeader("content-type", "application/json").end(JSON.stringify(list));
    calls += 1;
    request.resume();
    if (body !== null) response.writeHead(status, { "content-type": type }).end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  running.push({
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  });
  return { port: (server.address() as AddressInfo).port, apiKey: "sk-probe-0123456789", calls: () => calls };
}

function probed({ port, apiKey }: { port: number; apiKey: string }, facts = USUAL_FACTS) {
  const config = {
    secretKey: SECRET_KEY,
    providerConnectMs: 5_000,
    providerFirstByteMs: 500,
    providerAllowPrivate: [`127.0.0.1:${port}`],
  };
  const provider = {
    name: "probed",
    baseUrl: `http://127.0.0.1:${port}/v1`,
    keyCiphertext: encrypt(SECRET_KEY, apiKey),
  };
  const probe = { chatModel: "up", embeddingModel: "up-embed", facts };
  return testProvider({ config, log: quietLog().log }, provider, { upstreamModels: [], probe });
}

describe.each([...DIALECT_NAMES])("%s", (dialect) => {
  test("its own facts hold, with few requests of few tokens", async () => {
    const provider = await playing(dialect);
    const { ok, problem, probe } = await probed(provider, factsOf(dialect));
    expect({ ok, problem, proposed: probe?.proposed, unknown: probe?.unknown }).toEqual({
      ok: true,
      problem: null,
      proposed: {},
      unknown: [],
    });
    expect(probe?.calls).toBe(provider.callCount());
    for (const { body } of provider.calls().filter(({ generation }) => generation)) {
      const { max_tokens, max_completion_tokens, input } = JSON.parse(body);
      expect(input !== undefined || (max_tokens ?? max_completion_tokens) === CAP_TOKENS).toBe(true);
    }
  });

  test("from what is usual, it proposes facts that are its own", async () => {
    const provider = await playing(dialect);
    const { ok, problem, probe } = await probed(provider);
    expect({ ok, problem, unknown: probe?.unknown }).toEqual({ ok: true, problem: null, unknown: [] });
    expect(provider.callCount()).toBeLessThanOrEqual(PROBE_CALLS_MAX);
    const own: Record<string, unknown> = factsOf(dialect);
    const proposed: Record<string, unknown> = { ...probe?.proposed };
    for (const [name, value] of Object.entries(proposed)) expect([name, value]).toEqual([name, own[name]]);
    // The facts that a tiny request can show.
    const known: Partial<Record<string, { is: unknown }>> = DIALECTS[dialect].known;
    for (const name of ["streamOptions", "contentForm", "toolCallContent", "embeddings"])
      if (known[name]) expect([name, proposed[name]]).toEqual([name, known[name]?.is]);
  });
});

test("a server that takes everything, and ignores what it does not know, is recognised by its list of models", async () => {
  const answer = { choices: [{ index: 0, message: { role: "assistant", content: "Hi" } }], data: [] };
  // As llama-server lists its model.
  const list = { object: "list", data: [{ id: "up", object: "model", owned_by: "llamacpp" }] };
  const server = await answering(200, "application/json", JSON.stringify(answer), list);
  const { ok, probe } = await probed(server);
  expect({ ok, recognised: probe?.recognised, proposed: probe?.proposed }).toEqual({
    ...{ ok: true, recognised: "llama.cpp" },
    proposed: { systemMessages: "merged", functions: "tools", completions: "own", choicesUsage: "first" },
  });
  const again = await probed(server, factsOf("llama.cpp"));
  expect(again.probe?.proposed).toEqual({});
  const unknown = await probed(await answering(200, "application/json", JSON.stringify(answer)));
  expect([unknown.probe?.recognised, unknown.probe?.proposed]).toEqual([null, {}]);
});

describe("a provider that is none is reported, and nothing is proposed", () => {
  test.each([
    ["answers HTML", 200, "text/html", "<html>Welcome</html>", "not_json"],
    ["answers nonsense", 200, "application/json", "[1,2,3]", "not_json"],
    ["answers a text", 200, "application/json", "hello", "not_json"],
    [
      "asks for money",
      402,
      "application/json",
      '{"error":{"message":"Insufficient balance","code":"insufficient_balance"}}',
      "no_credit",
    ],
    ["refuses the key", 401, "application/json", '{"error":{"message":"no"}}', "credentials"],
    ["limits requests", 429, "application/json", '{"error":{"message":"slow down"}}', "rate_limited"],
    ["refuses everything", 400, "application/json", '{"error":{"message":"no"}}', "rejected"],
    ["fails at everything", 500, "application/json", '{"error":{"message":"oops"}}', "status"],
    ["hangs", 200, "application/json", null, "timeout"],
  ])("it %s", async (_, status, type, body, kind) => {
    const provider = await answering(status, type, body);
    const test = await probed(provider);
    expect({ ok: test.ok, kind: test.kind, probe: test.probe }).toEqual({
      ok: false,
      kind: kind as never,
      probe: null,
    });
    expect(test.problem).toMatch(/\S/);
    expect(provider.calls()).toBeLessThanOrEqual(2);
  });
});
