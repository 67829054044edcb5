/** Rules about the structure of the code, as data: each checks one file and lists what is wrong with it. */
import { posix } from "node:path";
import { clockedAssertions, shortWaits } from "./house_clocks.ts";
import { codeAndStrings } from "./source_text.ts";

/** From top to bottom: a room imports only from rooms in later rows. Rooms of one row do not import each other. */
export const rows = [
  ["entry"],
  ["server"],
  ["panel"],
  ["operations"],
  ["gateway"],
  ["messages"],
  ["commerce"],
  ["books"],
  ["ledger"],
  ["catalog", "accounts"],
  ["http"],
  ["platform", "languages"],
];
/** The entry points and the files that only they use count as one room. */
const entryPaths = [
  "src/main.ts",
  "src/processes.ts",
  "src/replica.ts",
  "src/retention.ts",
  "src/cli.ts",
  "src/cli/",
  "src/demo.ts",
  "src/demo/",
];
/** Every file may import these. They import only each other, platform and languages; deps.ts, which has only types, may import everything. */
export const sharedFiles = [
  "src/config.ts",
  "src/config_values.ts",
  "src/errors.ts",
  "src/limits.ts",
  "src/price_parts.ts",
  "src/deps.ts",
];
const depsFile = "src/deps.ts";

const runtimeFile = "src/platform/runtime.ts";
const sqlFiles = [
  /^src\/platform\/schema(_[a-z_]+)?\.ts$/,
  "src/platform/db.ts",
  "src/platform/migrate.ts",
  /^src\/[a-z_]+\/(?:[a-z_]+\/)*(?:[a-z0-9_]+_)?store\.ts$/,
];
/** Files that may read the wall clock. Others get the time as an argument, or ask the database. */
const clockFiles = [
  "src/main.ts",
  "src/replica.ts",
  "src/cli.ts",
  "src/demo.ts",
  // Stands for the server of another company.
  "src/demo/provider/simulated_provider.ts",
  // In the browser.
  "src/panel/web/ui/clock.ts",
  runtimeFile,
];
/** Files that get the machine's wall clock. For all others `clock.unixMs` is the database's, as the replica estimates it. */
const wallClockFiles = [
  ...clockFiles,
  "src/platform/clock.ts",
  // Compares it with the monotonic clock: a machine that was suspended must read the database's clock anew.
  "src/platform/database_clock_store.ts",
  // The same, for what was drawn; the database refuses a replica that is an hour off.
  /^src\/ledger\/(?:open_ledger|escrow|batch)\.ts$/,
  // Request ids, and the times of log lines.
  "src/platform/crypto.ts",
  "src/platform/log.ts",
];
/** Files that may repeat work by an interval of their own. All other work is a job. */
const intervalFiles = [
  // On the path of requests: one for each stream, for all time limits of a length, and for each question.
  "src/gateway/relay.ts",
  "src/platform/deadline.ts",
  "src/platform/dns_query.ts",
  // Heartbeats and renewals: a pause after a slow run could end a lease. They wait for nothing, or report their own outage.
  "src/platform/bus.ts",
  "src/platform/replica_count.ts",
  "src/platform/redis_idempotency_claims.ts",
  "src/platform/redis_rate_counts.ts",
  // Looks at memory alone, several times a second: what they start has its own limits.
  "src/ledger/open_ledger.ts",
  "src/ledger/batch.ts",
  "src/server/memory_trim.ts",
  // Keeps what it could not write, and reports that itself.
  "src/platform/buffered_writes.ts",
  // In the browser.
  "src/panel/web/",
];
/** Files that may open outbound connections. */
const outboundFiles = [
  // Decides which addresses may be called, and fetches files from them.
  "src/catalog/guard.ts",
  // Connects to addresses, and looks no names up.
  "src/platform/connect_any.ts",
  // Call the address that they are given, without resolving names.
  runtimeFile,
  "src/platform/node_fetch.ts",
  // The operator names the server.
  "src/cli/server_door.ts",
  // Speaks SMTP on a connection that it is given.
  "src/messages/smtp.ts",
  // Asks the name servers of the system, or those that the operator names.
  "src/platform/dns_query.ts",
  // Processes of this machine that it has started.
  "src/processes.ts",
  // The demo's own processes, on this machine.
  "src/demo/demo_provider.ts",
  "src/demo/free_port.ts",
  // In the browser.
  "src/panel/web/",
];
/** Exports of node's network modules that open no outbound connection. */
const inboundNames = ["isIP", "isIPv4", "isIPv6", "createServer", "Server", "STATUS_CODES", "getServers"];
const extensions = /\.(?:tsx?|css|json|svg|png|html|sql)$/;
/** Files whose titles say again what can be read elsewhere: the name of an icon, a time in UTC. */
const titleFiles = [
  "src/panel/web/ui/buttons.tsx",
  "src/panel/web/ui/time.tsx",
  "src/panel/web/ui/meter.tsx",
  "src/panel/web/shell.tsx",
  "src/panel/web/pages/books/books_checks.tsx",
];
/** Folders of src deeper than this need not be on the README's map. */
const mapDepthMax = 2;

