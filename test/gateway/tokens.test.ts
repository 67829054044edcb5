import { afterAll, expect, test } from "bun:test";
import { encode } from "gpt-tokenizer/encoding/o200k_base";
import { roughTokens } from "../../src/gateway/rough_tokens.ts";
import { createTokenCounter, type TokenCounterOptions, type TokenLimits } from "../../src/gateway/tokens.ts";
import { Written } from "../../src/gateway/written.ts";
import { sleep } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";
import { randomOf } from "../random.ts";

/** Texts are counted by a tokenizer, and accounts take turns at it. Source: MON-4, END-5, ADM-13. */

/** No machine is as slow as this: what is counted is counted to its end. */
const FOREVER = 3_600_000;
const PATIENT: TokenLimits = {
  jobMs: FOREVER,
  waitsMs: { reservation: FOREVER, answer: FOREVER, settlement: FOREVER },
  stuckMs: FOREVER,
};
const OWNER = { accountId: 1, tenantId: 0 };

const counterOf = (over: Partial<TokenCounterOptions> = {}) =>
  createTokenCounter({ log: quietLog().log, waitingMax: 10_000, ...over });
const counter = counterOf();
const patient = counterOf({ limits: PATIENT });
afterAll(() => {
  counter.close();
  patient.close();
});
const count = (text: string, one = patient, accountId = 1) => one.count(text, { accountId, tenantId: 0 }, "settlement");

/** A worker that runs `script`. */
const workerOf = (script: string) => () =>
  new Worker(URL.createObjectURL(new Blob([script], { type: "application/javascript" })), { type: "module" });
/** Answers each text with the time that it was given, in its tokens. */
const TELLS_BUDGET =
  "onmessage = ({ data: { id, job } }) => postMessage({ id, result: { tokens: job.budgetMs, chars: job.text.length } });";

test("a text waits for a tokenizer that starts slowly, and is not estimated", async () => {
  const worker = Object.assign(new EventTarget(), {
    say: (data: unknown) => worker.dispatchEvent(new MessageEvent("message", { data })),
    postMessage: ({ id }: { id: number }) => queueMicrotask(() => worker.say({ id, result: { tokens: 2, chars: 11 } })),
    terminate() {},
  });
  const slow = counterOf({ startWorker: () => worker as unknown as Worker, limits: PATIENT });
  const counts = (["reservation", "answer", "settlement"] as const).map((wait) =>
    slow.count("hello world", OWNER, wait),
  );
  expect(await atOnce(counts)).toEqual([]);
  worker.say({ ready: true });
  expect(await Promise.all(counts)).toEqual(Array(3).fill({ tokens: 2, exact: true }));
  slow.close();
});

/** The counts that are there in this turn of the event loop: they waited for nothing. */
async function atOnce<T>(counts: readonly Promise<T>[]): Promise<T[]> {
  const there: T[] = [];
  for (const one of counts) void one.then((it) => there.push(it));
  await sleep(0);
  return [...there];
}

test("ordinary text has the count of o200k_base, plus or minus a token where a run was cut", async () => {
  const prose =
    "The gateway counts what it sells, and says so. Über naïve Größen: 1,234.56 € (日本語もある).\n\n\tif (a < b) return;  ".repeat(
      60,
    );
  for (const text of ["", "a", "hello world", "<|endoftext|> is text here", "👩‍👩‍👧‍👦 family", "\ud800 alone", prose]) {
    const { tokens, exact } = await count(text);
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
    const { tokens, exact } = await count(text, counter);
    if (!exact) expect(tokens).toBeGreaterThan(0);
  });
}

test.each([
  ["Amharic", "የአማርኛ ጽሑፍ ረጅም መልስ ነው። "],
  ["Yi", "ꀀꀁꀂꀃꀄꀅꀆꀇꀈꀉꀊ"],
  ["emoji", "🫠🪿🧌🛞🪬🫥"],
  ["prose", "The gateway counts what it sells, and says so. "],
])("a longer text counts more tokens, at the rate of a sample: %s", async (_, text) => {
  const perText = encode(text.repeat(100)).length / 100;
  for (const times of [100, 1_000, 5_000]) {
    const { tokens } = await count(text.repeat(times));
    expect(tokens / times / perText).toBeGreaterThan(0.95);
    expect(tokens / times / perText).toBeLessThan(1.2);
  }
});

test("an account with 500 texts shortens the time of its own, and not that of another account's text", async () => {
  const one = counterOf({ startWorker: workerOf(`${TELLS_BUDGET} postMessage({ ready: true });`) });
  const done: string[] = [];
  const noted = async (who: string, accountId: number, text: string) => {
    const { tokens } = await count(text, one, accountId);
    done.push(who);
    return tokens;
  };
  // All are asked in this turn of the event loop, so none is done before.
  const flood = Array.from({ length: 500 }, () => noted("flood", 1, "a".repeat(1_000)));
  const other = noted("other", 2, "b");
  expect(await other).toBe(100);
  expect(done.length).toBeLessThanOrEqual(3);
  const budgets = await Promise.all(flood);
  expect(budgets[0]).toBe(1);
  // The last one is alone.
  expect(budgets.at(-1)).toBe(100);
  one.close();
});

