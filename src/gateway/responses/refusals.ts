import { Refusal } from "../../errors.ts";

/** The refusals of a request for /responses. All are invalid_request. Source: ERR-6. */

export function refusal(param: string, message: string): Refusal {
  return new Refusal("invalid_request", { message, param });
}

/** `must`: the rule for the field, as the end of the sentence. */
export function invalid(param: string, must: string): Refusal {
  return refusal(param, `The field ${param} ${must}.`);
}

export function required(param: string): Refusal {
  return refusal(param, `The field ${param} is required.`);
}
