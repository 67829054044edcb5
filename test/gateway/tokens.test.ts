import { afterAll, expect, test } from "bun:test";
import { encode } from "gpt-tokenizer/encoding/o200k_base";
import { createTokenCounter, type TokenCounter, type TokenLimits } from "../../src/gateway/tokens.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";

/** Jobs that may wait at once. */
const QUEUE_MAX = 64;
/** No machine is as slow as this: what is counted is counted to its end. */
const PATIENT: TokenLimits = { jobMs: 3_600_000, waitMs: 3_600_000, stuckMs: 3_600_000 };

const counter = createTokenCounter(quietLog().log);
const patient = createTokenCounter(quietLog().log, undefined, PATIENT);
afterAll(() => {
  counter.close();
  patient.close();
});
const ready = (one: TokenCounter) => until(async () => (await one.count("a")).exact);

/** The counts that are there in this turn of the event loop: they waited for nothing. */
async function atOnce<T>(counts: readonly Promise<T>[]): Promise<T[]> {
  const there: T[] = [];
  for (const count of counts) void count.then((one) => there.push(one));
  await sleep(0);
  return [...there];
}

test("a text is estimated immediately while the tokenizer is not loaded", async () => {
  const fresh = createTokenCounter(quietLog().log);
  expect(await atOnce([fresh.count("hello world")])).toEqual([{ tokens: Math.ceil(11 * 0.3), exact: false }]);
  fresh.close();
});

test("ordinary text has the count of o200k_base, plus or minus a token where a run was cut", async () => {
  await ready(patient);
  const prose =
    "The gateway counts what it sells, and says so. Über naïve Größen: 1,234.56 € (日本語もある).\n\n\tif (a < b) return;  ".repeat(
      60,
    );
  for (const text of ["", "a", "hello world", "<|endoftext|> is text here", "👩‍👩‍👧‍👦 family", "\ud800 alone", prose]) {
    const { tokens, exact } = await patient.count(text);
    const expected = encode(text, { disallowedSpecial: new Set() }).length;
    expect(exact).toBe(true);
    expect(tokens).toBeGreaterThanOrEqual(expected - 1);
    expect(tokens).toBeLessThanOrEqual(expected + Math.ceil(text.length / 128));
  }
});

const hostile: Record<string, string> = {
  "100 KB of one letter": "a".repeat(100 * 1024),
  "32 KB of one letter": "a".repeat(32 * 1024),
  "32 KB of spaces": " ".repeat(32 * 1024),
  "32 KB of newlines": "\n".repeat(32 * 1024),
  "32 KB of digits": "7".repeat(32 * 1024),
  "32 KB of random letters": Array.from({ length: 32 * 1024 }, () => String.fromCharCode(97 + Math.random() * 26)).join(
    "",
  ),
  "random unicode": Array.from({ length: 8000 }, () =>
    String.fromCodePoint(0x80 + Math.floor(Math.random() * 0x10ff00)),
  )
    .join("")
    .slice(0, 8000),
  "lone surrogates": "\ud83d".repeat(10_000),
  "combining marks": `e${"\u0301".repeat(16_000)}`,
  "no spaces, mixed": "Aa1!é漢".repeat(2900),
};
for (const [name, text] of Object.entries(hostile)) {
  // Without its limits it would keep a tokenizer busy for minutes.
  test(`hostile text is counted or estimated: ${name}`, async () => {
    await ready(counter);
    const count = await counter.count(text);
    if (!count.exact) expect(count.tokens).toBeGreaterThan(0);
  });
}

test.each([
  ["Amharic", "የአማርኛ ጽሑፍ ረጅም መልስ ነው። "],
  ["Yi", "ꀀꀁꀂꀃꀄꀅꀆꀇꀈꀉꀊ"],
  ["emoji", "🫠🪿🧌🛞🪬🫥"],
  ["prose", "The gateway counts what it sells, and says so. "],
])("a longer text counts more tokens, at the rate of a sample: %s", async (_, text) => {
  await ready(patient);
  const perText = encode(text.repeat(100)).length / 100;
  for (const times of [100, 1_000, 5_000]) {
    const { tokens } = await patient.count(text.repeat(times));
    expect(tokens / times / perText).toBeGreaterThan(0.95);
    expect(tokens / times / perText).toBeLessThan(1.2);
  }
});

