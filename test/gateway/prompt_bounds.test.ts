import { expect, test } from "bun:test";
import { getTableColumns } from "drizzle-orm";
import fc from "fast-check";
import { byBound, MODEL_BOUNDS } from "../../src/catalog/model_bounds.ts";
import { tokenPricesOf } from "../../src/catalog/rates.ts";
import { imageTokensOf, type PromptBounds } from "../../src/gateway/media_tokens.ts";
import { promptOf } from "../../src/gateway/prompt.ts";
import type { ChatBody } from "../../src/gateway/request_shapes.ts";
import { bodyOf, NO_ROOM } from "../../src/http/body.ts";
import { chatBound, chatCharge } from "../../src/ledger/price.ts";
import { models } from "../../src/platform/schema_catalog.ts";
import { holds } from "../property.ts";
import { pngUrl } from "./image_urls.ts";

/** What is reserved covers what providers publish that they count, from the first request. Source: MON-2, MON-3, MON-8. */
const RUNS = 3_000;

type Size = { width: number; height: number };
const scaledBy = ({ width, height }: Size, factor: number): Size => ({
  width: width * factor,
  height: height * factor,
});
/** Never enlarged. */
const fitted = (size: Size, longest: number) =>
  scaledBy(size, Math.min(1, longest / Math.max(size.width, size.height)));
const squares = ({ width, height }: Size, side: number) => Math.ceil(width / side) * Math.ceil(height / side);

/** As OpenAI publishes it for models that count tiles of 512 pixels. */
const byTiles = (base: number, tile: number) => (size: Size) => {
  const within = fitted(size, 2_048);
  const scaled = scaledBy(within, Math.min(1, 768 / Math.min(within.width, within.height)));
  return base + tile * squares(scaled, 512);
};
/** The same for models that count patches of 32 pixels. */
const byPatches = (patchesMax: number, factor: number) => (size: Size) =>
  Math.ceil(Math.min(patchesMax, squares(size, 32)) * factor);

/** Published ways to count an image, and the settings of a model that cover each as closely as they can; null: the defaults do. */
const FORMULAS: Record<string, { of: (size: Size) => number; settings: Partial<PromptBounds> | null }> = {
  "gpt-4o": {
    of: byTiles(85, 170),
    settings: { imageBaseTokens: 85, imageTileTokens: 170, imageMostTokens: 1_445 },
  },
  "gpt-4o-mini": { of: byTiles(2_833, 5_667), settings: null },
  "gpt-5": { of: byTiles(70, 140), settings: { imageBaseTokens: 70, imageTileTokens: 140, imageMostTokens: 1_190 } },
  o1: { of: byTiles(75, 150), settings: { imageBaseTokens: 75, imageTileTokens: 150, imageMostTokens: 1_275 } },
  "gpt-4.1-mini": {
    of: byPatches(1_536, 1.62),
    settings: { imageBaseTokens: 0, imageTileTokens: 2, imageTilePixels: 32, imageMostTokens: 2_489 },
  },
  "gpt-4.1-nano": {
    of: byPatches(1_536, 2.46),
    settings: { imageBaseTokens: 0, imageTileTokens: 3, imageTilePixels: 32, imageMostTokens: 3_779 },
  },
  "patches at full size": { of: byPatches(10_000, 1.2), settings: null },
  claude: {
    of: (size) => Math.min(1_600, Math.ceil((size.width * size.height) / 750)),
    settings: { imageBaseTokens: 0, imageTileTokens: 350, imageMostTokens: 1_600 },
  },
  gemini: {
    of: (size) => {
      if (size.width <= 384 && size.height <= 384) return 258;
      const side = Math.min(768, Math.max(256, Math.floor(Math.min(size.width, size.height) / 1.5)));
      return Math.min(16, squares(size, side)) * 258;
    },
    settings: null,
  },
  "gemini, high resolution": { of: () => 2_240, settings: null },
  "qwen-vl": { of: (size) => Math.min(16_384, Math.max(4, squares(size, 28)) + 2), settings: null },
  pixtral: {
    of: (size) => {
      const within = fitted(size, 1_024);
      const rows = Math.ceil(within.height / 16);
      return Math.ceil(within.width / 16) * rows + rows;
    },
    settings: null,
  },
};
/** The largest published number of tokens that a provider adds to a request, and to a message. */
const ADDED = { request: 530, message: 14 };

const columns = getTableColumns(models);
const DEFAULTS: PromptBounds = { ...byBound((name) => Number(columns[name].default)), contextLength: null };
const PRICES = tokenPricesOf({ input: 150_000, output: 600_000, image_input: 400_000 });

