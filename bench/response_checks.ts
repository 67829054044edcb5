/** What is wrong with a response that a client got: for the load generator, which checks every answer. */

/** `isSaid`: whether a text is the model's whole text. */
export type Expected = { model: string; isSaid: (text: string) => boolean };

type Fields = Readonly<Record<string, unknown>>;

/** The error of a JSON answer; undefined if it is complete and has the text and the usage. */
export function wrongInResponse(json: string, expected: Expected): string | undefined {
  return wrongIn(parsed(json), expected);
}

/** The error of the last event of a stream of `events` events. `data`: its JSON. */
export function wrongInLastEvent(data: string, events: number, expected: Expected): string | undefined {
  const { sequence_number: sequence, response } = parsed(data);
  if (sequence !== events - 1) return `a stream of ${events} events, whose last one has the number ${sequence}`;
  return wrongIn(fieldsOf(response), expected);
}

function wrongIn({ object, status, model, output, usage }: Fields, expected: Expected): string | undefined {
  if (object !== "response" || status !== "completed") return `a response that is ${status}`;
  if (model !== expected.model) return `a response of the model ${model}`;
  const [item, ...further] = Array.isArray(output) ? output : [];
  const { content } = fieldsOf(item);
  const { text } = fieldsOf(Array.isArray(content) ? content[0] : undefined);
  if (further.length > 0 || typeof text !== "string" || !expected.isSaid(text))
    return `a response with another output: ${JSON.stringify(output)}`;
  const { input_tokens: input, output_tokens: out, total_tokens: total } = fieldsOf(usage);
  const isUsage = typeof input === "number" && typeof out === "number" && input > 0 && out > 0 && total === input + out;
  return isUsage ? undefined : `a response with the usage ${JSON.stringify(usage)}`;
}

function parsed(json: string): Fields {
  try {
    return fieldsOf(JSON.parse(json));
  } catch {
    return {};
  }
}

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}
