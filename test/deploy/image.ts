import { spawnSync } from "node:child_process";
import { chmodSync, existsSync, lchownSync, lstatSync, mkdirSync, readdirSync, readFileSync } from "node:fs";
import { copyFile, cp, link, mkdir } from "node:fs/promises";
import { basename, dirname, join, posix } from "node:path";

/**
 * Builds an image without an engine: reads a Dockerfile and replays its steps in a folder. RUN happens on this machine, so
 * it may name nothing outside its WORKDIR. Knows the instructions and forms that our Dockerfile uses, and throws at others.
 */

const RUN_MS_MAX = 300_000;

export type Step = { keyword: string; flags: ReadonlyMap<string, string>; text: string };
export type Stage = { name: string; base: string; steps: Step[] };

/** What an engine would run. Paths are inside the image; `root` is the folder of "/" on this machine. */
export type Image = {
  root: string;
  workdir: string;
  env: Record<string, string>;
  labels: Record<string, string>;
  user: string;
  volumes: string[];
  ports: string[];
  stopSignal: string;
  command: string[];
  healthCheck: string[];
};

type Context = {
  /** The folder that is sent to the engine, and which paths of it are left out. */
  folder: string;
  ignored: (path: string) => boolean;
  /** The folder where images are built. */
  into: string;
  /** The program of a base image, by the beginning of the image's name. */
  programs: Readonly<Record<string, { name: string; path: string }>>;
};

/**
 * Returns a function that replays a stage by name, after the stages that it needs, each once. It throws for what is missing,
 * and with the output of a RUN that fails.
 */
export function imageBuilder(stages: Stage[], context: Context): (target: string) => Promise<Image> {
  const built = new Map<string, Promise<Image>>();
  const build = async (name: string): Promise<Image> => {
    const stage = stages.find((candidate) => candidate.name === name);
    if (!stage) throw new Error(`no stage is called ${name}`);
    const image = built.get(name) ?? replay(stage, context, { build, isStage });
    built.set(name, image);
    return image;
  };
  const isStage = (name: string) => stages.some((stage) => stage.name === name);
  return build;
}

/** Reads a Dockerfile into its stages, with the names of base images filled in. */
export function parseDockerfile(source: string): Stage[] {
  const text = source.replace(/^\s*#.*\n/gm, "").replace(/\\\n\s*/g, " ");
  const globals: Record<string, string> = {};
  const stages: Stage[] = [];
  for (const line of text.split("\n").filter((line) => line.trim() !== "")) {
    const { keyword, flags, text } = parseStep(line);
    const stage = stages.at(-1);
    if (keyword === "FROM") {
      const [, base = "", name = ""] = /^(\S+) AS (\S+)$/.exec(fill(text, globals)) ?? [];
      stages.push({ name, base, steps: [] });
    } else if (stage) stage.steps.push({ keyword, flags, text });
    else if (keyword === "ARG") Object.assign(globals, pairs(text));
    else throw new Error(`${keyword} comes before the first FROM`);
  }
  return stages;
}

/** Which paths a .dockerignore leaves out: the last pattern that matches a path, or a folder above it, decides. */
export function parseDockerignore(source: string): (path: string) => boolean {
  const rules = source
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "" && !line.startsWith("#"))
    .map((line) => ({ keeps: line.startsWith("!"), pattern: patternOf(line.replace(/^!/, "")) }));
  return (path) => {
    const parts = path.split("/");
    const above = parts.map((_, i) => parts.slice(0, i + 1).join("/"));
    const last = rules.findLast(({ pattern }) => above.some((name) => pattern.test(name)));
    return last !== undefined && !last.keeps;
  };
}

/** Every file below `folder`, as paths with slashes, sorted. Links are listed and not followed. */
export function filesBelow(folder: string): string[] {
  const entries = readdirSync(folder, { recursive: true, withFileTypes: true });
  return entries
    .filter((entry) => !entry.isDirectory())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
    .sort();
}

type Others = { build(name: string): Promise<Image>; isStage(name: string): boolean };

async function replay(stage: Stage, context: Context, others: Others): Promise<Image> {
  const root = join(context.into, stage.name);
  await mkdir(root, { recursive: true });
  const image = await startFrom(stage.base, root, context, others);
  const args: Record<string, string> = {};
  for (const step of stage.steps) {
    const text = /^(?:RUN|CMD|HEALTHCHECK)$/.test(step.keyword)
      ? step.text
      : fill(step.text, { ...args, ...image.env });
    if (step.keyword === "COPY") await copyStep({ ...step, text }, image, context, others);
    else if (step.keyword === "RUN") runStep(text, image);
    else if (step.keyword === "ARG") Object.assign(args, pairs(text));
    else noteStep(step.keyword, text, image);
  }
  return image;
}

async function startFrom(base: string, root: string, { programs }: Context, others: Others): Promise<Image> {
  if (others.isStage(base)) {
    const before = await others.build(base);
    await cp(before.root, root, { recursive: true, verbatimSymlinks: true });
    return { ...structuredClone(before), root };
  }
  const program = Object.entries(programs).find(([image]) => base.startsWith(`${image}:`))?.[1];
  if (!program) throw new Error(`nothing is known of the image ${base}`);
  const to = join(root, "usr/local/bin", program.name);
  await mkdir(dirname(to), { recursive: true });
  // Another user may not be allowed to enter its folder.
  await link(program.path, to).catch((error: NodeJS.ErrnoException) => {
    // On another disk, or another user's file.
    if (error.code !== "EXDEV" && error.code !== "EPERM") throw error;
    return copyFile(program.path, to);
  });
  const none = { env: {}, labels: {}, volumes: [], ports: [], command: [], healthCheck: [] };
  return { ...none, root, workdir: "/", user: "0:0", stopSignal: "SIGTERM" };
}

