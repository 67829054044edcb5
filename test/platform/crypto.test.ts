import { expect, test } from "bun:test";
import { createHash } from "node:crypto";
import { inspect } from "node:util";
import {
  constantTimeEqual,
  decrypt,
  deriveKey,
  digestOfKey,
  encrypt,
  newApiKey,
  newRequestId,
  randomToken,
  Secret,
} from "../../src/platform/crypto.ts";

test("a new key begins with sk-, has more than 192 random bits, and its digest is the SHA-256 of the whole key", () => {
  const key = newApiKey();
  expect(key.secret).toMatch(/^sk-[0-9A-Za-z]{49}$/);
  expect(key.digest).toEqual(createHash("sha256").update(key.secret).digest());
  expect(key.secret.startsWith(key.prefix)).toBe(true);
  expect(key.secret.endsWith(key.suffix)).toBe(true);
  expect(Math.log2(62) * (43 - 6 - 4)).toBeGreaterThan(192);
});

test("new keys are unique, use the whole alphabet, and are looked up by their digests", () => {
  const keys = Array.from({ length: 2000 }, () => newApiKey());
  expect(new Set(keys.map(({ secret }) => secret)).size).toBe(2000);
  expect(new Set(keys.map(({ secret }) => secret).join("")).size).toBe(63); // 62 and the hyphen
  for (const { secret, digest } of keys) expect(digestOfKey(secret)).toBe(digest.toString("hex"));
});

test("garbage of any length is refused without a look-up", () => {
  const { secret } = newApiKey();
  const garbage = [
    "",
    " ",
    "sk-",
    secret.slice(0, -1),
    `${secret}0`,
    ` ${secret}`,
    `${secret}\n`,
    secret.toUpperCase(),
    `SK${secret.slice(2)}`,
  ];
  for (let length = 0; length < 300; length++)
    garbage.push("a".repeat(length), `sk-${"0".repeat(length)}`, `sk-${"é".repeat(length)}`);
  garbage.push("x".repeat(10_000_000), `sk-${"\0".repeat(49)}`, `sk-${"😀".repeat(30)}`);
  for (const text of garbage) expect(digestOfKey(text)).toBeUndefined();
});

test("a key with one character changed is refused", () => {
  const { secret } = newApiKey();
  for (let i = 0; i < secret.length; i++) {
    const other = secret[i] === "A" ? "B" : "A";
    expect(digestOfKey(secret.slice(0, i) + other + secret.slice(i + 1))).toBeUndefined();
  }
});

const secretKey = Buffer.alloc(32, 7);

test("encrypted text is decrypted unchanged, and its ciphertext differs each time", () => {
  const text = "sk-provider-é-😀";
  const [a, b] = [encrypt(secretKey, text), encrypt(secretKey, text)];
  expect(decrypt(secretKey, a)).toBe(text);
  expect(a.equals(b)).toBe(false);
  expect(decrypt(secretKey, encrypt(secretKey, ""))).toBe("");
});

test("only the same context decrypts, which is no part of the ciphertext", () => {
  const bytes = encrypt(secretKey, "x", "api.example.com");
  expect(decrypt(secretKey, bytes, "api.example.com")).toBe("x");
  for (const context of [undefined, "", "example.com", "api.example.com."])
    expect(() => decrypt(secretKey, bytes, context)).toThrow("damaged");
  expect(bytes.length).toBe(encrypt(secretKey, "x").length);
});

test("derived keys differ by purpose and from the key itself, and are the same each time", () => {
  const [a, b] = [deriveKey(secretKey, "a"), deriveKey(secretKey, "b")];
  expect(a).toEqual(deriveKey(secretKey, "a"));
  expect(
    new Set([a, b, deriveKey(Buffer.alloc(32, 8), "a"), secretKey].map((key) => Buffer.from(key).toString("hex"))).size,
  ).toBe(4);
  expect(a.length).toBe(32);
  expect(() => decrypt(b, encrypt(a, "x"))).toThrow("a different SECRET_KEY");
});

test("decryption with another SECRET_KEY names that as the reason", () => {
  expect(() => decrypt(Buffer.alloc(32, 8), encrypt(secretKey, "x"))).toThrow("a different SECRET_KEY");
});

test("ciphertext is refused if any byte is damaged", () => {
  const bytes = encrypt(secretKey, "text");
  for (let i = 0; i < bytes.length; i++) {
    const damaged = Buffer.from(bytes);
    damaged.writeUInt8(damaged.readUInt8(i) ^ 1, i);
    expect(() => decrypt(secretKey, damaged)).toThrow();
  }
  for (let length = 0; length < bytes.length; length++)
    expect(() => decrypt(secretKey, bytes.subarray(0, length))).toThrow();
});

test("request ids are UUIDv7s and always increase, also when the clock is set back", () => {
  const at = Date.now() + 1000;
  const ids = [
    ...Array.from({ length: 20_000 }, () => newRequestId(at)),
    newRequestId(at - 1_200_000),
    newRequestId(at + 1),
    newRequestId(),
  ];
  for (const id of ids) expect(id).toMatch(/^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  expect(ids).toEqual([...ids].sort());
  expect(new Set(ids).size).toBe(ids.length);
  expect(timeOf(ids[0])).toBe(at);
});

test("after a clock that was hours ahead is corrected, ids follow it immediately", () => {
  const at = Date.now();
  expect(timeOf(newRequestId(at + 7_200_000))).toBe(at + 7_200_000);
  expect(timeOf(newRequestId(at))).toBe(at);
});

/** Unix time in ms of a UUIDv7. */
function timeOf(id = ""): number {
  return Number.parseInt(id.replace("-", "").slice(0, 12), 16);
}

test("tokens of any length are compared completely", () => {
  const token = randomToken();
  expect(Buffer.from(token, "base64url").length).toBe(32);
  expect(constantTimeEqual(token, token)).toBe(true);
  for (const other of ["", token.slice(1), `${token}a`, randomToken()])
    expect(constantTimeEqual(token, other)).toBe(false);
});

test("only reveal() returns a secret's value", () => {
  const secret = new Secret("hunter2");
  expect(secret.reveal()).toBe("hunter2");
  const shown = [
    String(secret),
    `${secret}`,
    JSON.stringify({ secret }),
    inspect(secret),
    inspect({ deep: { secret } }),
    Bun.inspect(secret),
  ];
  for (const text of shown) {
    expect(text).not.toContain("hunter2");
    expect(text).toContain("[secret]");
  }
});
