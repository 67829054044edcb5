import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { keepingId, keptOf, readCallId } from "../../src/gateway/responses/kept_in_ids.ts";
import type { ModelSpec } from "../world.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { messagesOf } from "./responses_input.ts";
import { openShop, responsesBody, type Shop } from "./shop.ts";

/**
 * What a provider says beside a call and must get back: Gemini 3 refuses the next turn without its `thought_signature`. It comes back however
 * a client continues the conversation. Source: RSP-14, PRV-1.
 */
let shop: Shop;

beforeAll(async () => {
  const model = (id: string, route: object): ModelSpec => ({
    ...{ id, contextLength: 8192, inputMicroUsd: 3_000_000, outputMicroUsd: 15_000_000, defaultCapTokens: 1000 },
    routes: [{ provider: "first", ...route }],
  });
  shop = await openShop({
    models: [
      model("own", { ownResponses: true }),
      model("unsigned", {}),
      model("unseen", {}),
      model("mixed", {}),
      model("strict", { droppedParams: ["messages.extra_content"] }),
      model("gemini", { upstreamModel: "google/gemini-3-pro" }),
    ],
  });
});
afterEach(() => shop.provider.reset());
afterAll(() => closeBalanced(shop));

const SIGNATURE = `${"c2lnbmF0dXJl+/".repeat(60)}=`;
const EXTRA = { google: { thought_signature: SIGNATURE } };
/** As Gemini calls two tools at once: the first has the signature. */
const CALLS = [
  { index: 0, id: "function-call-1", type: "function", function: { name: "a", arguments: "{}" }, extra_content: EXTRA },
  { index: 1, id: "function-call-2", type: "function", function: { name: "a", arguments: '{"n":2}' } },
];
const TOOL = { type: "function", name: "a", parameters: { type: "object" } };
const choice = (part: string, said: object, finish: string | null) => ({
  id: "chatcmpl-1",
  choices: [{ index: 0, [part]: said, finish_reason: finish }],
});
const STREAM = [choice("delta", { role: "assistant", tool_calls: CALLS }, null), choice("delta", {}, "tool_calls")];
const ANSWERS = {
  stream: {
    contentType: "text/event-stream",
    body: STREAM.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`).join(""),
  },
  whole: {
    contentType: "application/json",
    body: JSON.stringify(choice("message", { role: "assistant", content: null, tool_calls: CALLS }, "tool_calls")),
  },
};

type Item = Record<string, unknown> & { id: string; type: string; call_id: string; name: string; arguments: string };
type Response = { id: string; output: Item[] };

const ask = (secret: string, over: Record<string, unknown>) =>
  shop.call("/v1/responses", { secret, body: responsesBody({ tools: [TOOL], ...over }) });
const sent = () => JSON.parse(shop.provider.lastCall()?.body ?? "{}");

/** A first turn in which the model calls twice. */
async function called(
  secret: string,
  form: keyof typeof ANSWERS,
  over: Record<string, unknown> = {},
): Promise<Response> {
  shop.provider.next(ANSWERS[form]);
  const answer = await ask(secret, { input: "Tolls?", stream: form === "stream", ...over });
  expect(answer.status).toBe(200);
  return form === "stream" ? (checkLifeCycle(readEvents(answer.text)) as unknown as Response) : answer.json;
}

const outputsOf = ({ output }: Response) =>
  output
    .filter(({ type }) => type === "function_call")
    .map(({ call_id }) => ({ type: "function_call_output", call_id, output: "3" }));

/** How clients continue: the body of the second turn. */
const WAYS: Record<string, (first: Response) => Record<string, unknown>> = {
  "the items as they came": (first) => ({ input: [...first.output, ...outputsOf(first)], store: false }),
  "the items with only the fields of calls, as Codex sends them": (first) => ({
    input: [
      ...first.output.map(({ type, call_id, name, arguments: args }) => ({ type, call_id, name, arguments: args })),
      ...outputsOf(first),
    ],
    store: false,
  }),
  previous_response_id: (first) => ({ previous_response_id: first.id, input: outputsOf(first) }),
  item_reference: (first) => ({
    input: [...first.output.map(({ id }) => ({ type: "item_reference", id })), ...outputsOf(first)],
  }),
};

describe.each(["whole", "stream"] as const)("a signature of a %s answer comes back", (form) => {
  test.each(Object.entries(WAYS))("by %s", async (_, next) => {
    const { secret } = await shop.customer();
    const first = await called(secret, form);
    expect(first.output.map(({ type }) => type)).toEqual(["function_call", "function_call"]);
    expect(first.output.every(({ call_id }) => /^[\w-]+$/.test(call_id))).toBe(true);
    expect((await ask(secret, next(first))).status).toBe(200);
    const { messages } = sent();
    const [asked, ...results] = messages.slice(-3);
    expect(asked.tool_calls.map(({ index: _, ...call }: Record<string, unknown>) => call)).toEqual(
      CALLS.map(({ index: _, ...call }) => call),
    );
    expect(results.map(({ tool_call_id }: Record<string, unknown>) => tool_call_id)).toEqual([
      "function-call-1",
      "function-call-2",
    ]);
  });
});

test("it comes back over ten turns, with each turn's own", async () => {
  const { secret } = await shop.customer();
  let previous: Response = await called(secret, "whole");
  for (let turn = 2; turn <= 10; turn++) {
    shop.provider.next(ANSWERS.whole);
    const next = { previous_response_id: previous.id, input: outputsOf(previous) };
    previous = (await ask(secret, next)).json;
    const signed = sent().messages.filter((message: { tool_calls?: { extra_content?: unknown }[] }) =>
      message.tool_calls?.some(({ extra_content: extra }) => Bun.deepEquals(extra, EXTRA)),
    );
    expect(signed.length).toBe(turn - 1);
  }
});

/** As OpenRouter streams them: in pieces, and the signature behind the calls. */
const DETAILS = [
  { type: "reasoning.text", text: "Two tolls, ", signature: null, format: "anthropic-claude-v1", index: 0 },
  { type: "reasoning.text", text: "one road.", signature: "c2lnbmF0dXJl", format: "anthropic-claude-v1", index: 0 },
  { type: "reasoning.encrypted", data: "ZW5j", id: "tool_1", format: "google-gemini-v1", index: 1 },
];
const [FIRST, SECOND, ENCRYPTED] = DETAILS;
const WHOLE_DETAILS = [{ ...FIRST, text: "Two tolls, one road.", signature: "c2lnbmF0dXJl" }, ENCRYPTED];
const PLAIN_CALLS = CALLS.map(({ extra_content: _, ...call }) => call);
const eventsOf = (...deltas: object[]) => ({
  contentType: "text/event-stream",
  body: [...deltas.map((delta) => choice("delta", delta, null)), choice("delta", {}, "tool_calls")]
    .map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`)
    .join(""),
});
const DETAILED = {
  stream: eventsOf(
    { role: "assistant", reasoning: FIRST?.text, reasoning_details: [FIRST] },
    { reasoning: SECOND?.text, reasoning_details: [SECOND] },
    { tool_calls: PLAIN_CALLS },
    { reasoning_details: [ENCRYPTED] },
  ),
  whole: {
    contentType: "application/json",
    body: JSON.stringify(
      choice("message", { role: "assistant", reasoning_details: WHOLE_DETAILS, tool_calls: PLAIN_CALLS }, "tool_calls"),
    ),
  },
};