test("500 hostile texts at once are all counted, by runs from all places", async () => {
  const text = "7".repeat(16 * 1024);
  const real = encode(text.slice(0, 256)).length * 64;
  const limits = { ...PATIENT, jobMs: 0 };
  const one = counterOf({ limits });
  const counts = await Promise.all(Array.from({ length: 500 }, () => count(text, one)));
  // Of digits every run counts alike: an estimate by kinds of characters would be another number.
  for (const { tokens, exact } of counts) expect({ tokens, exact }).toEqual({ tokens: real, exact: false });
  one.close();
});

const SHAPES: Record<string, (chars: number) => string> = {
  Chinese: (chars) => "闸门按它卖出的计数并且说明这一点".repeat(chars).slice(0, chars),
  emoji: (chars) => "🫠🪿🧌🛞🪬🫥".repeat(chars).slice(0, chars),
  Amharic: (chars) => "የአማርኛ ጽሑፍ ረጅም መልስ ነው። ".repeat(chars).slice(0, chars),
  base64: (chars) => Buffer.from("The gateway counts, 闸门".repeat(chars)).toString("base64").slice(0, chars),
  prose: (chars) => "The gateway counts what it sells, and says so. ".repeat(chars).slice(0, chars),
};
test.each(Object.keys(SHAPES).flatMap((kind) => [[kind, " "] as const, [kind, "a"] as const]))(
  "%s behind 32,768 times %p is charged at 95 %% at least, and not above 120 %%",
  async (kind, padding) => {
    const parts = [padding.repeat(32_768), SHAPES[kind]?.(20_000) ?? ""];
    let real = 0;
    const written = new Written();
    for (const part of parts)
      for (let at = 0; at < part.length; at += 256) {
        real += encode(part.slice(at, at + 256)).length;
        written.add(part.slice(at, at + 256), 256);
      }
    const { text, chars } = written.soFar;
    const { tokens } = await count(text);
    const share = (tokens * chars) / text.length / real;
    expect(share).toBeGreaterThan(0.95);
    expect(share).toBeLessThan(1.2);
  },
);

test.each([
  ["English", "The gateway counts what it sells, and says so. Nothing else is honest; customers can check it."],
  ["German", "Das Gateway zählt, was es verkauft, und sagt es auch. Größere Mengen werden ebenso abgerechnet."],
  ["Vietnamese", "Cổng đếm những gì nó bán và nói như vậy. Đây là cách trung thực duy nhất."],
  ["Chinese", "闸门按它卖出的计数，并且说明这一点。"],
  ["Japanese", "ゲートウェイは販売したものを数え、それを示します。"],
  ["Korean", "게이트웨이는 판매한 것을 계산하고 그것을 알려 줍니다."],
  ["Russian", "Шлюз считает то, что продаёт, и говорит об этом. "],
  ["Greek", "Η πύλη μετρά όσα πουλά και το λέει."],
  ["Arabic", "تحسب البوابة ما تبيعه وتقول ذلك."],
  ["Hebrew", "השער סופר את מה שהוא מוכר ואומר זאת."],
  ["Hindi", "गेटवे जो बेचता है उसे गिनता है, और यह बताता है।"],
  ["Thai", "เกตเวย์นับสิ่งที่ขายและบอกเช่นนั้น"],
  ["Tamil", "நுழைவாயில் விற்பதை எண்ணி, அதைச் சொல்கிறது."],
  ["Georgian", "კარიბჭე ითვლის იმას, რასაც ყიდის."],
  ["Amharic", "የአማርኛ ጽሑፍ ረጅም መልስ ነው። "],
  ["Yi", "ꀀꀁꀂꀃꀄꀅꀆꀇꀈꀉꀊ"],
  ["emoji", "🫠🪿🧌🛞🪬🫥"],
  ["code", "for (const [name, text] of Object.entries(hostile)) {\n\ttest(name);\n\n}\r\n"],
  ["JSON", '{"id":"chatcmpl-41","choices":[{"index":0,"delta":{"content":"hello"}}],"created":1764288000}'],
  ["digits", "31415926535 2718281828"],
  ["hex", "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"],
  ["base64", Buffer.from("The gateway counts, 闸门, what it sells, and says so.").toString("base64")],
])(
  "a text that could not be counted is estimated at its tokens at least, and below three times: %s",
  async (_, text) => {
    const closed = counterOf();
    closed.close();
    const { tokens, exact } = await count(text.repeat(100), closed);
    expect(exact).toBe(false);
    const share = tokens / encode(text.repeat(100)).length;
    expect(share).toBeGreaterThan(0.95);
    expect(share).toBeLessThan(3);
  },
);

