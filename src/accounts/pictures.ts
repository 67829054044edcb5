import type { Sharp } from "sharp";
import { InputError, Refusal, type Sentence, sentence } from "../errors.ts";
import { BRAND_PICTURE_BYTES_MAX } from "../limits.ts";
import { createSemaphore } from "../platform/semaphore.ts";

/**
 * Uploaded pictures. Each is decoded and encoded again, so that no metadata and no other content of the file remains. PNG and WebP
 * only, not animated. Source: PAN-8.
 */

const SIDE_PIXELS_MAX = 2048;
const LOGO_WIDTH_MAX = 480;
const LOGO_HEIGHT_MAX = 120;
const ICON_SIDE = 64;
/** Pictures that are converted at once in one replica, and for one account. The largest takes 16 MB. */
const AT_ONCE_MAX = 8;
const ACCOUNT_AT_ONCE_MAX = 2;
/** Those that wait for that, of all and of one account, and how long. */
const WAITING_MAX = 64;
const ACCOUNT_WAITING_MAX = 8;
const WAIT_MS_MAX = 5_000;
const RETRY_AFTER_SECONDS = 2;
const DECODE_SECONDS_MAX = 5;

export const LOGO_TYPE = "image/webp";

const PNG_MAGIC = Buffer.from("89504e470d0a1a0a", "hex");
const PNG_CHUNK_FRAME_BYTES = 12;
const TRANSPARENT = { r: 0, g: 0, b: 0, alpha: 0 };

/** Permission to convert pictures, one after the other. */
export type Turn = { readonly isTurn: true };
const TURN: Turn = { isTurn: true };

const tooMany = (code: "too_many_requests" | "service_unavailable") =>
  new Refusal(code, {
    message: "Too many pictures are being converted right now. Try again in a few seconds.",
    retryAfterSeconds: RETRY_AFTER_SECONDS,
  });

const places = createSemaphore({
  ...{ max: AT_ONCE_MAX, waitingMax: WAITING_MAX },
  shareFull: () => tooMany("too_many_requests"),
  allFull: () => tooMany("service_unavailable"),
});

/**
 * Converts pictures when it is the account's turn: others take turns with it. Taken once for all pictures of a change, and never inside a
 * transaction, which would keep its connection while it waits. Throws too_many_requests, service_unavailable, and what `work` throws.
 */
export async function inTurn<T>(accountId: number, work: (turn: Turn) => Promise<T>): Promise<T> {
  const share = { id: `account:${accountId}`, atOnceMax: ACCOUNT_AT_ONCE_MAX, waitingMax: ACCOUNT_WAITING_MAX };
  const leave = await places.enter([share], { waitMsMax: WAIT_MS_MAX });
  try {
    return await work(TURN);
  } finally {
    leave();
  }
}

/** A logo as lossless WebP, at most 480 × 120 pixels. Throws InputError with `image`. */
export function toLogo(_turn: Turn, bytes: Uint8Array): Promise<Buffer> {
  return rewrite(bytes, (picture) =>
    picture
      .resize({ width: LOGO_WIDTH_MAX, height: LOGO_HEIGHT_MAX, fit: "inside", withoutEnlargement: true })
      .webp({ lossless: true }),
  );
}

/** An icon as PNG of 64 × 64 pixels, padded transparently. Throws as `toLogo` does. */
export function toIcon(_turn: Turn, bytes: Uint8Array): Promise<Buffer> {
  return rewrite(bytes, (picture) =>
    picture.resize({ width: ICON_SIDE, height: ICON_SIDE, fit: "contain", background: TRANSPARENT }).png(),
  );
}

/** A stored logo as PNG. Throws as `toLogo` does. */
export function toPng(_turn: Turn, bytes: Uint8Array): Promise<Buffer> {
  return rewrite(bytes, (picture) => picture.png());
}

async function rewrite(bytes: Uint8Array, to: (picture: Sharp) => Sharp): Promise<Buffer> {
  if (bytes.length > BRAND_PICTURE_BYTES_MAX)
    throw wrong(`The picture may have at most ${BRAND_PICTURE_BYTES_MAX / 1024} KB.`);
  checkKind(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  try {
    return await to(await open(bytes)).toBuffer();
  } catch (error) {
    // The decoder's own messages are about files and libraries, and do not help.
    throw error instanceof InputError ? error : wrong("The picture is damaged: it cannot be decoded.");
  }
}

/** Opens a picture and checks its header. The decoder is loaded with the first picture, so that a replica starts without it. */
async function open(bytes: Uint8Array): Promise<Sharp> {
  const { default: sharp } = await import("sharp");
  const picture = sharp(bytes, { limitInputPixels: SIDE_PIXELS_MAX ** 2, failOn: "warning" });
  const {
    width,
    height,
    format,
    pages = 1,
  } = await picture.metadata().catch((error: Error) => {
    throw /pixel limit/.test(error.message) ? tooManyPixels() : error;
  });
  if (format !== "png" && format !== "webp") throw wrongKind();
  if (width > SIDE_PIXELS_MAX || height > SIDE_PIXELS_MAX) throw tooManyPixels();
  if (pages > 1) throw animated();
  // Applies the orientation before the metadata is dropped.
  return picture.autoOrient().timeout({ seconds: DECODE_SECONDS_MAX });
}

/** Checks the first bytes: only PNG and WebP reach a decoder. */
function checkKind(bytes: Buffer): void {
  const isWebp = bytes.toString("latin1", 0, 4) === "RIFF" && bytes.toString("latin1", 8, 12) === "WEBP";
  if (bytes.subarray(0, PNG_MAGIC.length).equals(PNG_MAGIC)) checkPngChunks(bytes);
  else if (!isWebp) throw wrongKind();
}

/** Rejects animated and truncated PNGs, of which decoders would show the first frame or a part. */
function checkPngChunks(bytes: Buffer): void {
  for (let at = PNG_MAGIC.length; at + PNG_CHUNK_FRAME_BYTES <= bytes.length; ) {
    const type = bytes.toString("latin1", at + 4, at + 8);
    if (type === "acTL") throw animated();
    at += PNG_CHUNK_FRAME_BYTES + bytes.readUInt32BE(at);
    if (type === "IEND") return;
  }
  throw wrong("The picture is damaged: its end is missing.");
}

function wrongKind(): InputError {
  return wrong("The picture must be a PNG or WebP file.");
}

function animated(): InputError {
  return wrong("The picture must not be animated.");
}

function tooManyPixels(): InputError {
  return wrong(sentence("The picture may have at most {side} × {side} pixels.", { side: SIDE_PIXELS_MAX }));
}

function wrong(message: string | Sentence): InputError {
  return new InputError(message, "image");
}
