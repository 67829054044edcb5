import { Refusal } from "../errors.ts";
import type { Caller } from "./authenticate.ts";

/** What one request may ask for while a package is active: one unit pays for all of it. Source: QUO-11. */

/** What a request asks for, and the fields that say so. Embeddings have no output: `capTokens` is null. */
export type AskedOfUnit = {
  choices: number;
  inputs: number;
  inputsParam?: "input" | "documents";
  promptTokens: number;
  promptParam: "messages" | "input" | "prompt" | "documents";
  capTokens: number | null;
  capParam: "max_tokens" | "max_completion_tokens" | "max_output_tokens";
};

/** Throws invalid_request, with the bound in the message. */
export function checkRequestBounds({ key: { requestBounds: most } }: Caller, asked: AskedOfUnit): void {
  if (most === null) return;
  const { choices, inputs, inputsParam = "input", promptTokens, promptParam, capTokens, capParam } = asked;
  if (choices > most.choices)
    throw beyond("n", `at most ${most.choices} choices in a request; this one asks for ${choices}`);
  if (inputs > most.inputs)
    throw beyond(inputsParam, `at most ${most.inputs} inputs in a request; this one has ${inputs}`);
  if (promptTokens > most.promptTokens) {
    const counted = `${most.promptTokens} tokens of prompt in a request, where each byte of text counts as one`;
    throw beyond(promptParam, `at most ${counted}; this one may have ${promptTokens}`);
  }
  if (most.outputTokens !== null && capTokens !== null && capTokens > most.outputTokens)
    throw beyond(
      capParam,
      `at most ${most.outputTokens} tokens of output in a request; this one asks for ${capTokens}`,
    );
}

function beyond(param: string, what: string): Refusal {
  return new Refusal("invalid_request", { message: `The package allows ${what}.`, param });
}
