import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { spawn } from "node:child_process";
import { connect } from "node:net";
import { join } from "node:path";
import Ajv from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import OpenAI from "openai";
import { startSimulatedProvider } from "../src/demo/provider/simulated_provider.ts";
import { type FakeProvider, startFakeProvider } from "./fake_provider.ts";
import {
  type Body,
  contentOf,
  eventsOf,
  expectPng,
  get,
  HELLO,
  handTimers,
  openaiSchema,
  post,
  send,
  stream,
} from "./simulated_client.ts";

/** For what does not happen. */
const IN_VAIN_MS = 20;
const SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"];
const WEATHER = {
  type: "function",
  function: {
    name: "get_weather",
    parameters: {
      type: "object",
      properties: {
        city: { type: "string", minLength: 2 },
        unit: { enum: ["celsius", "fahrenheit"] },
        days: { type: "integer", minimum: 3, maximum: 7 },
        at: { type: "array", items: { $ref: "#/$defs/moment" }, minItems: 2 },
      },
      required: ["city", "unit", "days", "at"],
      additionalProperties: false,
      $defs: { moment: { type: "object", properties: { on: { type: "string", format: "date" } }, required: ["on"] } },
    },
  },
} as const;
const WEATHER_QUESTION = {
  model: "sim-small",
  messages: [{ role: "user", content: "What is the weather in Paris?" }],
  tools: [WEATHER],
};

let provider: FakeProvider;
beforeAll(async () => {
  provider = await startFakeProvider({ models: undefined });
});
afterAll(() => provider.stop());
beforeEach(() => provider.reset());

