import { expect, test } from "bun:test";
import { cleanWords, ProviderFailure, ProviderRejection, toProviderError } from "../../src/catalog/provider_errors.ts";

const SECRET = "sk-acme-0123456789abcdef";
const of = (
  status: number,
  body: unknown,
  retryAfter: string | null = null,
  { retryAfterMs = null, date = null }: { retryAfterMs?: string | null; date?: string | null } = {},
) =>
  toProviderError({
    status,
    text: typeof body === "string" ? body : JSON.stringify(body),
    wait: { retryAfter, retryAfterMs, date },
    secrets: [SECRET],
  });
const openAi = (fields: Record<string, unknown>) => ({
  error: { message: "words", type: "invalid_request_error", ...fields },
});

test("400, 413 and 422 are rejections, with message and param, in every shape providers use", () => {
  const bodies = [
    openAi({ message: "too long", param: "messages" }),
    [{ error: { message: "too long", param: "messages" } }],
    { message: "too long", param: "messages" },
  ];
  for (const status of [400, 413, 422]) {
    for (const body of bodies) {
      const rejection = of(status, body);
      expect(rejection).toBeInstanceOf(ProviderRejection);
      expect([rejection.message, (rejection as ProviderRejection).param]).toEqual(["too long", "messages"]);
    }
  }
  expect(of(422, { detail: [{ loc: ["body", "n"], msg: "n must be 1" }] }).message).toBe("n must be 1");
  expect(of(400, { detail: "bad" }).message).toBe("bad");
  expect(of(400, {}).message).toBe("The model service refused the request.");
  expect(of(413, "<html>Request Entity Too Large</html>")).toBeInstanceOf(ProviderRejection);
});

test("a problem of the provider is a failure with its kind", () => {
  const kindOf = (status: number, body: unknown = openAi({})) => (of(status, body) as ProviderFailure).kind;
  expect([401, 402, 403, 404, 408, 429, 500, 502, 503, 504, 529, 409, 405].map((status) => kindOf(status))).toEqual([
    "credentials",
    "no_credit",
    "credentials",
    "unknown_model",
    "timeout",
    "rate_limited",
    "status",
    "status",
    "status",
    "timeout",
    "status",
    "status",
    "status",
  ]);
  expect(kindOf(400, "<html>400 Bad Request</html>")).toBe("not_json");
});

test("a server that does not support what the request has, and answers as if it had failed, has not failed", () => {
  const kindOf = (status: number, message: string, type = "server_error") =>
    (of(status, { error: { code: status, message, type } }) as ProviderFailure).kind;
  const hint = "hint: if this is unexpected, you may need to provide the mmproj";
  for (const message of [
    `image input is not supported - ${hint}`,
    `audio input is not supported - ${hint}`,
    "tools param requires --jinja flag",
    "This model does not support tools",
    "this model cannot process image input",
  ])
    expect([message, kindOf(500, message)]).toEqual([message, "unsupported"]);
  expect(kindOf(501, "Start it with another option", "not_supported_error")).toBe("unsupported");
  for (const message of [
    "CUDA error: operation not supported",
    "the provided PTX was compiled with an unsupported toolchain",
    "failed to load image",
    "no memory for the image encoder. Flash attention is not supported by this backend",
    "",
  ])
    expect([message, kindOf(500, message)]).toEqual([message, "status"]);
  expect(kindOf(503, "image input is not supported")).toBe("status");
  expect((of(500, { error: { message: `image input is not supported - ${hint}` } }) as ProviderFailure).blame).toBe(
    "request",
  );
});

test("a 400 about our key, credit or route is a failure: the client cannot fix it", () => {
  for (const fields of [
    { code: "invalid_api_key" },
    { code: "billing_hard_limit_reached" },
    { code: "model_not_found" },
    { code: "insufficient_quota" },
    { message: "API key not valid. Please pass a valid API key.", status: "INVALID_ARGUMENT" },
    { message: "Model Not Exist" },
  ])
    expect(of(400, openAi(fields))).toBeInstanceOf(ProviderFailure);
});

test("a client cannot turn its own mistake into a failure by mentioning keys", () => {
  expect(of(400, openAi({ message: "Invalid value: 'api key'. Supported values are: 'a'." }))).toBeInstanceOf(
    ProviderRejection,
  );
});

test("a 403 about forbidden content is a rejection, so that prompts cannot open the breaker", () => {
  expect(of(403, openAi({ code: "content_policy_violation" }))).toBeInstanceOf(ProviderRejection);
  expect(of(403, { error: { code: 403, message: "flagged", metadata: { reasons: ["violence"] } } })).toBeInstanceOf(
    ProviderRejection,
  );
  expect(of(403, openAi({ code: "unsupported_country_region_territory" }))).toBeInstanceOf(ProviderFailure);
});

