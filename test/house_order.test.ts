// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the samples are source text.
import { expect, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { houseRules, missingOnMap, type SourceFile } from "./house_rules.ts";

const repository = dirname(import.meta.dirname);

function readAll(): SourceFile[] {
  const files = new Glob("{src,test,scripts,bench}/**/*.{ts,tsx}").scanSync({ cwd: repository });
  return [...files].sort().map((path) => ({ path, text: readFileSync(join(repository, path), "utf8") }));
}

function findings(name: string, file: SourceFile): string[] {
  const rule = houseRules.find((candidate) => candidate.name === name);
  if (!rule) throw new Error(`No house rule is called "${name}".`);
  return rule.findings(file);
}

const files = readAll();

for (const rule of houseRules) {
  test(`house: ${rule.name}`, () => {
    const broken = files.flatMap((file) => rule.findings(file).map((finding) => `${file.path}: ${finding}`));
    expect(broken).toEqual([]);
  });
}

test("house: the README's map names every folder of src", () => {
  const path = join(repository, "README.md");
  const readme = existsSync(path) ? readFileSync(path, "utf8") : null;
  expect(
    missingOnMap(
      readme,
      files.map((file) => file.path),
    ),
  ).toEqual([]);
});

/** Each rule on small files: those it must find fault with, and those it must let pass. */
const samples: { rule: string; bad: SourceFile[]; good: SourceFile[] }[] = [
  {
    rule: "every file of src belongs to a room, and imports run downward only",
    bad: [
      { path: "src/ledger/a.ts", text: 'import { b } from "../gateway/b.ts";' },
      { path: "src/catalog/a.ts", text: 'import { b } from "../accounts/b.ts";' },
      { path: "src/accounts/a.ts", text: 'import type { B } from "../catalog/b.ts";' },
      { path: "src/platform/a.ts", text: 'const b = await import("../accounts/b.ts");' },
      { path: "src/server/a.ts", text: 'export * from "../main.ts";' },
      { path: "src/errors.ts", text: 'import { b } from "./ledger/b.ts";' },
      { path: "src/gateway/a.ts", text: 'import {\n  b,\n} from "../panel/api/b.ts";' },
      { path: "src/gateway/a.ts", text: 'import { world } from "../../test/world.ts";' },
      { path: "src/helpers/a.ts", text: "" },
      { path: "src/helpers.ts", text: "" },
    ],
    good: [
      { path: "src/gateway/a.ts", text: 'import { b } from "../ledger/b.ts";\nimport { c } from "../platform/c.ts";' },
      { path: "src/panel/web/a.tsx", text: 'import { b } from "../api/b.ts";' },
      { path: "src/platform/a.ts", text: 'import { Refusal } from "../errors.ts";' },
      { path: "src/demo/a.ts", text: 'import { b } from "../main.ts";' },
      { path: "src/deps.ts", text: 'import type { B } from "./gateway/b.ts";' },
      { path: "src/ledger/a.ts", text: '// import { b } from "../gateway/b.ts";' },
      { path: "src/ledger/a.ts", text: 'const text = `import { b } from "../gateway/b.ts"`;' },
    ],
  },
  {
    rule: "deps.ts is types only",
    bad: [
      { path: "src/deps.ts", text: 'import { openDb } from "./platform/db.ts";' },
      { path: "src/gateway/a.ts", text: 'import { Deps } from "../deps.ts";' },
    ],
    good: [{ path: "src/gateway/a.ts", text: 'import type { Deps } from "../deps.ts";\nimport { b } from "./b.ts";' }],
  },
  {
    rule: "Bun and Deno are named in platform/runtime.ts alone",
    bad: [
      { path: "src/gateway/a.ts", text: "Bun.serve({});" },
      { path: "src/gateway/a.ts", text: "const run = globalThis.Deno?.version;" },
      { path: "src/gateway/a.ts", text: 'import { file } from "bun";' },
      { path: "src/gateway/a.ts", text: "const text = `version ${Bun.version}`;" },
    ],
    good: [
      { path: "src/platform/runtime.ts", text: "Bun.serve({});" },
      { path: "src/gateway/a.ts", text: '// On Bun. Deno. differs\nconst name = "Deno.customInspect";' },
      { path: "test/a.test.ts", text: "Bun.serve({});" },
    ],
  },
  {
    rule: "SQL stands in stores, schema, migrations and invariants",
    bad: [
      { path: "src/gateway/a.ts", text: "await sql`update x`;" },
      { path: "src/gateway/a.ts", text: "await sql<Row[]>`table x`;" },
      { path: "src/gateway/a.ts", text: "await tx`select a from ${b}`;" },
      { path: "src/ledger/ledger.ts", text: 'await db.unsafe("vacuum");' },
      { path: "src/ledger/ledger.ts", text: 'const query = "DELETE FROM holds";' },
      { path: "src/ledger/restore.ts", text: "await sql`select 1`;" },
    ],
    good: [
      { path: "src/ledger/ledger_store.ts", text: "await sql`select a from b`;" },
      { path: "src/accounts/store.ts", text: "await sql`select a from b`;" },
      { path: "src/platform/schema.ts", text: "check(sql`a > 0`)" },
      { path: "src/panel/web/a.tsx", text: "<p>Don't select a model from this list</p>" },
      { path: "src/panel/web/copy.ts", text: 'const hint = "Select a model from the list";' },
      { path: "src/ledger/ledger.ts", text: "// select a from b\nsql.end();" },
    ],
  },
  {
    rule: "time is passed in: nobody below main.ts reads the wall clock",
    bad: [
      { path: "src/ledger/a.ts", text: "const now = new Date();" },
      { path: "src/ledger/a.ts", text: "const now = Date.now();" },
      { path: "src/ledger/a.ts", text: "const clock = Date.now;" },
      { path: "src/demo/a.ts", text: "const text = `${new Date().toISOString()}`;" },
    ],
    good: [
      { path: "src/main.ts", text: "const now = new Date();" },
      { path: "src/ledger/a.ts", text: "const day = new Date(unixMs); // never new Date()" },
      { path: "src/ledger/a.ts", text: "const startedAt = performance.now();" },
    ],
  },
  {
    rule: "calls to elsewhere go by the outbound guard",
    bad: [
      { path: "src/catalog/a.ts", text: "const answer = await fetch(url);" },
      { path: "src/catalog/a.ts", text: "return fetch (`https://${host}/`, { method });" },
      { path: "src/gateway/a.ts", text: "const get = globalThis.fetch;" },
      { path: "src/gateway/a.ts", text: "const get = fetch;" },
      { path: "src/gateway/a.ts", text: "startClient(url, fetch);" },
      { path: "src/panel/a.ts", text: 'import { request } from "node:https";' },
      { path: "src/panel/a.ts", text: 'import { createServer, connect } from "node:net";' },
      { path: "src/panel/a.ts", text: 'import https from "node:https";' },
      { path: "src/panel/a.ts", text: 'const { request } = await import("node:http");' },
      { path: "src/accounts/a.ts", text: 'import { lookup } from "node:dns/promises";' },
      { path: "src/accounts/a.ts", text: 'import { request } from "undici";' },
      { path: "src/ledger/a.ts", text: "const socket = new WebSocket(url);" },
    ],
    good: [
      { path: "src/catalog/guard.ts", text: 'import { request } from "node:https";' },
      { path: "src/server/a.ts", text: "type App = { fetch(request: Request, peer: Peer): Promise<Response> };" },
      { path: "src/server/a.ts", text: "return { async fetch(received, peer) {} };\nserve({ fetch: app.fetch });" },
      { path: "src/server/a.ts", text: 'import { createServer, type IncomingMessage } from "node:http";' },
      { path: "src/config.ts", text: 'import { isIPv4 } from "node:net";\nimport type { Socket } from "node:net";' },
      { path: "src/gateway/a.ts", text: '// await fetch(url)\nconst said = "fetch(url)"; prefetch(url);' },
      { path: "src/panel/web/api.ts", text: "await fetch(path);" },
      { path: "test/a.test.ts", text: "await fetch(url);" },
    ],
  },
  {
    rule: "relative imports carry their extension",
    bad: [
      { path: "src/gateway/a.ts", text: 'import { b } from "./b";' },
      { path: "src/gateway/a.ts", text: 'import { b } from "./b.js";' },
      { path: "test/a.test.ts", text: 'const b = await import("../src/b");' },
      { path: "src/gateway/a.ts", text: 'import "./side";' },
    ],
    good: [
      { path: "src/panel/web/a.tsx", text: 'import "./a.css";\nimport { b } from "./b.tsx";\nimport c from "react";' },
    ],
  },
  {
    rule: "no test is left out: no only, skip or todo",
    bad: [
      { path: "test/a.test.ts", text: 'test.only("a", () => {});' },
      { path: "test/a.test.ts", text: 'describe.skip("a", () => {});' },
      { path: "test/a.test.ts", text: 'test.todo("a");' },
      { path: "test/a.test.ts", text: 'test.concurrent.skipIf(true)("a", () => {});' },
      { path: "test/a.test.ts", text: 'xit("a", () => {});' },
    ],
    good: [{ path: "test/a.test.ts", text: 'test("only this: test.skip( is text", () => {}); stream.skip(1);' }],
  },
];

test("house: every rule has samples", () => {
  expect(samples.map((sample) => sample.rule)).toEqual(houseRules.map((rule) => rule.name));
});

for (const { rule, bad, good } of samples) {
  test(`house checker can fail: ${rule}`, () => {
    for (const file of bad) expect(findings(rule, file), `${file.path}: ${file.text}`).not.toEqual([]);
    for (const file of good) expect(findings(rule, file), `${file.path}: ${file.text}`).toEqual([]);
  });
}

test("house checker can fail: a README without a folder, and no README", () => {
  const paths = ["src/main.ts", "src/ledger/ledger.ts", "src/panel/web/app.tsx", "src/panel/web/parts/button.tsx"];
  const complete = "src/\n  ledger/  books\n  panel/\n    web/  pages";
  expect(missingOnMap(complete, paths)).toEqual([]);
  expect(missingOnMap(complete.replace("web/", "pages/"), paths)).toEqual(["src/panel/web"]);
  expect(missingOnMap(null, paths)).toEqual(["README.md itself"]);
});
