import { randomBytes } from "node:crypto";
import { TYPED_VOUCHER_CHARS_MAX } from "../limits.ts";
import { sha256 } from "../platform/runtime.ts";

/**
 * Voucher codes: 20 characters of 32, which are 100 random bits, in groups of four as in `7KQ2-M9TB-04XZ-RWHC-8N3F`. The alphabet has
 * no I, L, O and U. A typed I or L is read as 1, and an O as 0. Source: VOU-2.
 */

/** Crockford's base 32. */
const ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const CODE_CHARS = 20;
const GROUP_CHARS = 4;
const GROUPS = new RegExp(`.{${GROUP_CHARS}}`, "g");
const SUFFIX_CHARS = 4;
const CODE_FORM = new RegExp(`^[${ALPHABET}]{${CODE_CHARS}}$`);
/** Spaces, hyphens and dashes of any kind, and invisible characters that copying adds. */
const BETWEEN = /[\s\p{Pd}\p{Cf}\u2212_.]+/gu;

export type NewVoucherCode = {
  /** Shown once, never stored. */
  code: string;
  /** What is stored. */
  digest: Buffer;
  /** The last characters, without hyphens. */
  suffix: string;
};

export function newVoucherCode(): NewVoucherCode {
  // 256 is a multiple of 32, so that every character is equally likely.
  const plain = Array.from(randomBytes(CODE_CHARS), (byte) => ALPHABET.charAt(byte % ALPHABET.length)).join("");
  const groups = plain.match(GROUPS) ?? [];
  return { code: groups.join("-"), digest: digestOf(plain), suffix: plain.slice(-SUFFIX_CHARS) };
}

/** The digest of a typed code, by which it is looked up; undefined if the text cannot be a code. Never throws. */
export function digestOfVoucher(typed: string): Buffer | undefined {
  if (typed.length > TYPED_VOUCHER_CHARS_MAX) return undefined;
  const plain = typed.normalize("NFKC").replace(BETWEEN, "").toUpperCase().replace(/[IL]/g, "1").replace(/O/g, "0");
  return CODE_FORM.test(plain) ? digestOf(plain) : undefined;
}

function digestOf(plain: string): Buffer {
  return Buffer.from(sha256(plain));
}
