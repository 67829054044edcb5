import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { copyFileSync, rmSync } from "node:fs";
import { join } from "node:path";
import { AGENTS_SDK_MODEL } from "../src/demo/demo_provider.ts";
import { CLIENT_MS_MAX, run } from "./client_process.ts";
import { RESPONSE_SDKS } from "./clients_tried.ts";
import { codexHome, installCodex } from "./codex.ts";
import { closeBalanced } from "./gateway/checks.ts";
import { openShop, type Shop } from "./gateway/shop.ts";
import { INSTALL_MS_MAX, installOnDemand } from "./on_demand.ts";

/**
 * Clients that speak /responses by default, unchanged, against a replica: Codex CLI, OpenAI's Agents SDK, the Vercel AI SDK, and
 * LangChain, which does if told to. They are installed on demand. Source: API-14, RSP-8, RSP-9.
 */

const scripts = join(import.meta.dirname, "response_clients");

setDefaultTimeout(CLIENT_MS_MAX + 10_000);

let shop: Shop;
let sdks: string;
let codex: string;

beforeAll(async () => {
  sdks = await installOnDemand({ name: "response-sdks-2", dependencies: RESPONSE_SDKS });
  codex = await installCodex();
  const routes = [{ provider: "first", upstreamModel: "sim-small" }];
  shop = await openShop({ redisUrl: "", models: [{ id: AGENTS_SDK_MODEL, defaultCapTokens: 1000, routes }] });
}, 2 * INSTALL_MS_MAX);
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

/** Runs a script of response_clients/ where its packages are, and returns the JSON of its last line. */
async function runScript(name: string, secret: string) {
  const script = join(sdks, name);
  copyFileSync(join(scripts, name), script);
  const lines = await run({ args: [script, `${shop.origin}/v1`, secret, "chat-a"], cwd: sdks });
  return JSON.parse(lines.at(-1) ?? "");
}

const paths = () => new Set(shop.provider.calls().map(({ path }) => path));

test("OpenAI's Agents SDK runs with a tool, whole and streamed, with its default model", async () => {
  const { accountId, secret } = await shop.customer();
  const said = await runScript("agents.mjs", secret);
  // The demo has a model by this name.
  expect(said).toMatchObject({ calls: 2, model: AGENTS_SDK_MODEL });
  expect(said.whole).toContain("What does the road cost?");
  expect(said.streamed).toBe(said.whole);
  expect(said.usage).toBeGreaterThan(0);
  // Two runs of two turns: an empty output would make it ask until it gives up.
  expect(await shop.counters(accountId)).toMatchObject({ usage: 4, units: 4, holds: 0 });
  expect(paths()).toEqual(new Set(["/v1/chat/completions"]));
});

test("the Vercel AI SDK makes two steps with a tool, whole and streamed, ten turns, and structured output, with its default model", async () => {
  const { accountId, secret } = await shop.customer();
  const said = await runScript("ai_sdk.mjs", secret);
  expect(said).toMatchObject({ calls: 2, steps: 2, finish: "stop", warnings: [] });
  expect(said.streamed).toBe(said.whole);
  expect(said.parts).toEqual(expect.arrayContaining(["tool-input-delta", "tool-call", "text-delta", "finish"]));
  expect(said.output).toHaveProperty("road");
  expect(said.usage).toBeGreaterThan(0);
  // The tenth turn has all ten messages of the user, and the nine answers between them.
  const tenth = shop.provider.calls().map(({ body }) => JSON.parse(body || "{}").messages ?? []);
  const roles = tenth.find((messages) => messages.length === 19)?.map(({ role }: { role: string }) => role);
  expect(roles).toEqual(Array.from({ length: 19 }, (_, i) => (i % 2 === 0 ? "user" : "assistant")));
  expect(said.talk).toContain("Turn 10.");
  expect(await shop.counters(accountId)).toMatchObject({ usage: 15, units: 15, holds: 0 });
});

test("LangChain talks for two turns: by default, and through /responses with the whole conversation and with the id before", async () => {
  const { accountId, secret } = await shop.customer();
  const said = await runScript("langchain.mjs", secret);
  for (const text of [said.byDefault, said.whole, said.byId]) expect(text).toContain("Turn 2.");
  // The provider gets the first turn in each of them.
  const asked = shop.provider.calls().flatMap(({ body }) => (body === "" ? [] : [JSON.parse(body).messages ?? []]));
  const roles = asked
    .filter((messages) => messages.length > 1)
    .map((all) => all.map(({ role }: { role: string }) => role));
  expect(roles).toEqual(Array.from({ length: 3 }, () => ["user", "assistant", "user"]));
  expect(await shop.counters(accountId)).toMatchObject({ usage: 6, units: 6, holds: 0 });
});

test("Codex CLI makes a streamed turn in which a command is run", async () => {
  const { accountId, secret } = await shop.customer();
  const home = codexHome(shop.origin);
  try {
    const printed = await run({
      args: [
        codex,
        ...["exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "Say hello."],
      ],
      cwd: home,
      env: { CODEX_HOME: home, SHOP_KEY: secret },
    });
    const events = printed.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    const items = events.filter(({ type }) => type === "item.completed").map(({ item }) => item);
    expect(items.map(({ type }) => type)).toEqual(expect.arrayContaining(["command_execution", "agent_message"]));
    expect(items.find(({ type }) => type === "agent_message").text).toContain("Say hello.");
    const last = events.at(-1);
    expect(last.type).toBe("turn.completed");
    expect(last.usage.output_tokens).toBeGreaterThan(0);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
  expect(await shop.counters(accountId)).toMatchObject({ usage: 2, units: 2, holds: 0 });
  const [first] = shop.provider.calls();
  expect(JSON.parse(first?.body ?? "").tools.length).toBeGreaterThan(3);
});