describe.each(["whole", "stream"] as const)("the details of reasoning of a %s answer come back", (form) => {
  test.each(Object.entries(WAYS))("by %s", async (_, next) => {
    const { secret } = await shop.customer();
    shop.provider.next(DETAILED[form]);
    const answer = await ask(secret, { input: "Tolls?", stream: form === "stream" });
    const first = (form === "stream" ? checkLifeCycle(readEvents(answer.text)) : answer.json) as unknown as Response;
    const calls = first.output.filter(({ type }) => type === "function_call");
    await ask(secret, next({ ...first, output: _.startsWith("the items") ? calls : first.output }));
    const asked = sent().messages.findLast(({ role }: { role: string }) => role === "assistant");
    expect(asked.reasoning_details).toEqual(WHOLE_DETAILS);
    expect(asked.tool_calls).toEqual(PLAIN_CALLS.map(({ index: _, ...call }) => call));
  });
});

describe("a signature that comes behind the name of its call comes back", () => {
  const LATE = eventsOf(
    {
      role: "assistant",
      tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "a", arguments: "" } }],
    },
    { tool_calls: [{ index: 0, function: { arguments: "{}" } }] },
    { tool_calls: [{ index: 0, extra_content: EXTRA, function: { arguments: "" } }] },
  );

  test.each(Object.entries(WAYS))("of a model of Gemini's, by %s", async (_, next) => {
    const { secret } = await shop.customer();
    shop.provider.next(LATE);
    const answer = await ask(secret, { model: "gemini", input: "Tolls?", stream: true });
    const events = readEvents(answer.text);
    const first = checkLifeCycle(events) as unknown as Response;
    const ids = events.flatMap(({ item }) => (item as Item | undefined)?.call_id ?? []);
    expect(new Set(ids).size).toBe(1);
    await ask(secret, { ...next(first), model: "gemini" });
    const asked = sent().messages.findLast(({ role }: { role: string }) => role === "assistant");
    expect(asked.tool_calls[0]).toMatchObject({ id: "c1", extra_content: EXTRA });
  });

  test("of a route of which no call was seen: its id does not change", async () => {
    const { secret } = await shop.customer();
    expect(await idsOf(secret, LATE, "unseen")).toHaveLength(1);
    expect(await idsOf(secret, LATE, "unseen")).toHaveLength(1);
  });

  test("of a route whose calls came with nothing behind them: once, by the item as it is when it is done", async () => {
    const { secret } = await shop.customer();
    const pieces = eventsOf(
      { tool_calls: [{ index: 0, id: "c1", type: "function", function: { name: "a", arguments: "{" } }] },
      { tool_calls: [{ index: 0, function: { arguments: "}" } }] },
      { content: "Tolls." },
    );
    const typesOf = async () => {
      shop.provider.next(pieces);
      const answer = await ask(secret, { model: "mixed", input: "Tolls?", stream: true });
      return (checkLifeCycle(readEvents(answer.text)) as unknown as Response).output.map(({ type }) => type);
    };
    // The first call of a route waits for the end. From then on calls are sent as they come.
    expect(await typesOf()).toEqual(["message", "function_call"]);
    expect(await typesOf()).toEqual(["function_call", "message"]);
    shop.provider.next(LATE);
    const answer = await ask(secret, { model: "mixed", input: "Tolls?", stream: true });
    const done = readEvents(answer.text).findLast(({ type }) => type === "response.output_item.done");
    const item = done?.item as Item;
    const output = { type: "function_call_output", call_id: "c1", output: "3" };
    await ask(secret, { model: "mixed", input: [item, output], store: false });
    expect(sent().messages[0].tool_calls[0]).toMatchObject({ id: "c1", extra_content: EXTRA });
    // The route is known by now: its calls wait for what may come behind them.
    expect(await idsOf(secret, LATE, "mixed")).toHaveLength(1);
    expect(await typesOf()).toEqual(["message", "function_call"]);
  });

  test("of another model, whose call comes at once: its id does not change", async () => {
    const { secret } = await shop.customer();
    const [first, second] = PLAIN_CALLS;
    const late = eventsOf(
      { role: "assistant", tool_calls: [first, second] },
      { tool_calls: [{ index: 0, extra_content: EXTRA, function: { arguments: "" } }] },
    );
    expect(await idsOf(secret, late, "unsigned")).toHaveLength(2);
  });

  /** The ids of calls in all events of a stream. */
  async function idsOf(secret: string, events: object, model?: string): Promise<string[]> {
    shop.provider.next(events);
    const answer = await ask(secret, { input: "Tolls?", stream: true, ...(model && { model }) });
    return [...new Set(readEvents(answer.text).flatMap(({ item }) => (item as Item | undefined)?.call_id ?? []))];
  }
});

