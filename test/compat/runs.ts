import { type Entry, isForBoth, type Path, type ProviderAnswer } from "./form.ts";

/** One entry through one path. */
export type Run = {
  /** Of the model and its providers. */
  id: string;
  file: string;
  name: string;
  entry: Entry;
  path: Path;
  body: Record<string, unknown>;
  /** Units that a charged request counts. */
  units: number;
};

const TEXT = "Tell me about tolls.";
const MESSAGES = [{ role: "user", content: TEXT }];
const BODIES: Readonly<Record<Path, object>> = {
  chat: { messages: MESSAGES },
  responses: { input: TEXT },
  completions: { prompt: TEXT },
  embeddings: { input: TEXT },
  images: { prompt: TEXT },
  rerank: { query: TEXT, documents: ["A gate.", "A bird."] },
};
export const URLS: Readonly<Record<Path, string>> = {
  chat: "/v1/chat/completions",
  responses: "/v1/responses",
  completions: "/v1/completions",
  embeddings: "/v1/embeddings",
  images: "/v1/images/generations",
  rerank: "/v1/rerank",
};

let runs = 0;

/** The runs of an entry: one, or for a question in chat one in each form. */
export function runsOf(file: string, entry: Entry): Run[] {
  const { request } = entry;
  const paths: Path[] = isForBoth(request) ? ["chat", "responses"] : [request.path ?? "chat"];
  return paths.map((path) => {
    const id = `compat-${++runs}`;
    const body = { model: id, ...BODIES[path], ...(path === "responses" ? asResponse(request.body) : request.body) };
    const units = request.payer === "balance" ? 0 : 1;
    return { id, file, name: `${entry.says} (${path})`, entry, path, body, units };
  });
}

export function routesOf({ provider }: Entry): readonly ProviderAnswer[] {
  return "map" in provider ? provider : [provider];
}

/** The fields of a chat's body as /responses names them; those that it does not have are left out. */
function asResponse({
  messages,
  max_tokens,
  max_completion_tokens,
  stream_options,
  tools,
  ...rest
}: Record<string, unknown> = {}) {
  const cap = max_completion_tokens ?? max_tokens;
  return {
    ...rest,
    ...(messages !== undefined && { input: messages }),
    ...(cap !== undefined && { max_output_tokens: cap }),
    ...(Array.isArray(tools) && { tools: tools.map(({ function: named, ...tool }) => ({ ...tool, ...named })) }),
  };
}
