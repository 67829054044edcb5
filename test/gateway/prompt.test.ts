import { expect, test } from "bun:test";
import fc from "fast-check";
import { readInput } from "../../src/gateway/embedding_input.ts";
import { embeddingPromptOf, promptOf } from "../../src/gateway/prompt.ts";
import { type ChatBody, ChatBody as ChatShape } from "../../src/gateway/request_shapes.ts";
import { bodyOf, NO_ROOM } from "../../src/http/body.ts";
import { checker } from "../../src/http/checks.ts";
import { holds } from "../property.ts";

/** The bound of a prompt: everything that is sent on counts, and nothing counts twice. Source: MON-3, MON-14. */

const checkChat = checker(ChatShape);
const LONG = 1_100_000;
const HI = [{ role: "user", content: "hi" }];
const PNG = `data:image/png;base64,${"A".repeat(LONG)}`;

/** Each part of a prompt can be read from its tokens. */
const MODEL = {
  ...{ requestTokens: 100_000, messageTokens: 1_000, contextLength: null, fileMostTokens: 7 },
  ...{ imageBaseTokens: 10, imageTileTokens: 3, imageTilePixels: 100, imageMostTokens: 100 },
};

function promptOfText(text: string) {
  const raw = bodyOf(text, JSON.parse(text));
  return promptOf(checkChat(raw.value) as ChatBody, { raw, model: MODEL });
}
const promptOfBody = (over: Record<string, unknown>) =>
  promptOfText(JSON.stringify({ model: "m", messages: HI, ...over }));

test("a chat counts the bytes of its texts with one byte between them, and its images by the settings of the model", () => {
  expect(promptOfBody({}).bytes).toBe(2);
  expect(promptOfBody({ messages: [...HI, { role: "assistant", content: "متن", name: "x" }] }).bytes).toBe(
    2 + 1 + 6 + 1 + 1,
  );
  const part = { type: "image_url", image_url: { url: PNG, detail: "high" } };
  const prompt = promptOfBody({ messages: [{ role: "user", content: [{ type: "text", text: "hi" }, part, part] }] });
  expect([prompt.bytes, prompt.imageTokens, prompt.tokens]).toEqual([2, 200, 101_202]);
});

test("escapes count as the characters they stand for; numbers, booleans and null of known parameters count nothing", () => {
  const escaped =
    '{"model":"m","messages":[{"role":"user","content":"\\u00e9\\u00e9\\n"}],"temperature":0.5,"max_tokens":10,"stream":true';
  expect(
    promptOfText(`${escaped},"seed":123456,"tools":null,"stop":null,"stream_options":{"include_usage":true}}`).bytes,
  ).toBe(5);
});

test("1.1 MB count anywhere: in fields, keys, parts and unknown structures", () => {
  const x = "x".repeat(LONG);
  const part = (over: object) => [{ role: "user", content: [{ type: "text", text: "hi", ...over }] }];
  const image = (over: object, more: object = {}) => [
    {
      role: "user",
      content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA", ...over }, ...more }],
    },
  ];
  const call = (over: object, called: object = {}) => [
    {
      role: "assistant",
      tool_calls: [{ id: "1", type: "function", function: { name: "f", arguments: "{}", ...called }, ...over }],
    },
  ];
  const bodies: Record<string, unknown>[] = [
    { documents: [{ text: x }] },
    { system: x },
    { [x]: 1 },
    { stop: x },
    { temperature_: x },
    { user: x },
    { tools: [{ type: "function", function: { name: "f", description: x } }] },
    { response_format: { type: "json_schema", json_schema: { [x]: 1 } } },
    { stream_options: { include_usage: true, [x]: true } },
    { stream_options: { include_usage: true, note: x } },
    { metadata: { note: x } },
    { messages: [{ role: "user", content: "hi", [x]: null }] },
    { messages: [{ role: "user", content: "hi", documents: { deep: [x] } }] },
    { messages: [{ role: "assistant", content: "hi", reasoning_content: x }] },
    { messages: part({ cache_control: x }) },
    { messages: part({ [x]: 1 }) },
    { messages: [{ role: "user", content: [{ type: "input_audio", input_audio: { data: x } }] }] },
    { messages: [{ role: "user", content: [{ type: x }] }] },
    { messages: image({ detail: x }) },
    { messages: image({ [x]: 1 }) },
    { messages: image({}, { text: x }) },
    { messages: image({ url: `https://example.com/${x}` }) },
    { messages: image({ url: `data:text/plain,${x}` }) },
    { messages: call({ [x]: 1 }) },
    { messages: call({ index: { x } }) },
    { messages: call({}, { arguments: x }) },
    { messages: call({}, { [x]: "" }) },
  ];
  for (const body of bodies) expect(promptOfBody(body).bytes).toBeGreaterThanOrEqual(LONG);
});

