import { describe, expect, test } from "bun:test";
import { parseChat, parseResponse } from "../../src/gateway/answer_forms.ts";

/** An answer is found wherever it stands, and nothing else is taken for one. The corpus (`test/compat/`) runs such answers whole. Source: STR-15. */

const MESSAGE = { role: "assistant", content: "Paris" };
const CHOICE = { index: 0, message: MESSAGE, finish_reason: "stop" };
const ANSWER = { id: "a", choices: [CHOICE], usage: { prompt_tokens: 5, completion_tokens: 1 } };

const contentOf = (text: string) => {
  const [choice] = (parseChat(text)?.value.choices ?? []) as { message?: { content?: unknown } }[];
  return choice?.message?.content;
};

describe("parseChat", () => {
  test("an answer in OpenAI's form keeps its text", () => {
    const text =
      '{"choices": [ {"index":0,"message":{"role":"assistant","content":"Paris"},"finish_reason":"stop"} ],"x":1}';
    expect(parseChat(text)?.text).toBe(text);
  });

  test.each([
    ["in a member of any name", { status: "ok", payload: { inner: ANSWER } }],
    ["in a list with one entry", [ANSWER]],
    ["in a text", JSON.stringify(ANSWER)],
    ["in a member that is a text", { body: JSON.stringify(ANSWER) }],
    ["choices that are one object", { ...ANSWER, choices: CHOICE }],
    ["choices by their numbers", { ...ANSWER, choices: { "0": CHOICE } }],
    ["choices in a text", { ...ANSWER, choices: JSON.stringify([CHOICE]) }],
    ["a message without choices", { ...ANSWER, choices: undefined, message: MESSAGE }],
  ])("it is found: %s", (_, sent) => {
    expect(contentOf(JSON.stringify(sent))).toBe("Paris");
  });

  test("what is around a wrapped answer stays with it", () => {
    expect(parseChat(JSON.stringify({ usage: { total_tokens: 9 }, data: { choices: [CHOICE] } }))?.value).toMatchObject(
      {
        usage: { total_tokens: 9 },
        choices: [CHOICE],
      },
    );
  });

  test.each([
    ["an error beside an answer", { error: { message: "boom", code: 500 }, data: ANSWER }],
    ["an object with nothing in it", { data: { result: {} } }],
    ["a list of numbers", { choices: [1, 2] }],
  ])("no answer is made of %s", (_, sent) => {
    expect(contentOf(JSON.stringify(sent))).toBeUndefined();
  });

  test("a delta that is a text is its content", () => {
    const { value } = parseChat(JSON.stringify({ choices: [{ index: 0, delta: "Par" }] })) ?? {};
    expect(value?.choices).toMatchObject([{ delta: { content: "Par" } }]);
  });

  test("undefined for what is no JSON object", () => {
    for (const text of ["", "boom", "[1,2]", "7", "null", '"boom"']) expect(parseChat(text)).toBeUndefined();
  });
});

test("a response is found in a member of any name", () => {
  const response = { id: "r", output: [{ type: "message" }] };
  expect(parseResponse(JSON.stringify({ code: 0, data: { response } }))?.value).toMatchObject(response);
});
