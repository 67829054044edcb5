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
  ["Bare texts", "replicate.com/docs/topics/predictions", { output: [`data:image/png;base64,${PNG}`] }],
];

export default FORMS.map(
  ([says, source, answer]): Entry => ({
    says,
    source,
    request: { path: "images", body: { response_format: "b64_json" } },
    provider: { json: { created: "1763856000", ...answer } },
    client: { json: { created: 1_763_856_000, data: [{ b64_json: PNG }] } },
    charged: { tokens: [0, 0] },
  }),
) satisfies Entry[];