test("spaces and digits that parsing removes count, because a provider may read them", () => {
  const of = (field: string) =>
    promptOfText(`{"model":"m","messages":[{"role":"user","content":"hi"}],${field}}`).bytes;
  expect(of(`"tools":[{"x":1${"0".repeat(LONG)}}]`)).toBeGreaterThan(LONG);
  expect(of(`"tools":[${" ".repeat(LONG)}]`)).toBeGreaterThan(LONG);
  const ofMember = (member: string) =>
    promptOfText(`{"model":"m","messages":[{"role":"user","content":"hi",${member}}]}`).bytes;
  expect(ofMember(`"x":1${"0".repeat(LONG)}`)).toBeGreaterThan(LONG);
  expect(ofMember(`"x":[${" ".repeat(LONG)}]`)).toBeGreaterThan(LONG);
  // Beside an image, whose own data does not count.
  const image = `"content":[{"type":"image_url","image_url":{"url":"${PNG}"}}]`;
  const beside = promptOfText(`{"model":"m","messages":[{"role":"user",${image},"x":1${"0".repeat(LONG)}}]}`);
  expect([beside.imageTokens, beside.bytes > LONG, beside.bytes < LONG + 500]).toEqual([100, true, true]);
});

test("an embedding's prompt is its input, and the bytes of all other fields that are sent on", () => {
  const bytesOf = (input: unknown, more: object, changed = new Map<string, unknown>()) => {
    const value = { model: "m", input, dimensions: 8, encoding_format: "float", ...more };
    return embeddingPromptOf(readInput(input), {
      ...{ raw: bodyOf(JSON.stringify(value), NO_ROOM), changed, model: MODEL },
    }).bytes;
  };
  expect(bytesOf(["été", "x"], {})).toBe(5 + 1 + 1);
  expect(bytesOf([7, 8, 9], {})).toBe(3);
  expect(bytesOf("hi", { user: "anna" })).toBe(2 + Buffer.byteLength('"user":"anna"'));
  expect(bytesOf("hi", { note: "x".repeat(LONG) })).toBeGreaterThan(LONG);
  expect(bytesOf("hi", { note: "x".repeat(LONG) }, new Map([["note", undefined]]))).toBe(2);
});

test("images next to unknown fields still count as images", () => {
  const image = { type: "image_url", image_url: { url: PNG } };
  const prompt = promptOfBody({
    messages: [{ role: "user", content: [image, { type: "text", text: "hi", cache_control: {} }] }],
  });
  expect(prompt.imageTokens).toBe(100);
  expect(prompt.bytes).toBeLessThan(500);
});

test("an image counts as an image only in a content part: elsewhere a provider may read the same JSON as text", () => {
  const image = { type: "image_url", image_url: { url: PNG } };
  const call = (called: object) => ({ id: "1", type: "function", function: { name: "f", ...called } });
  for (const message of [
    { content: "hi", tool_calls: [call({ arguments: image })] },
    { content: "hi", tool_calls: [image] },
    { content: "hi", reasoning_details: [image] },
    { content: [{ type: "thinking", thinking: [image] }] },
    { content: [{ type: "text", text: image }] },
    { content: [{ ...image, text: image }] },
  ])
    expect(promptOfBody({ messages: [{ role: "assistant", ...message }] }).bytes).toBeGreaterThan(LONG);
});

test("a provider may report any kind of input for images and for unknown parts of messages, such as audio; of text and tool calls it may not", () => {
  const hasMedia = (message: object) => promptOfBody({ messages: [...HI, { role: "user", ...message }] }).hasMedia;
  const audio = { type: "input_audio", input_audio: { data: "AA", format: "wav" } };
  expect(hasMedia({ content: [{ type: "image_url", image_url: { url: PNG } }] })).toBe(true);
  expect(hasMedia({ content: [{ type: "text", text: "hi" }, audio] })).toBe(true);
  expect(hasMedia({ content: null, audio: { id: "audio_1" } })).toBe(true);
  const call = { id: "1", type: "function", function: { name: "f", arguments: "{}" } };
  expect(hasMedia({ content: [{ type: "text", text: "hi" }], tool_calls: [call] })).toBe(false);
});

