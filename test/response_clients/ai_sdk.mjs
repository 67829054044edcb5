import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";

/**
 * The Vercel AI SDK with its default model, which speaks /responses and refers to earlier items by id: two steps with a tool, whole and
 * streamed, a conversation of ten turns, and structured output.
 * Arguments: base URL, API key, model. Prints one line of JSON.
 */
const [baseURL, apiKey, id] = process.argv.slice(2);
const model = createOpenAI({ baseURL, apiKey })(id);
const schema = jsonSchema({
  type: "object",
  properties: { road: { type: "string" } },
  required: ["road"],
  additionalProperties: false,
});
let calls = 0;
const tools = {
  get_toll: tool({
    description: "The toll of a road",
    inputSchema: schema,
    execute: () => {
      calls++;
      return { toll: "3 crowns" };
    },
  }),
};
const asked = {
  model,
  tools,
  prompt: "What does the road cost?",
  stopWhen: stepCountIs(4),
  maxRetries: 0,
};
const whole = await generateText(asked);
const streamed = streamText(asked);
const parts = new Set();
for await (const part of streamed.fullStream) parts.add(part.type);
const messages = [];
let last;
for (let turn = 1; turn <= 10; turn++) {
  messages.push({ role: "user", content: `Turn ${turn}.` });
  last = await generateText({ model, messages, maxRetries: 0 });
  messages.push(...last.response.messages);
}
const { output } = await generateText({ model, prompt: "A toll.", output: Output.object({ schema }), maxRetries: 0 });
console.log(
  JSON.stringify({
    calls,
    whole: whole.text,
    steps: whole.steps.length,
    streamed: await streamed.text,
    finish: await streamed.finishReason,
    parts: [...parts],
    usage: (await streamed.totalUsage).totalTokens,
    talk: last.text,
    output,
    warnings: whole.warnings ?? [],
  }),
);
