import { expect, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { requestCode, shortened } from "../../src/panel/web/ui/request_code.ts";

/** The code of a request, in three languages, sends exactly that request. Source: PAN-11. */

const EVIL = "It's \"quoted\", $HOME `id` \\n \\ $(id)\n\tŁódź 🌙\u2028end\nJSON\n'; rm -rf x; '";
const body = {
  model: "vendor/chat-b",
  messages: [
    { role: "system", content: EVIL },
    {
      role: "user",
      content: [
        { type: "text", text: EVIL },
        { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } },
      ],
    },
  ],
  temperature: 0.5,
  max_tokens: 60,
  stream: true,
};
const baseUrl = "https://ai.acme.test/v1";
const codeOf = (id: string, of: Parameters<typeof requestCode>[0]) =>
  requestCode(of).find((snippet) => snippet.id === id)?.code ?? "";

/** Runs a curl command in a shell whose curl prints its arguments, and what it reads if it is told to read. */
function runShell(code: string): string[] {
  const curl = `curl() { printf '%s\\0' "$@"; case "$*" in *"--data-binary @-"*) cat;; esac; }`;
  // Read from the standard input: the whole script would be too long for an argument as well.
  const env = { API_KEY: "sk-secret", PATH: process.env.PATH };
  const run = spawnSync("bash", ["-s"], { input: `${curl}\n${code}\n`, env });
  expect(run.status, run.stderr.toString()).toBe(0);
  return run.stdout.toString().split("\0");
}

test("curl sends the same body and the key of the environment, whatever the texts are", () => {
  const args = runShell(codeOf("curl", { baseUrl, endpoint: "chat", body, key: null }));
  expect(args.slice(0, 3)).toEqual([`${baseUrl}/chat/completions`, "-H", "Authorization: Bearer sk-secret"]);
  expect(JSON.parse(args[args.indexOf("-d") + 1] ?? "")).toEqual(body);
});

test("a body that is too long for an argument goes to curl's standard input", () => {
  const long = { ...body, user: "x".repeat(300_000) };
  const args = runShell(codeOf("curl", { baseUrl, endpoint: "responses", body: long, key: "sk-own" }));
  expect(args).toContain("Authorization: Bearer sk-own");
  expect(args).not.toContain("-d");
  expect(JSON.parse(args.at(-1) ?? "")).toEqual(long);
});

test("JavaScript calls the client with the same body, on each endpoint", async () => {
  const calls = {
    chat: "chat.completions.create",
    responses: "responses.create",
    images: "images.generate",
    embeddings: "embeddings.create",
  } as const;
  for (const [endpoint, method] of Object.entries(calls) as [keyof typeof calls, string][]) {
    const code = codeOf("javascript", { baseUrl, endpoint, body, key: null });
    const [call = "", sent = ""] = /await client\.([\w.]+)\((\{.*\})\);\n/s.exec(code)?.slice(1) ?? [];
    expect(call).toBe(method);
    expect(new Function(`return ${sent}`)()).toEqual(body);
    expect(code).toContain("apiKey: process.env.API_KEY,");
  }
});

test("Python has the same body as literals of its own", () => {
  const code = codeOf("python", {
    baseUrl,
    endpoint: "responses",
    body: { model: "m", input: ["a", { deep: [true, null, 1.5] }], store: false },
    key: null,
  });
  expect(code).toStartWith("import os\n\nfrom openai import OpenAI\n");
  expect(code).toContain('api_key=os.environ["API_KEY"],');
  expect(code).toContain(`answer = client.responses.create(
    model="m",
    input=[
        "a",
        {
            "deep": [
                True,
                None,
                1.5,
            ],
        },
    ],
    store=False,
)`);
});

test("on the screen the data of images is shortened, and nothing else", () => {
  const image = `data:image/png;base64,${"iVBORw0KGgo".repeat(1_000)}==`;
  const code = codeOf("curl", { baseUrl, endpoint: "chat", body: { ...body, user: image }, key: null });
  expect(shortened(code).length).toBeLessThan(2_000);
  expect(shortened(code)).toContain("data:image/png;base64,iVBORw0KGgo");
  expect(shortened(EVIL)).toBe(EVIL);
});