function noteStep(keyword: string, text: string, image: Image): void {
  if (keyword === "WORKDIR") {
    image.workdir = posix.resolve(image.workdir, text);
    mkdirSync(join(image.root, image.workdir), { recursive: true });
  } else if (keyword === "ENV") Object.assign(image.env, pairs(text));
  else if (keyword === "LABEL") Object.assign(image.labels, pairs(text));
  else if (keyword === "USER") image.user = text;
  else if (keyword === "VOLUME") image.volumes.push(...exec(text));
  else if (keyword === "EXPOSE") image.ports.push(...text.split(" "));
  else if (keyword === "STOPSIGNAL") image.stopSignal = text;
  else if (keyword === "CMD") image.command = exec(text);
  else if (keyword === "HEALTHCHECK") image.healthCheck = exec(text.replace(/^CMD /, ""));
  else throw new Error(`${keyword} is not known here`);
}

function runStep(script: string, { root, workdir, env }: Image): void {
  if (/(?:^|[\s"'=:])(?:\/|~|\.\.)/.test(script)) throw new Error(`RUN names something outside WORKDIR: ${script}`);
  const { NODE_ENV: _, ...outer } = process.env;
  const path = `${join(root, "usr/local/bin")}:${process.env.PATH}`;
  const { status, stdout, stderr } = spawnSync("sh", ["-c", `umask 022 && ${script}`], {
    cwd: join(root, workdir),
    env: { ...outer, ...env, PATH: path },
    encoding: "utf8",
    timeout: RUN_MS_MAX,
  });
  if (status !== 0) throw new Error(`RUN ${script}: ended with ${status}\n${stdout}${stderr}`);
}

async function copyStep({ flags, text }: Step, image: Image, context: Context, others: Others): Promise<void> {
  const words = text.split(" ");
  const given = words.pop() ?? "";
  const to = join(image.root, posix.resolve(image.workdir, given));
  const from = flags.get("from");
  const origin = from === undefined ? context.folder : (await others.build(from)).root;
  const ignored = from === undefined ? context.ignored : () => false;
  for (const word of words) {
    const source = word.replace(/^\//, "");
    if (!existsSync(join(origin, source)) || ignored(source)) throw new Error(`COPY ${word}: there is no such file`);
    const isFolder = lstatSync(join(origin, source)).isDirectory();
    const target = isFolder || !given.endsWith("/") ? to : join(to, basename(source));
    await copyInto(join(origin, source), target, (path) => ignored(path.slice(origin.length + 1)));
  }
  if (flags.has("chown")) own(to, flags.get("chown") ?? "");
}

async function copyInto(source: string, target: string, ignored: (path: string) => boolean): Promise<void> {
  await mkdir(dirname(target), { recursive: true });
  const filter = (path: string) => !ignored(path);
  await cp(source, target, { recursive: true, verbatimSymlinks: true, filter });
}

/** Only root can change a file's owner. For other users the files are their own, as is the process that writes them. */
function own(path: string, ids: string): void {
  const [uid, gid] = ids.split(":").map(Number);
  if (process.getuid?.() === 0) lchownSync(path, uid ?? 0, gid ?? 0);
  chmodSync(path, 0o755);
}

function parseStep(line: string): Step {
  const [, keyword = "", rest = ""] = /^\s*([A-Z]+)\s+(.*?)\s*$/.exec(line) ?? [];
  const flags = new Map<string, string>();
  let text = rest;
  for (let found = /^--([a-z-]+)=(\S+)\s+/.exec(text); found; found = /^--([a-z-]+)=(\S+)\s+/.exec(text)) {
    flags.set(found[1] ?? "", found[2] ?? "");
    text = text.slice(found[0].length);
  }
  if (keyword === "") throw new Error(`this is no instruction: ${line}`);
  return { keyword, flags, text };
}

/** `A=1 B="two words"` */
function pairs(text: string): Record<string, string> {
  const found = [...text.matchAll(/([\w.]+)=(?:"([^"]*)"|(\S*))/g)];
  return Object.fromEntries(found.map(([, name = "", quoted, bare]) => [name, quoted ?? bare ?? ""]));
}

function fill(text: string, values: Record<string, string>): string {
  return text.replace(/\$\{(\w+)\}/g, (_, name: string) => {
    const value = values[name];
    if (value === undefined) throw new Error(`${name} has no value in: ${text}`);
    return value;
  });
}

function exec(text: string): string[] {
  const words: unknown = JSON.parse(text);
  if (!Array.isArray(words) || !words.every((word) => typeof word === "string")) throw new Error(`no list: ${text}`);
  return words;
}

function patternOf(glob: string): RegExp {
  const name = glob.replace(/^\/|\/$/g, "").replace(/[.+^${}()|[\]\\]/g, "\\$&");
  return new RegExp(`^${name.replace(/\*\*\/?|\*|\?/g, (wild) => WILD[wild] ?? ".*")}$`);
}

const WILD: Record<string, string> = { "*": "[^/]*", "?": "[^/]", "**/": "(?:.*/)?" };

/** The text of a file of the repository. */
export function repositoryText(path: string): string {
  return readFileSync(join(REPOSITORY, path), "utf8");
}
export const REPOSITORY = join(import.meta.dirname, "../..");