test("300 concurrent hostile texts are all counted or estimated", async () => {
  await ready(counter);
  const text = hostile["32 KB of random letters"] ?? "";
  const counts = await Promise.all(Array.from({ length: 300 }, () => counter.count(text)));
  for (const { tokens } of counts) expect(tokens).toBeGreaterThanOrEqual(Math.floor(0.3 * text.length));
  await ready(counter);
});

test("of 300 texts that no worker counts, those beyond the queue wait for nothing, and the others not for ever", async () => {
  const silent = createTokenCounter(quietLog().log, workerOf("postMessage({ ready: true }); onmessage = () => {}"), {
    ...PATIENT,
    waitMs: 100,
  });
  let counts: Promise<unknown>[] = [];
  let first = 300;
  // Before its worker has started, all are estimated at once.
  await until(async () => {
    counts = Array.from({ length: 300 }, () => silent.count("abcd"));
    first = (await atOnce(counts)).length;
    return first < 300;
  });
  expect(first).toBe(300 - QUEUE_MAX);
  expect(await Promise.all(counts)).toEqual(Array(300).fill({ tokens: 2, exact: false }));
  silent.close();
});

test.each([
  ["Chinese", "闸门按它卖出的计数，并且说明这一点。"],
  ["Russian", "Шлюз считает то, что продаёт, и говорит об этом. "],
  ["Amharic", "የአማርኛ ጽሑፍ ረጅም መልስ ነው። "],
  ["Yi", "ꀀꀁꀂꀃꀄꀅꀆꀇꀈꀉꀊ"],
  ["emoji", "🫠🪿🧌🛞🪬🫥"],
  ["code", "for (const [name, text] of Object.entries(hostile)) {\n  test(name);\n}\n"],
])("a text that could not be counted is estimated by its kinds of characters: %s", async (_, text) => {
  const closed = createTokenCounter(quietLog().log);
  closed.close();
  const { tokens, exact } = await closed.count(text.repeat(100));
  expect(exact).toBe(false);
  const share = tokens / encode(text.repeat(100)).length;
  expect(share).toBeGreaterThan(0.7);
  expect(share).toBeLessThan(2.2);
});

/** A worker that runs `script`. */
const workerOf = (script: string) => () =>
  new Worker(URL.createObjectURL(new Blob([script], { type: "application/javascript" })), { type: "module" });

test("a stuck worker is ended, and its callers get an estimate in time", async () => {
  let started = 0;
  const { log, lines } = quietLog();
  const one = createTokenCounter(log, () => {
    started++;
    return workerOf("postMessage({ ready: true }); onmessage = () => { for (;;); }")();
  });
  // It never answers: until it is ended, these wait for a while, and for nothing before it has started and afterwards.
  await until(async () => {
    for (const count of await Promise.all([one.count("a"), one.count("b")]))
      expect(count).toEqual({ tokens: 1, exact: false });
    return lines.length > 0;
  });
  expect(lines[0]).toMatchObject({ why: "stuck" });
  expect(await atOnce([one.count("c")])).toEqual([{ tokens: 1, exact: false }]);
  await until(() => started === 2);
  one.close();
});

test("texts are estimated if the worker cannot start, and its starts are limited", async () => {
  let started = 0;
  const { log } = quietLog();
  const one = createTokenCounter(log, () => {
    started++;
    return workerOf("throw new Error('no')")();
  });
  await Bun.sleep(300);
  expect(await one.count("abcd")).toEqual({ tokens: 2, exact: false });
  expect(started).toBe(1);
  one.close();
});

test("texts are estimated after close, and the process can end", async () => {
  const script = `
    import { createTokenCounter } from ${JSON.stringify(new URL("../../src/gateway/tokens.ts", import.meta.url).href)};
    import { createLog } from ${JSON.stringify(new URL("../../src/platform/log.ts", import.meta.url).href)};
    const counter = createTokenCounter(createLog("info"));
    while (!(await counter.count("hello")).exact) await new Promise((resolve) => setTimeout(resolve, 10));
    counter.close();
    console.log(JSON.stringify(await counter.count("hello")));`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  expect((await new Response(child.stdout).text()).trim()).toBe('{"tokens":2,"exact":false}');
  expect(await child.exited).toBe(0);
});