test("a provider's own /responses gets the call's own id", async () => {
  const { secret } = await shop.customer();
  const first = await called(secret, "whole");
  await ask(secret, { model: "own", input: [...first.output, ...outputsOf(first)], store: false });
  expect(sent().input.map(({ call_id }: Item) => call_id)).toEqual([
    ...["function-call-1", "function-call-2"],
    ...["function-call-1", "function-call-2"],
  ]);
});

describe("at chat completions", () => {
  const messages = [
    { role: "user", content: "Tolls?" },
    { role: "assistant", content: "Three.", extra_content: EXTRA },
    { role: "assistant", content: null, tool_calls: CALLS },
    { role: "tool", tool_call_id: "function-call-1", content: "3" },
    { role: "tool", tool_call_id: "function-call-2", content: "3" },
  ];
  const chat = async (model: string) => {
    const { secret } = await shop.customer();
    return await shop.call("/v1/chat/completions", { secret, body: { model, messages } });
  };

  test("it is passed on, in calls and in messages", async () => {
    await chat(String(responsesBody({}).model));
    expect(sent().messages).toEqual(messages);
  });

  test("it is left out and named where a route does not take it: Mistral and Groq refuse it", async () => {
    const { headers } = await chat("strict");
    const without = messages.map(({ extra_content: _, ...message }) => message);
    const calls = CALLS.map(({ extra_content: _, ...call }) => call);
    expect(sent().messages).toEqual(
      without.map((message, i) => (i === 2 ? { ...message, tool_calls: calls } : message)),
    );
    expect(headers.get("x-dropped-params")).toBe("messages.1.extra_content, messages.2.tool_calls.0.extra_content");
  });
});

