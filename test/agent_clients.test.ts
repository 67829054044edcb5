import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CLIENT_MS_MAX, type Ended, runToEnd } from "./client_process.ts";
import { CONTINUE, QWEN_CODE } from "./clients_tried.ts";
import { codexHome, installCodex } from "./codex.ts";
import { closeBalanced } from "./gateway/checks.ts";
import { openShop, type Shop } from "./gateway/shop.ts";
import { INSTALL_MS_MAX, installOnDemand } from "./on_demand.ts";

/**
 * Agents, unchanged, whose conversation becomes too long for the model in its second turn: they know the error, and those that compact
 * without a person go on. They are installed on demand. Source: END-22.
 */

/** Each turn has this much text. */
const TURN_CHARS = 20_000;
const TOO_LONG = JSON.stringify({
  error: {
    message: "This model's maximum context length is 8192 tokens. However, your messages resulted in 9100 tokens.",
    type: "invalid_request_error",
    param: "messages",
    code: "context_length_exceeded",
  },
});

setDefaultTimeout(2 * CLIENT_MS_MAX + 10_000);

let shop: Shop;
let codex: string;
let qwen: string;
let continues: string;

beforeAll(async () => {
  codex = await installCodex();
  const install = (name: string, version: string) =>
    installOnDemand({
      name: `${name.replaceAll(/\W/g, "-")}-${version}`,
      dependencies: { [name]: version },
      options: ["--omit=optional"],
    });
  qwen = join(await install("@qwen-code/qwen-code", QWEN_CODE), "node_modules/@qwen-code/qwen-code/cli-entry.js");
  continues = join(await install("@continuedev/cli", CONTINUE), "node_modules/@continuedev/cli/dist/cn.js");
  shop = await openShop({ redisUrl: "" });
}, 3 * INSTALL_MS_MAX);
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

const turn = (word: string) => `${word}. ${"Remember the toll. ".repeat(TURN_CHARS / 19)}`;
const codes = () =>
  shop.provider
    .calls()
    .filter(({ generation }) => generation)
    .map(({ status }) => status);

/** Runs two turns. From the second on, the model takes what the first needed, and half a turn more. */
async function twoTurns(first: () => Promise<Ended>, second: () => Promise<Ended>): Promise<Ended> {
  const begun = await first();
  if (begun.code !== 0) throw new Error(`The first turn ended with ${begun.code}:\n${begun.all}`);
  const sizes = shop.provider.calls().flatMap(({ generation, body }) => (generation ? [body.length] : []));
  const charsMax = Math.max(...sizes) + TURN_CHARS / 2;
  shop.provider.when(({ generation, body }) => generation && body.length > charsMax, {
    status: 400,
    contentType: "application/json",
    body: TOO_LONG,
  });
  return second();
}

async function inHome<T>(home: string, work: (home: string) => Promise<T>): Promise<T> {
  try {
    return await work(home);
  } finally {
    rmSync(home, { recursive: true, force: true });
  }
}

const newHome = () => mkdtempSync(join(tmpdir(), "tollgate-agent-"));

test("Qwen Code compacts the conversation and goes on", () =>
  inHome(newHome(), async (home) => {
    const { secret } = await shop.customer();
    const env = { OPENAI_API_KEY: secret, OPENAI_BASE_URL: `${shop.origin}/v1`, OPENAI_MODEL: "chat-a" };
    const ask = (...args: string[]) =>
      runToEnd({ args: [qwen, "--auth-type", "openai", "-o", "json", ...args], cwd: home, env });
    const ended = await twoTurns(
      () => ask(turn("One")),
      () => ask("-c", turn("Two")),
    );
    expect({ code: ended.code, all: ended.code === 0 ? "" : ended.all }).toEqual({ code: 0, all: "" });
    const refused = codes().indexOf(400);
    expect(refused).toBeGreaterThan(0);
    // The summary, and the turn after it.
    expect(
      codes()
        .slice(refused)
        .filter((code) => code === 200).length,
    ).toBeGreaterThan(1);
  }));

test("Continue says that the context length is exceeded, and asks no more", () =>
  inHome(newHome(), async (home) => {
    const { secret } = await shop.customer();
    writeFileSync(
      join(home, "config.yaml"),
      `${[
        ...["name: shop", "version: 1.0.0", "schema: v1", "models:", "  - name: A", "    provider: openai"],
        ...["    model: chat-a", `    apiBase: ${shop.origin}/v1`, `    apiKey: ${secret}`, "    roles: [chat]"],
      ].join("\n")}\n`,
    );
    const ask = (...args: string[]) =>
      runToEnd({
        args: [continues, "--config", "config.yaml", ...args],
        cwd: home,
        env: { CONTINUE_TELEMETRY_ENABLED: "0" },
      });
    const ended = await twoTurns(
      () => ask("-p", turn("One")),
      () => ask("--resume", "-p", turn("Two")),
    );
    expect(ended.code).toBe(1);
    expect(ended.all).toContain("Context length exceeded");
    expect(codes().filter((code) => code === 400)).toEqual([400]);
  }));

test("Codex CLI says that it ran out of the model's context window", () =>
  inHome(codexHome(shop.origin), async (home) => {
    const { secret } = await shop.customer();
    const ask = (...args: string[]) =>
      runToEnd({
        args: [
          ...[codex, "exec", "--json", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox"],
          ...args,
        ],
        cwd: home,
        env: { CODEX_HOME: home, SHOP_KEY: secret },
      });
    const ended = await twoTurns(
      () => ask(turn("One")),
      () => ask("resume", "--last", turn("Two")),
    );
    expect(ended.code).toBe(1);
    expect(ended.all).toContain("ran out of room in the model's context window");
    expect(codes().filter((code) => code === 400)).toEqual([400]);
  }));