const side = fc.oneof(fc.integer({ min: 1, max: 4_096 }), fc.integer({ min: 1, max: 60_000 }));
const sizes = fc.record({ width: side, height: side });

test("every default is within its range", () => {
  for (const [name, { min, max }] of Object.entries(MODEL_BOUNDS)) {
    const value = DEFAULTS[name as keyof typeof MODEL_BOUNDS];
    expect([name, value >= min && value <= max]).toEqual([name, true]);
  }
});

test("gpt-4o-mini: 36,835 tokens for an image of six tiles, and 48,169 for the largest, are covered by the defaults", () => {
  const { of } = FORMULAS["gpt-4o-mini"] ?? { of: () => 0 };
  expect([
    of({ width: 1_000, height: 768 }),
    of({ width: 1_536, height: 768 }),
    of({ width: 2_048, height: 768 }),
  ]).toEqual([25_501, 36_835, 48_169]);
  expect(imageTokensOf(pngUrl(1_536, 768), DEFAULTS)).toBe(36_835);
  expect(imageTokensOf(pngUrl(8_000, 6_000), DEFAULTS)).toBeGreaterThanOrEqual(48_169);
  expect(imageTokensOf(undefined, DEFAULTS)).toBeGreaterThanOrEqual(48_169);
  // A small one does not cost the most.
  expect(imageTokensOf(pngUrl(64, 64), DEFAULTS)).toBe(8_500);
});

for (const [name, { of, settings }] of Object.entries(FORMULAS))
  test(`${name}: the charge of any answer that is counted so is within the reserved amount, with the defaults${settings ? " and with settings as close as they can be" : ""}`, () => {
    const image = fc.record({
      size: sizes,
      detail: fc.constantFrom("low", "high", "auto", undefined),
      isElsewhere: fc.boolean(),
    });
    const text = fc.oneof(fc.string(), fc.string({ unit: "binary" }), fc.constant("x ".repeat(2_000)));
    const messages = fc.array(fc.record({ text, images: fc.array(image, { maxLength: 4 }) }), {
      minLength: 1,
      maxLength: 4,
    });
    const cap = fc.integer({ min: 1, max: 2_000 });
    holds(
      fc.property(messages, cap, fc.nat(100), (asked, capTokens, cachedPart) => {
        const content = asked.map(({ text, images }) => [
          { type: "text", text },
          ...images.map(({ size, detail, isElsewhere }) => ({
            type: "image_url",
            image_url: { url: isElsewhere ? "https://a.test/" : pngUrl(size.width, size.height), detail },
          })),
        ]);
        const value = { model: "m", messages: content.map((parts) => ({ role: "user", content: parts })) };
        const raw = bodyOf(JSON.stringify(value), NO_ROOM);
        // The densest text that there is: each byte is a token.
        const textTokens = asked.reduce((sum, { text }) => sum + Buffer.byteLength(text), 0);
        const imageTokens = asked.flatMap(({ images }) => images).reduce((sum, { size }) => sum + of(size), 0);
        const promptTokens = ADDED.request + asked.length * ADDED.message + textTokens + imageTokens;
        const counts = {
          ...{
            promptTokens,
            completionTokens: capTokens,
            cachedTokens: Math.floor((promptTokens * cachedPart) / 1_000),
          },
          further: imageTokens === 0 ? undefined : { image_input: imageTokens },
        };
        for (const model of settings === null ? [DEFAULTS] : [DEFAULTS, { ...DEFAULTS, ...settings }]) {
          const { tokens, hasMedia } = promptOf(value as ChatBody, { raw, model });
          const bound = chatBound(PRICES, { promptTokens: tokens, choices: 1, hasMedia }, 1_000);
          const heldNano = (bound.promptPico + BigInt(capTokens) * bound.outputPico) / 1_000n;
          expect(chatCharge(PRICES, counts)).toBeLessThanOrEqual(heldNano + 1n);
        }
      }),
      { numRuns: RUNS },
    );
  });

test("the settings scale: an image counts its base and each tile that is begun, up to the most", () => {
  const model = { ...DEFAULTS, imageBaseTokens: 10, imageTileTokens: 3, imageTilePixels: 100, imageMostTokens: 50 };
  const of = (width: number, height: number) => imageTokensOf(pngUrl(width, height), model);
  expect([of(1, 1), of(100, 100), of(101, 100), of(101, 101), of(1_000, 1_000)]).toEqual([13, 13, 16, 22, 50]);
});