describe("API", () => {
  test("every response is valid against OpenAI's schema", async () => {
    const check = openaiSchema();
    check("ModelList", await get(provider, "/v1/models"));
    check("Model", await get(provider, "/v1/models/sim-small"));
    check("ErrorResponse", await get(provider, "/v1/models/none"));
    const chats = [
      HELLO,
      { ...HELLO, n: 3 },
      { ...HELLO, model: "sim-reason", max_tokens: 5 },
      WEATHER_QUESTION,
      { ...HELLO, response_format: { type: "json_object" } },
    ];
    for (const chat of chats) {
      check("ChatCompletion", await post(provider, "/v1/chat/completions", chat));
      for (const include_usage of [true, false]) {
        const events = await stream(provider, { ...chat, stream_options: { include_usage } });
        expect(events.length).toBeGreaterThan(3);
        for (const event of events) check("ChatCompletionChunk", event);
      }
    }
    for (const response_format of ["url", "b64_json"]) {
      for (const size of SIZES) {
        check(
          "ImagesResponse",
          await post(provider, "/v1/images/generations", {
            model: "sim-image",
            prompt: "A lake",
            size,
            response_format,
          }),
        );
      }
    }
    for (const bad of [
      {},
      { model: "none", messages: HELLO.messages },
      { ...HELLO, max_tokens: 0 },
      { ...HELLO, messages: [] },
    ]) {
      check("ErrorResponse", await post(provider, "/v1/chat/completions", bad));
    }
  });

  test("the same request gets the same words, another request gets others", async () => {
    const [first, second, other] = await Promise.all([
      post(provider, "/v1/chat/completions", HELLO),
      post(provider, "/v1/chat/completions", HELLO),
      post(provider, "/v1/chat/completions", { ...HELLO, messages: [{ role: "user", content: "Say hello to Zoë!" }] }),
    ]);
    expect(contentOf(first)).toBe(contentOf(second));
    expect(first.id).not.toBe(second.id);
    expect(first.usage).toEqual(second.usage);
    expect(contentOf(first)).toStartWith("You asked: “Say hello to Anna”. Here is a story.");
    expect(contentOf(first)).toEndWith(".");
    expect(contentOf(other)).toStartWith("You asked: “Say hello to Zoë!” Here is a story.");
    const streamed = await stream(provider, HELLO);
    expect(streamed.map((event) => event.choices[0]?.delta.content ?? "").join("")).toBe(contentOf(first));
  });

  test("max_tokens truncates with finish_reason length, and a number of words in the prompt sets the length", async () => {
    for (const cap of ["max_tokens", "max_completion_tokens"]) {
      const cut = await post(provider, "/v1/chat/completions", { ...HELLO, [cap]: 7 });
      expect([cut.choices[0]?.finish_reason, cut.usage?.completion_tokens]).toEqual(["length", 7]);
    }
    const whole = await post(provider, "/v1/chat/completions", { ...HELLO, max_tokens: 4_000 });
    expect(whole.choices[0]?.finish_reason).toBe("stop");
    const long = await post(provider, "/v1/chat/completions", {
      ...HELLO,
      messages: [{ role: "user", content: "Write 300 words" }],
    });
    expect(long.usage?.completion_tokens).toBe(300);
  });

  test("usage adds up, and part of a long conversation counts as cached", async () => {
    const messages = [
      { role: "user", content: "x".repeat(9_000) },
      { role: "assistant", content: "ok" },
      ...HELLO.messages,
    ];
    const { usage } = await post(provider, "/v1/chat/completions", { ...HELLO, messages });
    expect(usage?.total_tokens).toBe((usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0));
    expect(usage?.prompt_tokens_details.cached_tokens).toBe(2_176);
    const short = await post(provider, "/v1/chat/completions", HELLO);
    expect(short.usage?.prompt_tokens_details.cached_tokens).toBe(0);
  });

  test("a stream is role, content, finish, usage if requested, [DONE]", async () => {
    const asked = { ...HELLO, stream: true, max_tokens: 4, stream_options: { include_usage: true } };
    const response = await send(provider, "/v1/chat/completions", asked);
    expect(response.headers.get("content-type")).toBe("text/event-stream; charset=utf-8");
    const text = await response.text();
    expect(text).toEndWith("data: [DONE]\n\n");
    const events = eventsOf(text);
    expect(events).toHaveLength(1 + 4 + 1 + 1);
    expect(events[0]?.choices[0]?.delta).toMatchObject({ role: "assistant", content: "" });
    expect(events.at(-2)?.choices[0]?.finish_reason).toBe("length");
    expect(events.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 4 } });
    expect(events.slice(0, -1).every(({ usage }) => usage === null)).toBe(true);
    expect(new Set(events.map(({ id, created, model }) => `${id} ${created} ${model}`)).size).toBe(1);
    const without = await stream(provider, { ...asked, stream_options: undefined });
    expect(without.some((event) => "usage" in event)).toBe(false);
  });

  test("a tool call has arguments that match the tool's schema, in JSON and in streams", async () => {
    const ajv = new Ajv();
    addFormats(ajv);
    const fits = ajv.compile(WEATHER.function.parameters);
    const whole = await post(provider, "/v1/chat/completions", WEATHER_QUESTION);
    expect(whole.choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    const call = whole.choices[0]?.message.tool_calls?.[0];
    expect(call?.function.name).toBe("get_weather");
    expect(JSON.parse(call?.function.arguments ?? "")).toMatchObject({ city: "Paris" });
    expect(fits(JSON.parse(call?.function.arguments ?? ""))).toBe(true);

    const parts = (await stream(provider, WEATHER_QUESTION)).flatMap(
      (event) => event.choices[0]?.delta.tool_calls ?? [],
    );
    expect(parts.length).toBeGreaterThan(5);
    expect(parts[0]?.id).toStartWith("call_");
    expect(parts.map((part) => part.function.arguments).join("")).toBe(call?.function.arguments ?? "");
  });

  test("no tool is called if tools are switched off or a tool result was just sent", async () => {
    const off = await post(provider, "/v1/chat/completions", { ...WEATHER_QUESTION, tool_choice: "none" });
    const after = await post(provider, "/v1/chat/completions", {
      ...WEATHER_QUESTION,
      messages: [
        ...WEATHER_QUESTION.messages,
        {
          role: "assistant",
          content: null,
          tool_calls: [{ id: "c", type: "function", function: { name: "get_weather", arguments: "{}" } }],
        },
        { role: "tool", tool_call_id: "c", content: "sunny" },
      ],
    });
    for (const answer of [off, after]) {
      expect(answer.choices[0]?.finish_reason).toBe("stop");
      expect(contentOf(answer)).toContain("Paris");
    }
    const unknown = await post(provider, "/v1/chat/completions", {
      ...WEATHER_QUESTION,
      tool_choice: { type: "function", function: { name: "no" } },
    });
    expect(unknown.error?.param).toBe("tool_choice");
  });

  test("response_format gives JSON, and JSON that matches a schema", async () => {
    const object = await post(provider, "/v1/chat/completions", { ...HELLO, response_format: { type: "json_object" } });
    expect(JSON.parse(contentOf(object))).toMatchObject({ topic: "Anna" });
    const json_schema = {
      name: "x",
      schema: {
        type: "object",
        properties: { age: { type: "integer", exclusiveMinimum: 17, multipleOf: 5 } },
        required: ["age"],
      },
    };
    const fitting = await post(provider, "/v1/chat/completions", {
      ...HELLO,
      response_format: { type: "json_schema", json_schema },
    });
    expect(JSON.parse(contentOf(fitting))).toEqual({ age: 20 });
  });

  test("n choices, at most four, and reasoning from reasoning models", async () => {
    const many = await post(provider, "/v1/chat/completions", { ...HELLO, n: 9, max_tokens: 40 });
    expect(many.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    expect(many.usage?.completion_tokens).toBe(160);
    expect(new Set(many.choices.map(({ message }) => message.content)).size).toBe(4);
    const reasoned = await post(provider, "/v1/chat/completions", { ...HELLO, model: "sim-reason" });
    expect(reasoned.choices[0]?.message.reasoning_content).toContain("Anna");
    const streamed = await stream(provider, { ...HELLO, model: "sim-reason" });
    expect(streamed.some((event) => event.choices[0]?.delta.reasoning_content)).toBe(true);
    expect((await post(provider, "/v1/chat/completions", HELLO)).choices[0]?.message).not.toHaveProperty(
      "reasoning_content",
    );
  });

  test("images are PNGs of the requested size, by URL or base64", async () => {
    for (const size of SIZES) {
      const [width = 0, height = 0] = size.split("x").map(Number);
      const asked = { model: "sim-image", prompt: "A lake at night", size };
      const embedded = await post(provider, "/v1/images/generations", { ...asked, response_format: "b64_json" });
      const png = Buffer.from(embedded.data[0]?.b64_json ?? "", "base64");
      expectPng(png, width, height);
      expect(png.length).toBeLessThan(40_000);
      const linked = await post(provider, "/v1/images/generations", asked);
      const fetched = await fetch(linked.data[0]?.url ?? "");
      expect(fetched.headers.get("content-type")).toBe("image/png");
      expect(Buffer.from(await fetched.arrayBuffer()).equals(png)).toBe(true);
    }
    const other = await post(provider, "/v1/images/generations", {
      model: "sim-image",
      prompt: "A wood",
      response_format: "b64_json",
    });
    expectPng(Buffer.from(other.data[0]?.b64_json ?? "", "base64"), 1024, 1024);
    expect((await fetch(`${provider.url}/images/none.png`)).status).toBe(404);
  });

  test("stored images are bounded: the least recently fetched are evicted", async () => {
    const asked = { model: "sim-image", prompt: "Small", size: "512x512" };
    const first = await post(provider, "/v1/images/generations", asked);
    const kept = await post(provider, "/v1/images/generations", asked);
    for (let i = 0; i < 255; i++) {
      if (i === 200) expect((await fetch(kept.data[0]?.url ?? "")).status).toBe(200);
      await post(provider, "/v1/images/generations", asked);
    }
    expect((await fetch(first.data[0]?.url ?? "")).status).toBe(404);
    expect((await fetch(kept.data[0]?.url ?? "")).status).toBe(200);
  });

  test("wrong key 401, bad JSON 400, unknown model 404, wrong kind of model 400, unknown path 404, in OpenAI's format", async () => {
    const wrongKey = await fetch(`${provider.baseUrl}/models`, {
      headers: { authorization: "Bearer sk-wrong-key-1234" },
    });
    expect(wrongKey.status).toBe(401);
    expect(((await wrongKey.json()) as Body).error).toMatchObject({ code: "invalid_api_key", param: null });
    const cases: [string, string, number, string | null][] = [
      ["/v1/chat/completions", "{nope", 400, null],
      ["/v1/chat/completions", "[]", 400, null],
      ["/v1/chat/completions", JSON.stringify({ ...HELLO, model: "none" }), 404, "model"],
      ["/v1/chat/completions", JSON.stringify({ ...HELLO, model: "sim-image" }), 400, "model"],
      ["/v1/images/generations", JSON.stringify({ model: "sim-small", prompt: "A lake" }), 400, "model"],
      ["/v1/images/generations", JSON.stringify({ model: "sim-image", prompt: "A lake", size: "1x1" }), 400, "size"],
      ["/v1/nothing", "{}", 404, null],
    ];
    for (const [path, body, status, param] of cases) {
      const response = await send(provider, path, body);
      expect([path, body, response.status]).toEqual([path, body, status]);
      expect(((await response.json()) as Body).error).toMatchObject({ type: "invalid_request_error", param });
    }
  });

  test("paceMs delays each chunk of a stream, and a JSON response by all its tokens", async () => {
    const timers = handTimers();
    const paced = await startFakeProvider({ paceMs: 20, later: timers.later });
    const elapse = async () => {
      const { ms, run } = await timers.next();
      run();
      return ms;
    };
    try {
      const client = new OpenAI({ baseURL: paced.baseUrl, apiKey: paced.apiKey });
      const chunks = await client.chat.completions.create({
        model: "m",
        stream: true,
        max_tokens: 6,
        messages: [{ role: "user", content: "Hi" }],
      });
      const contents = (async function* () {
        for await (const chunk of chunks) if (chunk.choices[0]?.delta.content) yield chunk;
      })();
      for (let i = 0; i < 6; i++) {
        expect(await elapse()).toBe(20);
        expect((await contents.next()).done).toBe(false);
      }
      expect((await contents.next()).done).toBe(true);
      const question = { model: "m", max_tokens: 6, messages: [{ role: "user" as const, content: "Hi" }] };
      const whole = client.chat.completions.create(question);
      expect(await elapse()).toBe(6 * 20);
      expect((await whole).choices).toHaveLength(1);
      expect(timers.left()).toBe(0);
    } finally {
      await paced.stop();
    }
  });
});

