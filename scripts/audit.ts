/**
 * Asks the registry which installed packages have known vulnerabilities: a part of `bun run check`. Fails for each one that is
 * not in EXCEPTIONS. An unreachable registry is reported and fails nothing, since it says nothing about the packages.
 */
import { spawnSync } from "node:child_process";
import { dirname } from "node:path";
import process from "node:process";

const WAIT_MS_MAX = 60_000;
/** Messages of bun if there is no such endpoint (a mirror), or no network. */
const NO_ENDPOINT = / - (?:404|405|501)\s*$/m;
const OFFLINE =
  /DNSResolveFailed|ConnectionRefused|ConnectionClosed|ConnectionReset|ConnectionTimeout|FailedToOpenSocket|ENOTFOUND|ETIMEDOUT|Timeout/i;

/** A known vulnerability, and why it does not matter here. It must be reviewed after `until`. */
export type Exception = { id: string; reason: string; until: `${number}-${number}-${number}` };
export const EXCEPTIONS: readonly Exception[] = [];

type Advisory = { id: string; package: string; title: string; severity: string; versions: string };
type Outcome = { exitCode: 0 | 1; lines: string[] };

/** Turns the output of `bun audit --json` into an exit code and lines for people. `today` is ISO 8601. */
export function judge(
  { stdout, stderr }: { stdout: string; stderr: string },
  exceptions: readonly Exception[],
  today: string,
): Outcome {
  const advisories = readAdvisories(stdout);
  if (advisories === undefined) return unanswered(stderr);
  const lines: string[] = [];
  for (const { id, reason, until } of exceptions) {
    if (until < today) lines.push(`The exception for ${id} ended on ${until}: ${reason}`);
    else if (!advisories.some((one) => one.id === id)) lines.push(`The exception for ${id} is needed no longer.`);
  }
  for (const { id, package: name, title, severity, versions } of advisories) {
    if (!exceptions.some((exception) => exception.id === id && exception.until >= today))
      lines.push(`${name} ${versions} (${severity}): ${title}, ${id}`);
  }
  return lines.length > 0 ? { exitCode: 1, lines } : { exitCode: 0, lines: ["No package has a known hole."] };
}

function unanswered(stderr: string): Outcome {
  const said = stderr.trim().split("\n").at(-1) ?? "";
  if (NO_ENDPOINT.test(stderr) || OFFLINE.test(stderr))
    return {
      exitCode: 0,
      lines: [`AUDIT NOT DONE: this registry cannot be asked (${said}). Nothing is known of holes.`],
    };
  return { exitCode: 1, lines: [`The audit failed: ${said || "bun said nothing"}`] };
}

/** Undefined: it is no answer. */
function readAdvisories(stdout: string): Advisory[] | undefined {
  let answer: unknown;
  try {
    answer = JSON.parse(stdout);
  } catch {
    return undefined; // The caller reads what was said instead.
  }
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) return undefined;
  return Object.entries(answer).flatMap(([name, found]) =>
    (Array.isArray(found) ? found : [found]).map(advisoryOf(name)),
  );
}

/** One that cannot be read is one all the same. */
function advisoryOf(name: string): (found: unknown) => Advisory {
  return (found) => {
    const fields: Record<string, unknown> = typeof found === "object" && found !== null ? { ...found } : {};
    const text = (value: unknown) =>
      typeof value === "string" || typeof value === "number" ? String(value) : "unknown";
    return {
      id: /GHSA(?:-\w{4}){3}/.exec(text(fields.url))?.[0] ?? text(fields.id),
      package: name,
      title: text(fields.title),
      severity: text(fields.severity),
      versions: text(fields.vulnerable_versions),
    };
  };
}

if (import.meta.main) {
  const { stdout, stderr, error } = spawnSync(process.execPath, ["audit", "--json"], {
    cwd: dirname(import.meta.dirname),
    encoding: "utf8",
    timeout: WAIT_MS_MAX,
    env: { ...process.env, NO_COLOR: "1" },
  });
  const said = { stdout: stdout ?? "", stderr: stderr || (error?.message ?? "") };
  const { exitCode, lines } = judge(said, EXCEPTIONS, new Date().toISOString());
  for (const line of lines) console.error(line);
  process.exit(exitCode);
}