test("files, audio and hosted tools count once for the whole request, by the settings of the model; tools of the client do not", () => {
  const mediaOf = (over: Record<string, unknown>) => {
    const { imageTokens, fileTokens } = promptOfBody(over);
    return imageTokens + fileTokens;
  };
  const parts = (...content: object[]) => ({ messages: [{ role: "user", content }] });
  const file = { type: "file", file: { file_id: "file_1" } };
  const audio = { type: "input_audio", input_audio: { data: "AA", format: "wav" } };
  const image = { type: "image_url", image_url: { url: "https://example.com/a.png" } };
  expect([mediaOf(parts(file)), mediaOf(parts(file, audio, file)), mediaOf(parts(image, audio))]).toEqual([7, 7, 107]);
  expect(mediaOf({ messages: [...HI, { role: "assistant", content: null, audio: { id: "audio_1" } }] })).toBe(7);
  expect(mediaOf({ tools: [{ type: "web_search" }] })).toBe(7);
  const ours = [
    { type: "function", function: { name: "f" } },
    { function: { name: "g" } },
    { type: "custom", custom: {} },
  ];
  expect(mediaOf({ tools: ours, ...parts({ type: "text", text: "hi", cache_control: {} }) })).toBe(0);
});

test("a dropped field does not count, and a changed one counts as it is sent", () => {
  const text = JSON.stringify({
    model: "m",
    messages: HI,
    documents: ["x".repeat(LONG)],
    metadata: { a: "b".repeat(LONG) },
  });
  const raw = bodyOf(text, JSON.parse(text));
  const changed = new Map<string, unknown>([
    ["documents", undefined],
    ["metadata", { a: "b" }],
  ]);
  const prompt = promptOf(checkChat(raw.value) as ChatBody, { raw, changed, model: MODEL });
  expect(prompt.bytes).toBe(2 + 1 + '{"metadata":{"a":"b"}}'.length);
  const messages = [{ role: "user", content: "hello" }];
  expect(
    promptOf(checkChat(raw.value) as ChatBody, {
      ...{ raw, model: MODEL },
      changed: new Map<string, unknown>([...changed, ["metadata", undefined], ["messages", messages]]),
    }).bytes,
  ).toBe(5);
});

test("a message that is sent as several counts as several", () => {
  const text = JSON.stringify({ model: "m", messages: [{ role: "user", content: [{ type: "tool_result" }] }] });
  const raw = bodyOf(text, JSON.parse(text));
  const changed = new Map([["messages", [...HI, ...HI, ...HI]]]);
  expect(promptOf(checkChat(raw.value) as ChatBody, { raw, changed, model: MODEL }).overheadTokens).toBe(103_000);
});

test("an addition at any place of any body counts", () => {
  const value = fc.jsonValue({ maxDepth: 3 });
  const content = fc.oneof(fc.string(), fc.array(fc.dictionary(fc.string(), value, { maxKeys: 3 }), { maxLength: 3 }));
  const message = fc
    .tuple(
      fc.constantFrom("system", "user", "assistant", "tool"),
      content,
      fc.dictionary(fc.string(), value, { maxKeys: 3 }),
    )
    .map(([role, text, more]) => ({ ...more, role, content: text }));
  const bodies = fc.record({
    messages: fc.array(message, { minLength: 1, maxLength: 3 }),
    more: fc.dictionary(fc.string(), value, { maxKeys: 4 }),
    place: fc.nat(),
    asKey: fc.boolean(),
  });
  holds(
    fc.property(bodies, ({ messages, more, place, asKey }) => {
      const marker = "m".repeat(5_000);
      const body = { ...more, model: "m", stream: null, n: null, messages: structuredClone(messages) };
      for (const name of ["temperature", "max_tokens", "max_completion_tokens", "stream_options"])
        delete (body as Record<string, unknown>)[name];
      const holders: object[] = [];
      const visit = (one: unknown): void => {
        if (typeof one !== "object" || one === null) return;
        holders.push(one);
        for (const inner of Object.values(one)) visit(inner);
      };
      visit(body);
      // Not next to the messages: that list may only contain objects.
      const open = holders.filter(
        (one) => !Array.isArray(one) || !(one === body.messages || body.messages.some((m) => m.content === one)),
      );
      const holder = open[place % open.length] as Record<string, unknown>;
      if (Array.isArray(holder)) holder.push(marker);
      else holder[asKey ? marker : "__marker"] = asKey ? 1 : marker;
      expect(promptOfText(JSON.stringify(body, null, place % 3)).bytes).toBeGreaterThanOrEqual(marker.length);
    }),
    { numRuns: 2_000 },
  );
});
