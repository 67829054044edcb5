import { Refusal } from "../errors.ts";

/** As much of a parameter's name as an error repeats. */
const NAME_CHARS_MAX = 100;

/** Throws invalid_request for a query parameter that is given twice: a proxy or another reader may take the other value. */
export function refuseRepeated(query: URLSearchParams): void {
  const seen = new Set<string>();
  for (const name of query.keys()) {
    if (seen.has(name)) {
      const param = name.slice(0, NAME_CHARS_MAX);
      throw new Refusal("invalid_request", { message: `The query parameter ${param} is given more than once.`, param });
    }
    seen.add(name);
  }
}
