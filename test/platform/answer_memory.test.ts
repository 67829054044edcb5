import { expect, test } from "bun:test";
import { AnswerMemory, type HeldAnswer } from "../../src/platform/answer_memory.ts";

/** Whose answer ends when the memory for answers is full. Source: ADM-12. */

const RESELLER = 100;

/** A memory of 1,000 bytes, and a log of what was ended. */
function createMemory() {
  const ended: string[] = [];
  const shed: string[] = [];
  const memory = new AnswerMemory({
    max: 1_000,
    fractions: { account: 0.25, tenant: 0.5 },
    min: 200,
    onShed: (reason) => shed.push(reason),
  });
  const open = (name: string, accountId: number, tenantId = 0): HeldAnswer =>
    memory.open({ accountId, tenantId }, () => ended.push(name));
  return { memory, ended, shed, open };
}

test("an account that holds more than its share loses its largest answer, also if another one has grown", () => {
  const { memory, ended, shed, open } = createMemory();
  const large = open("large", 1);
  const small = open("small", 1);
  const other = open("other", 2);
  other.hold(240);
  large.hold(200);
  small.hold(50);
  expect(ended).toEqual([]);
  small.hold(51);
  expect(ended).toEqual(["large"]);
  expect(shed).toEqual(["answer_bytes_per_account"]);
  expect([large, small, other].map(({ isFull }) => isFull)).toEqual([true, false, false]);
  expect(memory.held).toBe(51 + 240);
});

test("a reseller with its customers loses the largest answer of the customer that holds most", () => {
  const { ended, shed, open } = createMemory();
  open("direct", 9).hold(250);
  open("a1", 1, RESELLER).hold(130);
  open("a2", 1, RESELLER).hold(90);
  open("b", 2, RESELLER).hold(200);
  const own = open("own", RESELLER, RESELLER);
  own.hold(80);
  expect(ended).toEqual([]);
  own.hold(81);
  expect(ended).toEqual(["a1"]);
  expect(shed).toEqual(["answer_bytes_per_tenant"]);
});

test("when the replica's memory is full, the account that holds most loses its largest answer, whoever has grown", () => {
  const { memory, ended, shed, open } = createMemory();
  for (const account of [1, 2, 3]) open(`${account}`, account).hold(240);
  open("most", 4).hold(249);
  const last = open("last", 5);
  last.hold(31);
  expect(ended).toEqual([]);
  last.hold(32);
  expect(ended).toEqual(["most"]);
  expect(shed).toEqual(["answer_bytes_full"]);
  expect(memory.held).toBe(3 * 240 + 32);
});

test("one answer that is larger than the memory ends itself, and holds nothing afterwards", () => {
  const { memory, ended, open } = createMemory();
  const answer = open("it", 1);
  answer.hold(5_000);
  expect(ended).toEqual(["it"]);
  answer.hold(100);
  answer.close();
  expect(memory.held).toBe(0);
});

test("an answer that is closed holds nothing, and is not ended", () => {
  const { memory, ended, open } = createMemory();
  const closed = open("closed", 1);
  closed.hold(250);
  closed.close();
  closed.close();
  closed.hold(90);
  open("other", 1).hold(250);
  expect(memory.held).toBe(250);
  expect(ended).toEqual([]);
});

test("held bytes are exact after any order of growing, shrinking and closing, and never beyond a limit", () => {
  const { memory, open } = createMemory();
  const answers = Array.from({ length: 40 }, (_, i) => {
    const accountId = 1 + (i % 7);
    return { answer: open(`${i}`, accountId, accountId % 3 === 0 ? RESELLER : 0), accountId };
  });
  let seed = 7;
  const random = (below: number) => {
    seed = (seed * 48_271) % 2_147_483_647;
    return seed % below;
  };
  for (let step = 0; step < 5_000; step++) {
    const at = random(answers.length);
    const { answer, accountId } = answers[at] as (typeof answers)[number];
    if (answer.isFull || random(20) === 0) {
      answer.close();
      answers[at] = { answer: open("new", accountId, accountId % 3 === 0 ? RESELLER : 0), accountId };
    } else answer.hold(random(120));
    const sum = (of: (accountId: number) => boolean) =>
      answers.filter((one) => of(one.accountId)).reduce((all, one) => all + one.answer.bytes, 0);
    expect(memory.held).toBe(sum(() => true));
    expect(memory.held).toBeLessThanOrEqual(1_000);
    for (let account = 1; account <= 7; account++) expect(sum((id) => id === account)).toBeLessThanOrEqual(250);
    expect(sum((id) => id % 3 === 0)).toBeLessThanOrEqual(500);
  }
});

test("one answer may be larger than the share of its account and of its tenant, until there is another one", () => {
  const { ended, shed, open } = createMemory();
  const lone = open("lone", 1, RESELLER);
  lone.hold(700);
  expect(ended).toEqual([]);
  open("other", 2, RESELLER).hold(10);
  expect(ended).toEqual(["lone"]);
  expect(shed).toEqual(["answer_bytes_per_tenant"]);
});

test("of the account that holds most, the whole answer of which nothing was read for longest is ended first", () => {
  const { ended, open } = createMemory();
  const [first, second, third] = ["first", "second", "third"].map((name) => open(name, 1)) as [
    HeldAnswer,
    HeldAnswer,
    HeldAnswer,
  ];
  for (const answer of [first, second, third]) {
    answer.wasRead();
    answer.hold(60);
  }
  first.wasRead();
  const arriving = open("arriving", 1);
  arriving.hold(130);
  expect(ended).toEqual(["second"]);
  arriving.hold(190);
  expect(ended).toEqual(["second", "third"]);
  arriving.hold(240);
  expect(ended).toEqual(["second", "third", "first"]);
  open("another", 1).hold(20);
  expect(ended).toEqual(["second", "third", "first", "arriving"]);
});
