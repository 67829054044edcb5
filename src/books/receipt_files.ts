import { createHash } from "node:crypto";
import { type FileHandle, mkdir, open, readFile, rename, rm, stat } from "node:fs/promises";
import { join } from "node:path";
import { gunzipSync, gzipSync } from "node:zlib";
import { type Static, Type } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { InputError, sentence } from "../errors.ts";
import type { MonthProblem } from "./seal_check_store.ts";
import { linesOf, listBlocks, type Seal } from "./seals_store.ts";
import type { Slices } from "./short_transactions_store.ts";

/**
 * Receipts of sealed months as files: `receipts-2030-01.ndjson.gz` has a line of JSON for each receipt, in the order of their ids, and
 * `receipts-2030-01.json` says what was sealed. Each block is compressed by itself, so that an export goes on after a crash, and a file
 * is compared with its seal block by block. The manifest is written last, after the receipts are on disk. Source: RET-6.
 */

const Manifest = Type.Object({
  form: Type.Literal("receipts 1"),
  seal: Type.Object({
    month: Type.String(),
    receipts: Type.Integer(),
    blocks: Type.String(),
    totals: Type.String(),
    previous: Type.String(),
    seal: Type.String(),
    sealedAt: Type.String(),
  }),
  blocks: Type.Array(
    Type.Object({
      number: Type.Integer(),
      lastId: Type.String(),
      receipts: Type.Integer(),
      /** SHA-256 of its lines. */
      digest: Type.String(),
      /** Of the file, compressed. */
      offset: Type.Integer(),
      bytes: Type.Integer(),
    }),
  ),
});
type Manifest = Static<typeof Manifest>;
type Piece = Manifest["blocks"][number];

/** A block of 5,000 receipts is some 5 MB. */
const BLOCK_BYTES_MAX = 256 * 1024 * 1024;

const dataName = (month: string) => `receipts-${month}.ndjson.gz`;
const manifestName = (month: string) => `receipts-${month}.json`;

/** Writes a month, or goes on where an earlier attempt was interrupted. Throws InputError if a receipt is not the one that was sealed. */
export async function exportMonth(slices: Slices, { seal, folder }: { seal: Seal; folder: string }): Promise<void> {
  const { month } = seal;
  await mkdir(folder, { recursive: true });
  const [part, progress] = [join(folder, `${dataName(month)}.part`), join(folder, `${manifestName(month)}.part`)];
  const pieces = await begunPieces({ part, progress }, seal);
  const data = await open(part, "a", 0o600);
  const journal = await open(progress, "a", 0o600);
  try {
    // What was written after the last block that counts, or torn.
    await data.truncate(endOf(pieces));
    await journal.truncate(0);
    await append(journal, `${seal.seal}\n${pieces.map((piece) => `${JSON.stringify(piece)}\n`).join("")}`);
    const blocks = await listBlocks(slices.sql, month);
    for (const [i, block] of blocks.entries()) {
      if (i < pieces.length) continue;
      slices.doing = `exporting ${month}, block ${i + 1} of ${blocks.length}`;
      const lines = await linesOf(slices, month, { after: blocks[i - 1]?.lastId ?? null, upTo: block.lastId });
      if (sha256(lines) !== block.digest)
        throw new InputError(
          sentence("Block {number} of {month} is not what was sealed: run doctor --full.", {
            number: block.number,
            month,
          }),
        );
      const packed = gzipSync(lines);
      const piece: Piece = { ...block, offset: endOf(pieces), bytes: packed.length };
      await append(data, packed);
      await append(journal, `${JSON.stringify(piece)}\n`);
      pieces.push(piece);
    }
  } finally {
    await data.close();
    await journal.close();
  }
  await rename(part, join(folder, dataName(month)));
  await writeManifest(folder, { form: "receipts 1", seal, blocks: pieces });
  await rm(progress, { force: true });
}

const endOf = (pieces: readonly Piece[]): number => pieces.reduce((sum, { bytes }) => sum + bytes, 0);