describe("openai package as client", () => {
  test("models, chat, streaming, tools and images", async () => {
    const client = new OpenAI({ baseURL: provider.baseUrl, apiKey: provider.apiKey, maxRetries: 0 });
    expect((await client.models.list()).data.map(({ id }) => id)).toContain("sim-small");
    const messages = [{ role: "user" as const, content: "Say hello to Anna" }];
    const whole = await client.chat.completions.create({ model: "sim-small", messages });

    const streaming = client.chat.completions.stream({
      model: "sim-small",
      messages,
      stream_options: { include_usage: true },
    });
    let text = "";
    streaming.on("content", (delta) => {
      text += delta;
    });
    const final = await streaming.finalChatCompletion();
    expect(text).toBe(whole.choices[0]?.message.content ?? "");
    expect(final.choices[0]?.message.content).toBe(text);
    expect(final.usage?.total_tokens).toBe(whole.usage?.total_tokens ?? 0);

    let asked: unknown;
    const runner = client.chat.completions.runTools({
      model: "sim-small",
      messages: [{ role: "user", content: "What is the weather in Paris?" }],
      stream: true,
      tools: [
        {
          type: "function",
          function: {
            name: "get_weather",
            description: "The weather in a city",
            parameters: { type: "object", properties: { city: { type: "string" } }, required: ["city"] },
            parse: JSON.parse,
            function: (args: unknown) => {
              asked = args;
              return "sunny";
            },
          },
        },
      ],
    });
    expect(await runner.finalContent()).toContain("Paris");
    expect(asked).toEqual({ city: "Paris" });

    const image = await client.images.generate({
      model: "sim-image",
      prompt: "A lake",
      size: "1024x1536",
      response_format: "b64_json",
    });
    expectPng(Buffer.from(image.data?.[0]?.b64_json ?? "", "base64"), 1024, 1536);
  });

  test("errors are instances of the package's error classes", async () => {
    const client = new OpenAI({ baseURL: provider.baseUrl, apiKey: "sk-wrong", maxRetries: 0 });
    expect(await client.models.list().catch((error: unknown) => error)).toBeInstanceOf(OpenAI.AuthenticationError);
  });
});

