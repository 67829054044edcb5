import { randomBytes } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, readFileSync, renameSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";

/** The demo's data folder: everything that is kept between starts. Only the owner can read its secrets. */

/** Keys and passwords, which the database stores only as digests. */
export const Memory = Type.Object({
  /** Secrets of API keys, by the key's name. */
  keys: Type.Record(Type.String(), Type.String()),
  people: Type.Array(
    Type.Object({ email: Type.String(), role: Type.String(), password: Type.String(), signInAt: Type.String() }),
  ),
});
export type Memory = Static<typeof Memory>;

export type DemoFolder = {
  path: string;
  postgresDir: string;
  spoolDir: string;
  logFile: string;
  providerLogFile: string;
  memoryFile: string;
  /** 32 bytes in base64, generated once. */
  secretKey: string;
  readMemory(): Memory;
  writeMemory(memory: Memory): void;
};

/** Opens the folder, and creates it if needed. Throws an Error with one sentence if it cannot be used. */
export function openDemoFolder(path: string): DemoFolder {
  const memoryFile = join(path, "demo.json");
  try {
    // Accessible to others: if we are root, PostgreSQL runs as another user and must reach its own folder.
    mkdirSync(path, { recursive: true, mode: 0o755 });
    accessSync(path, constants.W_OK | constants.X_OK);
    return {
      path,
      postgresDir: join(path, "postgres"),
      spoolDir: join(path, "spool"),
      logFile: join(path, "demo.log"),
      providerLogFile: join(path, "provider.log"),
      memoryFile,
      secretKey: readSecretKey(join(path, "secret_key")),
      readMemory: () => readMemory(memoryFile),
      writeMemory: (memory) => writeWhole(memoryFile, `${JSON.stringify(memory, null, 2)}\n`),
    };
  } catch (error) {
    const why = error instanceof Error && "code" in error ? String(error.code) : String(error);
    throw new Error(
      `The demo cannot use the folder ${path} (${why}): make it writable, or name another in DEMO_DATA_DIR.`,
    );
  }
}

function readSecretKey(file: string): string {
  if (!existsSync(file)) writeWhole(file, `${randomBytes(32).toString("base64")}\n`);
  return readFileSync(file, "utf8").trim();
}

/** A missing or damaged file counts as empty: keys and passwords are then generated again. */
function readMemory(file: string): Memory {
  const none: Memory = { keys: {}, people: [] };
  if (!existsSync(file)) return none;
  try {
    const parsed: unknown = JSON.parse(readFileSync(file, "utf8"));
    return Value.Check(Memory, parsed) ? parsed : none;
  } catch {
    return none;
  }
}

/** The file is never half-written, and others can never read it. */
function writeWhole(file: string, text: string): void {
  const made = `${file}.new`;
  writeFileSync(made, text, { mode: 0o600 });
  renameSync(made, file);
}
