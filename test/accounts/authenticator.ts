import { createHmac } from "node:crypto";

/** An authenticator app for tests, written from RFC 6238 and RFC 4226, so that the library is checked too. */

const STEP_SECONDS = 30;
const BASE32 = "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/** The code of a base32 secret, `steps` half minutes from now. */
export function codeAt(secret: string, steps = 0, unixMs = Date.now()): string {
  const counter = Buffer.alloc(8);
  counter.writeBigUInt64BE(BigInt(Math.floor(unixMs / 1000 / STEP_SECONDS) + steps));
  const hash = createHmac("sha1", base32(secret)).update(counter).digest();
  const at = (hash.at(-1) ?? 0) & 0xf;
  return String((hash.readUInt32BE(at) & 0x7fff_ffff) % 1_000_000).padStart(6, "0");
}

/** Six digits that are not a current code of the secret. */
export function wrongCode(secret: string): string {
  const near = [-3, -2, -1, 0, 1, 2, 3].map((steps) => codeAt(secret, steps));
  return ["000000", "111111", "222222", "333333", "444444", "555555", "666666", "777777"].find(
    (code) => !near.includes(code),
  ) as string;
}

function base32(text: string): Buffer {
  const bits = [...text].map((char) => BASE32.indexOf(char).toString(2).padStart(5, "0")).join("");
  return Buffer.from((bits.match(/.{8}/g) ?? []).map((byte) => Number.parseInt(byte, 2)));
}
