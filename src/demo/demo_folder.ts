import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";

/** The demo's data folder: everything that is kept between starts. Only the owner can read the secrets in it. */

/** API keys and passwords in clear text. The database stores only their digests. */
export const Credentials = Type.Object({
  /** API keys, by name. */
  keys: Type.Record(Type.String(), Type.String()),
  people: Type.Array(
    Type.Object({ email: Type.String(), role: Type.String(), password: Type.String(), signInAt: Type.String() }),
  ),
});
export type Credentials = Static<typeof Credentials>;

export type DemoFolder = {
  path: string;
  postgresDir: string;
  spoolDir: string;
  logFile: string;
  providerLogFile: string;
  credentialsFile: string;
  /** 32 bytes in base64, generated once. */
  secretKey: string;
  readCredentials(): Credentials;
  writeCredentials(credentials: Credentials): void;
};

/** Opens the folder, and creates it if it is missing. Throws an Error with one sentence if it cannot be used. */
export function openDemoFolder(path: string): DemoFolder {
  const credentialsFile = join(path, "demo.json");
  try {
    // Other users may enter it: under root, PostgreSQL runs as another user and must reach its own folder.
    mkdirSync(path, { recursive: true, mode: 0o755 });
    accessSync(path, constants.W_OK | constants.X_OK);
    return {
      path,
      postgresDir: join(path, "postgres"),
      spoolDir: join(path, "spool"),
      logFile: join(path, "demo.log"),
      providerLogFile: join(path, "provider.log"),
      credentialsFile,
      secretKey: readSecretKey(join(path, "secret_key")),
      readCredentials: () => readCredentials(credentialsFile),
      writeCredentials: (credentials) => writeAtomically(credentialsFile, `${JSON.stringify(credentials, null, 2)}\n`),
    };
  } catch (error) {
    const why = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new Error(
      `The demo cannot use the folder ${path} (${why}): make it writable, or name another in DEMO_DATA_DIR.`,
    );
  }
}

function readSecretKey(file: string): string {
  if (!existsSync(file)) writeAtomically(file, `${randomBytes(32).toString("base64")}\n`);
  return readFileSync(file, "utf8").trim();
}

/** A missing or damaged file counts as empty: the seed then creates new keys and passwords. */
function readCredentials(file: string): Credentials {
  const none: Credentials = { keys: {}, people: [] };
  if (!existsSync(file)) return none;
  try {
    const parsed: unknown = JSON.parse(readFileSync(file, "utf8"));
    return Value.Check(Credentials, parsed) ? parsed : none;
  } catch {
    return none;
  }
}

/** Replaces the file in one step, so that it is never half-written. Only the owner can read it. */
function writeAtomically(file: string, text: string): void {
  const temporary = `${file}.new`;
  writeFileSync(temporary, text, { mode: 0o600 });
  renameSync(temporary, file);
}
