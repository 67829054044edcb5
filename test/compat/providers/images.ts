import type { Entry } from "../form.ts";

/** Images as services hand them out. The client asks for base64. */

const PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

const FORMS: readonly (readonly [says: string, source: string, answer: object])[] = [
  ["Base64", "platform.openai.com/docs/api-reference/images", { data: [{ b64_json: PNG }] }],
  ["Two images for one", "docs.x.ai/docs/guides/image-generations", { data: [{ b64_json: PNG }, { b64_json: PNG }] }],
  [
    "A data URL as base64",
    "tried on a replica on 27 November 2026",
    { data: [{ b64_json: `data:image/png;base64,${PNG}` }] },
  ],
  ["A data URL without a type", "www.rfc-editor.org/rfc/rfc2397", { data: [{ b64_json: `data:;base64,${PNG}` }] }],
  [
    "A data URL of bytes",
    "www.rfc-editor.org/rfc/rfc2397",
    { data: [{ url: `data:application/octet-stream;base64,${PNG}` }] },
  ],
  [
    "A data URL with escapes",
    "www.rfc-editor.org/rfc/rfc3986",
    { data: [{ url: `data:image/png;base64,${encodeURIComponent(PNG)}` }] },
  ],
  [
    "A scheme in capital letters",
    "www.rfc-editor.org/rfc/rfc3986",
    { data: [{ b64_json: `DATA:image/png;base64,${PNG}` }] },
  ],
  ["Without padding", "www.rfc-editor.org/rfc/rfc4648#section-3.2", { data: [{ b64_json: PNG.replace(/=+$/, "") }] }],
  [
    "With line breaks and the letters of URLs",
    "www.rfc-editor.org/rfc/rfc4648",
    { data: [{ b64_json: PNG.replaceAll("+", "-").replaceAll("/", "_").replace(/.{20}/g, "$&\r\n") }] },
  ],
  [
    "In a list named images",
    "docs.siliconflow.com: images/generations",
    { images: [{ url: `data:image/png;base64,${PNG}` }] },
  ],
  [
    "In artifacts",
    "platform.stability.ai/docs/api-reference",
    { artifacts: [{ base64: PNG, finishReason: "SUCCESS" }] },
  ],
  [
    "MiniMax: a list of base64",
    "github.com/agentjido/req_llm/pull/919",
    {
      id: "1",
      data: { image_base64: [PNG] },
      metadata: { success_count: "1", failed_count: "0" },
      base_resp: { status_code: 0, status_msg: "success" },
    },
  ],
  [
    "MiniMax: a list of addresses, of data",
    "github.com/agentjido/req_llm/pull/919",
    { data: { image_urls: [`data:image/png;base64,${PNG}`] }, base_resp: { status_code: 0, status_msg: "success" } },
  ],
  [
    "OpenRouter: images of a chat",
    "openrouter.ai/docs/guides/overview/multimodal/image-generation; form constructed",
    {
      choices: [
        {
          message: {
            role: "assistant",
            content: "Here it is.",
            images: [{ type: "image_url", image_url: { url: `data:image/png;base64,${PNG}` } }],
          },
        },
      ],
    },
  ],
  [
    "Gemini: parts, the first is a text",
    "ai.google.dev/gemini-api/docs/image-generation; form constructed",
    {
      candidates: [
        {
          content: { role: "model", parts: [{ text: "Here." }, { inlineData: { mimeType: "image/png", data: PNG } }] },
          finishReason: "STOP",
        },
      ],
    },
  ],
  [
    "DashScope: the content of a message",
    "help.aliyun.com/zh/model-studio/qwen-image-api; form constructed",
    {
      output: {
        choices: [
          {
            finish_reason: "stop",
            message: { role: "assistant", content: [{ image: `data:image/png;base64,${PNG}` }] },
          },
        ],
      },
      usage: { image_count: 1 },
    },
  ],
  [
    "DashScope: results",
    "help.aliyun.com/zh/model-studio/text-to-image-v2-api-reference; form constructed",
    { output: { task_status: "SUCCEEDED", results: [{ orig_prompt: "x", url: `data:image/png;base64,${PNG}` }] } },
  ],
  [
    "Cloudflare: in a result",
    "developers.cloudflare.com/workers-ai/models/flux-1-schnell; form constructed",
    { result: { image: PNG }, success: true },
  ],
  [
    "Baidu: b64_image",
    "cloud.baidu.com/doc/WENXINWORKSHOP/s/Klkqubb9w; form constructed",
    { data: [{ object: "image", b64_image: PNG, index: 0 }] },
  ],
  [
    "Black Forest Labs: a sample",
    "docs.bfl.ai/quick_start/generating_images; form constructed",
    { id: "1", status: "Ready", result: { sample: `data:image/png;base64,${PNG}` } },
  ],
  [
    "Replicate: one text",
    "replicate.com/docs/topics/predictions",
    { status: "succeeded", output: `data:image/png;base64,${PNG}` },
  ],
  [
    "Volcengine: one of two has failed",
    "www.volcengine.com/docs/82379/1541523: data.error; form constructed",
    { data: [{ error: { code: "InternalServiceError", message: "boom" } }, { b64_json: PNG, size: "1024x1024" }] },
  ],
  ["Bare texts", "replicate.com/docs/topics/predictions", { output: [`data:image/png;base64,${PNG}`] }],
];

/** Answers without an image that say why. */
const REFUSED: readonly (readonly [says: string, source: string, answer: object])[] = [
  [
    "Volcengine: the only image is not allowed",
    "www.volcengine.com/docs/82379/1541523: OutputImageSensitiveContentDetected; form constructed",
    { data: [{ error: { code: "OutputImageSensitiveContentDetected", message: "The request failed." } }] },
  ],
  [
    "Vertex AI: a filter has taken it",
    "cloud.google.com/vertex-ai/generative-ai/docs/image/responsible-ai-imagen: raiFilteredReason; form constructed",
    { predictions: [{ raiFilteredReason: "Unable to show generated images. All images were filtered out." }] },
  ],
];

export default [
  ...FORMS.map(
    ([says, source, answer]): Entry => ({
      says,
      source,
      request: { path: "images", body: { response_format: "b64_json" } },
      provider: { json: { created: "1763856000", ...answer } },
      client: { json: { created: 1_763_856_000, data: [{ b64_json: PNG }] } },
      charged: { tokens: [0, 0] },
    }),
  ),
  ...REFUSED.map(
    ([says, source, json]): Entry => ({
      ...{ says, source, request: { path: "images" }, provider: { json } },
      client: { error: "invalid_request" },
      charged: "nothing",
    }),
  ),
] satisfies Entry[];
