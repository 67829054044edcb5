import { plural, t } from "@lingui/core/macro";
import { formatBytes } from "../../format.ts";
import type { Attachment, Exchange } from "./exchanges.ts";

/** Images for a message: which files may be attached. */

const MESSAGE_IMAGES_MAX = 4;
const IMAGE_BYTES_MAX = 5 * 1024 * 1024;
/** Each message is sent with all earlier ones: as base64 they stay below BODY_BYTES_MAX. */
const CHAT_IMAGE_BYTES_MAX = 12 * 1024 * 1024;

/** The types that models read, by the first bytes. The name of a file says nothing. */
const TYPES = [
  { type: "image/png", at: 0, bytes: [0x89, 0x50, 0x4e, 0x47] },
  { type: "image/jpeg", at: 0, bytes: [0xff, 0xd8, 0xff] },
  { type: "image/gif", at: 0, bytes: [0x47, 0x49, 0x46, 0x38] },
  { type: "image/webp", at: 8, bytes: [0x57, 0x45, 0x42, 0x50] },
] as const;
export const ATTACHED_TYPES = TYPES.map(({ type }) => type).join(",");

type Added = { images: readonly Attachment[]; problem: string | null };

/** The images with these files added, as far as they fit, and why one was left out. */
export async function attach(
  files: readonly File[],
  { images, exchanges }: { images: readonly Attachment[]; exchanges: readonly Exchange[] },
): Promise<Added> {
  const before = bytesOf(exchanges.flatMap((exchange) => exchange.images));
  const all = [...images];
  let problem: string | null = null;
  for (const file of files) {
    const wrong = await whyNotAttached(file, { count: all.length, bytes: before + bytesOf(all) });
    if (typeof wrong === "string") problem ??= wrong;
    else all.push(wrong);
  }
  return { images: all, problem };
}

function bytesOf(images: readonly Attachment[]): number {
  return images.reduce((sum, { bytes }) => sum + bytes, 0);
}

/** The image, or why it cannot be attached. */
async function whyNotAttached(
  file: File,
  { count, bytes }: { count: number; bytes: number },
): Promise<Attachment | string> {
  const name = file.name || t`The image`;
  if (count >= MESSAGE_IMAGES_MAX) {
    return plural(
      { count: MESSAGE_IMAGES_MAX },
      { one: "A message can have at most # image.", other: "A message can have at most # images." },
    );
  }
  if (file.size > IMAGE_BYTES_MAX) return t`${name} is larger than ${{ size: formatBytes(IMAGE_BYTES_MAX) }}.`;
  if (bytes + file.size > CHAT_IMAGE_BYTES_MAX)
    return t`The images of one conversation can have at most ${{ size: formatBytes(CHAT_IMAGE_BYTES_MAX) }} together.`;
  const data = new Uint8Array(await file.arrayBuffer().catch(() => new ArrayBuffer(0)));
  const found = TYPES.find(({ at, bytes: first }) => first.every((byte, i) => data[at + i] === byte));
  if (found === undefined) return t`${name} is not a PNG, JPEG, WebP or GIF image.`;
  if (!(await canBeDrawn(new Blob([data], { type: found.type })))) return t`${name} is damaged.`;
  return { name, src: `data:${found.type};base64,${toBase64(data)}`, bytes: file.size };
}

async function canBeDrawn(blob: Blob): Promise<boolean> {
  try {
    (await createImageBitmap(blob)).close();
    return true;
  } catch {
    return false;
  }
}

/** Bytes that `fromCharCode` takes in one call. */
const CHUNK_BYTES = 32 * 1024;

function toBase64(data: Uint8Array): string {
  let binary = "";
  for (let from = 0; from < data.length; from += CHUNK_BYTES)
    binary += String.fromCharCode(...data.subarray(from, from + CHUNK_BYTES));
  return btoa(binary);
}
