import { afterAll, afterEach, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { CLIENT_MS_MAX, type Ended, runToEnd } from "./client_process.ts";
import { CLINE, CONTINUE, OPENCODE, QWEN_CODE } from "./clients_tried.ts";
import { codexHome, installCodex } from "./codex.ts";
import { closeBalanced } from "./gateway/checks.ts";
import { openShop, type Shop } from "./gateway/shop.ts";
import { INSTALL_MS_MAX, installOnDemand } from "./on_demand.ts";

/**
 * Agents, unchanged, whose conversation becomes too long for the model: they know the error, and those that compact without a person go
 * on. They are installed on demand. Source: END-22.
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

setDefaultTimeout(3 * CLIENT_MS_MAX + 10_000);

let shop: Shop;
let codex: string;
let qwen: string;
let continues: string;
let opencode: string;
let cline: string;

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
  // Programs of their own, for each platform.
  const platform = `${process.platform === "win32" ? "windows" : process.platform}-${process.arch}`;
  const ofOpencode = `opencode-${platform}`;
  opencode = join(await install(ofOpencode, OPENCODE), "node_modules", ofOpencode, "bin/opencode");
  const ofCline = `@cline/cli-${platform}`;
  cline = join(await install(ofCline, CLINE), "node_modules", ofCline, "bin/cline");
  shop = await openShop({ redisUrl: "" });
}, 5 * INSTALL_MS_MAX);
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
  await complete(first);
  limit(largest() + TURN_CHARS / 2);
  return second();
}

async function complete(work: () => Promise<Ended>): Promise<void> {
  const { code, all } = await work();
  if (code !== 0) throw new Error(`A turn ended with ${code}:\n${all}`);
}

/** The characters of the largest request so far. */
function largest(): number {
  return Math.max(...shop.provider.calls().flatMap(({ generation, body }) => (generation ? [body.length] : [])));
}

function limit(charsMax: number): void {
  shop.provider.when(({ generation, body }) => generation && body.length > charsMax, {
    status: 400,
    contentType: "application/json",
    body: TOO_LONG,
  });
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

test("opencode asks for a summary and goes on", () =>
  inHome(newHome(), async (home) => {
    const { secret } = await shop.customer();
    const options = { baseURL: `${shop.origin}/v1`, apiKey: secret };
    const models = { "chat-a": { name: "A", limit: { context: 200_000, output: 8_000 } } };
    writeFileSync(
      join(home, "opencode.json"),
      JSON.stringify({
        model: "shop/chat-a",
        autoupdate: false,
        share: "disabled",
        permission: { "*": "deny" },
        provider: { shop: { npm: "@ai-sdk/openai-compatible", name: "Shop", options, models } },
      }),
    );
    const ask = (...args: string[]) =>
      runToEnd({
        program: opencode,
        args: ["run", "--format", "json", ...args],
        cwd: home,
        env: { XDG_CONFIG_HOME: home, XDG_DATA_HOME: home, OPENCODE_DISABLE_MODELS_FETCH: "1" },
      });
    await complete(() => ask(turn("One")));
    await complete(() => ask("-c", turn("Two")));
    limit(largest());
    const { lines } = await ask("-c", "Three.");
    const events = lines.filter((line) => line.startsWith("{")).map((line) => JSON.parse(line));
    expect(events.find(({ type }) => type === "error").error.name).toBe("ContextOverflowError");
    expect(events.findLast(({ type }) => type === "text").part.text).toContain("Three.");
    // The refusal, the summary, the turn.
    expect(codes().slice(-3)).toEqual([400, 200, 200]);
  }));

test("Cline says that the context window is exceeded, and that a first message leaves nothing to compact", () =>
  inHome(newHome(), async (home) => {
    const { secret } = await shop.customer();
    // Without it, Cline leaves a process behind that serves later sessions.
    const env = { CLINE_SESSION_BACKEND_MODE: "local" };
    const ask = (...args: string[]) => runToEnd({ program: cline, args, cwd: home, env });
    await complete(() => ask("auth", "-p", "openai", "-k", secret, "-m", "chat-a", "-b", `${shop.origin}/v1`));
    limit(TURN_CHARS);
    const { code, all } = await ask("--json", turn("One"));
    expect(code).toBe(1);
    expect(all).toContain("exceeds the model's context window and there is no conversation history to compact");
    expect(codes()).toEqual([400]);
  }));