describe("journal", () => {
  test("records all calls in order, and counts only model calls as generations", async () => {
    const beganMs = Date.now();
    await get(provider, "/v1/models");
    await send(provider, "/v1/chat/completions", HELLO, { "x-trace": "abc" });
    await post(provider, "/v1/chat/completions", { ...HELLO, max_tokens: 3, stream: true }).catch(() => {});
    const [first, second, third] = provider.calls();
    expect(first).toMatchObject({
      method: "GET",
      path: "/v1/models",
      generation: false,
      outcome: "complete",
      status: 200,
    });
    expect(second).toMatchObject({ path: "/v1/chat/completions", body: JSON.stringify(HELLO), generation: true });
    expect(second?.headers["x-trace"]).toBe("abc");
    expect(second?.at).toBeGreaterThanOrEqual(beganMs);
    expect(second?.at).toBeLessThanOrEqual(Date.now());
    expect(third?.chunksSent).toBe(3);
    expect(provider.callCount()).toBe(2);
    expect(provider.counters()).toEqual({ calls: 3, generations: 2, open: 0, complete: 3, aborted: 0, faulted: 0 });
    expect(provider.calls(second?.id).map(({ id }) => id)).toEqual([third?.id ?? 0]);
    expect(provider.lastCall()?.id).toBe(third?.id ?? 0);
  });

  test("a caller that leaves counts as aborted: during a stream, while waiting, and while sending", async () => {
    provider.always({ chunkDelayMs: 20, tokens: 500 });
    const streaming = new AbortController();
    const response = await send(provider, "/v1/chat/completions", { ...HELLO, stream: true }, {}, streaming.signal);
    const reader = response.body?.getReader();
    await reader?.read();
    await reader?.read();
    const [call] = await provider.waitForCalls(1);
    expect(call?.outcome).toBe("open");
    streaming.abort();
    const aborted = await provider.waitForAborted(call?.id ?? 0);
    expect(aborted.abortedAtMs).toBeGreaterThanOrEqual(aborted.at);
    const sent = aborted.chunksSent;
    expect(sent).toBeGreaterThan(0);
    expect(sent).toBeLessThan(500);
    // Another stream of that pace runs to its end meanwhile.
    provider.next({ chunkDelayMs: 20, tokens: 5 });
    await stream(provider, HELLO);
    expect(aborted.chunksSent).toBe(sent);

    provider.always({ delayMs: 60_000 });
    const waiting = new AbortController();
    const pending = send(provider, "/v1/chat/completions", HELLO, {}, waiting.signal).catch(() => "aborted");
    const second = (await provider.waitForCalls(3))[2];
    waiting.abort();
    expect(await pending).toBe("aborted");
    expect(await provider.waitForAborted(second?.id ?? 0)).toMatchObject({ chunksSent: 0, status: 0 });

    const socket = connect(provider.port, "127.0.0.1");
    socket.write("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n{");
    const third = (await provider.waitForCalls(4))[3];
    socket.destroy();
    expect(await provider.waitForAborted(third?.id ?? 0)).toMatchObject({ body: "" });
    expect(provider.counters()).toMatchObject({ aborted: 3, open: 0 });
  });

  test("is bounded in calls: the oldest are dropped", async () => {
    const small = await startFakeProvider({ journalCallsMax: 3 });
    try {
      for (let i = 0; i < 5; i++) await fetch(`${small.baseUrl}/models?${i}`);
      expect(small.calls().map(({ id }) => id)).toEqual([3, 4, 5]);
      expect(small.call(2)).toBeUndefined();
      expect(small.counters().calls).toBe(5);
      small.reset();
      expect(small.calls()).toEqual([]);
      await fetch(`${small.baseUrl}/models`);
      expect(small.calls().map(({ id }) => id)).toEqual([6]);
    } finally {
      await small.stop();
    }
  });

  test("a wait that times out reports the current state", async () => {
    await expect(provider.waitForCalls(1, IN_VAIN_MS)).rejects.toThrow("1 calls; there are 0");
    await post(provider, "/v1/chat/completions", HELLO);
    const id = provider.lastCall()?.id ?? 0;
    await expect(provider.waitForAborted(id, IN_VAIN_MS)).rejects.toThrow("it is complete");
    await expect(provider.waitForAborted(10 ** 9, IN_VAIN_MS)).rejects.toThrow("no call");
  });
});

