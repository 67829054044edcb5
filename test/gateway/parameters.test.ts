import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { parametersTable } from "../../scripts/parameters_table.ts";
import type { OwnRules } from "../../src/gateway/filtering.ts";
import {
  CHAT_PARAMETERS,
  EMBEDDING_PARAMETERS,
  filterParameters,
  hasSameRules,
  IMAGE_PARAMETERS,
} from "../../src/gateway/parameters.ts";
import { topLevelSpans } from "../../src/http/json_spans.ts";
import { signInTo } from "../panel/panel_client.ts";
import type { ModelSpec, World } from "../world.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { type Answer, chatBody, embeddingBody, imageBody, openShop, PRICES, responsesBody, type Shop } from "./shop.ts";

/** Which fields of a request reach a provider. Source: PRV-1, PRV-2, PRV-26. */
const API_GUIDE = readFileSync(`${import.meta.dirname}/../../docs/api.md`, "utf8");
const NAMER = { secretKey: new Uint8Array(32), accountId: 1 };
const LIST_ALONE: OwnRules = { allowedParams: new Set(), droppedParams: new Set() };

let shop: Shop;
let secret: string;

beforeAll(async () => {
  shop = await openShop({ models: MODELS, fill: addImagePrices });
  ({ secret } = await shop.customer());
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() => closeBalanced(shop));

const sentText = () => shop.provider.lastCall()?.body ?? "";
const sent = () => JSON.parse(sentText());
const droppedBy = ({ headers }: Answer) => headers.get("x-dropped-params");
const image = (key: string, over: Record<string, unknown> = {}) =>
  shop.call("/v1/images/generations", { secret: key, body: imageBody(over) });

describe("the list", () => {
  test("docs/api.md has every parameter of the list, with its condition", () => {
    // The formatter widens columns.
    const plain = (page: string) => page.replace(/ +/g, " ").replace(/-{3,}/g, "---");
    const isThere = (kind: Parameters<typeof parametersTable>[0]) =>
      plain(API_GUIDE).includes(plain(parametersTable(kind)));
    expect((["chat", "image", "responses", "embedding"] as const).map(isThere)).toEqual([true, true, true, true]);
  });

  /** The names in the first column of a table of dropped parameters of the guide. `before`: how the sentence before it ends. */
  const leftOut = (before: string): string[] => {
    const section = API_GUIDE.split(before)[1]?.split(/\n\n(?!\|)/)[0] ?? "";
    const rows = section.split("\n").filter((line) => line.startsWith("| `"));
    return rows.flatMap((row) => [...(row.split("|")[1] ?? "").matchAll(/`([\w.]+)`/g)].map(([, name = ""]) => name));
  };

  /** A body with a parameter that the guide names, which may be a member of an object. */
  function asking(name: string): Record<string, unknown> {
    const [field = "", member] = name.split(".");
    if (field === "tools" && member) return { tools: [{ type: member, [member]: {} }] };
    if (field === "content" && member)
      return { messages: [{ role: "user", content: [{ type: "text", text: "x", [member]: {} }] }] };
    if (field === "messages" && member) return { messages: [{ role: "user", content: "x", [member]: { a: 1 } }] };
    const values: Record<string, unknown> = { store: true, logprobs: 5, reasoning_format: "hidden", metadata: {} };
    return { [field]: member ? { [member]: 1 } : (values[field] ?? "x") };
  }

  const LISTS = { chat: CHAT_PARAMETERS, image: IMAGE_PARAMETERS, embedding: EMBEDDING_PARAMETERS };
  const filteredOf = (kind: keyof typeof LISTS, over: Record<string, unknown>) => {
    const body = { chat: chatBody, image: imageBody, embedding: embeddingBody }[kind](over);
    const spans = topLevelSpans(JSON.stringify(body)) ?? new Map();
    return filterParameters({
      list: LISTS[kind],
      body,
      spans,
      by: LIST_ALONE,
      namer: NAMER,
      ...(kind === "image" && { leaveOut: "quality" }),
    });
  };

  test.each([
    ["chat", "are left out of a chat:", 60],
    ["image", "are left out of an image request:", 8],
    ["embedding", "are left out of an embeddings request:", 8],
  ] as const)("%s: every parameter that docs/api.md says is left out is left out, and named", (kind, before, least) => {
    const names = leftOut(before);
    expect(names.length).toBeGreaterThan(least);
    const listed = LISTS[kind].groups.flatMap((group) => group.names);
    for (const name of names) {
      const { changed, dropped } = filteredOf(kind, asking(name));
      expect({ name, dropped: typeof dropped, changed: changed.size }).toMatchObject({ name, dropped: "string" });
      if (!name.includes(".")) expect({ name, passes: changed.get(name) }).toEqual({ name, passes: undefined });
      // A listed parameter is dropped by its condition.
      const group = LISTS[kind].groups.find((one) => one.names.includes(name));
      if (listed.includes(name))
        expect({ name, condition: group?.condition }).not.toEqual({ name, condition: undefined });
    }
  });

  test("lists no name twice, and no look-up finds a name of the prototype", () => {
    for (const kind of ["chat", "image", "embedding"] as const) {
      const names = LISTS[kind].groups.flatMap((group) => group.names);
      expect(new Set(names).size).toBe(names.length);
      for (const name of ["__proto__", "constructor", "toString", "hasOwnProperty"])
        expect(filteredOf(kind, JSON.parse(`{"${name}": {"a": 1}}`)).dropped).toBe(name);
    }
  });
});

/** A value with which each listed chat parameter is sent on. */
const FITTING: Record<string, unknown> = {
  temperature: 0.5,
  top_p: 0.9,
  seed: 7,
  top_k: 40,
  min_p: 0.05,
  repetition_penalty: 1.1,
  stop: ["END", "\n\n"],
  logit_bias: { "50256": -100 },
  logprobs: true,
  top_logprobs: 20,
  response_format: { type: "json_schema", json_schema: { name: "a", schema: { type: "object" } } },
  guided_choice: ["yes", "no"],
  tools: [
    { type: "function", function: { name: "f", description: "d", parameters: { type: "object" }, strict: true } },
  ],
  tool_choice: { type: "function", function: { name: "f" } },
  parallel_tool_calls: false,
  reasoning_effort: "low",
  verbosity: "low",
  reasoning: { effort: "low", enabled: true, summary: "auto" },
  thinking: { type: "enabled", budget_tokens: 1024 },
  chat_template_kwargs: { enable_thinking: false },
  include_reasoning: true,
  reasoning_format: "parsed",
  metadata: { order: "1027" },
  store: false,
};

describe("a request with listed parameters only", () => {
  test("is sent on byte for byte, except for the model name: chat", async () => {
    const text = `{ "model" : "chat-a", "messages":[{"role":"user","content":[{"type":"text","text":"x\\u00e9"}]}],
      ${JSON.stringify(FITTING).slice(1, -1)}\n}`;
    const answer = await shop.call("/v1/chat/completions", { secret, body: text });
    expect(answer.status).toBe(200);
    expect(sentText()).toBe(text.replace('"chat-a"', '"up-chat-a"'));
    expect(droppedBy(answer)).toBeNull();
  });

  test("is sent on byte for byte, except for the model name: image", async () => {
    const fields = {
      background: "transparent",
      output_format: "webp",
      output_compression: 80,
      style: "vivid",
    };
    const text = `{"model":"image-a", "prompt":"A toll gate",  "size":"512x512",${JSON.stringify(fields).slice(1)}`;
    const answer = await shop.call("/v1/images/generations", { secret, body: text });
    expect(answer.status).toBe(200);
    expect(sentText()).toBe(text.replace('"image-a"', '"up-image-a"'));
    expect(droppedBy(answer)).toBeNull();
  });

  test("null means not set: it is left out, and not named", async () => {
    const called = { name: "f", description: null, parameters: null, strict: null };
    const nulls = { reasoning: null, temperature: null, seed: null, service_tier: null, audio: null };
    const answer = await shop.chat(secret, { ...nulls, tools: [{ type: "function", function: called }] });
    const tools = [{ type: "function", function: { name: "f" } }];
    expect(sent()).toEqual({ ...chatBody({ tools }), model: "up-chat-a" });
    expect(droppedBy(answer)).toBeNull();
  });
});

describe("the names of a client's end users and cached prompts", () => {
  const NAMES = { user: "anna", safety_identifier: "a1", prompt_cache_key: "k" };
  const DIGEST = /^[\w-]{43}$/;

  const CALLS = [
    ["chat", (key: string) => shop.chat(key, NAMES)],
    ["a stream", (key: string) => shop.chat(key, { ...NAMES, stream: true })],
    ["responses", (key: string) => shop.call("/v1/responses", { secret: key, body: responsesBody(NAMES) })],
    ["embeddings", (key: string) => shop.call("/v1/embeddings", { secret: key, body: embeddingBody(NAMES) })],
    ["images", (key: string) => image(key, NAMES)],
  ] as const;

  test.each(CALLS)("are sent as digests of the account's own, the same each time: %s", async (_, ask) => {
    const other = (await shop.payer(10_000_000_000n)).secret;
    const seen: unknown[] = [];
    for (const key of [secret, secret, other]) {
      expect((await ask(key)).status).toBe(200);
      const { user, safety_identifier, prompt_cache_key } = sent();
      seen.push({ user, safety_identifier, prompt_cache_key });
    }
    expect(seen[0]).toEqual(seen[1]);
    expect(seen[0]).toMatchObject({
      user: expect.stringMatching(DIGEST),
      safety_identifier: expect.stringMatching(DIGEST),
    });
    expect(seen[2]).toMatchObject({ user: expect.stringMatching(DIGEST) });
    expect(seen[2]).not.toEqual(seen[0]);
    expect(sentText()).not.toContain("anna");
  });

  test("are dropped if they are longer than 512 characters or no texts, and an empty one stays empty", async () => {
    const answer = await shop.chat(secret, { user: "x".repeat(513), safety_identifier: 7, prompt_cache_key: "" });
    expect(droppedBy(answer)).toBe("user, safety_identifier");
    expect(sent()).toEqual({ ...chatBody({ prompt_cache_key: "" }), model: "up-chat-a" });
  });
});

describe("parameters that cost extra or leave the scope do not reach the provider", () => {
  const COSTLY: Record<string, unknown> = {
    service_tier: "priority",
    models: ["vendor/dear-model"],
    route: "fallback",
    provider: { order: ["dear"] },
    plugins: [{ id: "web" }],
    transforms: ["middle-out"],
    web_search_options: { search_context_size: "high" },
    search_parameters: { mode: "on" },
    store: true,
    metadata: { a: "1" },
    modalities: ["text", "audio"],
    audio: { voice: "alloy", format: "wav" },
    prediction: { type: "content", content: "x" },
    best_of: 20,
    use_beam_search: true,
    num_return_sequences: 5,
    n_cmpl: 9,
    n_predict: 100_000,
    max_output_tokens: 100_000,
    min_tokens: 100_000,
    ignore_eos: true,
    extra_body: { model: "vendor/dear-model" },
    prompt_logprobs: 20,
    priority: -9,
    chat_template: "{{ 1 }}",
    lora_path: "other",
    logits_processors: ["os.system"],
    deferred: true,
  };

  test("each of them is accepted, dropped and named, and the answer is that of the same request without it", async () => {
    for (const [name, value] of Object.entries(COSTLY)) {
      const answer = await shop.chat(secret, { [name]: value });
      expect({ name, status: answer.status, dropped: droppedBy(answer), sent: sent() }).toEqual({
        name,
        status: 200,
        dropped: name === "metadata" ? null : name,
        sent: { ...chatBody(name === "metadata" ? { metadata: value } : {}), model: "up-chat-a" },
      });
    }
    const all = await shop.chat(secret, COSTLY);
    expect(sent()).toEqual({ ...chatBody(), model: "up-chat-a" });
    // The header is limited: 20 names, and the number of further ones.
    expect(droppedBy(all)?.split(", ")).toEqual([...Object.keys(COSTLY).slice(0, 20), "+8"]);
  });

  test("names with escapes or in another case do not get around the list", async () => {
    const rest = JSON.stringify(chatBody()).slice(1);
    for (const [name, dropped] of [
      ["serv\\u0069ce_tier", "service_tier"],
      ["Service_Tier", "Service_Tier"],
      ["Max_Tokens", "Max_Tokens"],
      ["N", "N"],
      ["model ", "model?"],
      ["m\u0000", null],
      ["é\\r\\nx-evil: 1", "???x-evil??1"],
      ["", "?"],
      ["x".repeat(500), `${"x".repeat(57)}...`],
    ] as const) {
      const answer = await shop.call("/v1/chat/completions", { secret, body: `{"${name}": 5, ${rest}` });
      if (dropped === null) {
        expectRefusal(answer, "invalid_request"); // No JSON string has a NUL.
        continue;
      }
      expect({ name, dropped: droppedBy(answer), sent: sent() }).toEqual({
        name,
        dropped,
        sent: { ...chatBody(), model: "up-chat-a" },
      });
      expect(answer.headers.get("x-evil")).toBeNull();
    }
  });

  test("built-in tools are dropped one by one; if no tool is left, tool_choice is dropped too", async () => {
    const own = { type: "function", function: { name: "f", parameters: {} } };
    const some = await shop.chat(secret, {
      tools: [
        { ...own, cache_control: { type: "ephemeral" } },
        { type: "web_search" },
        { type: "live_search", sources: [] },
        { type: "builtin_function", function: { name: "$web_search" } },
        { type: "Function", function: { name: "g" } },
        { google_search: {} },
        "browser_search",
        { type: "custom", custom: { name: "c" } },
        { function: { name: "h", defer_loading: true } },
      ],
      tool_choice: "auto",
    });
    expect(sent().tools).toEqual([own, { type: "custom", custom: { name: "c" } }, { function: { name: "h" } }]);
    expect(sent().tool_choice).toBe("auto");
    expect(droppedBy(some)).toBe(
      "tools.0.cache_control, tools.1, tools.2, tools.3, tools.4, tools.5, tools.6, tools.8.function.defer_loading",
    );
    const none = await shop.chat(secret, {
      tools: [{ type: "web_search" }],
      tool_choice: { type: "web_search" },
      parallel_tool_calls: true,
    });
    expect(sent()).toEqual({ ...chatBody(), model: "up-chat-a" });
    expect(droppedBy(none)).toBe("tools.0, tool_choice, parallel_tool_calls");
    // A value that is not a list cannot be read as one by a provider.
    await shop.chat(secret, { tools: { "0": { type: "web_search" } } });
    expect(sent()).toEqual({ ...chatBody(), model: "up-chat-a" });
  });

  test("cache writes and undefined fields in messages are dropped; the rest is kept", async () => {
    const messages = [
      { role: "system", content: "Be short.", tools: [{ type: "web_search" }] },
      {
        role: "user",
        name: "anna",
        content: [
          { type: "text", text: "x", cache_control: { type: "ephemeral", ttl: "1h" } },
          { type: "image_url", image_url: { url: "data:image/png;base64,AA==" }, prompt_cache_breakpoint: {} },
        ],
      },
      { role: "assistant", content: null, refusal: null, annotations: [], tool_calls: [] },
    ];
    const answer = await shop.chat(secret, { messages });
    expect(sent().messages).toEqual([
      { role: "system", content: "Be short." },
      {
        role: "user",
        name: "anna",
        content: [
          { type: "text", text: "x" },
          { type: "image_url", image_url: { url: "data:image/png;base64,AA==" } },
        ],
      },
      { role: "assistant", content: null, annotations: [] },
    ]);
    expect(droppedBy(answer)?.split(", ")).toEqual([
      "messages.0.tools",
      "messages.1.content.0.cache_control",
      "messages.1.content.1.prompt_cache_breakpoint",
    ]);
  });

  test("only listed members of objects, with short values, are sent on", async () => {
    const answer = await shop.chat(secret, {
      stream: true,
      stream_options: { include_usage: false, include_obfuscation: false, continuous_usage_stats: true },
      reasoning: { effort: "high", max_tokens: 100_000, exclude: true },
      chat_template_kwargs: { enable_thinking: true, chat_template: "{{ 1 }}", reasoning_effort: "x".repeat(65) },
      thinking: ["enabled"],
      reasoning_effort: "x".repeat(65),
      top_logprobs: -1,
      logprobs: 5,
      user: "x".repeat(513),
      include_reasoning: false,
      reasoning_format: "hidden",
      tool_choice: "x".repeat(65),
    });
    expect(sent()).toEqual({
      ...chatBody(),
      model: "up-chat-a",
      stream: true,
      stream_options: { include_usage: true, include_obfuscation: false },
      reasoning: { effort: "high" },
      chat_template_kwargs: { enable_thinking: true },
    });
    expect(droppedBy(answer)?.split(", ").sort()).toEqual([
      "chat_template_kwargs.chat_template",
      "chat_template_kwargs.reasoning_effort",
      "include_reasoning",
      "logprobs",
      "reasoning.exclude",
      "reasoning.max_tokens",
      "reasoning_effort",
      "reasoning_format",
      "stream_options.continuous_usage_stats",
      "thinking",
      "tool_choice",
      "top_logprobs",
      "user",
    ]);
  });

  test("metadata without store is sent on; with store: true both are dropped", async () => {
    await shop.chat(secret, { metadata: { a: "1" } });
    expect(sent().metadata).toEqual({ a: "1" });
    const answer = await shop.chat(secret, { metadata: { a: "1" }, store: true });
    expect(sent()).toEqual({ ...chatBody(), model: "up-chat-a" });
    expect(droppedBy(answer)).toBe("metadata, store");
  });

  test("pay-as-you-go sends the reserved cap, and no other name for the cap or the choices", async () => {
    const payer = await shop.payer(1_000_000_000n);
    await shop.chat(payer.secret, { max_tokens: 50, n_predict: 9e5, max_output_tokens: 9e5, best_of: 9 });
    expect(sent()).toEqual({ ...chatBody(), model: "up-chat-a", max_tokens: 50 });
  });
});

describe("x-dropped-params", () => {
  const body = { service_tier: "priority", n: 1 };

  test("is on JSON, streams and images, and absent if nothing was dropped", async () => {
    expect(droppedBy(await shop.chat(secret, body))).toBe("service_tier");
    expect(droppedBy(await shop.chat(secret, { ...body, stream: true }))).toBe("service_tier");
    expect(droppedBy(await image(secret, body))).toBe("service_tier");
    for (const answer of [await shop.chat(secret), await shop.chat(secret, { stream: true }), await image(secret)])
      expect(droppedBy(answer)).toBeNull();
  });

  test("is on the first answer and on its replay by Idempotency-Key", async () => {
    const headers = { "idempotency-key": crypto.randomUUID() };
    const first = await shop.chat(secret, body, { headers });
    const again = await shop.chat(secret, body, { headers });
    expect(again.headers.get("idempotent-replayed")).toBe("true");
    expect([first, again].map(droppedBy)).toEqual(["service_tier", "service_tier"]);
    expect(again.text).toBe(first.text);
    const plain = { "idempotency-key": crypto.randomUUID() };
    await shop.chat(secret, {}, { headers: plain });
    const replay = await shop.chat(secret, {}, { headers: plain });
    expect([replay.headers.get("idempotent-replayed"), droppedBy(replay)]).toEqual(["true", null]);
  });

  test("is on the panel's answers too; api_key_id is not a parameter", async () => {
    const customer = await shop.customer();
    const session = await signInTo(shop, customer);
    const ask = (kind: string, asked: unknown) => session.post(`/ai/${kind}`, asked);
    const own = { ...body, api_key_id: String(customer.keyId) };
    for (const answer of [
      await ask("chat", chatBody(own)),
      await ask("chat", chatBody({ ...own, stream: true })),
      await ask("image", imageBody(own)),
    ])
      expect([answer.status, droppedBy(answer)]).toEqual([200, "service_tier"]);
    expect(sent()).not.toHaveProperty("api_key_id");
  });
});

describe("a route that allows more", () => {
  const more = {
    documents: [{ text: "x" }],
    reasoning: { max_tokens: 100, exclude: true },
    tools: [{ type: "web_search", web_search: { deep: true } }, { type: "code_interpreter" }],
    messages: [
      { role: "user", cache_control: {}, audio: {}, content: [{ type: "input_audio", input_audio: { data: "AA==" } }] },
    ],
    store: true,
    plugins: [],
  };

  test("sends on what it allows, and nothing else", async () => {
    const answer = await shop.chat(secret, { model: "chat-more", ...more });
    expect(sent()).toEqual({
      model: "up-more",
      documents: [{ text: "x" }],
      reasoning: { max_tokens: 100 },
      tools: [{ type: "web_search", web_search: { deep: true } }],
      messages: [
        { role: "user", cache_control: {}, content: [{ type: "input_audio", input_audio: { data: "AA==" } }] },
      ],
      store: true,
    });
    expect(droppedBy(answer)?.split(", ").sort()).toEqual([
      "messages.0.audio",
      "plugins",
      "reasoning.exclude",
      "tools.1",
    ]);
  });
});

/** What the first provider does not take; the second takes everything. */
const DROPPED = [
  ...["reasoning_effort", "parallel_tool_calls", "verbosity", "logprobs", "top_logprobs", "stop", "response_format"],
  ...["user", "reasoning.summary", "stream_options.include_obfuscation", "tools.function.strict", "messages.name"],
  ...["messages.reasoning_content", "include.reasoning.encrypted_content", "text.verbosity"],
];

const LESS = { provider: "first", droppedParams: DROPPED };
const MODELS: readonly ModelSpec[] = [
  { id: "chat-less", modality: "text", routes: [LESS] },
  { id: "image-less", modality: "image", routes: [LESS] },
  { id: "embed-less", modality: "embedding", routes: [LESS] },
  { id: "chat-either", routes: [LESS, { provider: "second" }] },
  {
    id: "own-either",
    routes: [
      { provider: "first", ownResponses: true, droppedParams: [...DROPPED, "reasoning"] },
      { provider: "second", ownResponses: true },
    ],
  },
  // A route that allows more than the list.
  {
    id: "chat-more",
    routes: [
      {
        provider: "first",
        upstreamModel: "up-more",
        allowedParams: [
          ...["documents", "reasoning.max_tokens", "tools.web_search", "content.input_audio", "messages.cache_control"],
          "store",
        ],
      },
    ],
  },
];

async function addImagePrices({ sql }: World): Promise<void> {
  await sql`
    insert into image_prices (model_id, size, quality, micro_usd)
    values ('image-a', '1024x1024', 'high', 170000), ('image-a', '512x512', 'high', 90000)`;
}

describe("a route that drops some", () => {
  const asked = {
    reasoning_effort: "low",
    verbosity: "low",
    logprobs: true,
    top_logprobs: 3,
    stop: ["END"],
    user: null,
    reasoning: { effort: "low", summary: "auto" },
    tools: [{ type: "function", function: { name: "f", strict: true } }],
    tool_choice: "auto",
    parallel_tool_calls: false,
    messages: [
      { role: "user", name: "anna", content: "x" },
      { role: "assistant", content: "y", reasoning_content: "z" },
    ],
    seed: 7,
  };
  const left = {
    reasoning: { effort: "low" },
    tools: [{ type: "function", function: { name: "f" } }],
    tool_choice: "auto",
    messages: [
      { role: "user", content: "x" },
      { role: "assistant", content: "y" },
    ],
    seed: 7,
  };
  const named = [
    ...["logprobs", "messages.0.name", "messages.1.reasoning_content", "parallel_tool_calls", "reasoning.summary"],
    ...["reasoning_effort", "stop", "tools.0.function.strict", "top_logprobs", "verbosity"],
  ];
  const sentTo = (provider: Shop["provider"]) => JSON.parse(provider.lastCall()?.body ?? "null");
  const namesOf = (answer: Answer) => droppedBy(answer)?.split(", ").sort();

  test.each(["chat-less", "chat-either"])(
    "%s: leaves them out of a chat and names them, and sends the rest",
    async (model) => {
      const answer = await shop.chat(secret, { ...asked, model });
      expect([answer.status, sent()]).toEqual([200, { ...left, model: `up-${model}` }]);
      expect(namesOf(answer)).toEqual(named);
      const stream_options = { include_usage: true, include_obfuscation: false };
      const streamed = await shop.chat(secret, { ...asked, model, stream: true, stream_options });
      expect(sent()).toEqual({ ...left, model: `up-${model}`, stream: true, stream_options: { include_usage: true } });
      expect(namesOf(streamed)).toEqual([...named, "stream_options.include_obfuscation"].sort());
    },
  );

  test("is followed by one that takes them: it gets them, and no header names them", async () => {
    for (const stream of [false, true]) {
      shop.provider.next({ status: 500 });
      const answer = await shop.chat(secret, { ...asked, model: "chat-either", stream });
      const options = stream ? { stream, stream_options: { include_usage: true } } : { stream };
      expect(sentTo(shop.provider)).toEqual({ ...left, model: "up-chat-either", ...options });
      const { user: _, ...all } = asked;
      expect(sentTo(shop.second)).toEqual({ ...all, model: "up-chat-either", ...options });
      expect([answer.status, droppedBy(answer)]).toEqual([200, null]);
    }
  });

  const response = {
    reasoning: { effort: "low", summary: "auto" },
    text: { verbosity: "low", format: { type: "text" } },
    include: ["reasoning.encrypted_content"],
    tools: [{ type: "function", name: "f" }],
    parallel_tool_calls: false,
    user: "anna",
    input: [
      { role: "user", content: "x" },
      { type: "reasoning", summary: [{ type: "summary_text", text: "Hm." }] },
      { role: "assistant", content: "y" },
      { role: "user", content: "z" },
    ],
  };

  test("of a translated response they are named by the fields of the request", async () => {
    const answer = await shop.call("/v1/responses", {
      secret,
      body: responsesBody({ ...response, model: "chat-less" }),
    });
    expect(answer.status).toBe(200);
    for (const name of ["reasoning_effort", "verbosity", "parallel_tool_calls", "user"])
      expect(sent()).not.toHaveProperty(name);
    expect(sent().messages[1]).toEqual({ role: "assistant", content: "y" });
    expect(namesOf(answer)).toEqual(["input.1", "parallel_tool_calls", "reasoning.effort", "text.verbosity", "user"]);
  });

  test("a provider's own /responses leaves them out by their names there; nothing is stored all the same", async () => {
    const { input, ...fields } = response;
    const body = responsesBody({ ...fields, model: "own-either" });
    const first = await shop.call("/v1/responses", { secret, body });
    expect(sentTo(shop.provider)).toEqual({
      ...{ model: "up-own-either", input: body.input, tools: fields.tools, include: [], store: false },
      text: { format: { type: "text" } },
    });
    expect([first.status, namesOf(first)]).toEqual([
      200,
      ["include.0", "parallel_tool_calls", "reasoning", "text.verbosity", "user"],
    ]);
    shop.provider.next({ status: 500 });
    const second = await shop.call("/v1/responses", { secret, body });
    expect(sentTo(shop.second)).toEqual({
      ...{ ...body, model: "up-own-either", store: false },
      user: expect.stringMatching(/^[\w-]{43}$/),
    });
    expect([second.status, droppedBy(second)]).toEqual([200, null]);
  });

  test("leaves them out of images and embeddings, and the image has the client's format all the same", async () => {
    const drawn = await image(secret, { model: "image-less", response_format: "b64_json", user: "anna", seed: 1 });
    expect(sent()).toEqual({ ...imageBody({ model: "up-image-less", seed: 1 }), size: "1024x1024" });
    expect(drawn.json.data[0].b64_json).toBeString();
    expect([drawn.status, droppedBy(drawn)]).toEqual([200, "response_format, user"]);
    const body = embeddingBody({ model: "embed-less", user: "anna" });
    const embedded = await shop.call("/v1/embeddings", { secret, body });
    expect(sent()).toEqual(embeddingBody({ model: "up-embed-less", encoding_format: "base64" }));
    expect([embedded.status, droppedBy(embedded)]).toEqual([200, "user"]);
  });

  test("the model's rules leave out only what all routes drop, so that the reserve counts what any is sent", async () => {
    const body = chatBody({ reasoning_effort: "low", seed: null });
    const spans = topLevelSpans(JSON.stringify(body)) ?? new Map();
    const changedBy = (names: string[]) => {
      const by = { allowedParams: new Set<string>(), droppedParams: new Set(names) };
      const { changed, dropped } = filterParameters({ list: CHAT_PARAMETERS, body, spans, by, namer: NAMER });
      return { left: [...changed.keys()], dropped };
    };
    // What is null says nothing, whatever a provider takes.
    expect(changedBy([])).toEqual({ left: ["seed"], dropped: undefined });
    expect(changedBy(["seed", "reasoning_effort"])).toEqual({
      left: ["reasoning_effort", "seed"],
      dropped: "reasoning_effort",
    });
    const rules = (allowed: string[], dropped: string[]): OwnRules => ({
      allowedParams: new Set(allowed),
      droppedParams: new Set(dropped),
    });
    const model = rules(["documents"], ["seed"]);
    expect(hasSameRules(rules(["documents"], ["seed"]), model)).toBe(true);
    expect(hasSameRules(rules(["documents"], ["seed", "stop"]), model)).toBe(false);
    expect(hasSameRules(rules([], ["seed"]), model)).toBe(false);
  });
});

describe("images", () => {
  test("stream: true on an image is dropped: the answer is JSON, and the image is charged", async () => {
    const payer = await shop.payer(1_000_000_000n);
    const answers = [];
    for (let i = 0; i < 10; i++) answers.push(await image(payer.secret, { stream: true, partial_images: 3 }));
    expect(answers.map(({ status }) => status)).toEqual(Array(10).fill(200));
    expect(answers[0]?.json.data).toHaveLength(1);
    expect(sent()).toEqual({ ...imageBody({ size: "1024x1024" }), model: "up-image-a" });
    expect(droppedBy(answers[0] as Answer)).toBe("stream, partial_images");
    expect(shop.provider.callCount()).toBe(10);
    expect(await shop.counters(payer.accountId)).toMatchObject({
      usage: 10,
      released: 0,
      balance: 1_000_000_000 - 10 * PRICES.imageMicroUsd * 1000,
    });
    // The breaker of the route is closed: another account is served immediately.
    expect((await image(secret)).status).toBe(200);
  });

  test("other names for the count, the format or the model are not sent on", async () => {
    const answer = await image(secret, {
      num_images: 4,
      batch_size: 4,
      output_format: "gif",
      frame_count: 16,
      svg: { model: "dear" },
      complexity: "high",
      moderation: "low",
      steps: 150,
      image: "https://example.com/x.png",
      n: 1,
    });
    expect(sent()).toEqual({ ...imageBody({ n: 1, size: "1024x1024" }), model: "up-image-a" });
    expect(droppedBy(answer)).toBe(
      "num_images, batch_size, output_format, frame_count, svg, complexity, moderation, steps, image",
    );
  });

  const costs = (microUsd: number) => 1_000_000_000 - microUsd * 1000;

  test("a quality with a price is sent on, and charged at the price for its size", async () => {
    for (const [over, microUsd] of [
      [{ quality: "high" }, 170_000],
      [{ quality: "high", size: "512x512" }, 90_000],
    ] as const) {
      const payer = await shop.payer(1_000_000_000n);
      const answer = await image(payer.secret, over);
      expect([answer.status, droppedBy(answer), sent().quality]).toEqual([200, null, "high"]);
      expect((await shop.counters(payer.accountId)).balance).toBe(costs(microUsd));
    }
  });

  test("a quality without a price is dropped and named, and the default price is charged; standard is the default", async () => {
    for (const quality of ["hd", "auto", "HIGH", "high ", "__proto__", 5, ["high"], { high: 1 }]) {
      const payer = await shop.payer(1_000_000_000n);
      const answer = await image(payer.secret, { quality });
      expect([quality, answer.status, droppedBy(answer), "quality" in sent()]).toEqual([
        quality,
        200,
        "quality",
        false,
      ]);
      expect((await shop.counters(payer.accountId)).balance).toBe(costs(PRICES.imageMicroUsd));
    }
    const plain = await image(secret, { quality: "standard" });
    expect([droppedBy(plain), sent().quality]).toEqual([null, "standard"]);
    expect(droppedBy(await image(secret, { quality: null }))).toBeNull();
  });

  test("402 says which size or quality has no price, if the model has other prices", async () => {
    const payer = await shop.payer(1_000_000_000n);
    for (const [over, param, message] of [
      [{ size: "1536x1024" }, "size", "This model has no pay-as-you-go price for images of 1536x1024."],
      [
        { size: "512x512" },
        "quality",
        "This model has no pay-as-you-go price for images of 512x512 in standard quality.",
      ],
      [
        { size: "512x512", quality: "hd" },
        "quality",
        "This model has no pay-as-you-go price for images of 512x512 in standard quality.",
      ],
    ] as const) {
      const answer = await image(payer.secret, over);
      expectRefusal(answer, "payg_pricing_unavailable", { param });
      expect(answer.json.error.message).toBe(message);
    }
    const unpriced = await shop.chat(payer.secret, { model: "chat-unpriced" });
    expectRefusal(unpriced, "payg_pricing_unavailable");
    expect(unpriced.json.error.message).toBe("This model has no pay-as-you-go price.");
  });
});
