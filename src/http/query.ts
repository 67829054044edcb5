import { Refusal, sentence } from "../errors.ts";

/** Characters of a parameter's name that an error message repeats. */
const NAME_CHARS_MAX = 100;

/** Throws invalid_request for a repeated query parameter, because a proxy or another reader may use the other value. */
export function refuseRepeated(query: URLSearchParams): void {
  const seen = new Set<string>();
  for (const name of query.keys()) {
    if (seen.has(name)) {
      const param = name.slice(0, NAME_CHARS_MAX);
      throw new Refusal("invalid_request", {
        message: sentence("The query parameter {param} is repeated.", { param }),
        param,
      });
    }
    seen.add(name);
  }
}
