import { brotliCompressSync, deflateRawSync, deflateSync, gzipSync, zstdCompressSync } from "node:zlib";
import {
  type ClientRequest,
  chunk,
  completion,
  DONE,
  type Entry,
  GOOD_STREAM,
  GOOD_WHOLE,
  type ProviderAnswer,
  STOP,
  STREAMED,
  USAGE_CHUNK,
  WHOLE,
} from "../form.ts";

/** Bodies that are encoded without a header that says so, or with the header of another encoding. Rule: STR-8. */

const UNSAID = "github.com/Han-1413141/dsh-cost-meter/issues/172";
const STRIPPED = "github.com/gadievron/raptor/pull/547";
const LEFT = "github.com/freelensapp/freelens-ai-extension/issues/272";
const CONSTRUCTED = "constructed";

const json = JSON.stringify;
const whole = Buffer.from(json(completion({ content: "good" })));
const events = [chunk({ role: "assistant", content: "" }), chunk({ content: "good" }), STOP, USAGE_CHUNK];
const stream = Buffer.from(events.map((event) => `data: ${json(event)}\n\n`).join("") + DONE);
const refusal = Buffer.from(json({ error: { message: "temperature must be at most 2", param: "temperature" } }));
const CHINESE = Buffer.from(json(completion({ content: "好" })));

type Encode = (bytes: Uint8Array) => Uint8Array;
const zlib: Encode = (bytes) => deflateSync(bytes);
const ENCODINGS: readonly (readonly [name: string, source: string, encode: Encode])[] = [
  ["gzip", UNSAID, (bytes) => gzipSync(bytes)],
  ["zlib", CONSTRUCTED, zlib],
  ["zstd", CONSTRUCTED, (bytes) => zstdCompressSync(bytes)],
  ["Brotli", STRIPPED, (bytes) => brotliCompressSync(bytes)],
];

/** `said`: the header; without it there is none. `end`: without a length the runtimes give out pieces. */
const body = (bytes: Uint8Array, said?: string, end: ProviderAnswer["end"] = "whole"): ProviderAnswer => ({
  headers: said === undefined ? {} : { "content-encoding": said },
  ...{ end, bytes },
});
const reads = { client: { text: "good" }, charged: { tokens: [5, 7] } } as const;
const good = (
  says: string,
  source: string,
  { request = WHOLE, provider }: { request?: ClientRequest; provider: Entry["provider"] },
): Entry => ({ says, source, request, provider, ...reads });

/** A header that says something else than the bytes. */
const WRONG: readonly (readonly [says: string, source: string, said: string, bytes: Uint8Array])[] = [
  [
    "Brotli under the header of gzip",
    "github.com/ChatGPTNextWeb/NextChat/pull/3215",
    "gzip",
    brotliCompressSync(whole),
  ],
  ["gzip under the header of Brotli", "github.com/ChatGPTNextWeb/NextChat/pull/3215", "br", gzipSync(whole)],
  ["zlib under the header of gzip", "github.com/sindresorhus/got/issues/1964", "gzip", zlib(whole)],
  ["zstd under the header of gzip", CONSTRUCTED, "gzip", zstdCompressSync(whole)],
  ["gzip under the header of deflate", CONSTRUCTED, "deflate", gzipSync(whole)],
  ["Bare deflate under its header", CONSTRUCTED, "deflate", deflateRawSync(whole)],
  ["gzip under the header of an encoding that nobody knows", CONSTRUCTED, "utf-8", gzipSync(whole)],
  ["Plain text under the header of gzip", LEFT, "gzip", whole],
  ["Plain text under the header of Brotli", LEFT, "br", whole],
  ["Plain text under the name of a character set", CONSTRUCTED, "UTF-8", whole],
  ["Plain text in Chinese under the header of gzip", CONSTRUCTED, "gzip", CHINESE],
  [
    "gzip once, under the header of gzip twice",
    "github.com/yhirose/cpp-httplib/issues/993",
    "gzip, gzip",
    gzipSync(whole),
  ],
  [
    "gzip twice, under the header of gzip once",
    "github.com/yhirose/cpp-httplib/issues/993",
    "gzip",
    gzipSync(gzipSync(whole)),
  ],
];

