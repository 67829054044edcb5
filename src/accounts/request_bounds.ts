import { REQUEST_BOUNDS, REQUEST_BOUNDS_DEFAULT, type RequestBounds } from "../limits.ts";
import { checkInteger } from "./input_checks.ts";

/** What one request of a package may ask for, as an offering sets it. Pure. Source: QUO-11. */

/** Bounds as they are given: what is missing is the default. `outputTokens`: null for none. */
export type RequestBoundsInput = { readonly [Name in keyof RequestBounds]?: RequestBounds[Name] | undefined };

/** Checks bounds, and returns them in full. Throws InputError, which names the field: `requestBounds.choices`. */
export function checkRequestBounds(given: RequestBoundsInput): RequestBounds {
  const { choices, inputs, promptTokens, outputTokens } = { ...REQUEST_BOUNDS_DEFAULT, ...withoutUndefined(given) };
  return {
    choices: checked("choices", choices),
    inputs: checked("inputs", inputs),
    promptTokens: checked("promptTokens", promptTokens),
    outputTokens: outputTokens === null ? null : checked("outputTokens", outputTokens),
  };
}

function withoutUndefined(given: RequestBoundsInput): Partial<RequestBounds> {
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value !== undefined));
}

function checked(name: keyof RequestBounds, value: number): number {
  return checkInteger(value, { param: `requestBounds.${name}`, ...REQUEST_BOUNDS[name] });
}