describe("control over HTTP", () => {
  const control = (path: string, body?: unknown) =>
    fetch(provider.url + path, body === undefined ? {} : { method: "POST", body: JSON.stringify(body) });

  test("behaviours, journal and reset", async () => {
    expect((await control("/__behave", { scope: "next", behaviour: { content: "once" } })).status).toBe(200);
    expect((await control("/__behave", { scope: "always", behaviour: { content: "always" } })).status).toBe(200);
    const contents = [];
    for (let i = 0; i < 3; i++) contents.push(contentOf(await post(provider, "/v1/chat/completions", HELLO)));
    expect(contents).toEqual(["once", "always", "always"]);
    await control("/__behave", { scope: "always", behaviour: null });
    expect(contentOf(await post(provider, "/v1/chat/completions", HELLO))).toContain("Anna");

    const first = provider.calls()[0]?.id ?? 0;
    const page = (await (await control(`/__journal?after=${first}&limit=2`)).json()) as Body & {
      has_more: boolean;
      counters: unknown;
    };
    expect(page.data).toHaveLength(2);
    expect(page.data[0]).toMatchObject({ id: first + 1, outcome: "complete", body: JSON.stringify(HELLO) });
    expect(page.has_more).toBe(true);
    expect(page.counters).toMatchObject({ generations: 4, complete: 4 });
    expect((await control("/__reset", {})).status).toBe(200);
    expect(provider.callCount()).toBe(0);
  });

  test("an unknown behaviour is refused with its name", async () => {
    for (const body of [
      { scope: "next", behaviour: { cutAfterByte: 1 } },
      { scope: "next", behaviour: { status: "500" } },
      { scope: "sometimes", behaviour: {} },
      [],
    ]) {
      expect((await control("/__behave", body)).status).toBe(400);
    }
    const refused = await control("/__behave", { scope: "next", behaviour: { cutAfterByte: 1 } });
    expect(await refused.text()).toContain("cutAfterByte");
  });

  test("is off by default", async () => {
    const closed = await startSimulatedProvider();
    try {
      for (const path of ["/__journal", "/__reset", "/__behave"]) {
        expect((await fetch(closed.url + path, { method: path === "/__journal" ? "GET" : "POST" })).status).toBe(404);
      }
    } finally {
      await closed.stop();
    }
  });
});

