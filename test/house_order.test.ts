// biome-ignore-all lint/suspicious/noTemplateCurlyInString: the samples are source text.
import { expect, setDefaultTimeout, test } from "bun:test";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import { coercions } from "./house_coercions.ts";
import { longFunctions, longSqlFunctions } from "./house_functions.ts";
import { importCircles, packagesAtStart, unusedFiles } from "./house_imports.ts";
import { houseRules, missingOnMap, type SourceFile } from "./house_rules.ts";

/** A function fits a screen. */
const FUNCTION_LINES_MAX = 70;
/** The compiler starts, and all of src is parsed, also on a busy machine. */
setDefaultTimeout(180_000);
/** Files that may say what is started or run: scripts, images, documents. */
const ENTRY_MENTIONS = ["package.json", "bunfig.toml", "Dockerfile", ".ci/run", "README.md", "CONTRIBUTING.md"];

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
const sources = files.filter(({ path }) => path.startsWith("src/"));

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

test(`house: a function of src has at most ${FUNCTION_LINES_MAX} lines`, async () => {
  expect(await longFunctions(sources, FUNCTION_LINES_MAX)).toEqual([]);
});

test(`house: a function in SQL has at most ${FUNCTION_LINES_MAX} lines`, () => {
  const paths = [...new Glob("drizzle/*.sql").scanSync({ cwd: repository })];
  const migrations = paths.map((path) => ({ path, text: readFileSync(join(repository, path), "utf8") }));
  expect(longSqlFunctions(migrations, FUNCTION_LINES_MAX)).toEqual([]);
  const body = "CREATE FUNCTION f() RETURNS void LANGUAGE plpgsql AS $$\nBEGIN\n  NULL;\nEND $$;";
  const text = `-- What it does.\n${body}\n--> statement-breakpoint\n\nCREATE TABLE t (\n  a int,\n  b int,\n  c int,\n  d int\n);`;
  expect(longSqlFunctions([{ path: "a.sql", text }], 4)).toEqual([]);
  expect(longSqlFunctions([{ path: "a.sql", text }], 3)).toEqual([{ name: "a.sql f", lines: 4 }]);
});

/** Rooms that read what clients and providers send. In stores, the rows are our own. */
const READS_STRANGERS = /^src\/(?:gateway|catalog)\/(?!.*_store\.ts$)/;

test("house: what clients and providers send is never turned into text or a number before its type is known", async () => {
  const paths = sources.map(({ path }) => path).filter((path) => READS_STRANGERS.test(path));
  expect(await coercions(repository, paths)).toEqual([]);
});

test("house: files of src do not import each other in a circle, types included", () => {
  expect(importCircles(sources)).toEqual([]);
});

test("house: every file is used: imported, started by name, or a test", () => {
  const mentions = ENTRY_MENTIONS.map((path) => readFileSync(join(repository, path), "utf8"));
  expect(unusedFiles(files, mentions)).toEqual([]);
});

/** Libraries that cost megabytes and milliseconds, and that most replicas never use. */
const LOADED_LATER = ["pdfkit", "sharp", "nodemailer", "@simplewebauthn/server", "stdnum", "stripe", "tldts"];

test("house: replicas and commands load the libraries of PDF files, pictures, mail, passkeys, VAT numbers, payments and registered domains with their first use", () => {
  for (const [entry, needed] of [
    ["src/replica.ts", "elysia"],
    ["src/cli.ts", "commander"],
  ] as const) {
    const loaded = packagesAtStart(sources, entry);
    expect(LOADED_LATER.filter((name) => loaded.has(name))).toEqual([]);
    expect(loaded).toContain(needed);
  }
});

