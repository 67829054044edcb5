/**
 * A real language model behind a small server in OpenAI's shape: `bun server.mjs <folder with node_modules> <model.gguf>`.
 * Prints {"baseUrl"} once it listens on 127.0.0.1, and ends with its standard input. Raw completion: the messages' text is
 * the prompt, for a model that knows no chat.
 */
import { createServer } from "node:http";
import { join } from "node:path";
import { pathToFileURL } from "node:url";

const CONTEXT_TOKENS = 512;
const TOKENS_DEFAULT = 120;
const BODY_BYTES_MAX = 64 * 1024;
const MODEL_ID = "stories260k";

const [folder = "", modelPath = ""] = process.argv.slice(2);
const entry = join(folder, "node_modules/node-llama-cpp/dist/index.js");
const { getLlama } = await import(pathToFileURL(entry).href);
// Only what the package brings: nothing is compiled or downloaded here.
const llama = await getLlama({ gpu: false, build: "never", skipDownload: true, logLevel: "error" });
const model = await llama.loadModel({ modelPath });
// One thread: for a model this small, threads that wait for each other take a thousand times longer on a busy machine.
const context = await model.createContext({ contextSize: CONTEXT_TOKENS, threads: 1 });

/** One answer at a time: the context has one sequence. */
let line = Promise.resolve();
const server = createServer((request, response) => {
  line = line.then(() => answer(request, response)).catch((error) => response.destroy(error));
});
server.listen(0, "127.0.0.1", () => {
  console.log(JSON.stringify({ baseUrl: `http://127.0.0.1:${server.address().port}/v1` }));
});
process.stdin.once("end", () => process.exit(0)).resume();

async function answer(request, response) {
  if (request.method === "GET" && request.url === "/v1/models") {
    return sendJson(response, 200, { object: "list", data: [{ id: MODEL_ID, object: "model", owned_by: "local" }] });
  }
  if (request.method !== "POST" || request.url !== "/v1/chat/completions") {
    return sendJson(response, 404, { error: { message: "no such address", type: "invalid_request_error" } });
  }
  const body = JSON.parse(await read(request));
  const prompt = [model.tokens.bos, ...model.tokenize(body.messages.map(({ content }) => content).join("\n"))];
  const tokensMax = Math.min(
    body.max_completion_tokens ?? body.max_tokens ?? TOKENS_DEFAULT,
    CONTEXT_TOKENS - prompt.length - 1,
  );
  const head = { id: `chatcmpl-${Date.now()}`, created: Math.floor(Date.now() / 1000), model: MODEL_ID };
  const event = (data) =>
    response.write(`data: ${JSON.stringify({ ...head, object: "chat.completion.chunk", ...data })}\n\n`);

  if (body.stream) response.writeHead(200, { "content-type": "text/event-stream" });
  const tokens = [];
  let text = "";
  let finish = "length";
  const sequence = context.getSequence();
  try {
    for await (const token of sequence.evaluate(prompt, { temperature: body.temperature ?? 0 })) {
      if (model.isEogToken(token)) finish = "stop";
      else tokens.push(token);
      const sofar = model.detokenize(tokens);
      // A character may be several tokens: until it is whole it reads as U+FFFD.
      if (body.stream && sofar.length > text.length && !sofar.endsWith("\ufffd")) {
        const delta = { role: "assistant", content: sofar.slice(text.length) };
        event({ choices: [{ index: 0, delta, finish_reason: null }] });
        text = sofar;
      }
      if (finish === "stop" || tokens.length >= tokensMax || response.destroyed) break;
    }
  } finally {
    sequence.dispose();
  }
  const usage = {
    prompt_tokens: prompt.length,
    completion_tokens: tokens.length,
    total_tokens: prompt.length + tokens.length,
  };
  if (!body.stream) {
    const message = { role: "assistant", content: model.detokenize(tokens) };
    const choices = [{ index: 0, message, finish_reason: finish }];
    return sendJson(response, 200, { ...head, object: "chat.completion", choices, usage });
  }
  event({ choices: [{ index: 0, delta: {}, finish_reason: finish }] });
  if (body.stream_options?.include_usage) event({ choices: [], usage });
  response.end("data: [DONE]\n\n");
}

function sendJson(response, status, value) {
  const text = JSON.stringify(value);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(text) });
  response.end(text);
}

async function read(request) {
  const parts = [];
  let size = 0;
  for await (const part of request) {
    size += part.length;
    if (size > BODY_BYTES_MAX) throw new Error("the body is too large");
    parts.push(part);
  }
  return Buffer.concat(parts).toString("utf8");
}
