import type { Entry } from "../form.ts";

/** Prompts with a part that cannot be sent: without it the model would be asked about nothing, and the client would pay. */

const TEXT = { type: "text", text: "What does it say?" };
const INPUT_TEXT = { type: "input_text", text: "What does it say?" };
const FILE = { type: "file", file: { filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" } };
const AUDIO = { type: "input_audio", input_audio: { data: "AA==", format: "wav" } };
const IMAGE = { type: "image_url", image_url: { url: "data:image/png;base64,iVBORw0KGgo=" } };
const INPUT_FILE = { type: "input_file", filename: "a.pdf", file_data: "data:application/pdf;base64,AA==" };
const INPUT_IMAGE = { type: "input_image", image_url: "data:image/png;base64,iVBORw0KGgo=" };
const asks = (content: unknown) => [{ role: "user", content }];
const asksMore = (content: unknown) => [...asks("Hi."), { role: "assistant", content: "Hi." }, ...asks(content)];

type Case = readonly [says: string, prompt: unknown, param: string, source: string];

const TRIED = "tried on a replica on 27 and 28 November 2026: left out, and charged";
const CHAT: readonly Case[] = [
  ["Audio alone", asks([AUDIO]), "messages.0.content.0", TRIED],
  ["A file alone", asks([{ type: "file", file: { file_id: "file-1" } }]), "messages.0.content.0", TRIED],
  [
    "A video alone",
    asks([{ type: "video_url", video_url: { url: "https://example.com/a" } }]),
    "messages.0.content.0",
    TRIED,
  ],
  ["An empty part", asks([{}]), "messages.0.content.0", TRIED],
  ["No parts", asks([]), "messages.0.content", TRIED],
  ["A file behind a text", asks([TEXT, FILE]), "messages.0.content.1", "github.com/BerriAI/litellm/issues/11529"],
  [
    "A file in the third message",
    asksMore([TEXT, FILE]),
    "messages.2.content.1",
    "github.com/langchain-ai/openwiki/issues/171",
  ],
  [
    "A file of the Responses API",
    asks([INPUT_TEXT, INPUT_FILE]),
    "messages.0.content.1",
    "github.com/vllm-project/vllm/issues/47051",
  ],
  ["Audio before a text", asks([AUDIO, TEXT]), "messages.0.content.0", "platform.openai.com/docs/guides/audio"],
  [
    "A video between an image and a text",
    asks([IMAGE, { type: "video", video: ["a.jpg"] }, TEXT]),
    "messages.0.content.1",
    "github.com/QwenLM/qwen-code/issues/1888",
  ],
  [
    "A document of Anthropic's",
    asks([TEXT, { type: "document", source: { type: "file", file_id: "file_1" } }]),
    "messages.0.content.1",
    "docs.claude.com/en/docs/build-with-claude/pdf-support",
  ],
  [
    "An image that is stored there",
    asks([TEXT, { type: "image", source: { type: "file", file_id: "file_1" } }]),
    "messages.0.content.1",
    "docs.claude.com/en/docs/build-with-claude/files",
  ],
  ["A text under another name", asks([{ type: "text", content: "What is 2+2?" }]), "messages.0.content.0", TRIED],
  [
    "An image without an address",
    asks([TEXT, { type: "image_url", image_url: { detail: "low" } }]),
    "messages.0.content.1",
    TRIED,
  ],
  [
    "A file that a tool read",
    [...asks("Read it."), { role: "tool", tool_call_id: "c", content: [FILE] }],
    "messages.1.content.0",
    "github.com/langchain-ai/openwiki/issues/37",
  ],
  [
    "An image as Ollama's own API has it",
    [{ role: "user", content: "What is it?", images: ["iVBORw0KGgo="] }],
    "messages.0.images",
    "docs.ollama.com/api/chat",
  ],
  [
    "A spoken answer",
    [...asks("Hi."), { role: "assistant", content: null, audio: { id: "audio_1" } }],
    "messages.1.audio",
    "platform.openai.com/docs/guides/audio",
  ],
];
const RESPONSES: readonly Case[] = [
  [
    "A file behind a text",
    asks([INPUT_TEXT, INPUT_FILE]),
    "input.0.content.1",
    "github.com/vllm-project/vllm/issues/47051",
  ],
  [
    "Audio behind a text",
    asks([INPUT_TEXT, { ...AUDIO, type: "input_audio" }]),
    "input.0.content.1",
    "platform.openai.com/docs/guides/audio",
  ],
  [
    "An image of the developer's",
    [{ role: "developer", content: [INPUT_TEXT, INPUT_IMAGE] }, ...asks("Hi.")],
    "input.0.content.1",
    TRIED,
  ],
  [
    "A file that a tool read",
    [
      { type: "function_call", call_id: "c", name: "read", arguments: "{}" },
      { type: "function_call_output", call_id: "c", output: [INPUT_TEXT, INPUT_FILE] },
    ],
    "input.1.output.1",
    TRIED,
  ],
];
const EMBEDDINGS: readonly Case[] = [
  [
    "An image behind a text",
    ["A gate", { image: "https://example.com/a.png" }],
    "input.1",
    "jina.ai/embeddings: multimodal inputs",
  ],
  ["Texts as objects", [{ text: "A gate" }], "input.0", "jina.ai/embeddings: multimodal inputs"],
];

const entriesOf = (path: "chat" | "responses" | "embeddings", cases: readonly Case[]): Entry[] =>
  cases.map(([says, prompt, param, source]) => ({
    says: `${says} is refused, and costs nothing: ${path}`,
    source,
    request: {
      ...(path === "chat" ? { only: "chat" as const } : { path }),
      body: { [path === "chat" ? "messages" : "input"]: prompt },
    },
    provider: [],
    client: { error: "invalid_request", param },
    charged: "nothing",
  }));

export default [
  ...entriesOf("chat", CHAT),
  ...entriesOf("responses", RESPONSES),
  ...entriesOf("embeddings", EMBEDDINGS),
] satisfies Entry[];