test("Retry-After in seconds is kept, at most 60; a date is not without the answer's own", () => {
  const secondsOf = (value: string | null) => (of(429, openAi({}), value) as ProviderFailure).retryAfterSeconds;
  expect([
    secondsOf("7"),
    secondsOf("9999"),
    secondsOf("-1"),
    secondsOf("Wed, 21 Oct 2015 07:28:00 GMT"),
    secondsOf(null),
  ]).toEqual([7, 60, null, null, null]);
});

test("a time to wait may be a date, compared with the answer's own, or in milliseconds, which counts first", () => {
  const secondsOf = (retryAfter: string | null, more: object) =>
    (of(429, openAi({}), retryAfter, more) as ProviderFailure).retryAfterSeconds;
  const date = "Wed, 21 Oct 2015 07:28:00 GMT";
  expect(secondsOf("Wed, 21 Oct 2015 07:28:30 GMT", { date })).toBe(30);
  expect(secondsOf("Wednesday, 21-Oct-15 07:28:30 GMT", { date })).toBe(30);
  expect(secondsOf("Wed, 21 Oct 2015 09:28:30 GMT", { date })).toBe(60);
  expect(secondsOf(date, { date: "Wed, 21 Oct 2015 07:29:00 GMT" })).toBe(0);
  expect(secondsOf("soon", { date })).toBeNull();
  expect(secondsOf("7", { retryAfterMs: "1500" })).toBe(2);
  expect(secondsOf(null, { retryAfterMs: "999999999" })).toBe(60);
  expect(secondsOf("7", { retryAfterMs: "soon" })).toBe(7);
});

/** As users of the providers reported them. */
const LIMITS = {
  openAi:
    "Request too large for gpt-4o in organization org-VDAWofJASuLH0vVz8o9tiQZr on tokens per min (TPM): Limit 30000, Requested 36835. The input or output tokens must be reduced in order to run successfully. Visit https://platform.openai.com/account/rate-limits to learn more.",
  openAiForLimit:
    "Request too large for gpt-4.1-2025-04-14 (for limit gpt-4.1) in organization org-lFXO45OIovvTfxhxkzQlewnD on tokens per min (TPM): Limit 30000, Requested 37313. The input or output tokens must be reduced in order to run successfully.",
  groq: "Request too large for model `llama-3.3-70b-versatile` in organization `org_01kgg5588eftc8k70aes4864eb` service tier `on_demand` on tokens per minute (TPM): Limit 12000, Requested 14137, please reduce your message size and try again. Need more tokens? Upgrade to Dev Tier today at https://console.groq.com/settings/billing",
  azure:
    "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-05-01-preview have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 86400 seconds. Please go here: https://aka.ms/oai/quotaincrease if you would like to further increase the default rate limit.",
};

test("a 429 (or Groq's 413) for a request above the operator's whole rate is attributed to the request", () => {
  for (const status of [429, 413]) {
    for (const message of Object.values(LIMITS)) {
      const failure = of(status, openAi({ message, type: "tokens", code: "rate_limit_exceeded" })) as ProviderFailure;
      expect([failure.kind, failure.blame]).toEqual(["too_large", "request"]);
    }
  }
});

test("a 429 of the rate asks for a pause of the key: as long as the header, or else the message, says; at most a minute", () => {
  const words: [string, number | null][] = [
    [
      "Rate limit reached for gpt-4o in organization org-uOtiSEwvUnroadaOnJJquBEC on tokens per min (TPM): Limit 30000, Used 29937, Requested 385. Please try again in 644ms.",
      1,
    ],
    [
      "Rate limit reached for model `llama-3.1-8b-instant`: Limit 6000, Used 5034, Requested 1443. Please try again in 4.77s.",
      5,
    ],
    ["Rate limit reached. Please try again in 1m6.2s.", 60],
    [
      "This request would exceed the rate limit for your organization of 20,000 input tokens per minute. Please reduce the prompt length or the maximum tokens requested, or try again later.",
      null,
    ],
    [
      "Requests to the ChatCompletions_Create Operation under Azure OpenAI API version 2024-02-01 have exceeded token rate limit of your current OpenAI S0 pricing tier. Please retry after 23 seconds.",
      23,
    ],
    [
      "You exceeded your current quota, please check your plan and billing details. * Quota exceeded for metric: generativelanguage.googleapis.com/generate_content_free_tier_input_token_count, limit: 250000\nPlease retry in 10.673410956s.",
      11,
    ],
    ["Requests rate limit exceeded", null],
  ];
  for (const [message, seconds] of words) {
    const failure = of(429, openAi({ message })) as ProviderFailure;
    expect([failure.kind, failure.blame, failure.retryAfterSeconds]).toEqual(["rate_limited", "key", seconds]);
    expect((of(429, openAi({ message }), "7") as ProviderFailure).retryAfterSeconds).toBe(7);
  }
});

