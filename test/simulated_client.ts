import { expect } from "bun:test";
import { readFileSync } from "node:fs";
import { request } from "node:http";
import { connect } from "node:net";
import { join } from "node:path";
import { crc32, inflateSync } from "node:zlib";
import Ajv, { type ValidateFunction } from "ajv/dist/2020.js";
import addFormats from "ajv-formats";
import type { FakeProvider } from "./fake_provider.ts";
import { until } from "./platform/own_redis.ts";

const SCHEMA_FILE = join(import.meta.dir, "openai_objects.schema.json");

/** A chat request like any other. */
export const HELLO = { model: "sim-small", messages: [{ role: "user", content: "Say hello to Anna" }] };

/** The fields of answers that the tests look at. */
export interface Body {
  id: string;
  model: string;
  object: string;
  created: number;
  choices: {
    index: number;
    finish_reason: string | null;
    message: Message;
    delta: Message;
  }[];
  usage?: {
    prompt_tokens: number;
    completion_tokens: number;
    total_tokens: number;
    prompt_tokens_details: { cached_tokens: number };
  } | null;
  error?: { message: string; type: string; code: string | null; param: string | null };
  data: { id: string; url?: string; b64_json?: string; outcome: string; body: string }[];
}
export interface Message {
  role?: string;
  content?: string | null;
  reasoning_content?: string;
  tool_calls?: { id: string; function: { name: string; arguments: string } }[];
}

export function send(
  to: FakeProvider,
  path: string,
  body: unknown,
  headers: Record<string, string> = {},
  signal?: AbortSignal,
) {
  return fetch(to.url + path, {
    method: "POST",
    headers: { authorization: `Bearer ${to.apiKey}`, "content-type": "application/json", ...headers },
    body: typeof body === "string" ? body : JSON.stringify(body),
    redirect: "manual",
    signal: signal ?? null,
  });
}

export async function post(to: FakeProvider, path: string, body: unknown): Promise<Body> {
  return (await (await send(to, path, body)).json()) as Body;
}

export async function get(to: FakeProvider, path: string): Promise<Body> {
  const response = await fetch(to.url + path, { headers: { authorization: `Bearer ${to.apiKey}` } });
  return (await response.json()) as Body;
}

export async function stream(to: FakeProvider, body: object): Promise<Body[]> {
  return eventsOf(await (await send(to, "/v1/chat/completions", { ...body, stream: true })).text());
}

/** The JSON events of a stream's text, `[DONE]` left out. */
export function eventsOf(text: string): Body[] {
  const data = text.split(/\r?\n/).filter((line) => line.startsWith("data: ") && line !== "data: [DONE]");
  return data.map((line) => JSON.parse(line.slice(6)) as Body);
}

export function contentOf(answer: Body): string {
  return answer.choices[0]?.message.content ?? "";
}

type SetTimer = { ms: number; run: () => void };

/** Timers for a provider that run when a test says so. */
export function handTimers() {
  const set: SetTimer[] = [];
  return {
    later(run: () => void, ms: number): () => void {
      const timer = { ms, run };
      set.push(timer);
      return () => {
        if (set.includes(timer)) set.splice(set.indexOf(timer), 1);
      };
    },
    /** The next timer that is set. Its `run` lets its time elapse. */
    async next(): Promise<SetTimer> {
      await until(() => set.length > 0);
      return set.shift() as SetTimer;
    },
    left: () => set.length,
  };
}

/** A request that is sent now has been answered: whatever the provider would do without waiting is done. */
export async function roundTrips(to: FakeProvider, times = 3): Promise<void> {
  for (let i = 0; i < times; i++) await (await fetch(`${to.url}/__journal`)).text();
}

/** When the caller leaves: some round trips after `got`, the bytes so far, are so. */
type Leaving = { leaveWhen?: (got: string) => boolean; paused?: boolean };

