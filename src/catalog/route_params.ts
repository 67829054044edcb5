import { InputError, sentence } from "../errors.ts";

/** The parameters that a route may allow beyond the standard list, and those that it may drop. Source: PRV-1, PRV-26. */

/** Parameters that a route may allow beyond the standard list, and those that it may drop. The table has the same limits as CHECKs. */
export const ROUTE_PARAMS_MAX = 50;
export const PARAM_CHARS_MAX = 100;
/** A parameter or a member of a parameter: `documents`, `reasoning.max_tokens`. */
const PARAM = /^[a-z][a-z0-9_]*(?:\.[a-z][a-z0-9_]*){0,2}$/;
/**
 * Parameters that no route may allow: the gateway sets them, or calculates usage and cost from them. A cap or a count
 * under another name would not be part of the hold; the gateway cannot read a stream of images or a deferred answer.
 */
const PARAMS_OF_THE_GATEWAY: ReadonlySet<string> = new Set(
  (
    "model models messages input prompt encoding_format size quality n stream stream_options max_tokens max_completion_tokens " +
    "max_output_tokens max_new_tokens max_length n_predict num_predict best_of num_return_sequences n_cmpl " +
    "use_beam_search num_images partial_images deferred extra_body options"
  ).split(" "),
);
/**
 * Parameters that no route may drop either: without them the request would ask for something else. Neither may their
 * members be dropped, nor those of the gateway's parameters, but for a few. Source: PRV-26.
 */
const PARAMS_OF_THE_REQUEST: ReadonlySet<string> = new Set([
  "instructions",
  "tools",
  "functions",
  "dimensions",
  "content",
]);
const DROPPABLE_MEMBERS: ReadonlySet<string> = new Set(
  (
    "messages.name messages.refusal messages.annotations messages.reasoning messages.reasoning_content " +
    "messages.reasoning_details messages.extra_content tools.function.strict stream_options.include_obfuscation"
  ).split(" "),
);

export function checkAllowed(names: readonly string[]): string[] {
  const known = checkParams(names, "allowedParams");
  const refused = known.find((name) => PARAMS_OF_THE_GATEWAY.has(name));
  if (refused === undefined) return known;
  throw new InputError(
    sentence("A route cannot allow {refused}: the gateway sets it, or counts by it.", { refused }),
    "allowedParams",
  );
}

export function checkDropped(names: readonly string[]): string[] {
  const known = checkParams(names, "droppedParams");
  const refused = known.find(isNeeded);
  if (refused === undefined) return known;
  throw new InputError(
    sentence("A route cannot drop {refused}: the gateway counts by it, or the request would mean something else.", {
      refused,
    }),
    "droppedParams",
  );
}

function isNeeded(name: string): boolean {
  const [field = ""] = name.split(".", 1);
  return !DROPPABLE_MEMBERS.has(name) && (PARAMS_OF_THE_GATEWAY.has(field) || PARAMS_OF_THE_REQUEST.has(field));
}

/** The names, sorted, without duplicates. */
function checkParams(names: readonly string[], param: "allowedParams" | "droppedParams"): string[] {
  const known = [...new Set(names.map((name) => name.trim()))].sort();
  if (known.length > ROUTE_PARAMS_MAX)
    throw new InputError(
      sentence("A list of parameters has at most {routeParamsMax} names.", { routeParamsMax: ROUTE_PARAMS_MAX }),
      param,
    );
  const wrong = known.find((name) => name.length > PARAM_CHARS_MAX || !PARAM.test(name));
  if (wrong === undefined) return known;
  throw new InputError(
    sentence("A parameter is named as in documents or reasoning.max_tokens, not {wrong}.", {
      wrong: JSON.stringify(wrong.slice(0, PARAM_CHARS_MAX)),
    }),
    param,
  );
}
