import { HumanMessage } from "@langchain/core/messages";
import { ChatOpenAI } from "@langchain/openai";

/**
 * LangChain's ChatOpenAI, two turns each: with its defaults, through /responses with the whole conversation, and through /responses with
 * the id of the response before.
 * Arguments: base URL, API key, model. Prints one line of JSON.
 */
const [baseURL, apiKey, model] = process.argv.slice(2);
const options = { model, apiKey, configuration: { baseURL }, maxRetries: 0 };
const first = new HumanMessage("Turn 1.");
const second = new HumanMessage("Turn 2.");

async function talk(chat) {
  const answer = await chat.invoke([first]);
  const next = await chat.invoke([first, answer, second]);
  return next.text;
}

const byDefault = await talk(new ChatOpenAI(options));
const responses = new ChatOpenAI({ ...options, useResponsesApi: true });
const whole = await talk(responses);
const answer = await responses.invoke([first]);
const next = await responses.invoke([second], { previous_response_id: answer.response_metadata.id });
console.log(JSON.stringify({ byDefault, whole, byId: next.text }));