export interface SourceFile {
  /** From the repository's root, with slashes: "src/gateway/flow.ts". */
  path: string;
  text: string;
}

export interface HouseRule {
  name: string;
  /** What is wrong with this file: one short text for each finding. */
  findings(file: SourceFile): string[];
}

export const houseRules: HouseRule[] = [
  {
    name: "every file of src belongs to a room, and imports run downward only",
    findings: ({ path, text }) => {
      if (!isIn("src/", path)) return [];
      if (!isShared(path) && rowOf(path) < 0) return ["belongs to no room"];
      return relativeImports(path, text)
        .filter(({ target }) => !mayImport(path, target))
        .map(({ target }) => `imports ${target}`);
    },
  },
  {
    name: "the panel's frame knows no page: only routes.tsx names pages, and ui/ uses nothing of shared/",
    findings: ({ path, text }) => {
      if (!isIn("src/panel/web/", path) || isIn("src/panel/web/pages/", path)) return [];
      const unknown = [
        ...(path === "src/panel/web/routes.tsx" ? [] : ["src/panel/web/pages/"]),
        ...(isIn("src/panel/web/ui/", path) ? ["src/panel/web/shared/"] : []),
      ];
      return relativeImports(path, text)
        .filter(({ target }) => isListed(unknown, target))
        .map(({ target }) => `imports ${target}`);
    },
  },
  {
    name: "the panel explains nothing in a title, which touch and keyboard never see: there is ui/hint.tsx",
    findings: ({ path, text }) => {
      if (!isIn("src/panel/web/", path) || isListed(titleFiles, path)) return [];
      // Of elements, not of components: <Section title="…"> draws a heading.
      return matches(text, /<[a-z][\w.]*\s(?:[^<>]|=>)*?\btitle=/g);
    },
  },
  {
    name: "deps.ts is types only",
    findings: ({ path, text }) => {
      if (!isIn("src/", path)) return [];
      return relativeImports(path, text)
        .filter(({ target, isType }) => !isType && (path === depsFile || target === depsFile))
        .map(({ target }) => `imports ${target} without "type"`);
    },
  },
  {
    name: "Bun and Deno are named in platform/runtime.ts alone",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || path === runtimeFile) return [];
      const { code } = codeAndStrings(text);
      const imported = imports(text).filter(({ from }) => /^(?:bun$|bun:|jsr:|npm:)/.test(from));
      return [...matches(code, /\b(?:Bun|Deno)\s*(?:\?\.|\.|\[)/g), ...imported.map(({ from }) => `imports ${from}`)];
    },
  },
  {
    name: "SQL stands in stores, schema, migrations and invariants",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || isListed(sqlFiles, path)) return [];
      const { code, strings } = codeAndStrings(text);
      const written = /\bselect\b[\s\S]*?\bfrom\b|\binsert into\b|\bdelete from\b|\bupdate\s+\w+\s+set\b/;
      const shouted = /\bSELECT\b[\s\S]*?\bFROM\b|\bINSERT INTO\b|\bDELETE FROM\b|\bUPDATE\s+\w+\s+SET\b/;
      const spoken = strings.filter((string) => written.test(string) || shouted.test(string));
      return [
        ...matches(code, /\bsql\s*(?:<[^`]*?>\s*)?`|\.unsafe\s*\(/g),
        ...spoken.map((string) => string.slice(0, 60)),
      ];
    },
  },
  {
    name: "time is passed in: nobody below main.ts reads the wall clock",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || isListed(clockFiles, path)) return [];
      return matches(
        codeAndStrings(text).code,
        /\bnew Date\s*(?:\(\s*\)|(?![\w\s(]))|\bDate\.now\b|(?<!new )\bDate\(\s*\)/g,
      );
    },
  },
  {
    name: "the machine's wall clock decides nothing: due times, claims and expiries go by the database's",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || isListed(wallClockFiles, path)) return [];
      return matches(codeAndStrings(text).code, /\bwall(?:Clock)?Ms\b/g);
    },
  },
  {
    name: "repeated work is a job (platform/every.ts): one run at a time, with metrics, and no interval of its own",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || isListed(intervalFiles, path)) return [];
      return matches(codeAndStrings(text).code, /\bsetInterval\s*\(/g);
    },
  },
  {
    name: "a moment or a span of SQL is cut to whole units, never rounded: a cast alone may name a second that has not begun",
    findings: ({ path, text }) =>
      [
        ...(isIn("src/", path) ? text : "").matchAll(
          /(\bfloor\s*\([^;\n]{0,24}?)?\bextract\s*\(\s*epoch\b[^;\n]*?::\s*(?:int|bigint|integer)\b/gi,
        ),
      ]
        .filter(([, cut]) => cut === undefined)
        .map(([found]) => found),
  },
  {
    name: "calls to elsewhere go by the outbound guard",
    findings: ({ path, text }) => {
      if (!isIn("src/", path) || isListed(outboundFiles, path)) return [];
      const { code } = codeAndStrings(text);
      const called = /(?<![.\w$]|\basync )fetch\s*\((?!\s*\w+\??\s*:)/g;
      const handedOn = /\b(?:globalThis|window|self)\s*(?:\?\.|\.|\[)\s*(?:fetch\b|["'])|[=(,:?]\s*fetch\s*[;,)\n]/g;
      const others = /\bnew\s+(?:WebSocket|EventSource|XMLHttpRequest)\b/g;
      const imported = imports(text)
        .filter(({ isType }) => !isType)
        .filter(({ from, names }) =>
          /^(?:node:)?(?:https?|http2|net|tls|dgram|dns)(?:\/promises)?$/.test(from)
            ? names.length === 0 || names.some((name) => !inboundNames.includes(name))
            : /^(?:undici|axios|got|ky|node-fetch|superagent|ws|nodemailer)$/.test(from),
        );
      return [
        ...matches(code, called),
        ...matches(code, handedOn),
        ...matches(code, others),
        ...imported.map(({ from }) => `imports ${from}`),
      ];
    },
  },
  {
    name: "names are looked up over our own sockets: node:dns would take threads of the runtime's pool",
    findings: ({ path, text }) => {
      if (!isIn("src/", path)) return [];
      return imports(text)
        .filter(({ from, isType }) => !isType && /^(?:node:)?dns(?:\/promises)?$/.test(from))
        .filter(({ names }) => names.length === 0 || names.some((name) => name !== "getServers"))
        .map(({ from }) => `imports ${from}`);
    },
  },
  {
    name: "relative imports carry their extension",
    findings: ({ text }) =>
      imports(text)
        .filter(({ from }) => from.startsWith(".") && !extensions.test(from))
        .map(({ from }) => `imports ${from}`),
  },
  {
    name: "no test is left out: no only, skip or todo",
    findings: ({ path, text }) => {
      if (!isIn("test/", path)) return [];
      const { code } = codeAndStrings(text);
      const marked = /\b(?:test|it|describe)(?:\.\w+)*\.(?:only|skip|todo|skipIf|todoIf|if)\b/g;
      return [...matches(code, marked), ...matches(code, /\b(?:x(?:test|it|describe)|f(?:it|describe))\s*\(/g)];
    },
  },
  {
    name: "no assertion of a test is about measured time, processor time or resident memory",
    findings: ({ path, text }) => {
      if (!isIn("test/", path)) return [];
      return clockedAssertions(text);
    },
  },
  {
    name: "a test's wait for a state has no limit of its own that a busy machine could reach",
    findings: ({ path, text }) => {
      if (!isIn("test/", path)) return [];
      return shortWaits(text);
    },
  },
  {
    name: "tests in a browser wait for no promise inside a matcher: it would reorder Playwright's messages",
    findings: ({ path, text }) => {
      if (!isIn("test/browser/", path)) return [];
      return matches(codeAndStrings(text).code, /\.(?:rejects|resolves)\b|\bexpect\s*\(\s*async\b/g);
    },
  },
];

/** Folders of src that are missing on the README's map. A missing README is a finding too. */
export function missingOnMap(readme: string | null, paths: string[]): string[] {
  if (readme === null) return ["README.md itself"];
  const folders = new Set<string>();
  for (const path of paths) {
    const parts = path.split("/");
    if (parts[0] !== "src") continue;
    for (let depth = 1; depth <= mapDepthMax && depth < parts.length - 1; depth++) {
      folders.add(parts.slice(0, depth + 1).join("/"));
    }
  }
  return [...folders].filter((folder) => !new RegExp(`\\b${posix.basename(folder)}/`).test(readme)).sort();
}

interface Import {
  from: string;
  isType: boolean;
  /** import(): loaded when it is called. */
  isCall: boolean;
  /** Names of the imported values; empty if the whole module is imported. */
  names: string[];
}

/** Import and export statements and import() calls, as written. Strings and comments are ignored. */
export function imports(text: string): Import[] {
  const { code } = codeAndStrings(text);
  const statement = /\b(?:import|export)\b([^"'`;()]*?\bfrom)?\s*\(?\s*(["'])(\s*)\2/g;
  return [...code.matchAll(statement)].map((found) => {
    const start = found.index + found[0].length - 1 - (found[3] ?? "").length;
    const clause = found[1] ?? "";
    return {
      from: text.slice(start, found.index + found[0].length - 1),
      isType: /^\s*type\b/.test(clause),
      isCall: found[0].includes("("),
      names: namesOf(clause),
    };
  });
}

/** For `import { a, type B, c as d } from`: a and c. */
function namesOf(clause: string): string[] {
  const listed = /\{([^}]*)\}/.exec(clause)?.[1] ?? "";
  return listed
    .split(",")
    .map((name) => name.trim())
    .filter((name) => name !== "" && !name.startsWith("type "))
    .map((name) => name.split(/\s+/)[0] ?? "");
}

/** The files of this repository that a file imports, as paths from the root. */
export function relativeImports(path: string, text: string): { target: string; isType: boolean }[] {
  return imports(text)
    .filter(({ from }) => from.startsWith("."))
    .map(({ from, isType }) => ({ target: posix.join(posix.dirname(path), from), isType }));
}

function mayImport(path: string, target: string): boolean {
  if (path === depsFile || isShared(target)) return true;
  if (!isIn("src/", target)) return target.endsWith(".json") || target.endsWith(".sql");
  const platform = rows.length - 1;
  if (isShared(path)) return rowOf(target) === platform;
  return roomOf(path) === roomOf(target) || rowOf(path) < rowOf(target);
}

/** The room of a file in src: its folder, or "entry" for entry points. */
export function roomOf(path: string): string {
  return isListed(entryPaths, path) ? "entry" : (path.split("/")[1] ?? "");
}

/** The row of a file; -1 if it belongs to no room. */
function rowOf(path: string): number {
  return rows.findIndex((rooms) => rooms.includes(roomOf(path)));
}

function isShared(path: string): boolean {
  return sharedFiles.includes(path);
}

/** An entry is a path, a folder with a slash at its end, or a pattern. */
function isListed(entries: (string | RegExp)[], path: string): boolean {
  return entries.some((entry) => {
    if (entry instanceof RegExp) return entry.test(path);
    return entry.endsWith("/") ? isIn(entry, path) : entry === path;
  });
}

function isIn(folder: string, path: string): boolean {
  return path.startsWith(folder);
}

function matches(text: string, pattern: RegExp): string[] {
  return [...text.matchAll(pattern)].map((found) => found[0]);
}
