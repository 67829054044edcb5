/**
 * A request to the API as code, in three languages.
 *
 *   <SnippetTabs snippets={requestCode({ baseUrl: me.apiBaseUrl, endpoint: "chat", body, key: null })} />
 *
 * Without a key the code reads it from the environment, as API_KEY.
 */

export type Snippet = { id: string; label: string; code: string };

/** `print`: how the answer is shown; by whether it is a stream. */
type Call = { path: string; method: string; print: Print; printStream?: Print };
type Print = { python: string; javascript: string };

/** Code, and not a text. */
const CALLS = {
  chat: {
    path: "/chat/completions",
    method: "chat.completions.create",
    print: {
      python: "print(answer.choices[0].message.content)",
      javascript: "console.log(answer.choices[0].message.content);",
    },
    printStream: {
      python: `for chunk in answer:
    if chunk.choices:
        print(chunk.choices[0].delta.content or "", end="", flush=True)`,
      javascript: `for await (const chunk of answer) {
  process.stdout.write(chunk.choices[0]?.delta.content ?? "");
}`,
    },
  },
  responses: {
    path: "/responses",
    method: "responses.create",
    print: { python: "print(answer.output_text)", javascript: "console.log(answer.output_text);" },
    printStream: {
      python: `for event in answer:
    if event.type == "response.output_text.delta":
        print(event.delta, end="", flush=True)`,
      javascript: `for await (const event of answer) {
  if (event.type === "response.output_text.delta") process.stdout.write(event.delta);
}`,
    },
  },
  images: {
    path: "/images/generations",
    method: "images.generate",
    print: {
      python: `with open("image.png", "wb") as file:
    file.write(base64.b64decode(answer.data[0].b64_json))`,
      javascript: `await writeFile("image.png", Buffer.from(answer.data[0].b64_json, "base64"));`,
    },
  },
  embeddings: {
    path: "/embeddings",
    method: "embeddings.create",
    print: {
      python: "print(len(answer.data[0].embedding))",
      javascript: "console.log(answer.data[0].embedding.length);",
    },
  },
} as const satisfies Record<string, Call>;

export type CodeOf = { endpoint: keyof typeof CALLS; body: object };

/** The variable that has the key. */
const KEY_VARIABLE = "API_KEY";
/** Linux gives one argument of a command at most 128 KiB: a longer body goes to curl's standard input. */
const ARGUMENT_CHARS_MAX = 60_000;
/** So much of an image's data is shown. */
const SHOWN_BASE64_CHARS = 60;

/** `baseUrl` ends in /v1. `key` null: from the environment. */
export function requestCode({
  baseUrl,
  endpoint,
  body,
  key,
}: CodeOf & { baseUrl: string; key: string | null }): Snippet[] {
  const { path, method, print, printStream = print }: Call = CALLS[endpoint];
  const shown = "stream" in body && body.stream === true ? printStream : print;
  const isImage = endpoint === "images";
  return /* not a text */ [
    { id: "curl", label: "curl", code: curlOf({ url: baseUrl + path, body, key }) },
    {
      id: "python",
      label: "Python",
      code: `${isImage ? "import base64\n" : ""}${key === null ? "import os\n" : ""}${isImage || key === null ? "\n" : ""}from openai import OpenAI

client = OpenAI(
    base_url=${JSON.stringify(baseUrl)},
    api_key=${key === null ? `os.environ["${KEY_VARIABLE}"]` : JSON.stringify(key)},
)
answer = client.${method}(
${Object.entries(body)
  .map(([name, value]) => `    ${name}=${pythonOf(value, 1)},`)
  .join("\n")}
)
${shown.python}`,
    },
    {
      id: "javascript",
      label: "JavaScript",
      code: `${isImage ? 'import { writeFile } from "node:fs/promises";\n' : ""}import OpenAI from "openai";

const client = new OpenAI({
  baseURL: ${JSON.stringify(baseUrl)},
  apiKey: ${key === null ? `process.env.${KEY_VARIABLE}` : JSON.stringify(key)},
});
const answer = await client.${method}(${javascriptOf(body)});
${shown.javascript}`,
    },
  ];
}

/** The first request of a new key. */
export function helloCode({ model, ...rest }: { baseUrl: string; model: string; key: string | null }): Snippet[] {
  return requestCode({
    ...rest,
    endpoint: "chat",
    body: { model, messages: [{ role: "user", content: /* not a text */ "Hello" }] },
  });
}

/** The code as it is shown: the data of images is shortened. */
export function shortened(code: string): string {
  return code.replace(/[A-Za-z0-9+/=]{200,}/g, (data) => `${data.slice(0, SHOWN_BASE64_CHARS)}…`);
}

function curlOf({ url, body, key }: { url: string; body: object; key: string | null }): string {
  const json = JSON.stringify(body, null, 2);
  const head = `curl ${url} \\
  -H "Authorization: Bearer ${key ?? `$${KEY_VARIABLE}`}" \\
  -H "Content-Type: application/json" \\`;
  // No line of the JSON is the word that ends it: line breaks in texts are escaped.
  if (json.length > ARGUMENT_CHARS_MAX) return `${head}\n  --data-binary @- <<'JSON'\n${json}\nJSON`;
  return `${head}\n  -d '${json.replaceAll("'", "'\\''")}'`;
}

/** A JSON value as Python, not a text to translate. JSON's strings and numbers are valid Python. */
function pythonOf(value: unknown, depth: number): string {
  if (value === null || value === undefined) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const pad = "    ".repeat(depth + 1);
  const items = Array.isArray(value)
    ? value.map((item) => pythonOf(item, depth + 1))
    : Object.entries(value).map(([name, item]) => `${JSON.stringify(name)}: ${pythonOf(item, depth + 1)}`);
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  return `${open}\n${items.map((item) => `${pad}${item},\n`).join("")}${"    ".repeat(depth)}${close}`;
}

/** A JSON value as JavaScript: names of members need no quotes. A line that begins with a quoted name and a colon is always a member. */
function javascriptOf(value: object): string {
  return JSON.stringify(value, null, 2).replace(/^( *)"([a-z_]\w*)":/gm, "$1$2:");
}
