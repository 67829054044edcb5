import { describe, expect, test } from "bun:test";
import { Refusal } from "../../src/errors.ts";
import { OWN_RESPONSES_GROUPS, ownBody } from "../../src/gateway/responses/own_parameters.ts";
import { ownPrompt } from "../../src/gateway/responses/own_responses.ts";
import { checkSchema } from "../../src/gateway/responses/schema_check.ts";
import { openReasoning, sealReasoning } from "../../src/gateway/responses/sealed_reasoning.ts";
import { readTools } from "../../src/gateway/responses/tools.ts";
import { chatOf, type Fields, messagesOf, read, SEAL } from "./responses_input.ts";

/** The translation of requests to chat completions, or to the provider's own Responses API. Source: RSP-4, RSP-6, RSP-7, RSP-8. */

describe("requests", () => {
  test("a string is a user message, and instructions are one system message", () => {
    expect(messagesOf("Hello", { instructions: "Be brief." })).toEqual([
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
    ]);
  });

  test("developer and system messages are added to the instructions, at any place of the input", () => {
    const input = [
      { role: "developer", content: [{ type: "input_text", text: "One." }] },
      { type: "message", role: "user", content: "Hello" },
      { role: "system", content: "Two." },
    ];
    expect(messagesOf(input, { instructions: "Zero." })).toEqual([
      { role: "system", content: "Zero.\n\nOne.\n\nTwo." },
      { role: "user", content: "Hello" },
    ]);
  });

  const CALLS = [
    { type: "function_call", id: "fc_9", call_id: "call_1", name: "a", arguments: "{}" },
    { type: "function_call", id: "fc_8", call_id: "call_2", name: "b", arguments: "{}" },
  ];
  const outputs = (first: unknown = "1") => [
    { type: "function_call_output", call_id: "call_1", output: first },
    { type: "function_call_output", call_id: "call_2", output: "2" },
  ];

  test("commentary and the calls after it are one message, whose calls have the call_id and never the item's id", () => {
    const commentary = { type: "message", role: "assistant", content: [{ type: "output_text", text: "Let me see." }] };
    expect(messagesOf([commentary, ...CALLS, ...outputs()])).toEqual([
      {
        role: "assistant",
        content: "Let me see.",
        tool_calls: [
          { id: "call_1", type: "function", function: { name: "a", arguments: "{}" } },
          { id: "call_2", type: "function", function: { name: "b", arguments: "{}" } },
        ],
      },
      { role: "tool", tool_call_id: "call_1", content: "1" },
      { role: "tool", tool_call_id: "call_2", content: "2" },
    ]);
  });

  test("outputs directly follow their calls, even if the input has other messages between them", () => {
    const roles = messagesOf([...CALLS, { role: "user", content: "Wait." }, ...outputs()]).map(({ role }) => role);
    expect(roles).toEqual(["assistant", "tool", "tool", "user"]);
    const after = [...CALLS, { role: "assistant", content: "Done." }, ...outputs()];
    expect(messagesOf(after).map(({ role }) => role)).toEqual(["assistant", "tool", "tool"]);
  });

  test("an output may be a list of parts; its images follow as a user message", () => {
    const output = [
      { type: "input_text", text: "A map:" },
      { type: "input_image", image_url: "data:image/png;base64,AA==", detail: "low" },
    ];
    expect(messagesOf([...CALLS, ...outputs(output)]).slice(1)).toEqual([
      { role: "tool", tool_call_id: "call_1", content: "A map:" },
      { role: "tool", tool_call_id: "call_2", content: "2" },
      {
        role: "user",
        content: [{ type: "image_url", image_url: { url: "data:image/png;base64,AA==", detail: "low" } }],
      },
    ]);
  });

  test("text, images and files of a user message are sent", () => {
    const content = [
      { type: "input_text", text: "What is this?" },
      { type: "input_image", image_url: "https://example.com/a.png" },
      { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" },
    ];
    expect(messagesOf([{ role: "user", content }])[0]?.content).toEqual([
      { type: "text", text: "What is this?" },
      { type: "image_url", image_url: { url: "https://example.com/a.png" } },
      { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" } },
    ]);
  });

  test("reasoning is sent with the assistant's next message, from its summary or its sealed content", () => {
    const summary = [{ type: "summary_text", text: "Hm." }];
    const plain = [{ type: "reasoning", summary }, CALLS[0], outputs()[0]];
    expect(messagesOf(plain)[0]).toMatchObject({ role: "assistant", reasoning_content: "Hm." });
    const sealed = { type: "reasoning", summary: [], encrypted_content: sealReasoning(SEAL, "Long thoughts.") };
    expect(messagesOf([sealed, CALLS[0], outputs()[0]])[0]).toMatchObject({ reasoning_content: "Long thoughts." });
    const foreign = { type: "reasoning", summary, encrypted_content: "gAAAAABo" };
    expect(messagesOf([foreign, CALLS[0], outputs()[0]])[0]).toMatchObject({ reasoning_content: "Hm." });
  });

  test("sealed reasoning of another account, or changed, is refused", () => {
    const sealed = sealReasoning(SEAL, "Long thoughts.") ?? "";
    const changed = `${sealed.slice(0, -2)}${sealed.endsWith("AA") ? "BB" : "AA"}`;
    for (const [seal, text] of [
      [{ ...SEAL, accountId: 8 }, sealed],
      [SEAL, changed],
      [SEAL, "r1."],
    ] as const)
      expect(() => openReasoning(seal, text, "input.0.encrypted_content")).toThrow(Refusal);
    expect(sealReasoning(SEAL, "x".repeat(200_000))).toBeNull();
  });

  test("tools, choice, format, verbosity, effort and limits have the names of chat completions", () => {
    const schema = { type: "object" };
    const { body, dropped } = chatOf({
      tools: [{ type: "function", name: "a", description: "A", parameters: schema, strict: true }],
      tool_choice: { type: "function", name: "a" },
      parallel_tool_calls: false,
      text: { format: { type: "json_schema", name: "toll", schema, strict: true }, verbosity: "low" },
      reasoning: { effort: "high", summary: "auto" },
      top_p: 0.9,
      seed: 4,
      prompt_cache_key: "k",
    });
    expect(body).toMatchObject({
      tools: [{ type: "function", function: { name: "a", description: "A", parameters: schema, strict: true } }],
      tool_choice: { type: "function", function: { name: "a" } },
      parallel_tool_calls: false,
      response_format: { type: "json_schema", json_schema: { name: "toll", schema, strict: true } },
      verbosity: "low",
      reasoning_effort: "high",
      top_p: 0.9,
      seed: 4,
      prompt_cache_key: "k",
    });
    expect(dropped).toEqual([]);
  });

  test("values that clients send by default have no effect, and are not named as dropped", () => {
    const { body, dropped } = chatOf({
      store: false,
      include: ["reasoning.encrypted_content"],
      reasoning: { summary: "auto" },
      text: {},
      truncation: "disabled",
      service_tier: "auto",
      client_metadata: { x: "y" },
      metadata: { a: "b" },
      parallel_tool_calls: true,
      tool_choice: "auto",
      tools: [],
      previous_response_id: null,
      conversation: null,
      background: false,
    });
    expect(body).toEqual({ model: "chat-a", messages: [{ role: "user", content: "Hello" }] });
    expect(dropped).toEqual([]);
  });

  test("a field named __proto__ is an ordinary field: its members do not become fields of the request", () => {
    const { body } = chatOf(JSON.parse('{"__proto__": {"stream_options": {"more": 1}, "n": 9}}'));
    expect(["stream_options", "n"].filter((name) => name in body)).toEqual([]);
    expect(Object.keys(body)).toEqual(["__proto__", "model", "messages"]);
  });

  test("hosted tools and their items are dropped and named; tool_choice is not sent without tools", () => {
    const { body, dropped } = chatOf({
      tools: [{ type: "web_search" }, { type: "tool_search" }],
      tool_choice: "auto",
      input: [
        { role: "user", content: "Hello" },
        { type: "web_search_call", id: "ws_1", status: "completed" },
      ],
      n: 3,
    });
    expect(body).not.toHaveProperty("tools");
    expect(body).not.toHaveProperty("tool_choice");
    expect(body).not.toHaveProperty("n");
    expect(dropped).toEqual(["tools.0", "tools.1", "input.1", "n"]);
  });

  test("allowed_tools sends only the named tools", () => {
    const tools = ["a", "b"].map((name) => ({ type: "function", name }));
    const { body } = chatOf({
      tools,
      tool_choice: { type: "allowed_tools", mode: "required", tools: [{ type: "function", name: "b" }] },
    });
    expect(body).toMatchObject({ tool_choice: "required", tools: [{ function: { name: "b" } }] });
  });

  test("tools may come as an item of the input, with past calls of a custom tool", () => {
    const { body } = chatOf({
      input: [
        { type: "additional_tools", role: "developer", tools: [{ type: "custom", name: "apply_patch" }] },
        { type: "custom_tool_call", call_id: "call_1", name: "apply_patch", input: "*** Begin" },
        { type: "custom_tool_call_output", call_id: "call_1", output: "Done" },
      ],
    });
    expect(body).toMatchObject({
      tools: [{ function: { name: "apply_patch", parameters: { required: ["input"] } } }],
      messages: [
        { tool_calls: [{ function: { name: "apply_patch", arguments: '{"input":"*** Begin"}' } }] },
        { role: "tool", content: "Done" },
      ],
    });
  });

  test("flattened names stay within the length that providers allow, and stay distinct", () => {
    const long = "n".repeat(60);
    const inner = (name: string) => ({ type: "function", name });
    const { body } = chatOf({
      tools: [
        { type: "namespace", name: long, tools: [inner("first"), inner("second")] },
        { type: "namespace", name: "a", tools: [inner("b")] },
        inner("a__b"),
      ],
    });
    const names = (body.tools as { function: { name: string } }[]).map((tool) => tool.function.name);
    expect(new Set(names).size).toBe(4);
    for (const name of names) expect(name).toMatch(/^[\w-]{1,64}$/);
    expect(names[3]).not.toBe("a__b"); // The first tool of the list keeps the name.
  });

  test("each reference of a schema is followed once, even if many references lead to it", () => {
    let reads = 0;
    const to = (name: string) => ({
      get $ref() {
        reads += 1;
        return `#/$defs/${name}`;
      },
    });
    // A chain of 90 references, and 2,000 references to its first.
    const $defs: Fields = { 90: { type: "string" } };
    for (let i = 0; i < 90; i++) $defs[i] = to(String(i + 1));
    for (let i = 0; i < 2_000; i++) $defs[`d${i}`] = to("0");
    checkSchema({ $defs }, "parameters");
    expect(reads).toBeLessThan(5 * 2_090);
  });

  test("a circle of references of any length is refused", () => {
    const ring = (length: number): Fields =>
      Object.fromEntries(Array.from({ length }, (_, i) => [`d${i}`, { $ref: `#/$defs/d${(i + 1) % length}` }]));
    const toolsWith = ($defs: Fields) =>
      readTools(read({ tools: [{ type: "function", name: "a", parameters: { $defs } }] }));
    for (const length of [1, 2, 500]) expect(() => toolsWith(ring(length))).toThrow("leads back to itself");
    expect(() => toolsWith({ start: { $ref: "#/$defs/d0" }, ...ring(3) })).toThrow("leads back to itself");
    expect(toolsWith({ ...ring(500), d499: { type: "string" } }).functions).toHaveLength(1);
  });
});

describe("requests for a provider's own /responses", () => {
  const own = (over: Fields, allowed: string[] = [], dropped: string[] = []) =>
    ownBody(read(over), { allowedParams: new Set(allowed), droppedParams: new Set(dropped) }, SEAL);

  test("only listed fields are sent, nothing is stored, and ids of items that are not stored are left out", () => {
    const { fields, dropped } = own({
      input: [
        { type: "message", id: "msg_1", role: "assistant", content: [{ type: "output_text", text: "Hi" }] },
        { type: "reasoning", id: "rs_1", summary: [], encrypted_content: "gAAAA" },
        { type: "reasoning", id: "rs_2", summary: [], encrypted_content: sealReasoning(SEAL, "Hm.") },
        { type: "reasoning", id: "rs_3", summary: [] },
        { type: "web_search_call", id: "ws_1" },
      ],
      store: true,
      metadata: { a: "b" },
      service_tier: "priority",
      tools: [{ type: "web_search" }, { type: "function", name: "a" }],
      include: ["reasoning.encrypted_content", "file_search_call.results"],
      text: { format: { type: "text" }, verbosity: "low", more: 1 },
      frequency_penalty: 1,
    });
    expect(fields).toEqual({
      store: false,
      input: [
        { type: "message", role: "assistant", content: [{ type: "output_text", text: "Hi" }] },
        { type: "reasoning", summary: [], encrypted_content: "gAAAA" },
      ],
      tools: [{ type: "function", name: "a" }],
      include: ["reasoning.encrypted_content"],
      text: { format: { type: "text" }, verbosity: "low" },
    });
    expect(dropped).toEqual(["input.4", "service_tier", "tools.0", "text.more", "frequency_penalty"]);
  });

  test("a choice of a hosted tool is sent only if the route allows that tool", () => {
    const over = {
      tools: [{ type: "function", name: "a" }, { type: "web_search" }],
      tool_choice: { type: "web_search" },
    };
    expect(own(over).fields).not.toHaveProperty("tool_choice");
    expect(own(over).dropped).toEqual(["tools.1", "tool_choice"]);
    expect(own(over, ["tools.web_search"]).fields.tool_choice).toEqual({ type: "web_search" });
    expect(own({ ...over, tool_choice: { type: "function", name: "a" } }).fields).toHaveProperty("tool_choice");
  });

  describe("its prompt", () => {
    const DATA = `data:image/png;base64,${"A".repeat(50_000)}`;
    const picture = { type: "input_image", image_url: DATA };
    const MODEL = {
      ...{ requestTokens: 8, messageTokens: 8, contextLength: 5_000, fileMostTokens: 7_000 },
      ...{ imageBaseTokens: 10, imageTileTokens: 3, imageTilePixels: 100, imageMostTokens: 100 },
    };
    const promptOf = (over: Fields, allowed?: string[]) => ownPrompt(own(over, allowed), MODEL);

    test("what is not text may be reported as any kind of input: parts, and outputs that are objects", () => {
      const screenshot = { type: "computer_call_output", call_id: "call_1", output: { type: "computer_screenshot" } };
      const said = { role: "user", content: [{ type: "input_text", text: "Hi" }] };
      const file = { role: "user", content: [{ type: "input_file", file_data: "data:text/plain,hi" }] };
      const allowed = ["input.computer_call_output", "content.file"];
      const hasMedia = (input: unknown) => promptOf({ input }, allowed).hasMedia;
      expect([hasMedia("Hi"), hasMedia([said])]).toEqual([false, false]);
      expect([hasMedia([screenshot]), hasMedia([said, file])]).toEqual([true, true]);
    });

    test("an image in a content or an output is an image, of any size", () => {
      const call = { type: "function_call", call_id: "call_1", name: "a", arguments: "{}" };
      const output = { type: "function_call_output", call_id: "call_1", output: [picture] };
      const prompt = promptOf({ input: [{ role: "user", content: [picture, picture] }, call, output] });
      expect([prompt.imageTokens, prompt.hasMedia]).toEqual([300, true]);
      expect(prompt.bytes).toBeLessThan(1_000);
    });

    test("an image's JSON in any other place is text, and counts by its bytes", () => {
      const parameters = { type: "object", default: picture };
      const input = [{ role: "user", content: [{ type: "input_text", text: "Hello", more: picture }] }];
      for (const over of [
        { tools: [{ type: "function", name: "a", parameters }] },
        { text: { format: { type: "json_schema", name: "a", schema: parameters } } },
        { input },
        { input: [{ role: "user", content: "Hello", more: [picture] }] },
        { input: [{ role: "user", content: [{ type: "input_image", image_url: "https://a.test/", more: picture }] }] },
      ])
        expect(promptOf(over).bytes).toBeGreaterThan(DATA.length);
    });

    test("files and audio are media: any kind of input may be reported for them", () => {
      const file = { type: "input_file", file_data: "data:application/pdf;base64,AA==" };
      const input = [{ role: "user", content: [{ type: "input_text", text: "Hello" }, file] }];
      expect(promptOf({ input }).hasMedia).toBe(false);
      const { hasMedia, fileTokens } = promptOf({ input }, ["content.file"]);
      // No more than the context of the model.
      expect([hasMedia, fileTokens]).toEqual([true, 5_000]);
      expect([promptOf({}).imageTokens, promptOf({}).hasMedia]).toEqual([0, false]);
    });

    test("tools that run at the provider count as files, and so do the items that they left", () => {
      const search = { tools: [{ type: "web_search" }] };
      expect([promptOf(search).fileTokens, promptOf(search, ["tools.web_search"]).fileTokens]).toEqual([0, 5_000]);
      const found = {
        input: [
          { type: "web_search_call", id: "ws_1" },
          { role: "user", content: "Hello" },
        ],
      };
      expect(promptOf(found, ["input.web_search_call"]).fileTokens).toBe(5_000);
    });
  });

  test("what the route drops is left out and named, whole or a member of it; without tools as ever", () => {
    const asked = {
      reasoning: { effort: "low", summary: "auto" },
      text: { format: { type: "text" }, verbosity: "low" },
      include: ["reasoning.encrypted_content", "message.output_text.logprobs"],
      top_logprobs: 2,
      truncation: null,
    };
    const dropped = ["reasoning.effort", "text", "include.reasoning.encrypted_content", "top_logprobs", "truncation"];
    const { fields, dropped: named } = own(asked, [], dropped);
    expect(fields).toMatchObject({ reasoning: { summary: "auto" }, include: ["message.output_text.logprobs"] });
    expect(Object.keys(fields).sort()).toEqual(["include", "input", "reasoning", "store"]);
    expect(named.sort()).toEqual(["include.0", "reasoning.effort", "text", "top_logprobs"]);
    expect(own({ reasoning: {}, tools: [{ type: "function", name: "a" }] }, [], ["reasoning"])).toMatchObject({
      fields: { tools: [{ type: "function", name: "a" }] },
      dropped: ["reasoning"],
    });
  });

  test("top_logprobs is sent on only as a number from 0 to 20, which is what the size of the answer is computed from", () => {
    for (const top_logprobs of [0, 20]) expect(own({ top_logprobs }).fields).toMatchObject({ top_logprobs });
    for (const top_logprobs of ["20", 21, -1, 1.5, true, [20], { a: 1 }]) {
      const { fields, dropped } = own({ top_logprobs });
      expect([fields.top_logprobs, dropped]).toEqual([undefined, ["top_logprobs"]]);
    }
  });

  test("every name of the list is sent on, and no other", () => {
    const values: Fields = {
      ...{ stream: true, temperature: 1, top_p: 1, top_logprobs: 1, max_output_tokens: 1, parallel_tool_calls: true },
      ...{ tools: [{ type: "function", name: "a" }], tool_choice: "auto", text: {}, reasoning: {}, include: [] },
    };
    const listed = OWN_RESPONSES_GROUPS.flatMap(({ names }) => names).filter((name) => name !== "model");
    const asked = Object.fromEntries(listed.map((name) => [name, values[name] ?? "x"]));
    const { fields, dropped } = own({ ...asked, store: true, seed: 1, n: 2 });
    expect(Object.keys(fields).sort()).toEqual([...listed].sort());
    expect(dropped).toEqual(["seed", "n"]);
  });

  test("hosted tools, their items and files are sent where the route allows them", () => {
    const file = { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" };
    const input = [
      { role: "user", content: [file] },
      { type: "web_search_call", id: "ws_1" },
    ];
    const asked = { input, tools: [{ type: "web_search" }], tool_choice: { type: "web_search" } };
    expect(own(asked).fields).toEqual({ store: false, input: [{ role: "user", content: [] }] });
    const allowed = ["tools.web_search", "input.web_search_call", "content.file"];
    expect(own(asked, allowed)).toEqual({ fields: { store: false, ...asked }, dropped: [] });
  });
});
