import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, randomFillSync, timingSafeEqual } from "node:crypto";
import { crc32 } from "node:zlib";
import { sha256, sha256Hex, wallClockMs } from "./runtime.ts";

const ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/** 43 characters of 62 are 256 bits; without the visible ends, still more than 192. */
const KEY_RANDOM_LENGTH = 43;
/** 62^6 is just above 2^32: room for a CRC-32. */
const KEY_CHECKSUM_LENGTH = 6;
const KEY_FORM = /^sk-[0-9A-Za-z]{49}$/;
const API_TOKEN_FORM = /^mt-[0-9A-Za-z]{49}$/;
const KEY_PREFIX_LENGTH = 9;
const KEY_SUFFIX_LENGTH = 4;

const TOKEN_BYTES = 32;
/** 32 bytes in base64url. */
const TOKEN_FORM = /^[A-Za-z0-9_-]{43}$/;

/** First byte of everything encrypted here. */
const CIPHER_VERSION = 1;
/** Identifies the key without revealing it. */
const CIPHER_KEY_ID_BYTES = 4;
const CIPHER_IV_BYTES = 12;
const CIPHER_TAG_BYTES = 16;
const CIPHER_HEAD_BYTES = 1 + CIPHER_KEY_ID_BYTES;
const DERIVED_KEY_BYTES = 32;

/** A clock set back by more than this was wrong before: ids continue from the new time, instead of staying ahead of it. */
const AHEAD_MS_MAX = 30 * 60_000;
/** The counter of a UUIDv7 starts in the lower half of its 12 bits, so that at least 2,048 ids fit in a millisecond. */
const UUID_COUNTER_MAX = 0xfff;
const UUID_BYTES = 16;
const RANDOM_POOL_BYTES = 256 * UUID_BYTES;

export type NewApiKey = {
  /** Shown once, never stored. */
  secret: string;
  /** SHA-256 of the secret, which is stored. */
  digest: Buffer;
  /** The visible ends of the key. */
  prefix: string;
  suffix: string;
};

/** A new API key: `sk-`, 256 random bits in base 62, and a checksum. Source: KEY-3. */
export function newApiKey(): NewApiKey {
  return newSecret("sk-");
}

/** A new token of the management API: `mt-`, and as a key. */
export function newApiToken(): NewApiKey {
  return newSecret("mt-");
}

function newSecret(kind: "sk-" | "mt-"): NewApiKey {
  const body = `${kind}${randomBase62(KEY_RANDOM_LENGTH)}`;
  const secret = body + checksumOf(body);
  return {
    secret,
    digest: Buffer.from(sha256(secret)),
    prefix: keyPrefixOf(secret),
    suffix: secret.slice(-KEY_SUFFIX_LENGTH),
  };
}

/** The visible beginning of a key. */
export function keyPrefixOf(secret: string): string {
  return secret.slice(0, KEY_PREFIX_LENGTH);
}

/** The digest to look up a key by, in hex; undefined: the string cannot be a key. Throws nothing. */
export function digestOfKey(secret: string): string | undefined {
  return KEY_FORM.test(secret) && hasChecksum(secret) ? sha256Hex(secret) : undefined;
}

/** The same for a token of the management API. */
export function digestOfApiToken(secret: string): string | undefined {
  return API_TOKEN_FORM.test(secret) && hasChecksum(secret) ? sha256Hex(secret) : undefined;
}

/** A key of 32 bytes for one purpose, which reveals nothing about `secretKey` and other purposes' keys. Source: RFC 5869. */
export function deriveKey(secretKey: Uint8Array, purpose: string): Uint8Array {
  return new Uint8Array(hkdfSync("sha256", secretKey, "", `tollgate.${purpose}`, DERIVED_KEY_BYTES));
}

/**
 * AES-256-GCM: version, key id, IV, ciphertext, tag. `secretKey` is 32 bytes; a text is encrypted as UTF-8. `context` is not part of the
 * ciphertext, but only the same context decrypts it.
 */
export function encrypt(secretKey: Uint8Array, plain: string | Uint8Array, context = ""): Buffer {
  const head = Buffer.concat([Buffer.of(CIPHER_VERSION), cipherKeyId(secretKey)]);
  const iv = randomBytes(CIPHER_IV_BYTES);
  const cipher = createCipheriv("aes-256-gcm", secretKey, iv).setAAD(withContext(head, context));
  const encrypted = typeof plain === "string" ? cipher.update(plain, "utf8") : cipher.update(plain);
  return Buffer.concat([head, iv, encrypted, cipher.final(), cipher.getAuthTag()]);
}

/** Reverses `encrypt` for a text. Throws as `decryptBytes`. */
export function decrypt(secretKey: Uint8Array, bytes: Uint8Array, context = ""): string {
  return decryptBytes(secretKey, bytes, context).toString("utf8");
}

