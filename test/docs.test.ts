// biome-ignore-all lint/suspicious/noTemplateCurlyInString: shell text.
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from "bun:test";
import { spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { Glob } from "bun";
import postgres from "postgres";
import { DOCUMENT, diagramOf, sources, withDiagram } from "../scripts/architecture_diagram.ts";
import { countedFiles, houseFigures, outdated } from "../scripts/house_figures.ts";
import { denoReplicaCommand } from "../scripts/test_deno.ts";
import { readConfig, VARIABLES } from "../src/config.ts";
import { freePort } from "../src/demo/free_port.ts";
import { ERROR_TABLE } from "../src/errors.ts";
import { statusWords } from "../src/panel/web/pages/domains/domain_text.ts";
import { runCli } from "./cli/cli_process.ts";
import { type Run, start, toItsEnd } from "./doc_shell.ts";
import { anchorsOf, blocksOf, commandsOf, relativeLinksOf, sectionOf } from "./doc_text.ts";
import { startFakeProvider } from "./fake_provider.ts";
import { freshClone } from "./fresh_clone.ts";
import { openShop } from "./gateway/shop.ts";

/**
 * The commands in the documents work. A block marked `sh` in the documents below is run as it is, against real servers. Blocks marked
 * `sh elsewhere` and those of other documents are not run: their scripts, options, files and endpoints are compared with what exists.
 */

const repository = dirname(import.meta.dirname);
/** Documents for API clients: run against a seeded service. */
const CLIENTS = ["docs/quick-start.md", "docs/api.md"];
/** Documents for operators: run in this order on an empty database, after the first steps. */
const OPERATORS = ["docs/operations.md", "docs/resellers.md"];
const FIRST_STEPS = "docs/production.md";
/** Programs that documents may use and that are not part of this repository. */
const FOREIGN = [
  "git",
  "deno",
  "cd",
  "cp",
  "kill",
  "curl",
  "dig",
  "export",
  "docker",
  "helm",
  "kubectl",
  "openssl",
  "printf",
  "echo",
  "su",
  "set",
  ".",
  "useradd",
  "systemctl",
  "umask",
  "python3",
  "./venv/bin/pip",
  "sudo",
];
setDefaultTimeout(900_000);

const read = (path: string) => readFileSync(join(repository, path), "utf8");
const places = ["*.md", "{deploy,docs,src,.github}/**/*.md"];
const all = places.flatMap((place) => [...new Glob(place).scanSync({ cwd: repository, dot: true })].sort());
const { scripts } = JSON.parse(read("package.json")) as { scripts: Record<string, string> };

let folder: string;
let programs: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), `tollgate-${process.pid}-docs-`));
  programs = programsFolder(join(folder, "bin"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("every required document exists", () => {
  for (const path of [
    ...CLIENTS,
    ...OPERATORS,
    FIRST_STEPS,
    "docs/architecture.md",
    "docs/compatibility.md",
    "docs/configuration.md",
    "docs/decisions.md",
    "docs/deno.md",
    "docs/errors.md",
    "docs/glossary.md",
    "docs/specification.md",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
  ])
    expect(all).toContain(path);
  for (const path of ["LICENSE", ".github/pull_request_template.md", ".github/ISSUE_TEMPLATE/bug_report.md"])
    expect(existsSync(join(repository, path))).toBe(true);
  expect(read("LICENSE")).toStartWith("MIT License");
});

test("every relative link leads to a file, and its anchor to a heading", () => {
  const broken = all.flatMap((path) =>
    relativeLinksOf(read(path)).flatMap((link) => {
      const [target = "", anchor] = link.split("#");
      const file = target === "" ? path : join(dirname(path), decodeURIComponent(target));
      if (!existsSync(join(repository, file))) return [`${path}: ${link}`];
      return anchor === undefined || anchorsOf(read(file)).has(anchor) ? [] : [`${path}: ${link} (no such heading)`];
    }),
  );
  expect(broken).toEqual([]);
});

test("every file of this repository that a document names exists", () => {
  const named = /`((?:src|test|scripts|bench|drizzle|deploy|docs)\/[\w./-]+\.[a-z]+)`/g;
  const missing = all.flatMap((path) =>
    [...read(path).matchAll(named)]
      .map(([, file = ""]) => file)
      // Made by the operator from its example.
      .filter((file) => !existsSync(join(repository, file)) && !file.endsWith(".env"))
      .map((file) => `${path}: ${file}`),
  );
  expect(missing).toEqual([]);
});

test("the API guide says what to do about every error, with its status", () => {
  const rows = [...sectionOf(read("docs/api.md"), "Errors").matchAll(/^\| `(\w+)` +\| (\d{3}) +\| (.+) \|$/gm)];
  expect(rows.map(([, code, status]) => [code, Number(status)])).toEqual(
    Object.entries(ERROR_TABLE).map(([code, [status]]) => [code, status]),
  );
  for (const [, code, , advice = ""] of rows)
    expect({ code, long: advice.trim().length > 10 }).toEqual({ code, long: true });
});

test("the operator's guide explains every variable, and names none that does not exist", () => {
  const table = sectionOf(read("docs/operations.md"), "Variables");
  const chosen = [...table.matchAll(/^\| (`.+?) +\|/gm)].flatMap(([, cell = ""]) => [...cell.matchAll(/`([A-Z_]+)`/g)]);
  expect([...new Set(chosen.map(([, name]) => name ?? ""))].sort()).toEqual(Object.keys(VARIABLES).sort());
  const known = new Set([...Object.keys(VARIABLES), ...scriptVariables()]);
  const unknown = [...CLIENTS, ...OPERATORS, "docs/architecture.md"].flatMap((path) =>
    [...read(path).matchAll(/`([A-Z]+(?:_[A-Z]+)+)`/g)].map(([, name = ""]) => name).filter((name) => !known.has(name)),
  );
  expect(unknown).toEqual([]);
});

/** Variables in documents that no replica reads. */
function scriptVariables(): string[] {
  const clients = ["OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_API_BASE", "PROVIDER_BASE_URL", "PROVIDER_API_KEY"];
  return [...clients, "TOLLGATE_SERVER", "TOLLGATE_TOKEN"];
}

test("the API guide has every endpoint of the API, and no other", () => {
  const routes = [...read("docs/routes.md").matchAll(/^\| ([A-Z]+) \| `([^`]+)` \|/gm)].map(
    ([, method, path = ""]) => ({
      method,
      path,
    }),
  );
  const guide = read("docs/api.md");
  const headings = [...guide.matchAll(/^### ((?:GET|POST|DELETE).*)$/gm)].flatMap(([, text = ""]) =>
    text.replace(/\{(\w+)\}/g, ":$1").split(", "),
  );
  for (const { method, path } of routes.filter((route) => route.path.startsWith("/v1/"))) {
    const shown = path.slice("/v1".length);
    const named = shown.replace("*", "{id}").replace(/:(\w+)/g, "{$1}");
    const isThere = headings.includes(`${method} ${shown}`) || guide.includes(`\`${method} ${named}\``);
    expect({ method, path, isThere }).toEqual({ method, path, isThere: true });
  }
  const served = new Set(routes.map(({ path }) => path));
  for (const heading of headings) {
    const path = heading.split(" ")[1] ?? "";
    expect({ heading, exists: served.has(path) || served.has(`/v1${path}`) }).toEqual({ heading, exists: true });
  }
  for (const [, path = ""] of guide.matchAll(/`(\/api\/panel\/[^`]+)`/g)) expect(served).toContain(path);
});

test("docs/deno.md has the flags that the tests start Deno with, each with a reason", () => {
  const flags = denoReplicaCommand().filter((word) => word.startsWith("--"));
  const [command = ""] = /^NODE_ENV=production deno run .*$/m.exec(read("docs/deno.md")) ?? [];
  expect(command).toBe(`NODE_ENV=production deno run ${flags.join(" ")} src/main.ts`);
  const table = sectionOf(read("docs/deno.md"), "Deploy");
  for (const flag of flags) expect(table).toMatch(new RegExp(`^\\| .*\`${flag}\`.*\\|`, "m"));
});

test("the service of the first steps has valid settings, which systemd and a shell read alike", () => {
  const text = sectionOf(read(FIRST_STEPS), "5. Keep it running");
  const [file = "", unit = ""] = blocksOf(text).flatMap((block) => (block.language === "ini" ? [block.text] : []));
  // The optional ones too.
  const lines = file.split("\n").map((line) => line.replace(/^# (?=[A-Z_]+=)/, ""));
  const settings = lines.filter((line) => !line.startsWith("#"));
  // Neither expands nor ends such a value: no `$`, no comment, and quotes around what a shell interprets.
  const plain = /^([A-Z_]+)=(?:'([^']*)'|([\w:/.@,…-]*))$/;
  expect(settings.filter((line) => !plain.test(line))).toEqual([]);
  const env = Object.fromEntries(
    settings.map((line) => plain.exec(line) ?? []).map(([, name = "", quoted, bare]) => [name, quoted ?? bare]),
  );
  expect(Object.keys(env).filter((name) => !(name in VARIABLES))).toEqual([]);
  const config = readConfig({ ...env, SECRET_KEY: "11".repeat(32), SMTP_URL: "smtp://mail.example.com" });
  const service = (name: string) => new RegExp(`^${name}=(.+)$`, "m").exec(unit)?.[1] ?? "";
  expect({ production: config.production, file: service("EnvironmentFile") }).toEqual({
    production: true,
    file: "/etc/tollgate.env",
  });
  // The command line reads the file alone, so nothing may be set in the unit.
  expect(unit).not.toMatch(/^Environment=/m);
  expect(config.spoolDir).toStartWith(`/var/lib/${service("StateDirectory")}/`);
  expect(text).toContain(`useradd --system ${service("User")}\n`);
  expect(Number(service("TimeoutStopSec"))).toBeGreaterThan(config.drainNoticeSeconds + config.drainSeconds + 15);
});

test("the reseller's guide explains every state of a domain in the panel's words, with the command line's", () => {
  const guide = read("docs/resellers.md");
  const rows = [...guide.matchAll(/^\| ([A-Z][^|]*) \(`(\w+)`\) +\|/gm)].map(
    ([, words, status]) => `${words} ${status}`,
  );
  const shown = (["pending", "verifying", "active", "failed", "suspended", "removed"] as const).flatMap((status) =>
    [{}, { byHand: true }, { contested: true }, { failures: 1 }].map((facts) => {
      const { words } = statusWords({ host: "", status, byHand: false, contested: false, failures: 0, ...facts });
      return { words, status };
    }),
  );
  // Two kinds of Live are explained in its row.
  const isNamed = ({ words, status }: { words: string; status: string }) =>
    rows.includes(`${words} ${status}`) || guide.includes(`_${words}_:`);
  expect(shown.filter((state) => !isNamed(state))).toEqual([]);
  const all = shown.map(({ words, status }) => `${words} ${status}`);
  expect(rows.filter((row) => !all.includes(row))).toEqual([]);
});

test("the table of decisions names all decisions of each subject, and no number is used twice", () => {
  const [table = "", ...subjects] = read("docs/decisions.md").split(/^## /m);
  const listed = new Map<string, number[]>();
  for (const [, title = "", list = ""] of table.matchAll(/^\| \[(.+?)\]\(#\S+ +\| (.+?) +\|$/gm))
    listed.set(title, list.split(", ").flatMap(rangeOf));
  const written = new Map<string, number[]>();
  for (const subject of subjects) {
    const numbers = [...subject.matchAll(/^\*\*(\d+)\. /gm)].map(([, number]) => Number(number));
    written.set(
      subject.slice(0, subject.indexOf("\n")),
      numbers.sort((a, b) => a - b),
    );
  }
  expect(listed).toEqual(written);
  const all = [...written.values()].flat();
  expect(new Set(all).size).toBe(all.length);
});

/** The numbers of "5" or "5 to 7". */
function rangeOf(text: string): number[] {
  const [first = 0, last = first] = text.split(" to ").map(Number);
  return Array.from({ length: last - first + 1 }, (_, i) => first + i);
}

test("log messages that the operator's guide quotes are in the code", () => {
  const code = sources()
    .map(({ text }) => text)
    .join("\n");
  const quoted = [...read("docs/operations.md").matchAll(/log: ((?:"[^"]+"(?:, )?)+)/g)].flatMap(([, texts = ""]) =>
    [...texts.matchAll(/"([^"]+)"/g)].map(([, text = ""]) => text),
  );
  expect(quoted.length).toBeGreaterThan(5);
  expect(quoted.filter((text) => !code.includes(text))).toEqual([]);
});

test("the architecture diagram equals the rooms and imports of the code", () => {
  const document = readFileSync(DOCUMENT, "utf8");
  expect(withDiagram(document, diagramOf(sources()))).toBe(document);
});

test("an import from another room changes the diagram, and so does a removed room", () => {
  const files = sources();
  const before = diagramOf(files);
  const extra = { path: "src/books/extra.ts", text: 'import { a } from "../catalog/catalog.ts";' };
  expect(diagramOf([...files, extra])).not.toBe(before);
  expect(diagramOf(files.filter(({ path }) => !path.startsWith("src/http/")))).not.toBe(before);
});

test("the figures of the house are near the code's, and name functions that exist", async () => {
  const code = countedFiles();
  const figures = await houseFigures(code);
  const document = read("docs/architecture.md");
  expect(outdated(document, figures, code)).toEqual([]);
  const isFound = (wrong: string) => {
    expect(wrong).not.toBe(document);
    expect(outdated(wrong, figures, code)).toHaveLength(1);
  };
  isFound(document.replace(/(`gateway\/` +\|) +[\d,]+/, "$1 9,000"));
  isFound(document.replace(/^\| tests .*\n/m, ""));
  isFound(document.replace("`decide_draws`", "`decide_drawing`"));
});

/** Every command that is not run: in blocks marked `elsewhere`, and in documents that are not run. */
function notRun(): { where: string; command: string }[] {
  return all.flatMap((path) =>
    blocksOf(read(path))
      .filter(({ language }) => ["sh", "bash", "shell"].includes(language))
      .filter(({ mark, text }) => mark === "elsewhere" || !isRun(path, text))
      .flatMap(({ text, line }) => commandsOf(text).map((command) => ({ where: `${path}:${line}`, command }))),
  );
}

function isRun(path: string, text: string): boolean {
  return CLIENTS.includes(path) || OPERATORS.includes(path) || (path === FIRST_STEPS && firstSteps().includes(text));
}

/** The three blocks that are run: installation, start, and the first request. */
const firstSteps = () =>
  blocksOf(read(FIRST_STEPS))
    .filter(({ language, mark }) => language === "sh" && mark === "")
    .map(({ text }) => text);

test("commands that are not run name scripts, options, files, subcommands and endpoints that exist", async () => {
  const wrong: string[] = [];
  for (const { where, command } of notRun()) {
    const problem = await problemOf(command);
    if (problem !== undefined) wrong.push(`${where}: ${command}: ${problem}`);
  }
  expect(wrong).toEqual([]);
});

test("a shell block has no mark other than `elsewhere`", () => {
  const marks = all.flatMap((path) => blocksOf(read(path)).map(({ language, mark }) => `${language} ${mark}`.trim()));
  expect([...new Set(marks.filter((mark) => mark.startsWith("sh ")))]).toEqual(["sh elsewhere"]);
});

test("the check of commands finds wrong ones", async () => {
  for (const command of [
    "bun run nothing",
    "bun scripts/nothing.ts",
    "bun run bench --nothing",
    "bun run cli nothing",
    "bun run cli provider add --nothing x",
    "npx -y bun@1.0.0 run demo",
    "frobnicate",
    "kubectl apply -f deploy/nothing.yaml",
    "curl -sS http://127.0.0.1:8080/nothing",
  ])
    expect({ command, found: (await problemOf(command)) !== undefined }).toEqual({ command, found: true });
});

/** Why a command cannot work, or undefined. */
async function problemOf(command: string): Promise<string | undefined> {
  const words = (command.match(/"[^"]*"|'[^']*'|\S+/g) ?? []).filter((word) => !/^[A-Z_]+=/.test(word));
  const [program = "", ...args] = words;
  if (words.length === 0) return undefined;
  if (program === "npx") {
    const version = (JSON.parse(read("package.json")) as { devDependencies: { bun: string } }).devDependencies.bun;
    return args[1] === `bun@${version}` ? problemOf(["bun", ...args.slice(2)].join(" ")) : "another version of bun";
  }
  if (program === "bun" && args[0] === "run") return problemOfScript(args[1] ?? "", args.slice(2));
  if (program === "bun" && args[0] === "install") return undefined;
  if (program === "bun") return existsSync(join(repository, args[0] ?? "")) ? undefined : "there is no such file";
  if (!FOREIGN.includes(program)) return "an unknown program";
  // A file of settings is made from its example.
  const files = args.flatMap((arg) => /^(?:--[a-z-]+=)?((?:deploy|scripts)\/\S+(?<!\.env))$/.exec(arg)?.[1] ?? []);
  const missing = files.find((file) => !existsSync(join(repository, file)));
  if (missing !== undefined) return `there is no ${missing}`;
  const address = program === "curl" ? /https?:\/\/[^/\s"]+(\/[\w/.-]*)/.exec(command)?.[1] : undefined;
  if (address === undefined || read("docs/routes.md").includes(`\`${address}\``)) return undefined;
  return read("src/server/internal.ts").includes(`"${address}"`) ? undefined : "no such address";
}

async function problemOfScript(name: string, args: string[]): Promise<string | undefined> {
  if (name.endsWith(".ts")) return existsSync(join(repository, name)) ? undefined : "there is no such file";
  const script = scripts[name];
  if (script === undefined) return "there is no such script";
  const options = args.filter((arg) => arg.startsWith("--")).map((arg) => arg.slice(2).split("=")[0] ?? "");
  if (name === "cli")
    return problemOfCli(
      args.filter((arg) => !arg.startsWith("-")),
      options,
    );
  const file = script.split(" ").findLast((word) => word.endsWith(".ts")) ?? "";
  const texts = [...new Glob("*.ts").scanSync({ cwd: join(repository, dirname(file)) })].map((one) =>
    read(join(dirname(file), one)),
  );
  // As an option of parseArgs, or as a search in the arguments.
  const isKnown = (option: string) => {
    const pattern = new RegExp(`(?:^|[\\s{,])"?${option}"?: \\{ type: |["'\`]--${option}\\b`, "m");
    return texts.some((text) => pattern.test(text));
  };
  const unknown = options.find((option) => !isKnown(option));
  return unknown === undefined ? undefined : `no option --${unknown}`;
}

const helps = new Map<string, string>();

/** The help of the longest prefix of words that is a command must name each option. */
async function problemOfCli(words: string[], options: string[]): Promise<string | undefined> {
  const help = async (path: string[]) => {
    const key = path.join(" ");
    const known = helps.get(key);
    if (known !== undefined) return known;
    const { out } = await runCli(`${key} --help`, { env: {} });
    helps.set(key, out);
    return out;
  };
  const isSubcommand = async (path: string[], word: string) =>
    new RegExp(`^  ${word}\\b`, "m").test((await help(path)).split("Commands:")[1] ?? "");
  const path: string[] = [];
  for (const word of words) {
    if (!(await isSubcommand(path, word))) break;
    path.push(word);
  }
  if (path.length === 0 && words.length > 0) return "there is no such command";
  const text = await help(path);
  const unknown = options.find((option) => option !== "help" && !text.includes(`--${option}`));
  return unknown === undefined ? undefined : `no option --${unknown}`;
}

test("quick start and API guide: every command and SDK example works, and every request is charged once", async () => {
  const shop = await openShop();
  try {
    const person = await shop.customer({ dailyLimit: 100 });
    // The demo's models are replaced by the test service's.
    const demo = read("src/demo/demo_provider.ts");
    for (const model of ["sim-small", "sim-image", "sim-embed", "sim-rerank"]) expect(demo).toContain(model);
    const filled = (text: string) =>
      text
        .replaceAll("http://localhost:8080", shop.origin)
        .replaceAll("sk-…", person.secret)
        .replaceAll("sim-small", "chat-a")
        .replaceAll("sim-image", "image-a")
        .replaceAll("sim-embed", "embed-a")
        .replaceAll("sim-rerank", "rerank-a");
    const [first = ""] = blocksOf(read("README.md")).flatMap(({ text }) =>
      text.includes("/chat/completions") ? [text] : [],
    );
    const script = [first, ...CLIENTS.flatMap((path) => shellOf(path))].map(filled);
    const { code, output } = await runShell(script.join("\n"), {});
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(output).not.toContain('"error":{');
    // Two streams.
    expect(output.match(/^data: \[DONE\]$/gm)).toHaveLength(2);

    const [js, python] = ["js", "python"].map((language) =>
      filled(blocksOf(read("docs/quick-start.md")).find((block) => block.language === language)?.text ?? ""),
    );
    const sdk = await runModule(js ?? "", { OPENAI_BASE_URL: `${shop.origin}/v1`, OPENAI_API_KEY: person.secret });
    expect({ code: sdk.code, output: sdk.output }).toMatchObject({ code: 0 });
    expect(sdk.output.length).toBeGreaterThan(40);
    // The same calls in another language: there may be no Python here.
    expect(stringsOf(python ?? "")).toEqual(stringsOf(js ?? ""));

    const calls = shop.provider.callCount();
    const posts =
      script
        .join("\n")
        .match(/\/(?:chat\/completions|completions|rerank|images\/generations|embeddings|responses)[" ]/g)?.length ?? 0;
    // The one with an Idempotency-Key is sent twice and served once; the SDK sent two more.
    expect(calls).toBe(posts + 2);
    expect(await shop.counters(person.accountId)).toMatchObject({ usage: calls, units: calls, holds: 0, released: 0 });
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    await shop.close();
  }
});

/** Models and texts of a block, in order. */
function stringsOf(code: string): string[] {
  return [...code.matchAll(/\b(?:model|role|content)"?\s*[:=]\s*"([^"]*)"/g)].map(([, text = ""]) => text);
}

test("first steps on a fresh clone, then operator's and reseller's guide: every command works, and the books balance", async () => {
  const provider = await startFakeProvider({ models: ["provider-mini"] });
  const name = `tollgate_test_${randomBytes(6).toString("hex")}`;
  const server = postgres(process.env.DATABASE_URL ?? "", { max: 1, onnotice: () => {} });
  await server.unsafe(`create database ${name}`);
  const url = new URL(process.env.DATABASE_URL ?? "");
  url.pathname = `/${name}`;
  const [port, internalPort] = [await freePort(), await freePort()];
  const clone = freshClone(join(folder, "clone"));
  const [install = "", run = "", request = "", ...rest] = firstSteps();
  expect({ starts: run.includes("bun run start"), rest }).toEqual({ starts: true, rest: [] });
  const env = {
    // What the document tells its reader to export.
    DATABASE_URL: url.href,
    REDIS_URL: process.env.REDIS_URL ?? "",
    SECRET_KEY: randomBytes(32).toString("base64"),
    API_HOST: `localhost:${port}`,
    BASE_URL: `http://localhost:${port}/v1`,
    PANEL_URL: `http://panel.localhost:${port}`,
    PROVIDER_BASE_URL: provider.baseUrl,
    PROVIDER_API_KEY: provider.apiKey,
    PROVIDER_MODEL: "provider-mini",
    ADMIN_PASSWORD: randomBytes(18).toString("base64"),
    // So that this test does not disturb others.
    PORT: String(port),
    INTERNAL_PORT: String(internalPort),
    LISTEN_HOST: "127.0.0.1",
    SPOOL_DIR: join(folder, "spool"),
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${provider.port}`,
    DRAIN_NOTICE_SECONDS: "0",
    EVENT_LOOP_LAG_MAX_MS: "5000",
  };
  // The blocks read their variables from the file that the document describes.
  const { SPOOL_DIR, DRAIN_NOTICE_SECONDS, EVENT_LOOP_LAG_MAX_MS, ...settings } = env;
  const others = { SPOOL_DIR, DRAIN_NOTICE_SECONDS, EVENT_LOOP_LAG_MAX_MS };
  const lines = Object.entries(settings).map(([name, value]) => `export ${name}='${value}'\n`);
  const file = join(clone, "settings.sh");
  // It stops at the first command that fails.
  writeFileSync(file, lines.join("").replace(settings.ADMIN_PASSWORD, "short"));
  const stopped = await runShell(install, others, clone);
  expect({ failed: stopped.code !== 0, output: stopped.output }).toMatchObject({ failed: true });
  expect(stopped.output).not.toContain("provider-mini");
  writeFileSync(file, lines.join(""));
  const installed = await runShell(install, others, clone);
  expect(installed).toMatchObject({ code: 0 });
  // Run again, it changes nothing: Ann keeps her package and her one key.
  const again = await runShell(install, others, clone);
  expect(again).toMatchObject({ code: 0 });
  expect(again.output.match(/Nothing is changed\./g)).toHaveLength(8);
  expect(again.output).not.toMatch(/dropped|sk-[\w-]{30,}/);
  const service = startShell(run, others, clone);
  try {
    await service.untilAnswers(`http://127.0.0.1:${port}/readyz`);
    const steps = installed.output;
    expect(steps).not.toContain("does not list");
    // The doctor came before the start: no replica is the one thing that it can miss.
    expect(steps).toMatch(/replicas: none is running[\s\S]*Nothing is wrong; 1 warning\./);
    const [, apiKey = ""] = /(sk-[\w-]{30,})/.exec(steps) ?? [];
    // The panel was built, and is served.
    const page = await fetch(`http://127.0.0.1:${port}/`, {
      headers: { host: `panel.localhost:${port}`, accept: "text/html" },
    });
    expect([page.status, (await page.text()).startsWith("<!doctype html>")]).toEqual([200, true]);

    const answer = await runShell(request, { ...env, API_KEY: apiKey }, clone);
    expect(answer).toEqual({ code: 0, output: expect.stringContaining('"object":"chat.completion"') });
    expect(answer.output).toMatch(/ 1 request +complete$/m);

    const script = OPERATORS.flatMap((path) => shellOf(path))
      .join("\n")
      .replaceAll("OPENAI_API_KEY=sk-…", `OPENAI_API_KEY=${apiKey}`)
      .replaceAll("https://api.example.com", `http://localhost:${port}`)
      .replaceAll("127.0.0.1:8080", `127.0.0.1:${port}`)
      .replaceAll("127.0.0.1:9090", `127.0.0.1:${internalPort}`);
    const { code, output } = await runShell(script, { ...env, NEW_PROVIDER_KEY: provider.apiKey }, clone);
    expect({ code, output }).toMatchObject({ code: 0 });
    expect(output).not.toContain('"error":{');
    expect(output).toContain('{"status":"ready"}');
    expect(output).toContain('"object":"chat.completion"');
    expect(output).toMatch(/Nothing is wrong|Everything is fine/);
    // Two requests, which the receipts below show, and those of `provider test`, twice at most 20.
    expect(provider.callCount()).toBeGreaterThanOrEqual(2);
    expect(provider.callCount()).toBeLessThanOrEqual(2 + 2 * 20);
    const named = [...read("docs/operations.md").matchAll(/`(tollgate_\w+)`/g)].map(([, metric = ""]) => metric);
    expect(named.filter((metric) => !new RegExp(`^# TYPE ${metric} `, "m").test(output))).toEqual([]);
    for (const label of metricLabels()) expect(output).toContain(label);

    const books = postgres(url.href, { max: 1, onnotice: () => {} });
    const [counts] =
      await books`select (select count(*)::int from escrows where units > 0 or nano_usd > 0) as holds, (select count(*)::int from receipts) as receipts`;
    expect(counts).toEqual({ holds: 0, receipts: 2 });
    const views = await books`select table_name as name from information_schema.views where table_name like 'inv\\_%'`;
    expect(views.length).toBeGreaterThanOrEqual(8);
    for (const { name: view } of views) expect(await books.unsafe(`select * from ${view}`)).toHaveLength(0);
    await books.end({ timeout: 5 });
  } finally {
    await service.end();
    await server.unsafe(`drop database ${name} with (force)`);
    await server.end({ timeout: 5 });
    await provider.stop();
  }
});

/** Labels that the operator's guide names by "shed by `a` or `b`" and "time-outs of `a`, `b`", as they stand in the metrics. */
function metricLabels(): string[] {
  const text = sectionOf(read("docs/operations.md"), "Alarms");
  const labels = (words: RegExp, label: string) =>
    [...text.matchAll(words)].flatMap(([, values = ""]) =>
      [...values.matchAll(/`(\w+)`/g)].map(([, value]) => `${label}="${value}"`),
    );
  const values = "((?:(?:, | or )?`(?!tollgate_)[a-z_]+`)+)";
  const found = [
    ...labels(new RegExp(`shed (?:by )?${values}`, "g"), "reason"),
    ...labels(new RegExp(`time-outs of ${values}`, "g"), "limit"),
  ];
  expect(found.length).toBeGreaterThan(10);
  return found;
}

/** The blocks of a document that are run. */
function shellOf(path: string): string[] {
  const blocks = blocksOf(read(path)).filter(({ language, mark }) => language === "sh" && mark === "");
  expect({ path, blocks: blocks.length > 0 }).toEqual({ path, blocks: true });
  return blocks.map(({ text }) => text);
}

/** One shell for the whole text, which ends at the first command that fails; what it started ends with it. */
function startShell(text: string, env: Record<string, string>, cwd: string) {
  const file = join(mkdtempSync(join(folder, "shell-")), "script.sh");
  writeFileSync(file, text);
  return start("/bin/sh", ["-eu", file], { env: withPrograms(env), cwd });
}

async function runShell(text: string, env: Record<string, string>, cwd = repository): Promise<Run> {
  return await toItsEnd(startShell(text, env, cwd));
}

/** Runs a module that can import this repository's packages. */
async function runModule(text: string, env: Record<string, string>): Promise<Run> {
  const place = join(repository, ".cache");
  mkdirSync(place, { recursive: true });
  const file = join(mkdtempSync(join(place, "docs-")), "quick_start.mjs");
  try {
    writeFileSync(file, text);
    return await toItsEnd(start(process.execPath, [file], { env: withPrograms(env), cwd: repository }));
  } finally {
    rmSync(dirname(file), { recursive: true, force: true });
  }
}

function withPrograms(env: Record<string, string>): Record<string, string> {
  return { PATH: `${programs}:${process.env.PATH}`, HOME: process.env.HOME ?? "/tmp", ...env };
}

/** A folder with this Bun, and replacements for programs that the machine lacks. */
function programsFolder(place: string): string {
  mkdirSync(place, { recursive: true });
  symlinkSync(process.execPath, join(place, "bun"));
  const standIn = (name: string, command: string) => {
    if (spawnSync(name, [name === "curl" ? "--version" : "version"]).status === 0) return;
    writeFileSync(join(place, name), `#!/bin/sh\n${command}\n`, { mode: 0o755 });
  };
  standIn("curl", `exec "${process.execPath}" "${join(import.meta.dirname, "curl_stand_in.ts")}" "$@"`);
  standIn("openssl", `head -c "$3" /dev/urandom | base64 -w 0`);
  return place;
}