/** The blocks that an interrupted export has on disk; none if there was none, or of another seal. */
async function begunPieces({ part, progress }: { part: string; progress: string }, { seal }: Seal): Promise<Piece[]> {
  const text = await readFile(progress, "utf8").catch(ifMissing);
  const [head, ...lines] = (text ?? "").split("\n");
  // The last line is empty, or torn.
  const pieces = head === seal ? lines.slice(0, -1).map((line): Piece => JSON.parse(line)) : [];
  const bytes = (await stat(part).catch(ifMissing))?.size ?? 0;
  return bytes < endOf(pieces) ? [] : pieces;
}

/** Writes, and waits until it is on disk. */
async function append(file: FileHandle, content: string | Uint8Array): Promise<void> {
  await file.appendFile(content);
  await file.sync();
}

async function writeManifest(folder: string, manifest: Manifest): Promise<void> {
  const path = join(folder, manifestName(manifest.seal.month));
  await rm(`${path}.new`, { force: true });
  const file = await open(`${path}.new`, "a", 0o600);
  try {
    await append(file, `${JSON.stringify(manifest, null, 2)}\n`);
  } finally {
    await file.close();
  }
  await rename(`${path}.new`, path);
  const directory = await open(folder, "r");
  await directory.sync().finally(() => directory.close());
}

/** Compares the files of a month with its seal. No problem: they have every receipt that was sealed, unchanged. */
export async function verifyFiles(
  slices: Slices,
  { seal, folder }: { seal: Seal; folder: string },
): Promise<MonthProblem[]> {
  const { month } = seal;
  const problem = (text: string) => ({ month, problem: text });
  const manifest = await readManifest(folder, month);
  if (typeof manifest === "string") return [problem(manifest)];
  if (manifest.seal.seal !== seal.seal) return [problem(`${manifestName(month)} has another seal`)];
  const blocks = await listBlocks(slices.sql, month);
  const file = await open(join(folder, dataName(month)), "r").catch(ifMissing);
  if (file === undefined) return [problem(`${dataName(month)} is missing`)];
  try {
    const problems: MonthProblem[] = [];
    for (const [i, block] of blocks.entries()) {
      slices.doing = `comparing ${dataName(month)} with its seal, block ${block.number}`;
      const piece = manifest.blocks[i];
      if (piece === undefined || (await digestOf(file, piece)) !== block.digest)
        problems.push(problem(`block ${block.number} of ${dataName(month)} is not what was sealed`));
    }
    const bytes = manifest.blocks.reduce((sum, piece) => sum + piece.bytes, 0);
    if ((await file.stat()).size !== bytes) problems.push(problem(`${dataName(month)} has more than was exported`));
    return problems;
  } finally {
    await file.close();
  }
}

/** The manifest, or what is wrong with it. */
async function readManifest(folder: string, month: string): Promise<Manifest | string> {
  const text = await readFile(join(folder, manifestName(month)), "utf8").catch(ifMissing);
  if (text === undefined) return `${manifestName(month)} is missing`;
  try {
    const read: unknown = JSON.parse(text);
    return Value.Check(Manifest, read) ? read : `${manifestName(month)} is no manifest of receipts`;
  } catch {
    return `${manifestName(month)} is not JSON`;
  }
}

/** The hash of the lines of a block; undefined: it cannot be read. */
async function digestOf(file: FileHandle, { offset, bytes }: Piece): Promise<string | undefined> {
  if (bytes < 0 || bytes > BLOCK_BYTES_MAX || offset < 0) return undefined;
  const packed = new Uint8Array(bytes);
  const { bytesRead } = await file.read(packed, 0, bytes, offset);
  if (bytesRead !== bytes) return undefined;
  try {
    return sha256(gunzipSync(packed, { maxOutputLength: BLOCK_BYTES_MAX }));
  } catch {
    return undefined; // What was changed is no gzip any more.
  }
}

function sha256(content: string | Uint8Array): string {
  return createHash("sha256").update(content).digest("hex");
}

function ifMissing(error: NodeJS.ErrnoException): undefined {
  if (error.code !== "ENOENT") throw error;
}