describe("as a process", () => {
  const start = async () => {
    const file = join(import.meta.dir, "../src/demo/provider/simulated_provider.ts");
    const child = spawn(process.execPath, [file, "--port", "0", "--pace-ms", "1", "--api-key", "k"], {
      stdio: ["pipe", "pipe", "inherit"],
    });
    const line = await new Promise<string>((resolve) => child.stdout.once("data", (data) => resolve(String(data))));
    const ended = new Promise<number | null>((resolve) => child.once("exit", resolve));
    return { child, ended, told: JSON.parse(line) as { url: string; baseUrl: string; port: number; pid: number } };
  };

  test("prints its address in one line, answers, and stops on SIGTERM", async () => {
    const { child, ended, told } = await start();
    expect(told).toEqual({
      url: `http://127.0.0.1:${told.port}`,
      baseUrl: `http://127.0.0.1:${told.port}/v1`,
      port: told.port,
      pid: child.pid ?? 0,
    });
    const answer = await fetch(`${told.baseUrl}/models`, { headers: { authorization: "Bearer k" } });
    expect(answer.status).toBe(200);
    child.kill("SIGTERM");
    expect(await ended).toBe(0);
  });

  test("stops when its stdin is closed", async () => {
    const { child, ended } = await start();
    child.stdin.end();
    expect(await ended).toBe(0);
  });

  test("a taken port is an error", async () => {
    await expect(startSimulatedProvider({ port: provider.port })).rejects.toThrow();
  });

  test("stop ends open calls", async () => {
    const other = await startFakeProvider({ script: [{ hang: "headers" }] });
    const pending = send(other, "/v1/chat/completions", HELLO).catch(() => "ended");
    await other.waitForCalls(1);
    await other.stop();
    expect(await pending).toBe("ended");
  });
});
