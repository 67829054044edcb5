import { createOpenAI } from "@ai-sdk/openai";
import { generateText, jsonSchema, Output, stepCountIs, streamText, tool } from "ai";

/**
 * The Vercel AI SDK with its default model, which speaks /responses: two steps with a tool, whole and streamed, and structured output.
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
  // Otherwise its second step refers to items that the provider would have stored.
  providerOptions: { openai: { store: false } },
};
const whole = await generateText(asked);
const streamed = streamText(asked);
const parts = new Set();
for await (const part of streamed.fullStream) parts.add(part.type);
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
    output,
    warnings: whole.warnings ?? [],
  }),
);