test("an output for a call with another signature is that call's, and one without a call is refused", async () => {
  const { secret } = await shop.customer();
  const call = {
    type: "function_call",
    call_id: keepingId("c1", '{"thought_signature":"x"}'),
    name: "a",
    arguments: "{}",
  };
  const output = (call_id: string) => ({ type: "function_call_output", call_id, output: "3" });
  expect((await ask(secret, { input: [call, output("c1")], store: false })).status).toBe(200);
  expect(sent().messages[0].tool_calls[0]).toMatchObject({ id: "c1", thought_signature: "x" });
  expectRefusal(await ask(secret, { input: [call, output("c2")] }), "invalid_request", { param: "input.1.call_id" });
  const long = { ...call, call_id: "c".repeat(513) };
  expectRefusal(await ask(secret, { input: [long] }), "invalid_request", { param: "input.0.call_id" });
});

test("an id that keeps nothing readable is the provider's own", () => {
  for (const id of ["call_1", "a__kept__", "a__kept__%%%", `a__kept__${Buffer.from("[1]").toString("base64url")}`])
    expect(readCallId(id)).toEqual({ id, kept: {}, ofMessage: {} });
  const other = keepingId("a", '{"extra_content":{"x":1},"name":"b","index":7}');
  expect(readCallId(other)).toEqual({ id: "a", kept: { extra_content: { x: 1 } }, ofMessage: {} });
  const [message] = messagesOf([{ type: "function_call", call_id: other, name: "a", arguments: "{}" }]);
  expect(message?.tool_calls).toEqual([
    { id: "a", type: "function", function: { name: "a", arguments: "{}" }, extra_content: { x: 1 } },
  ]);
});

test("what is too large, or empty, is not kept", () => {
  expect(keptOf({ extra_content: { x: "y".repeat(40_000) } })).toBeUndefined();
  expect(keptOf({ extra_content: {}, thought_signature: "", provider_specific_fields: null })).toBeUndefined();
  expect(keptOf({ thought_signature: "s", id: "a" })).toBe('{"thought_signature":"s"}');
});