/** For each rule: small files that break it, and files that keep it. */
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
    rule: "the panel's frame knows no page: only routes.tsx names pages, and ui/ uses nothing of shared/",
    bad: [
      { path: "src/panel/web/shell.tsx", text: 'import { a } from "./pages/keys/keys.tsx";' },
      { path: "src/panel/web/shared/a.ts", text: 'import type { A } from "../pages/keys/keys.tsx";' },
      { path: "src/panel/web/ui/a.tsx", text: 'import { a } from "../shared/page_hooks.ts";' },
    ],
    good: [
      { path: "src/panel/web/routes.tsx", text: 'page(() => import("./pages/keys/keys.tsx"));' },
      { path: "src/panel/web/pages/home/a.tsx", text: 'import { a } from "../keys/keys.tsx";' },
      { path: "src/panel/web/shell.tsx", text: 'import { a } from "./shared/account_queries.ts";' },
    ],
  },
  {
    rule: "the panel explains nothing in a title, which touch and keyboard never see: there is ui/hint.tsx",
    bad: [
      { path: "src/panel/web/pages/a.tsx", text: '<span title={names.join(", ")}>3 models</span>' },
      { path: "src/panel/web/pages/a.tsx", text: '<button\n  onClick={() => 1}\n  title="Read-only"\n>\n' },
    ],
    good: [
      { path: "src/panel/web/pages/a.tsx", text: '<Section title="Keys"><p>None</p></Section>' },
      { path: "src/panel/web/ui/time.tsx", text: "<time title={formatUtc(iso)}>now</time>" },
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
      { path: "src/platform/schema_ledger.ts", text: "check(sql`a > 0`)" },
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
    rule: "the machine's wall clock decides nothing: due times, claims and expiries go by the database's",
    bad: [
      { path: "src/gateway/a.ts", text: "if (key.expiresAtMs <= machine.wallMs()) return;" },
      { path: "src/ledger/a.ts", text: "type Options = { wallMs: () => number };" },
      { path: "src/messages/a.ts", text: 'import { wallClockMs } from "../platform/runtime.ts";' },
    ],
    good: [
      { path: "src/ledger/escrow.ts", text: "const driftMs = this.#options.wallMs() - sentMs;" },
      { path: "src/gateway/a.ts", text: "if (key.expiresAtMs <= clock.unixMs()) return; // not wallMs" },
    ],
  },
  {
    rule: "repeated work is a job (platform/every.ts): one run at a time, with metrics, and no interval of its own",
    bad: [{ path: "src/accounts/a.ts", text: "const timer = setInterval(() => void read(), 1000);" }],
    good: [
      { path: "src/platform/bus.ts", text: "const beat = setInterval(send, 1000);" },
      { path: "src/accounts/a.ts", text: 'every({ name: "losses", ms: 1000, run: read }); // not setInterval(' },
    ],
  },
  {
    rule: "a moment or a span of SQL is cut to whole units, never rounded: a cast alone may name a second that has not begun",
    bad: [
      { path: "src/a/a_store.ts", text: "sql`extract(epoch from ${a.at})::bigint`" },
      { path: "src/a/a_store.ts", text: "sql`select (extract(epoch from now()) * 1000)::int as ms`" },
      { path: "src/a/a_store.ts", text: "sql`select greatest(0, extract(epoch from now() - at) * 1000)::int`" },
    ],
    good: [
      { path: "src/a/a_store.ts", text: "sql`floor(extract(epoch from ${a.at}))::bigint`" },
      { path: "src/a/a_store.ts", text: "sql`floor(greatest(0, extract(epoch from now() - at) * 1000))::int`" },
      { path: "src/a/a_store.ts", text: "sql`extract(epoch from now())::float8`" },
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
    rule: "names are looked up over our own sockets: node:dns would take threads of the runtime's pool",
    bad: [
      { path: "src/catalog/guard.ts", text: 'import { lookup } from "node:dns/promises";' },
      { path: "src/platform/names.ts", text: 'import { getServers, lookup } from "node:dns";' },
      { path: "src/platform/names.ts", text: 'import dns from "dns";' },
    ],
    good: [{ path: "src/platform/names.ts", text: 'import { getServers } from "node:dns";' }],
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
  {
    rule: "no assertion of a test is about measured time, processor time or resident memory",
    bad: [
      { path: "test/a.test.ts", text: "expect(performance.now() - startedMs).toBeLessThan(500);" },
      { path: "test/a.test.ts", text: "expect(Math.abs(Date.now() - Date.parse(row.at))).toBeLessThan(5_000);" },
      {
        path: "test/a.test.ts",
        text: "const spentMs = performance.now() - startedMs;\nexpect(spentMs).toBeLessThan(500);",
      },
      {
        path: "test/a.test.ts",
        text: "return { value, ms: Date.now() - begun };\nexpect(answer.ms).toBeGreaterThan(9);",
      },
      { path: "test/a.test.ts", text: "const age = (at) => Date.now() - at;\nexpect(age(row.at)).toBeWithin(1, 2);" },
      { path: "test/a.test.ts", text: "expect({ inTime: performance.now() < endsAt }).toEqual({ inTime: true });" },
      {
        path: "test/a.test.ts",
        text: "const { tookMs } = await clocked(ask());\nexpect(tookMs).toBeLessThan(SHED_MS_MAX);",
      },
      { path: "test/a.test.ts", text: "expect(process.memoryUsage().rss - before).toBeLessThan(1_000);" },
      { path: "test/a.test.ts", text: "expect(after.rss).not.toBeGreaterThan(before.rss);" },
    ],
    good: [
      { path: "test/a.test.ts", text: "const endsAt = performance.now() + WAIT_MS_MAX;\nexpect(isSo()).toBe(true);" },
      { path: "test/a.test.ts", text: "if (performance.now() - startedMs > WAIT_MS_MAX) throw new Error(what);" },
      {
        path: "test/a.test.ts",
        text: "const madeMs = Date.now();\nexpect(Date.parse(row.at)).toBeGreaterThanOrEqual(madeMs);",
      },
      { path: "test/a.test.ts", text: "expect(row.at).toBeLessThanOrEqual(Date.now()); // not Date.now() - at" },
      { path: "test/a.test.ts", text: "expect(check).toEqual({ tookMs: expect.any(Number) });" },
      { path: "bench/a.ts", text: "expect(performance.now() - startedMs).toBeLessThan(500);" },
    ],
  },
  {
    rule: "a test's wait for a state has no limit of its own that a busy machine could reach",
    bad: [
      { path: "test/a.test.ts", text: "await until(() => calls() === 2, 20_000);" },
      { path: "test/a.test.ts", text: "await until(async () => {\n  return (await held()) === 0;\n}, 2_500);" },
      { path: "test/a.test.ts", text: "await shop.provider.waitForAborted(id, 5_000);" },
      { path: "test/a.test.ts", text: "setDefaultTimeout(30_000);" },
    ],
    good: [
      { path: "test/a.test.ts", text: "await until(() => calls() === 2);\nawait shop.provider.waitForCalls(2);" },
      { path: "test/a.test.ts", text: "await until(() => isWithin(3, 5), 120_000);\nsetDefaultTimeout(180_000);" },
      { path: "bench/a.ts", text: "await until(() => calls() === 2, 20_000);" },
    ],
  },
  {
    rule: "tests in a browser wait for no promise inside a matcher: it would reorder Playwright's messages",
    bad: [
      { path: "test/browser/a.test.ts", text: "await expect(ask(client)).rejects.toBeInstanceOf(Error);" },
      { path: "test/browser/a.test.ts", text: "await expect(page.title()).resolves.toBe(title);" },
      { path: "test/browser/a.test.ts", text: "expect(async () => ask(client)).toThrow();" },
    ],
    good: [
      { path: "test/browser/a.test.ts", text: "expect(await page.title()).toBe(title); // not .resolves" },
      { path: "test/ledger/a.test.ts", text: "await expect(reserve()).rejects.toThrow();" },
    ],
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

test("house checker can fail: function lengths", async () => {
  const four = "\n  a;\n  b;\n";
  const text = [
    `function declared() {${four}}`,
    `const arrow = () => {${four}};`,
    `class C { method() {${four}} get read() {${four}} constructor() {${four}} }`,
    `const object = { held: function () {${four}}, short() { return 1; } };`,
    `export function Page() {\n  return (\n    <p onClick={() => 1}>text</p>\n  );\n}`,
    `register(\n  "name", () => {${four}}\n);`,
    `function outer() { const inner = () => {${four}}; }`,
  ].join("\n");
  const found = await longFunctions([{ path: "src/a.tsx", text }], 3);
  const names = ["declared", "arrow", "method", "read", "constructor", "held", "Page", "register()"];
  expect(found.map(({ name }) => name)).toEqual([...names, "outer", "outer.inner"].map((name) => `src/a.tsx ${name}`));
  expect(new Set(found.map(({ lines }) => lines))).toEqual(new Set([4, 5]));
});

test("house checker can fail: circles of imports", () => {
  const a = { path: "src/a.ts", text: 'import { b } from "./b.ts";' };
  const b = { path: "src/b.ts", text: 'import type { C } from "./c.ts";' };
  const c = { path: "src/c.ts", text: 'export { a } from "./a.ts";' };
  const apart = { path: "src/d.ts", text: 'import { a } from "./a.ts";' };
  expect(importCircles([a, b, c, apart])).toEqual([["src/a.ts", "src/b.ts", "src/c.ts"]]);
  expect(importCircles([a, b, apart])).toEqual([]);
});

test("house checker can fail: packages that are loaded at the start", () => {
  const loaded = [
    {
      path: "src/a.ts",
      text: 'import { b } from "./b/b.ts";\nimport type { C } from "c";\nconst d = () => import("d");',
    },
    { path: "src/b/b.ts", text: 'export * from "../e.ts";\nimport "f/g";' },
    { path: "src/e.ts", text: 'import { h } from "h";' },
    { path: "src/i.ts", text: 'import { j } from "j";' },
  ];
  expect(packagesAtStart(loaded, "src/a.ts")).toEqual(new Set(["f/g", "h"]));
});

test("house checker can fail: files that nothing uses", () => {
  const used = [
    { path: "src/a.ts", text: 'import { b } from "./b.ts";\nnew Worker(new URL("worker.ts", import.meta.url));' },
    { path: "src/b.ts", text: 'const start = beside("peer");' },
    { path: "src/worker.ts", text: "" },
    { path: "src/peer.ts", text: "" },
    { path: "test/a.test.ts", text: "" },
    { path: "src/css.d.ts", text: "" },
  ];
  const unused = { path: "src/old.ts", text: 'import { a } from "./a.ts";' };
  expect(unusedFiles([...used, unused], [])).toEqual(["src/old.ts"]);
  expect(unusedFiles([...used, unused], ["bun src/old.ts"])).toEqual([]);
});