test("a failure is attributed to the connection, the provider, its key, or the request", () => {
  const blameOf = (status: number, body: unknown) => {
    const { kind, blame } = of(status, body) as ProviderFailure;
    return `${kind}: ${blame}`;
  };
  const short =
    "This request requires more credits, or fewer max_tokens. You requested up to 65536 tokens, but can only afford 3245. To increase, visit https://openrouter.ai/settings/credits and upgrade to a paid account";
  expect(blameOf(402, { error: { message: short, code: 402 } })).toBe("no_credit: request");
  expect(blameOf(402, { error: { message: "Insufficient Balance", type: "unknown_error" } })).toBe(
    "no_credit: request",
  );
  expect(blameOf(429, openAi({ code: "insufficient_quota", message: "You exceeded your current quota" }))).toBe(
    "no_credit: key",
  );
  expect(blameOf(404, { error: { message: "No endpoints found that support image input", code: 404 } })).toBe(
    "unknown_model: request",
  );
  expect(blameOf(404, openAi({ code: "model_not_found" }))).toBe("unknown_model: request");
  expect(blameOf(404, "<html>no such page</html>")).toBe("not_json: provider");
  expect(blameOf(401, openAi({ code: "invalid_api_key" }))).toBe("credentials: key");
  // It may be about the request: its content, or a model that the key may not use.
  expect(blameOf(403, openAi({ code: "unsupported_country" }))).toBe("credentials: provider");
  expect(blameOf(500, openAi({}))).toBe("status: provider");
  expect(new ProviderFailure("connect", "refused").blame).toBe("connection");
  expect(new ProviderFailure("timeout", "late", { limit: "provider_connect" }).blame).toBe("connection");
  expect(new ProviderFailure("timeout", "late", { limit: "provider_first_byte" }).blame).toBe("provider");
  expect(new ProviderFailure("hung_up", "closed").blame).toBe("provider");
});

test("a malformed param is dropped", () => {
  for (const param of ["a b", "x".repeat(101), 7, "<b>"])
    expect((of(400, openAi({ param })) as ProviderRejection).param).toBeNull();
});

test("keys, addresses, e-mail addresses, data and control characters are removed from messages", () => {
  const dirty = [
    `key ${SECRET}`,
    "key sk-proj-****************wxyz",
    "Bearer abcdef.123456",
    "see https://platform.example.com/docs?x=1.",
    "host api.openai.com/v1",
    "at 10.1.2.3:8080",
    "[fd00::1]:80",
    "write to help@acme.example",
    "org-AbCdEfGhIjKl",
    "req_0123456789abcdef0123456789abcdef",
    "deadbeefdeadbeefdeadbeefdeadbeef01",
    "data:image/png;base64,iVBORw0KGgo=",
    "wss://10.0.0.1/x",
  ].join("\n\u0000");
  const clean = cleanWords(dirty, [SECRET]);
  for (const leak of [
    "0123456789abcdef",
    "wxyz",
    "abcdef.123456",
    "example",
    "openai",
    "10.1.2.3",
    "fd00",
    "help@",
    "AbCdEf",
    "deadbeef",
    "iVBOR",
    "\n",
    "\u0000",
  ]) {
    expect(clean).not.toContain(leak);
  }
  expect(clean).toContain("see [address]");
});

test("ordinary words are kept", () => {
  for (const words of [
    "This model's maximum context length is 128000 tokens. However, you requested 130000 tokens (2000 in the messages).",
    "Invalid type for 'messages[0].content': expected one of a string or array of objects, but got an integer instead.",
    "temperature must be between 0 and 2, e.g. 0.7; see messages.0.content",
    "متن می‌خواهد",
  ])
    expect(cleanWords(words)).toBe(words);
});

test("messages are cut to 500 whole characters", () => {
  const clean = cleanWords(`x${"😀".repeat(600)}`);
  expect(clean.length).toBeLessThanOrEqual(500);
  expect(clean.isWellFormed()).toBe(true);
});

test("a megabyte of hostile text is cleaned quickly", () => {
  for (const part of ["a.", "sk-", "1.1.", "a@b.", "data:", "[::", "- ", "a-1", "x://", "\u0000 ", "bearer ", "-"]) {
    const text = part.repeat(1_000_000 / part.length);
    // CPU time, because other processes may be running.
    const before = process.cpuUsage();
    cleanWords(text);
    const { user, system } = process.cpuUsage(before);
    expect((user + system) / 1000).toBeLessThan(250);
  }
});
