/**
 * Asks the registry which installed packages have known vulnerabilities. Part of `bun run check`. Fails for each vulnerability that
 * is not in EXCEPTIONS. If the registry cannot be reached, reports that and does not fail.
 */
import { spawnSync } from "node:child_process";
import { dirname } from "node:path";
import process from "node:process";

const WAIT_MS_MAX = 60_000;
/** Messages of bun if the registry has no audit endpoint (a mirror), or if there is no network. */
const NO_ENDPOINT = / - (?:404|405|501)\s*$/m;
const OFFLINE =
  /DNSResolveFailed|ConnectionRefused|ConnectionClosed|ConnectionReset|ConnectionTimeout|FailedToOpenSocket|ENOTFOUND|ETIMEDOUT|Timeout/i;

/** A known vulnerability that is accepted, and why. It must be reviewed after `until`. */
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
  if (advisories === undefined) return notAnswered(stderr);
  const lines: string[] = [];
  for (const { id, reason, until } of exceptions) {
    if (until < today) lines.push(`The exception for ${id} ended on ${until}: ${reason}`);
    else if (!advisories.some((one) => one.id === id)) lines.push(`The exception for ${id} is no longer needed.`);
  }
  for (const { id, package: name, title, severity, versions } of advisories) {
    if (!exceptions.some((exception) => exception.id === id && exception.until >= today))
      lines.push(`${name} ${versions} (${severity}): ${title}, ${id}`);
  }
  return lines.length > 0 ? { exitCode: 1, lines } : { exitCode: 0, lines: ["No package has a known vulnerability."] };
}

function notAnswered(stderr: string): Outcome {
  const message = stderr.trim().split("\n").at(-1) ?? "";
  if (NO_ENDPOINT.test(stderr) || OFFLINE.test(stderr))
    return {
      exitCode: 0,
      lines: [`AUDIT NOT DONE: the registry did not answer (${message}). Packages may have known vulnerabilities.`],
    };
  return { exitCode: 1, lines: [`The audit failed: ${message || "bun printed no message"}`] };
}

/** Undefined if the output is not an answer of the registry. */
function readAdvisories(stdout: string): Advisory[] | undefined {
  let answer: unknown;
  try {
    answer = JSON.parse(stdout);
  } catch {
    return undefined; // The caller reports stderr instead.
  }
  if (typeof answer !== "object" || answer === null || Array.isArray(answer)) return undefined;
  return Object.entries(answer).flatMap(([name, found]) =>
    (Array.isArray(found) ? found : [found]).map(advisoryOf(name)),
  );
}

/** An advisory with unreadable fields still counts. */
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
  const output = { stdout: stdout ?? "", stderr: stderr || (error?.message ?? "") };
  const { exitCode, lines } = judge(output, EXCEPTIONS, new Date().toISOString());
  for (const line of lines) console.error(line);
  process.exit(exitCode);
}