/** Reverses `encrypt`. Throws an Error that says whether the key is wrong, or the bytes are damaged or of another context. */
export function decryptBytes(secretKey: Uint8Array, bytes: Uint8Array, context = ""): Buffer {
  const data = Buffer.from(bytes);
  if (data.length < CIPHER_HEAD_BYTES + CIPHER_IV_BYTES + CIPHER_TAG_BYTES || data[0] !== CIPHER_VERSION)
    throw new Error("The ciphertext is damaged, or has a version that this release does not know.");
  const head = data.subarray(0, CIPHER_HEAD_BYTES);
  if (!head.subarray(1).equals(cipherKeyId(secretKey)))
    throw new Error("The ciphertext was encrypted with a different SECRET_KEY than the one in use.");
  const iv = data.subarray(CIPHER_HEAD_BYTES, CIPHER_HEAD_BYTES + CIPHER_IV_BYTES);
  const tag = data.subarray(-CIPHER_TAG_BYTES);
  const body = data.subarray(CIPHER_HEAD_BYTES + CIPHER_IV_BYTES, -CIPHER_TAG_BYTES);
  const decipher = createDecipheriv("aes-256-gcm", secretKey, iv).setAAD(withContext(head, context)).setAuthTag(tag);
  try {
    return Buffer.concat([decipher.update(body), decipher.final()]);
  } catch (error) {
    throw new Error("The ciphertext is damaged.", { cause: error });
  }
}

/** Random bytes in base64url. */
export function randomToken(bytes = 32): string {
  return randomBytes(bytes).toString("base64url");
}

/** A secret for a cookie or a link, 256 bits, and its SHA-256 digest, which is what the database stores. */
export function newToken(): { token: string; digest: Buffer } {
  const token = randomToken(TOKEN_BYTES);
  return { token, digest: Buffer.from(sha256(token)) };
}

/** The digest to look a token up by; undefined if the string cannot be one of `newToken`. */
export function digestOfToken(token: string): Buffer | undefined {
  return TOKEN_FORM.test(token) ? Buffer.from(sha256(token)) : undefined;
}

/** Compares two secrets of any length in constant time. */
export function constantTimeEqual(a: string, b: string): boolean {
  return timingSafeEqual(sha256(a), sha256(b));
}

/**
 * A UUIDv7, greater than all previous ones of this process, even if the clock is set back a little.
 * Source: RFC 9562 › 6.2 method 1.
 */
export function newRequestId(unixMs: number = wallClockMs()): string {
  const bytes = randomPart();
  if (unixMs > lastMs || unixMs < lastMs - AHEAD_MS_MAX) {
    lastMs = unixMs;
    counter = bytes.readUInt16BE(6) & (UUID_COUNTER_MAX >> 1);
  } else if (++counter > UUID_COUNTER_MAX) {
    lastMs++;
    counter = 0;
  }
  bytes.writeUIntBE(lastMs, 0, 6);
  bytes.writeUInt16BE(0x7000 | counter, 6);
  bytes.writeUInt8(0x80 | (bytes.readUInt8(8) & 0x3f), 8);
  const hex = bytes.toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20)}`;
}
let lastMs = 0;
let counter = 0;

/** Sixteen random bytes that the caller may overwrite. Drawn in bulk: each draw costs as much as a thousand bytes. */
function randomPart(): Buffer {
  if (randomAt === RANDOM_POOL_BYTES) {
    randomFillSync(randomPool);
    randomAt = 0;
  }
  randomAt += UUID_BYTES;
  return randomPool.subarray(randomAt - UUID_BYTES, randomAt);
}
const randomPool = Buffer.alloc(RANDOM_POOL_BYTES);
let randomAt = RANDOM_POOL_BYTES;

/** A text that logs, errors and JSON do not show. */
export class Secret {
  readonly #text: string;

  constructor(text: string) {
    this.#text = text;
  }

  reveal(): string {
    return this.#text;
  }

  toString(): string {
    return "[secret]";
  }

  toJSON(): string {
    return "[secret]";
  }

  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return "[secret]";
  }

  // Deno's console uses its own symbol.
  [Symbol.for("Deno.customInspect")](): string {
    return "[secret]";
  }
}

function randomBase62(length: number): string {
  let text = "";
  while (text.length < length) {
    for (const byte of randomBytes(length)) {
      // 248 is 4 × 62: larger bytes would make some characters more likely.
      if (byte < 248 && text.length < length) text += ALPHABET[byte % 62];
    }
  }
  return text;
}

function checksumOf(body: string): string {
  let rest = crc32(body);
  let text = "";
  for (let i = 0; i < KEY_CHECKSUM_LENGTH; i++) {
    text = ALPHABET[rest % 62] + text;
    rest = Math.floor(rest / 62);
  }
  return text;
}

/** Whether a key ends with the checksum of the rest. */
function hasChecksum(secret: string): boolean {
  const at = secret.length - KEY_CHECKSUM_LENGTH;
  let said = 0;
  for (let i = at; i < secret.length; i++) said = said * ALPHABET.length + ALPHABET.indexOf(secret.charAt(i));
  return said === crc32(secret.slice(0, at));
}

function withContext(head: Buffer, context: string): Buffer {
  return context === "" ? head : Buffer.concat([head, Buffer.from(context)]);
}

function cipherKeyId(secretKey: Uint8Array): Buffer {
  const named = Buffer.concat([Buffer.from("tollgate.cipher-key-id\0"), secretKey]);
  return Buffer.from(sha256(named)).subarray(0, CIPHER_KEY_ID_BYTES);
}
