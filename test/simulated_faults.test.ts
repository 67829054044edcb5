import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import { gunzipSync } from "node:zlib";
import type { Behaviour } from "../src/demo/provider/faults.ts";
import { type FakeProvider, startFakeProvider } from "./fake_provider.ts";
import {
  type Body,
  contentOf,
  eventsOf,
  HELLO,
  handTimers,
  post,
  rawBytes,
  rawPost,
  roundTrips,
  send,
  stream,
} from "./simulated_client.ts";

let provider: FakeProvider;
beforeAll(async () => {
  provider = await startFakeProvider({ models: undefined });
});
afterAll(() => provider.stop());
beforeEach(() => provider.reset());

describe("behaviours", () => {
  test("next applies once, when precedes always, script comes first", async () => {
    const scripted = await startFakeProvider({ script: [{ content: "1" }, { content: "2" }] });
    try {
      scripted.always({ content: "always" });
      scripted.when(({ body }) => body.includes("Bob"), { content: "Bob" });
      const ask = async (content: string) =>
        contentOf(await post(scripted, "/v1/chat/completions", { ...HELLO, messages: [{ role: "user", content }] }));
      expect([await ask("Anna"), await ask("Bob"), await ask("Bob"), await ask("Anna")]).toEqual([
        "1",
        "2",
        "Bob",
        "always",
      ]);
      scripted.next({ content: "next" });
      expect(
        (await fetch(`${scripted.baseUrl}/models`, { headers: { authorization: `Bearer ${scripted.apiKey}` } })).status,
      ).toBe(200);
      expect(await ask("Bob")).toBe("next");
      scripted.always(undefined);
      expect(await ask("Anna")).toContain("Anna");
    } finally {
      await scripted.stop();
    }
  });

  test("status, body, content type, headers, html and redirects replace the response", async () => {
    const cases: [Behaviour, number, string, string][] = [
      [{ status: 500 }, 500, "application/json", "org-simulated"],
      [{ status: 429, headers: { "retry-after": "7" } }, 429, "application/json", "rate_limit_exceeded"],
      [{ status: 401 }, 401, "application/json", "invalid_api_key"],
      [{ status: 502, body: "oops", contentType: "text/plain" }, 502, "text/plain", "oops"],
      [{ body: "{" }, 200, "application/json", "{"],
      [{ html: true }, 200, "text/html; charset=utf-8", "<!DOCTYPE html>"],
      [{ html: true, status: 503 }, 503, "text/html; charset=utf-8", "Bad Gateway"],
      [{ redirectTo: "http://127.0.0.1:1/" }, 302, "text/plain", ""],
      [{ status: 201 }, 201, "application/json", "Anna"],
      [{ contentType: "text/plain" }, 200, "text/plain", "Anna"],
    ];
    for (const [behaviour, status, contentType, text] of cases) {
      provider.next(behaviour);
      const response = await send(provider, "/v1/chat/completions", HELLO);
      expect([behaviour, response.status, response.headers.get("content-type")]).toEqual([
        behaviour,
        status,
        contentType,
      ]);
      if (behaviour.headers) expect(response.headers.get("retry-after")).toBe("7");
      if (behaviour.redirectTo) expect(response.headers.get("location")).toBe("http://127.0.0.1:1/");
      expect(await response.text()).toContain(text);
    }
    expect(provider.counters()).toMatchObject({ faulted: 7, complete: 3 });
  });

  test("delays happen where they are configured", async () => {
    const timers = handTimers();
    const slow = await startFakeProvider({ later: timers.later });
    const ask = (behaviour: Behaviour) => {
      slow.next(behaviour);
      return send(slow, "/v1/chat/completions", { ...HELLO, stream: true, max_tokens: 3 });
    };
    try {
      // Before the headers.
      let hasHeaders = false;
      const delayed = ask({ delayMs: 80 }).finally(() => {
        hasHeaders = true;
      });
      const elapse = await timers.next();
      expect([elapse.ms, hasHeaders]).toEqual([80, false]);
      elapse.run();
      expect((await delayed).status).toBe(200);
      expect(eventsOf(await (await delayed).text()).length).toBeGreaterThan(3);
      // Between the headers and the first byte.
      const first = (await ask({ firstByteDelayMs: 1000 })).text();
      const between = await timers.next();
      expect(between.ms).toBe(1000);
      between.run();
      expect(eventsOf(await first).length).toBeGreaterThan(3);
      // Before each chunk: the event with the role comes without one.
      const reader = (await ask({ chunkDelayMs: 500 })).body?.getReader();
      expect(new TextDecoder().decode((await reader?.read())?.value)).toContain('"role"');
      for (let i = 0; i < 3; i++) {
        const { ms, run } = await timers.next();
        expect(ms).toBe(500);
        run();
      }
      while (!(await reader?.read())?.done);
      expect(timers.left()).toBe(0);
    } finally {
      await slow.stop();
    }
  });

  test("a cut closes the socket at the configured place, and counts as faulted", async () => {
    const cases: [Behaviour, unknown, (body: string) => void][] = [
      [{ cutAfterBytes: 100 }, HELLO, (body) => expect(body).toHaveLength(100)],
      [{ cutAfterBytes: 0 }, HELLO, (body) => expect(body).toBe("")],
      [{ cutAfterBytes: 500 }, { ...HELLO, stream: true }, (body) => expect(Buffer.byteLength(body)).toBe(500)],
      [{ cutAfterChunks: 3 }, { ...HELLO, stream: true }, (body) => expect(eventsOf(body)).toHaveLength(1 + 3)],
      [{ cutAfterChunks: 0 }, { ...HELLO, stream: true }, (body) => expect(eventsOf(body)).toHaveLength(1)],
      [{ cutAfterChunks: 2, tokens: 2 }, { ...HELLO, stream: true }, (body) => expect(body).not.toContain('"stop"')],
      [{ cutAfterChunks: 1 }, HELLO, (body) => expect(() => JSON.parse(body)).toThrow()],
    ];
    for (const [behaviour, asked, check] of cases) {
      provider.next(behaviour);
      const answer = await rawPost(provider, asked);
      expect(answer.status).toBe(200);
      expect(answer.whole).toBe(false);
      check(answer.body);
    }
    provider.next({ cutBeforeHeaders: true });
    expect((await rawPost(provider, HELLO)).head).toBe("");
    expect(provider.counters()).toMatchObject({ faulted: cases.length + 1, complete: 0, aborted: 0 });
    provider.next({ cutAfterBytes: 100 });
    await expect((async () => (await send(provider, "/v1/chat/completions", HELLO)).text())()).rejects.toThrow();
  });

  test("a gate holds answers until it is opened: before their headers, before their first byte, or after some chunks", async () => {
    const before = provider.gate();
    provider.always(before.held);
    const two = [1, 2].map(() => send(provider, "/v1/chat/completions", HELLO));
    await provider.waitForCalls(2);
    await roundTrips(provider);
    expect(await Promise.race([...two, "none yet"])).toBe("none yet");
    before.open();
    expect((await Promise.all(two)).map(({ status }) => status)).toEqual([200, 200]);

    const countOf = (text: string) => text.split("\n\n").length - 1;
    for (const [chunks, events] of [
      [0, 0],
      [2, 3],
    ] as const) {
      const { held, open } = provider.gateAfter(chunks, { tokens: 5 });
      provider.next(held);
      const response = await send(provider, "/v1/chat/completions", { ...HELLO, stream: true });
      let got = "";
      const ended = (async () => {
        for await (const bytes of response.body as ReadableStream<Uint8Array>) got += new TextDecoder().decode(bytes);
      })();
      while (countOf(got) < events) await roundTrips(provider);
      await roundTrips(provider);
      expect(countOf(got)).toBe(events);
      open();
      await ended;
      expect(countOf(got)).toBeGreaterThan(5);
    }
  });

  test("a gate that is never opened holds an answer until the caller leaves", async () => {
    provider.next(provider.gate().held);
    const leaving = new AbortController();
    const asked = send(provider, "/v1/chat/completions", HELLO, {}, leaving.signal).catch(() => "left");
    const [call] = await provider.waitForCalls(1);
    leaving.abort();
    expect(await asked).toBe("left");
    await provider.waitForAborted(call?.id ?? 0);
  });

  test("a hang lasts until the caller leaves", async () => {
    const cases: [NonNullable<Behaviour["hang"]>, number][] = [
      ["connect", 0],
      ["headers", 0],
      ["first_byte", 200],
      ["mid_stream", 200],
    ];
    let calls = 0;
    for (const [hang, status] of cases) {
      for (const streaming of [false, true]) {
        provider.next({ hang, tokens: 10 });
        calls++;
        // What comes of an answer has come, or else the provider has the call.
        const leaveWhen = (got: string) => {
          const [, body] = got.split("\r\n\r\n", 2);
          if (status === 0) return provider.counters().calls >= calls && isReceived(hang);
          return hang === "first_byte" ? body !== undefined : streaming ? eventsOf(got).length === 1 + 5 : body !== "";
        };
        const isReceived = (at: string) => at === "connect" || provider.lastCall()?.body !== "";
        const answer = await rawPost(provider, { ...HELLO, stream: streaming }, { leaveWhen });
        expect([hang, streaming, answer.status]).toEqual([hang, streaming, status]);
        const call = await provider.waitForAborted(provider.lastCall()?.id ?? 0);
        expect(call.body).toBe(hang === "connect" ? "" : JSON.stringify({ ...HELLO, stream: streaming }));
        if (hang !== "mid_stream") expect(answer.body).toBe("");
        else if (streaming) expect(eventsOf(answer.body)).toHaveLength(1 + 5);
        else expect(() => JSON.parse(answer.body)).toThrow();
      }
    }
    provider.when(() => true, { hang: "connect" });
    const isKnown = () => provider.counters().calls > calls;
    expect((await rawPost(provider, HELLO, { leaveWhen: isKnown })).head).toBe("");
    provider.reset();
    provider.always({ hang: "mid_stream", cutAfterChunks: 2 });
    const hasThree = (got: string) => eventsOf(got).length >= 1 + 2;
    const halves = await rawPost(provider, { ...HELLO, stream: true }, { leaveWhen: hasThree });
    expect(eventsOf(halves.body)).toHaveLength(1 + 2);
  });

  test("splitEvery splits multi-byte characters over several writes, and the text stays intact", async () => {
    const content = "Łódź 🌙 café – ".repeat(3);
    provider.next({ content, splitEvery: 3 });
    const answer = await rawPost(provider, { ...HELLO, stream: true });
    expect(answer.whole).toBe(true);
    expect(answer.writes).toBeGreaterThan(50);
    expect(
      eventsOf(answer.body)
        .map((event) => event.choices[0]?.delta.content ?? "")
        .join(""),
    ).toBe(content);
    provider.next({ content, splitEvery: 1 });
    expect(contentOf(await post(provider, "/v1/chat/completions", HELLO))).toBe(content);
  });

  test("streams that end badly: without [DONE], without a finish, with an error event", async () => {
    const ended = async (behaviour: Behaviour) => {
      provider.next({ tokens: 5, ...behaviour });
      const answer = await rawPost(provider, { ...HELLO, stream: true, stream_options: { include_usage: true } });
      expect(answer.whole).toBe(true);
      return answer.body;
    };
    const noDone = await ended({ endWithoutDone: true });
    expect(noDone).not.toContain("[DONE]");
    expect(noDone).toContain('"finish_reason":"stop"');
    const noFinish = await ended({ endWithoutFinish: true });
    expect(noFinish).toContain("[DONE]");
    expect(noFinish).not.toContain('"stop"');
    const neither = await ended({ endWithoutFinish: true, endWithoutDone: true });
    expect(eventsOf(neither)).toHaveLength(1 + 5);
    const error = await ended({ errorEventAfterChunks: 2 });
    expect(eventsOf(error)).toHaveLength(1 + 2 + 1);
    expect(eventsOf(error).at(-1)?.error?.type).toBe("server_error");
    expect(error).not.toContain("[DONE]");
    expect(provider.counters().faulted).toBe(4);
  });

  test("crlf and comment lines", async () => {
    provider.next({ crlf: true, commentLines: true, tokens: 2 });
    const { body } = await rawPost(provider, { ...HELLO, stream: true });
    expect(body.replaceAll("\r\n", "")).not.toContain("\n");
    expect(body.match(/^: /gm)).toHaveLength(1 + 2 + 1 + 1);
    expect(eventsOf(body)).toHaveLength(1 + 2 + 1);
  });

  test("usage is omitted, replaced, or sent in another event of the stream", async () => {
    const usageAfter = async (behaviour: Behaviour, streaming = false) => {
      provider.next({ tokens: 2, ...behaviour });
      return (await rawPost(provider, { ...HELLO, stream: streaming, stream_options: { include_usage: true } })).body;
    };
    expect(await usageAfter({ omitUsage: true })).not.toContain('"usage"');
    expect(await usageAfter({ omitUsage: true }, true)).not.toContain('"usage"');
    const overrun = JSON.parse(await usageAfter({ usage: { completion_tokens: 1_000_000 } })) as Body;
    expect(overrun.usage).toMatchObject({
      completion_tokens: 1_000_000,
      total_tokens: 1_000_000 + (overrun.usage?.prompt_tokens ?? 0),
    });
    const odd = JSON.parse(
      await usageAfter({ usage: { completion_tokens: "12", prompt_tokens: -5, total_tokens: null } }),
    ) as Body;
    expect(odd.usage as unknown).toMatchObject({ completion_tokens: "12", prompt_tokens: -5, total_tokens: null });
    expect(await usageAfter({ usage: { completion_tokens: Number.NaN } })).toContain('"completion_tokens":NaN,');
    expect(await usageAfter({ usage: { completion_tokens: 10n ** 30n } })).toContain(
      `"completion_tokens":1${"0".repeat(30)},`,
    );
    expect(await usageAfter({ usageRaw: "[1e999]" }, true)).toContain('"usage":[1e999]');
    const own = eventsOf(await usageAfter({}, true));
    const finish = eventsOf(await usageAfter({ usageIn: "finish" }, true));
    const every = eventsOf(await usageAfter({ usageIn: "every" }, true));
    expect(own).toHaveLength(5);
    expect(finish).toHaveLength(4);
    expect(finish.at(-1)).toMatchObject({ choices: [{ finish_reason: "stop" }], usage: { completion_tokens: 2 } });
    expect(every.every(({ usage }) => usage?.completion_tokens === 2)).toBe(true);
  });

  test("tokens, content and model name are as configured, regardless of the cap", async () => {
    provider.next({ tokens: 200, modelName: "gpt-else" });
    const long = await post(provider, "/v1/chat/completions", { ...HELLO, max_tokens: 10 });
    expect(long).toMatchObject({
      model: "gpt-else",
      usage: { completion_tokens: 200 },
      choices: [{ finish_reason: "length" }],
    });
    provider.next({ tokens: 0 });
    expect(contentOf(await post(provider, "/v1/chat/completions", HELLO))).toBe("");
    const content = "  two\n\nlines \u0000 and 🌙\n ";
    provider.next({ content });
    expect((await stream(provider, HELLO)).map((event) => event.choices[0]?.delta.content ?? "").join("")).toBe(
      content,
    );
  });

  test("a giant line and a gzip bomb have the configured size", async () => {
    provider.next({ giantLineBytes: 3_000_000, tokens: 2 });
    const lines = (await rawPost(provider, { ...HELLO, stream: true })).body.split("\n");
    const longest = lines.reduce((max, line) => (line.length > max.length ? line : max), "");
    expect(longest.length).toBeGreaterThan(3_000_000);
    expect((JSON.parse(longest.slice(6)) as Body).choices[0]?.delta.content).toHaveLength(3_000_000);
    provider.next({ giantLineBytes: 1_000_000 });
    const padded = await (await send(provider, "/v1/chat/completions", HELLO)).text();
    expect(padded.length).toBeGreaterThan(1_000_000);
    expect(contentOf(JSON.parse(padded) as Body)).toContain("Anna");

    provider.next({ gzipBomb: 20_000_000 });
    const packed = await rawBytes(provider, HELLO);
    expect(packed.encoding).toBe("gzip");
    expect(packed.bytes.length).toBeLessThan(200_000);
    const unpacked = gunzipSync(packed.bytes);
    expect(unpacked.length).toBeGreaterThan(20_000_000);
    expect(contentOf(JSON.parse(unpacked.toString()) as Body)).toContain("Anna");
  });

  test("a slow reader slows the provider down", async () => {
    // Far more than the system's buffers take.
    provider.next({ giantLineBytes: 100_000_000, tokens: 100 });
    const leaveWhen = () => provider.lastCall()?.chunksSent === 1;
    await rawPost(provider, { ...HELLO, stream: true }, { leaveWhen, paused: true });
    const call = await provider.waitForAborted(provider.lastCall()?.id ?? 0);
    // It has not made the next chunk, though nothing but the reader held it up.
    expect(call.chunksSent).toBe(1);
    expect(call.bytesSent).toBeLessThan(100_000_000);
  });

  test("images: both fields, neither, an empty list, or another URL", async () => {
    const made = async (behaviour: Behaviour) => {
      provider.next(behaviour);
      return (await post(provider, "/v1/images/generations", { model: "sim-image", prompt: "A lake", size: "512x512" }))
        .data;
    };
    const fields = async (behaviour: Behaviour) => (await made(behaviour)).map((image) => Object.keys(image).sort());
    expect(await fields({ imageReturn: "url" })).toEqual([["revised_prompt", "url"]]);
    expect(await fields({ imageReturn: "b64" })).toEqual([["b64_json", "revised_prompt"]]);
    expect(await fields({ imageReturn: "both" })).toEqual([["b64_json", "revised_prompt", "url"]]);
    expect(await fields({ imageReturn: "none" })).toEqual([["revised_prompt"]]);
    expect(await fields({ imageReturn: "empty" })).toEqual([]);
    expect((await made({ imageUrl: "http://169.254.169.254/" }))[0]?.url).toBe("http://169.254.169.254/");
    const url = (await made({ imageReturn: "url" }))[0]?.url ?? "";
    provider.when(({ path }) => path.startsWith("/images/"), { redirectTo: "http://127.0.0.1:1/" });
    expect((await fetch(url, { redirect: "manual" })).status).toBe(302);
  });
});
