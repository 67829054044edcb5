import { randomUUID } from "node:crypto";
import type { Behaviour } from "./faults.ts";
import { drawPng } from "./png.ts";
import { CHOICES_MAX, ProviderError, readCount, readModel } from "./request.ts";
import { isRecord, numberOr, seedOf } from "./text.ts";

const STORED_MAX = 256;
const DRAWN_MAX = 64;

const IMAGE_SIZES = ["512x512", "1024x1024", "1024x1536", "1536x1024"] as const;

export interface ImageRequest {
  readonly model: string;
  readonly prompt: string;
  readonly size: (typeof IMAGE_SIZES)[number];
  readonly width: number;
  readonly height: number;
  readonly format: "url" | "b64_json";
  readonly count: number;
  readonly stream: boolean;
}

/** Reads an image request. Throws ProviderError 400 with the invalid field. */
export function readImageRequest(body: unknown): ImageRequest {
  if (!isRecord(body)) throw new ProviderError(400, "The body must be a JSON object.");
  const model = readModel(body);
  if (typeof body.prompt !== "string" || body.prompt === "")
    throw new ProviderError(400, "You must provide a prompt.", { param: "prompt" });
  const requestedSize = body.size ?? "auto";
  const size = requestedSize === "auto" ? "1024x1024" : IMAGE_SIZES.find((known) => known === requestedSize);
  if (!size) throw new ProviderError(400, `'size' must be one of ${IMAGE_SIZES.join(", ")}.`, { param: "size" });
  const format = body.response_format ?? "url";
  if (format !== "url" && format !== "b64_json")
    throw new ProviderError(400, "'response_format' must be url or b64_json.", { param: "response_format" });
  const [width, height] = size.split("x").map(Number);
  return {
    model,
    prompt: body.prompt,
    size,
    width: numberOr(width, 0),
    height: numberOr(height, 0),
    format,
    count: Math.min(readCount(body, "n") ?? 1, CHOICES_MAX),
    stream: body.stream === true,
  };
}

/** The events of a streamed image, which replace the images object, as in OpenAI's API. */
export function imageEvents(images: readonly { png: Buffer }[], created: number): string[] {
  return images.map(({ png }) => {
    const event = { type: "image_generation.completed", created_at: created, b64_json: png.toString("base64") };
    return `event: ${event.type}\ndata: ${JSON.stringify(event)}\n\n`;
  });
}

/** The images object, from each image's bytes and URL. */
export function imagesJson(
  request: ImageRequest,
  created: number,
  images: readonly { png: Buffer; url: string }[],
  behaviour: Behaviour = {},
): string {
  const fields = behaviour.imageReturn ?? (request.format === "url" ? "url" : "b64");
  const data = images.map(({ png, url }) => ({
    ...((fields === "url" || fields === "both") && { url: behaviour.imageUrl ?? url }),
    ...((fields === "b64" || fields === "both") && { b64_json: png.toString("base64") }),
    revised_prompt: `A simple landscape: ${request.prompt.slice(0, 200)}`,
  }));
  const inputTokens = Math.ceil(request.prompt.length / 4);
  const outputTokens = images.length * Math.ceil((request.width * request.height) / 1_024);
  return JSON.stringify({
    created,
    data: fields === "empty" ? [] : data,
    output_format: "png",
    quality: "medium",
    // OpenAI's response has no value for 512x512.
    ...(request.size !== "512x512" && { size: request.size }),
    ...(!behaviour.omitUsage && {
      usage: {
        input_tokens: inputTokens,
        output_tokens: outputTokens,
        total_tokens: inputTokens + outputTokens,
        input_tokens_details: { text_tokens: inputTokens, image_tokens: 0 },
        ...behaviour.usage,
      },
    }),
  });
}

/** Images that can be fetched by URL, and a cache of drawn ones. Both are bounded: the least recently used are evicted. */
export class ImageStore {
  readonly #stored = new Map<string, Buffer>();
  readonly #drawn = new Map<string, Buffer>();

  /** The images of a request. The same prompt and size give the same images. */
  draw({ prompt, width, height, count }: ImageRequest): Buffer[] {
    return Array.from({ length: count }, (_, i) => {
      const seed = seedOf(prompt) + i;
      const name = `${seed} ${width} ${height}`;
      const png = recall(this.#drawn, name) ?? drawPng(seed, width, height);
      remember(this.#drawn, name, png, DRAWN_MAX);
      return png;
    });
  }

  /** Stores an image and returns the path that it is served at. */
  store(png: Buffer): string {
    const path = `/images/${randomUUID()}.png`;
    remember(this.#stored, path, png, STORED_MAX);
    return path;
  }

  find(path: string): Buffer | undefined {
    return recall(this.#stored, path);
  }
}

function recall(map: Map<string, Buffer>, name: string): Buffer | undefined {
  const found = map.get(name);
  if (found) remember(map, name, found, Number.POSITIVE_INFINITY);
  return found;
}

function remember(map: Map<string, Buffer>, name: string, png: Buffer, sizeMax: number): void {
  map.delete(name); // A Map keeps insertion order, so its first key is the least recently used.
  map.set(name, png);
  const oldest = map.keys().next().value;
  if (map.size > sizeMax && oldest !== undefined) map.delete(oldest);
}