/** A chat call over a bare socket, so that the exact bytes are seen. `whole`: the answer ended properly. */
export function rawPost(to: FakeProvider, body: unknown, { leaveWhen, paused = false }: Leaving = {}) {
  return new Promise<{ head: string; status: number; body: string; writes: number; whole: boolean }>((resolve) => {
    const text = JSON.stringify(body);
    const parts: Buffer[] = [];
    const socket = connect(to.port, "127.0.0.1", () => {
      const head = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: test",
        `Authorization: Bearer ${to.apiKey}`,
        `Content-Length: ${Buffer.byteLength(text)}`,
        "Connection: close",
      ];
      socket.write(`${head.join("\r\n")}\r\n\r\n${text}`);
      if (paused) socket.pause();
    });
    const leave = async () => {
      await until(() => socket.destroyed || (leaveWhen?.(Buffer.concat(parts).toString()) ?? false));
      await roundTrips(to);
      socket.destroy();
    };
    if (leaveWhen) leave().catch((error: Error) => socket.destroy(error));
    socket.on("data", (part: Buffer) => parts.push(part));
    socket.on("error", () => {});
    socket.on("close", () => {
      const all = Buffer.concat(parts);
      const end = all.indexOf("\r\n\r\n");
      const head = end < 0 ? "" : all.subarray(0, end).toString();
      const rest = end < 0 ? Buffer.alloc(0) : all.subarray(end + 4);
      const length = /content-length: (\d+)/i.exec(head)?.[1];
      const chunks =
        length === undefined ? unchunk(rest) : { bytes: rest, count: 1, whole: rest.length === Number(length) };
      resolve({
        head,
        status: Number(head.split(" ")[1] ?? 0),
        body: chunks.bytes.toString(),
        writes: chunks.count,
        whole: chunks.whole,
      });
    });
  });
}

/** Takes the chunked transfer coding apart. `count` is the number of chunks: the writes of the server. */
function unchunk(rest: Buffer): { bytes: Buffer; count: number; whole: boolean } {
  const parts: Buffer[] = [];
  for (let at = 0; ; ) {
    const lineEnd = rest.indexOf("\r\n", at);
    if (lineEnd < 0) return { bytes: Buffer.concat(parts), count: parts.length, whole: false };
    const size = Number.parseInt(rest.subarray(at, lineEnd).toString(), 16);
    if (size === 0) return { bytes: Buffer.concat(parts), count: parts.length, whole: true };
    parts.push(rest.subarray(lineEnd + 2, lineEnd + 2 + size));
    at = lineEnd + 2 + size + 2;
  }
}

/** The body as it is on the wire, before any content coding is undone. */
export function rawBytes(to: FakeProvider, body: unknown): Promise<{ bytes: Buffer; encoding: string | undefined }> {
  return new Promise((resolve, reject) => {
    const headers = { authorization: `Bearer ${to.apiKey}` };
    const call = request(`${to.baseUrl}/chat/completions`, { method: "POST", headers }, (response) => {
      const parts: Buffer[] = [];
      response.on("data", (part: Buffer) => parts.push(part));
      response.on("end", () =>
        resolve({ bytes: Buffer.concat(parts), encoding: response.headers["content-encoding"] }),
      );
      response.on("error", reject);
    });
    call.on("error", reject);
    call.end(JSON.stringify(body));
  });
}

export function expectPng(png: Buffer, width: number, height: number): void {
  expect(png.subarray(0, 8).toString("latin1")).toBe("\x89PNG\r\n\x1a\n");
  expect(png.subarray(12, 16).toString()).toBe("IHDR");
  expect([png.readUInt32BE(16), png.readUInt32BE(20)]).toEqual([width, height]);
  const packed: Buffer[] = [];
  const types: string[] = [];
  for (let at = 8; at < png.length; ) {
    const length = png.readUInt32BE(at);
    const type = png.subarray(at + 4, at + 8).toString();
    const sum = png.readUInt32BE(at + 8 + length);
    expect(crc32(png.subarray(at + 4, at + 8 + length))).toBe(sum);
    if (type === "IDAT") packed.push(png.subarray(at + 8, at + 8 + length));
    types.push(type);
    at += length + 12;
  }
  expect(types).toEqual(["IHDR", "PLTE", "IDAT", "IEND"]);
  const rows = inflateSync(Buffer.concat(packed));
  expect(rows).toHaveLength((width + 1) * height);
  expect(new Set(rows).size).toBeGreaterThan(50);
}

/** Checks values against the objects that OpenAI has published. */
export function openaiSchema(): (root: string, value: unknown) => void {
  const schema = JSON.parse(readFileSync(SCHEMA_FILE, "utf8")) as { $id: string; roots: Record<string, string> };
  const { roots, ...document } = schema;
  const ajv = new Ajv({ strict: false });
  addFormats(ajv);
  ajv.addSchema(document);
  return (root, value) => {
    const validate = ajv.getSchema(`${schema.$id}${roots[root]}`) as ValidateFunction;
    if (!validate(value))
      throw new Error(`${root}: ${ajv.errorsText(validate.errors)}: ${JSON.stringify(value).slice(0, 500)}`);
  };
}