export default [
  ...ENCODINGS.flatMap(([name, source, encode]): Entry[] => [
    good(`A whole answer in ${name} without a header`, source, { provider: body(encode(whole)) }),
    good(`A whole answer in ${name} without a header and without a length`, source, {
      provider: body(encode(whole), undefined, "closed"),
    }),
    good(`A stream in ${name} without a header`, source, { request: STREAMED, provider: body(encode(stream)) }),
    good(`A stream in ${name} without a header, in answer to a whole request`, source, {
      provider: body(encode(stream)),
    }),
    {
      says: `A refusal in ${name} without a header`,
      source: "github.com/apache/trafficcontrol/issues/1737; form constructed",
      request: WHOLE,
      provider: { ...body(encode(refusal)), status: 400 },
      client: { error: "invalid_request", message: "temperature must be at most 2", param: "temperature" },
      charged: "nothing",
    },
    good(`Half a stream in ${name} without a header: the next route answers`, source, {
      request: STREAMED,
      provider: [body(encode(stream).subarray(0, 40)), GOOD_STREAM],
    }),
  ]),
  ...WRONG.map(
    ([says, source, said, bytes]): Entry => ({
      ...good(says, source, { provider: body(bytes, said) }),
      ...(bytes === CHINESE && { client: { text: "好" } }),
    }),
  ),
  good("A stream in Brotli under the header of gzip", CONSTRUCTED, {
    request: STREAMED,
    provider: body(brotliCompressSync(stream), "gzip"),
  }),
  good("Bytes that no encoding has: the next route answers", CONSTRUCTED, {
    provider: [body(Buffer.alloc(400, Uint8Array.of(0x1b, 0xff, 0x07, 0xc3))), GOOD_WHOLE],
  }),
  {
    says: "Bytes that no encoding has, and no other route",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: body(Buffer.alloc(400, Uint8Array.of(0x1b, 0xff, 0x07, 0xc3))),
    client: { error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A refusal in bytes that no encoding has: its status is enough",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: { ...body(Buffer.alloc(400, Uint8Array.of(0x1b, 0xff, 0x07, 0xc3))), status: 400 },
    client: { error: "provider_unavailable", unsaid: ["encoding"] },
    charged: "nothing",
  },
  good("gzip whose middle is broken: the next route answers", CONSTRUCTED, {
    provider: [body(Buffer.concat([gzipSync(whole).subarray(0, 60), Buffer.alloc(200, 255)])), GOOD_WHOLE],
  }),
  {
    says: "A bomb in gzip without a header is a failure",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: body(gzipSync(Buffer.alloc(100_000_000, 32))),
    client: { error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "A bomb in Brotli without a header, as a stream, is a failure",
    source: CONSTRUCTED,
    request: STREAMED,
    provider: body(brotliCompressSync(Buffer.alloc(100_000_000, 32))),
    client: { error: "provider_unavailable" },
    charged: "nothing",
  },
  {
    says: "Embeddings in gzip without a header",
    source: UNSAID,
    request: { path: "embeddings", body: { encoding_format: "float" } },
    provider: body(
      gzipSync(json({ data: [{ index: 0, embedding: [0.5, 0.25] }], usage: { prompt_tokens: 5, total_tokens: 5 } })),
    ),
    client: { json: { usage: { prompt_tokens: 5, total_tokens: 5 } } },
    charged: { tokens: [5, 0] },
  },
  {
    says: "A text that begins as zstd does, in parentheses, is a text",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: { status: 400, text: "(temperature) must be at most 2", headers: { "content-type": "text/plain" } },
    client: { error: "invalid_request", message: "must be at most 2" },
    charged: "nothing",
  },
  {
    says: "A refusal in Chinese, without a header, is a text",
    source: CONSTRUCTED,
    request: WHOLE,
    provider: { status: 400, text: "温度最多为 2", headers: { "content-type": "text/plain; charset=utf-8" } },
    client: { error: "invalid_request", message: "温度最多为 2" },
    charged: "nothing",
  },
] satisfies Entry[];
