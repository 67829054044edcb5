import { Agent, getDefaultModel, run, setDefaultOpenAIClient, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";

/**
 * OpenAI's Agents SDK with its default model, which speaks /responses: one run that calls a tool, whole and streamed.
 * Arguments: base URL, API key. Prints one line of JSON.
 */
const [baseURL, apiKey] = process.argv.slice(2);
setTracingDisabled(true);
setDefaultOpenAIClient(new OpenAI({ baseURL, apiKey, maxRetries: 0 }));

let calls = 0;
const parameters = {
  type: "object",
  properties: { road: { type: "string" } },
  required: ["road"],
  additionalProperties: false,
};
const getToll = tool({
  name: "get_toll",
  description: "The toll of a road",
  parameters,
  strict: true,
  execute: () => {
    calls++;
    return "3 crowns";
  },
});
const agent = new Agent({ name: "keeper", instructions: "You are a toll keeper.", tools: [getToll] });
const whole = await run(agent, "What does the road cost?", { maxTurns: 4 });
const streamed = await run(agent, "What does the road cost?", { maxTurns: 4, stream: true });
let events = 0;
for await (const _ of streamed) events++;
await streamed.completed;
const usage = whole.state.usage.totalTokens;
const said = { calls, whole: whole.finalOutput, streamed: streamed.finalOutput, events, usage };
console.log(JSON.stringify({ ...said, model: getDefaultModel() }));
