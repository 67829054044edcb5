import { expect, test } from "bun:test";
import fc from "fast-check";
import { Refusal } from "../../src/errors.ts";
import { NO_ROOM, readBody } from "../../src/http/body.ts";
import { holds } from "../property.ts";

/** Bodies are decoded as strict UTF-8. Other checks of bodies are in bad_input.test.ts. Source: ADM-5. */

const DEPS = { config: { bodyReadMs: 20_000 }, metrics: { timedOut: () => {} }, bodies: { open: () => NO_ROOM } };
const OPTIONS = { bytesMax: 1_000, owner: undefined };
const STRICT = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
/** Bytes at the limits of UTF-8's ranges, and those of a byte order mark and of U+FFFD. */
const EDGES = [
  0x20, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbb, 0xbd, 0xbf, 0xc0, 0xc1, 0xc2, 0xdf, 0xe0, 0xec, 0xed, 0xee,
  0xef, 0xf0, 0xf1, 0xf4, 0xf5, 0xff,
];

/** The same body with a Content-Length, and chunked. */
function requests(bytes: Uint8Array<ArrayBuffer>): Request[] {
  const init = { method: "POST", headers: { "content-type": "application/json" } };
  const declared = { ...init.headers, "content-length": String(bytes.length) };
  const stream = new Blob([bytes]).stream();
  return [
    new Request("http://a.example/", { ...init, headers: declared, body: bytes }),
    new Request("http://a.example/", { ...init, body: stream, duplex: "half" } as RequestInit),
  ];
}

function bodyWith(inside: Uint8Array): Uint8Array<ArrayBuffer> {
  return new Uint8Array(Buffer.concat([Buffer.from('{"a":"'), inside, Buffer.from('"}')]));
}

async function expectStrict(bytes: Uint8Array<ArrayBuffer>): Promise<void> {
  let text: string | undefined;
  try {
    text = STRICT.decode(bytes);
  } catch {
    text = undefined;
  }
  for (const request of requests(bytes)) {
    const read = readBody(DEPS, request, OPTIONS);
    if (text !== undefined) expect((await read).text).toBe(text);
    else {
      const refusal = await read.catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(Refusal);
      expect((refusal as Refusal).message).toBe("The body is not valid UTF-8.");
    }
  }
}

test("a body is decoded as strict UTF-8; invalid bytes are refused", async () => {
  const pieces = fc.array(
    fc.oneof(
      fc.string({ unit: "grapheme" }).map((text) => Buffer.from(JSON.stringify(text).slice(1, -1))),
      fc.constant(Buffer.from("\uFFFD")),
      fc.uint8Array({ min: 0x80, maxLength: 4 }),
      fc.array(fc.constantFrom(...EDGES), { maxLength: 4 }).map((bytes) => Buffer.from(bytes)),
    ),
    { maxLength: 4 },
  );
  await holds(
    fc.asyncProperty(pieces, (parts) => expectStrict(bodyWith(Buffer.concat(parts)))),
    { numRuns: 2_000 },
  );
});

test("invalid bytes are refused even if their replacement has the same length", async () => {
  // A character of four bytes without its last has three bytes, as its replacement character has.
  for (const bytes of [[0xf0, 0x9f, 0x98], [0xff], [0xed, 0xa0, 0x80], [0xc0, 0xaf], [0xe2, 0x82]])
    await expectStrict(bodyWith(Uint8Array.from(bytes)));
});

test("a byte order mark is not JSON; U+FFFD is an ordinary character", async () => {
  const marked = new Uint8Array(Buffer.from('\uFEFF{"a":1}'));
  for (const request of requests(marked))
    await expect(readBody(DEPS, request, OPTIONS)).rejects.toThrow("The body is not valid JSON.");
  await expectStrict(bodyWith(Buffer.from("\uFFFD é 🌙")));
});

test("64 levels of nesting are accepted, 65 are refused", async () => {
  const deep = (levels: number) => `{"a":1,"b":{"c":${"[".repeat(levels - 2)}${"]".repeat(levels - 2)}}}`;
  const read = (text: string) => readBody(DEPS, requests(new Uint8Array(Buffer.from(text)))[0] as Request, OPTIONS);
  expect((await read(deep(64))).text).toBe(deep(64));
  await expect(read(deep(65))).rejects.toThrow("The body is nested deeper than 64 levels.");
  // Brackets in a string do not count.
  await read(`{"a":"${"[{".repeat(100)}\\"${"[".repeat(100)}"}`);
});
