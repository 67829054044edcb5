import { expect, test } from "bun:test";
import { hashPassword, verifyPassword } from "../../src/accounts/passwords.ts";
import { Refusal } from "../../src/errors.ts";

const PASSWORD = "correct horse battery";

test("a password is hashed by argon2id with 19 MiB, two passes and a new salt", async () => {
  const [one, two] = await Promise.all([hashPassword(PASSWORD), hashPassword(PASSWORD)]);
  expect(one).toStartWith("$argon2id$v=19$m=19456,t=2,p=1$");
  expect(one).not.toBe(two);
  expect(await verifyPassword(one, PASSWORD)).toBe(true);
  expect(await verifyPassword(one, `${PASSWORD}!`)).toBe(false);
});

test("two Unicode spellings of a password are the same password", async () => {
  expect(await verifyPassword(await hashPassword("Zugbr\u00fccke 77"), "Zugbru\u0308cke 77")).toBe(true);
});

test("an unknown account is refused, and costs as much as a wrong password", async () => {
  const hash = await hashPassword(PASSWORD);
  expect(await verifyPassword(undefined, PASSWORD)).toBe(false);
  expect(await verifyPassword(null, "nobody's password")).toBe(false);
  // The fastest of several, in turns: other work on this machine slows both.
  let [known, unknown] = [Number.POSITIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (let i = 0; i < 8; i++) {
    known = Math.min(known, await msOf(() => verifyPassword(hash, "a wrong password")));
    unknown = Math.min(unknown, await msOf(() => verifyPassword(undefined, "a wrong password")));
  }
  expect(unknown / known).toBeGreaterThan(1 / 3);
  expect(unknown / known).toBeLessThan(3);
});

test("a password that is too short or too long is refused when set, and wrong at sign-in", async () => {
  await expect(hashPassword("too short")).rejects.toThrow("10 to 200 characters");
  await expect(hashPassword("x".repeat(201))).rejects.toThrow("10 to 200 characters");
  const hash = await hashPassword("x".repeat(200));
  expect(await verifyPassword(hash, "x".repeat(200))).toBe(true);
  expect(await verifyPassword(hash, "x".repeat(100_000))).toBe(false);
  expect(await verifyPassword(hash, "")).toBe(false);
});

test("two passwords are checked at a time, a few wait, others get service_unavailable; the queue empties again", async () => {
  const hash = await hashPassword(PASSWORD);
  const results = await Promise.allSettled(Array.from({ length: 80 }, () => verifyPassword(hash, PASSWORD)));
  const refused = results.filter((result) => result.status === "rejected");
  expect(refused).toHaveLength(80 - 2 - 64);
  for (const { reason } of refused) expect(reason instanceof Refusal && reason.code).toBe("service_unavailable");
  expect(await verifyPassword(hash, PASSWORD)).toBe(true);
}, 30_000);

async function msOf(work: () => Promise<unknown>): Promise<number> {
  const began = performance.now();
  await work();
  return performance.now() - began;
}