test.each([
  ["letters", [..."abcdefghijklmnopqrstuvwxyz"]],
  ["letters and digits in turns", ["a1", "b2", "Z9", "q7"]],
  ["punctuation", [..."!\"#$%&'()*+,-./:;<=>?@[]^_`{|}~"]],
  ["white space", [" ", "\n", "\t", "\r", "\u00a0", "\u3000"]],
  ["accents alone", Array.from({ length: 112 }, (_, i) => String.fromCharCode(0x300 + i))],
  ["Chinese", Array.from({ length: 500 }, (_, i) => String.fromCharCode(0x4e00 + 31 * i))],
  ["rare Chinese", Array.from({ length: 500 }, (_, i) => String.fromCodePoint(0x20000 + 31 * i))],
  ["Korean", Array.from({ length: 500 }, (_, i) => String.fromCharCode(0xac00 + 17 * i))],
  ["one of each", ["a", "1", "!", " ", "é", "ж", "ש", "अ", "ก", "ក", "中", "가", "ꀀ", "𓀀", "🫠"]],
] as const)("an estimate of characters that are drawn at random is not below half of them: %s", (_, pieces) => {
  const random = randomOf(pieces.length);
  for (let round = 0; round < 20; round++) {
    const text = Array.from({ length: 400 }, () => random.pick<string>(pieces)).join("");
    const share = roughTokens(text) / encode(text, { disallowedSpecial: new Set() }).length;
    expect({ text, isLow: share < 0.5 }).toEqual({ text, isLow: false });
    expect(roughTokens(text)).toBeLessThanOrEqual(Buffer.byteLength(text));
  }
});

test("in an overload a text is estimated at once if it fits in no queue of two for each request; the others wait", async () => {
  const silent = silentCounter(PATIENT);
  const counts = Array.from({ length: 300 }, () => count("abcd", silent));
  expect((await atOnce(counts)).length).toBe(100);
  silent.close();
  expect(await Promise.all(counts)).toEqual(Array(300).fill({ tokens: 3, exact: false, isRough: true }));
});

test("a text that waited for its time is estimated, whatever waits for it", async () => {
  const silent = silentCounter({ ...PATIENT, waitsMs: { reservation: 1, answer: 2, settlement: 3 } });
  for (const wait of ["reservation", "answer", "settlement"] as const)
    expect(await silent.count("abcd", OWNER, wait)).toEqual({ tokens: 3, exact: false, isRough: true });
  silent.close();
});

/** Its tokenizer starts, and counts nothing. */
function silentCounter(limits: TokenLimits) {
  const startWorker = workerOf("postMessage({ ready: true }); onmessage = () => {}");
  return counterOf({ startWorker, limits, waitingMax: 200 });
}

test("a stuck worker is ended, its text is estimated, and the others are counted by the next one", async () => {
  let started = 0;
  const { log, lines } = quietLog();
  const one = counterOf({
    log,
    startWorker: () =>
      workerOf(
        ++started === 1
          ? "postMessage({ ready: true }); onmessage = () => { for (;;); }"
          : "onmessage = ({ data }) => postMessage({ id: data.id, result: { tokens: 7, chars: 1 } }); postMessage({ ready: true });",
      )(),
    limits: { ...PATIENT, stuckMs: 500 },
  });
  expect(await Promise.all([count("a", one), count("b", one)])).toEqual([
    { tokens: 1, exact: false, isRough: true },
    { tokens: 7, exact: true },
  ]);
  expect(lines[0]).toMatchObject({ why: "stuck" });
  one.close();
});

test("texts are estimated if the worker cannot start, and its starts are limited", async () => {
  let started = 0;
  const one = counterOf({
    startWorker: () => {
      started++;
      return workerOf("throw new Error('no')")();
    },
    limits: { ...PATIENT, waitsMs: { reservation: 500, answer: 500, settlement: 500 } },
  });
  expect(await count("abcd", one)).toEqual({ tokens: 3, exact: false, isRough: true });
  expect(started).toBe(1);
  one.close();
});

test("texts are estimated after close, and the process can end", async () => {
  const script = `
    import { createTokenCounter } from ${JSON.stringify(new URL("../../src/gateway/tokens.ts", import.meta.url).href)};
    import { createLog } from ${JSON.stringify(new URL("../../src/platform/log.ts", import.meta.url).href)};
    const counter = createTokenCounter({ log: createLog("info"), waitingMax: 10 });
    const owner = { accountId: 1, tenantId: 0 };
    await counter.count("hello", owner, "settlement");
    counter.close();
    console.log(JSON.stringify(await counter.count("hello", owner, "settlement")));`;
  const child = Bun.spawn([process.execPath, "-e", script], { stdout: "pipe", stderr: "inherit" });
  expect((await new Response(child.stdout).text()).trim()).toBe('{"tokens":3,"exact":false,"isRough":true}');
  expect(await child.exited).toBe(0);
});
