import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { getPriority } from "node:os";
import { hash as argon2 } from "@node-rs/argon2";
import { hashInWorker, hashPassword, NOBODYS_HASH, verifyPassword } from "../../src/accounts/passwords.ts";
import { Refusal } from "../../src/errors.ts";
import { quietLog } from "../platform/quiet_log.ts";

const PASSWORD = "correct horse battery";
const RUNNING_MAX = 1;
/** A hash that is checked in an instant. With a real one, 256 that wait would wait for too long on a busy machine. */
const quickHash = () => argon2(PASSWORD, { memoryCost: 8, timeCost: 1, parallelism: 1 });

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

test("an unknown account is refused, after a hash with the same parameters as that of a real password", async () => {
  expect(await verifyPassword(undefined, PASSWORD)).toBe(false);
  expect(await verifyPassword(null, "")).toBe(false);
  const parametersOf = (hash: string) => hash.split("$").slice(0, 4);
  expect(parametersOf(NOBODYS_HASH)).toEqual(parametersOf(await hashPassword(PASSWORD)));
  // Salt and digest as long as of a real one.
  expect(NOBODYS_HASH).toHaveLength((await hashPassword(PASSWORD)).length);
});

test("a password that is too short or too long is refused when set, and wrong at sign-in", async () => {
  await expect(hashPassword("too short")).rejects.toThrow("10 to 200 characters");
  await expect(hashPassword("x".repeat(201))).rejects.toThrow("10 to 200 characters");
  const hash = await hashPassword("x".repeat(200));
  expect(await verifyPassword(hash, "x".repeat(200))).toBe(true);
  expect(await verifyPassword(hash, "x".repeat(100_000))).toBe(false);
  expect(await verifyPassword(hash, "")).toBe(false);
});

test("one password is checked at a time, a bounded number wait, others get service_unavailable; the queue empties again", async () => {
  const hash = await quickHash();
  const refused = refusedOf(await Promise.allSettled(many(300, () => verifyPassword(hash, PASSWORD))));
  expect(refused).toEqual(Array.from({ length: 300 - RUNNING_MAX - 256 }, () => "service_unavailable"));
  expect(await verifyPassword(hash, PASSWORD)).toBe(true);
});

test("one network and one account have one hash running and sixteen waiting; others are served beside them", async () => {
  const hash = await quickHash();
  const flood = many(200, (i) =>
    verifyPassword(hash, PASSWORD, { network: `192.0.2.${i % 10}`, account: `account:${i}` }),
  );
  const stolen = many(20, (i) => verifyPassword(hash, PASSWORD, { network: `198.51.100.${i}`, account: "stolen" }));
  const others = many(10, (i) =>
    verifyPassword(hash, PASSWORD, { network: `203.0.113.${i}`, account: `account:${1000 + i}` }),
  );
  const [flooded, ofOne, beside] = await Promise.all([flood, stolen, others].map((calls) => Promise.allSettled(calls)));
  // A network that has one running has one more place.
  expect(refusedOf(flooded ?? [])).toEqual(
    Array.from({ length: 200 - RUNNING_MAX - 10 * 16 }, () => "too_many_requests"),
  );
  expect(refusedOf(ofOne ?? [])).toEqual(Array.from({ length: 20 - 16 }, () => "too_many_requests"));
  expect(beside?.map((one) => one.status === "fulfilled" && one.value)).toEqual(Array.from({ length: 10 }, () => true));
  // The eighteenth of one network is one too many.
  const ofNetwork = await Promise.allSettled(
    many(24, (i) => verifyPassword(hash, PASSWORD, { network: "192.0.2.1", account: `account:${i}` })),
  );
  expect(refusedOf(ofNetwork)).toEqual(Array.from({ length: 24 - 17 }, () => "too_many_requests"));
});

test("in a worker, passwords are hashed and checked as here; what fails says so, and the next one is checked", async () => {
  const { log } = quietLog();
  const end = hashInWorker(log);
  const stored = await hashPassword(PASSWORD);
  expect(stored).toStartWith("$argon2id$v=19$m=19456,t=2,p=1$");
  expect(await verifyPassword(stored, PASSWORD)).toBe(true);
  expect(await verifyPassword(stored, "another password")).toBe(false);
  const [failed] = await Promise.allSettled([verifyPassword("no hash", PASSWORD)]);
  expect(failed?.status).toBe("rejected");
  expect(await verifyPassword(stored, PASSWORD)).toBe(true);
  end();
  expect(await verifyPassword(stored, PASSWORD)).toBe(true);
});

test("a worker that dies refuses its password, and the next one waits for another worker", async () => {
  const { log } = quietLog();
  const DIES = "onmessage = () => { throw new Error('dies'); }; postMessage({ ready: true });";
  let started = 0;
  const end = hashInWorker(log, () => {
    if (started++ > 0) return new Worker(new URL("../../src/accounts/password_worker.ts", import.meta.url));
    return new Worker(URL.createObjectURL(new Blob([DIES], { type: "application/javascript" })));
  });
  const hash = await quickHash();
  const [first, second] = await Promise.allSettled(many(2, () => verifyPassword(hash, PASSWORD)));
  expect(refusedOf([first as PromiseSettledResult<boolean>])).toEqual(["service_unavailable"]);
  expect(second).toEqual({ status: "fulfilled", value: true });
  end();
});

test("on Linux the worker yields to other threads: its nice value is 10", async () => {
  if (process.platform !== "linux") return;
  const { log } = quietLog();
  const end = hashInWorker(log);
  await hashPassword(PASSWORD);
  const niceOf = (stat: string) => Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[16]);
  const threads = readdirSync("/proc/self/task").map((id) =>
    niceOf(readFileSync(`/proc/self/task/${id}/stat`, "utf8")),
  );
  const own = getPriority();
  expect(threads.filter((nice) => nice === Math.max(own, 10)).length).toBeGreaterThanOrEqual(1);
  expect(getPriority()).toBe(own);
  end();
});

function many<T>(count: number, start: (i: number) => Promise<T>): Promise<T>[] {
  return Array.from({ length: count }, (_, i) => start(i));
}

/** The codes of those that were refused. */
function refusedOf(results: readonly PromiseSettledResult<unknown>[]): unknown[] {
  return results.flatMap((result) =>
    result.status === "rejected" ? [result.reason instanceof Refusal ? result.reason.code : result.reason] : [],
  );
}
