import { afterAll, beforeAll, expect, test } from "bun:test";
import fc from "fast-check";
import {
  adviceOf,
  adviceWords,
  BOUND_PARTS,
  BOUND_USES_DAYS,
  type BoundedModel,
  boundsKey,
} from "../../src/catalog/bound_advice.ts";
import { openBoundUses } from "../../src/catalog/bound_uses.ts";
import { pruneBoundUses, readBoundUses } from "../../src/catalog/bound_uses_store.ts";
import { adviceText, changeText } from "../../src/panel/web/pages/models/bound_texts.ts";
import { createLog } from "../../src/platform/log.ts";
import { holds } from "../property.ts";
import { createWorld, type World } from "../world.ts";

/** What answers used of what was reserved, and the bounds that this suggests. Source: MON-8. */

const MODEL = {
  ...{ id: "one", marginPermille: 1_000, contextLength: null, requestTokens: 640, messageTokens: 16 },
  ...{ imageBaseTokens: 2_833, imageTileTokens: 5_667, imageTilePixels: 512, imageMostTokens: 50_000 },
  fileMostTokens: 1_048_576,
};
const log = createLog("silent");
let world: World;
let db: ReturnType<World["openDb"]>;
beforeAll(async () => {
  world = await createWorld();
  db = world.openDb();
});
afterAll(async () => {
  await db.close();
  await world.close();
});

const promptWith = (over: object) => ({ textTokens: 0, overheadTokens: 0, imageTokens: 0, fileTokens: 0, ...over });
const answer = (over: object, promptTokens: number) => ({
  ...{ prompt: promptWith(over), capTokens: null, used: { promptTokens, completionTokens: 1 } },
});
const usesOf = async (model: typeof MODEL) => (await readBoundUses({ db }, [model])).get(model.id) ?? [];

test("answers are counted by what was mostly reserved for them, over all replicas, under the present bounds only", async () => {
  const [a, b] = [openBoundUses({ db, log }), openBoundUses({ db, log })];
  for (const tokens of [100, 36_835, 20])
    a.note(MODEL, answer({ textTokens: 13, overheadTokens: 656, imageTokens: 50_000 }, tokens));
  b.note(MODEL, answer({ textTokens: 2, overheadTokens: 656, imageTokens: 36_835 }, 40_000));
  b.note(MODEL, answer({ textTokens: 2, overheadTokens: 656 }, 18));
  // Neither is nine tenths of it.
  b.note(MODEL, answer({ textTokens: 9_000, overheadTokens: 656, imageTokens: 8_500 }, 5_000));
  a.note(MODEL, answer({ textTokens: 10, overheadTokens: 656, fileTokens: 1_048_576 }, 2_000));
  // Of an overrun, half is enough.
  a.note({ ...MODEL, imageMostTokens: 1_445 }, answer({ overheadTokens: 656, imageTokens: 1_445 }, 9_000));
  // Its object is another one after each change of the catalog.
  a.note(
    { ...MODEL },
    { ...answer({ textTokens: 100 }, 25), capTokens: 100, used: { promptTokens: 25, completionTokens: 250 } },
  );
  await Promise.all([a.stop(), b.stop()]);
  expect(await usesOf(MODEL)).toEqual([
    { part: "text", requests: 2, overruns: 0, mostPermille: 276 },
    { part: "overhead", requests: 1, overruns: 0, mostPermille: 28 },
    { part: "images", requests: 4, overruns: 1, mostPermille: 1_067 },
    { part: "files", requests: 1, overruns: 0, mostPermille: 2 },
    { part: "output", requests: 1, overruns: 1, mostPermille: 2_500 },
  ]);
  expect(await usesOf({ ...MODEL, imageMostTokens: 1_445 })).toMatchObject([{ part: "images", overruns: 1 }]);
  expect(await usesOf({ ...MODEL, requestTokens: 641 })).toEqual([]);
});

test("uses are read for 30 days, and then deleted", async () => {
  const { sql } = world;
  const old = { ...MODEL, id: "old" };
  for (const days of [0, BOUND_USES_DAYS - 1, BOUND_USES_DAYS, 400])
    await sql`
      insert into bound_uses select 'old', (ledger_now() at time zone 'UTC')::date - ${days}::int, 'images', ${boundsKey(old)}, 10, 0, ${days + 1}`;
  expect(await usesOf(old)).toEqual([{ part: "images", requests: 20, overruns: 0, mostPermille: BOUND_USES_DAYS }]);
  expect(await pruneBoundUses({ db })).toBe(2);
  expect(await usesOf(old)).toMatchObject([{ requests: 20 }]);
});

const use = (
  part: "text" | "overhead" | "images" | "files" | "output",
  requests: number,
  mostPermille: number,
  overruns = 0,
) => ({
  ...{ part, requests, mostPermille, overruns },
});
const changeOf = (...given: Parameters<typeof use>) => adviceOf(MODEL, [use(...given)])[0]?.change;

test("a bound is suggested to be lowered after a thousand requests, and if it is worth it; to be raised after the first overrun", () => {
  expect(changeOf("images", 999, 30)).toEqual({});
  expect(changeOf("images", 1_000, 30)).toEqual({ imageBaseTokens: 106, imageTileTokens: 212, imageMostTokens: 1_870 });
  expect(changeOf("images", 1_000, 700)).toEqual({});
  expect(changeOf("images", 1, 1_500, 1)).toEqual({
    imageBaseTokens: 6_233,
    imageTileTokens: 12_468,
    imageMostTokens: 110_000,
  });
  expect(changeOf("overhead", 2_000, 100)).toEqual({ requestTokens: 79, messageTokens: 2 });
  expect(changeOf("text", 10, 1_200, 1)).toEqual({ marginPermille: 1_320 });
  expect(changeOf("output", 3, 2_500, 3)).toEqual({ marginPermille: 2_750 });
  // The files of a model with a context of 8,192 tokens were never reserved more.
  const short = { ...MODEL, contextLength: 8_192 };
  expect(adviceOf(short, [use("files", 1_000, 100)])[0]?.change).toEqual({ fileMostTokens: 1_010 });
});

test("nothing is suggested to be lowered that prompts of several parts may need, nor while another bound is too low; text and margin never are", () => {
  expect(changeOf("text", 50_000, 300)).toEqual({});
  expect(adviceOf({ ...MODEL, marginPermille: 2_000 }, [use("text", 1_000, 100)])[0]?.change).toEqual({});
  const images = use("images", 1_000, 30);
  const [, beside] = adviceOf(MODEL, [use("text", 1_000, 400), images]);
  expect(beside?.change).toMatchObject({ imageMostTokens: 24_475 });
  expect(adviceOf(MODEL, [use("text", 1_000, 1_400, 1), images])[1]?.change).toEqual({});
});

test("what is said of it, for people", () => {
  const [lower] = adviceOf(MODEL, [use("images", 12_400, 610)]);
  const [raise] = adviceOf(MODEL, [use("images", 50, 1_340, 2)]);
  if (lower === undefined || raise === undefined) throw new Error("each use has an advice");
  expect(adviceWords(lower)).toBe(
    "In 30 days, 12,400 requests that were mostly images used at most 61% of what was reserved.",
  );
  expect(changeText(MODEL, lower)).toBe(
    "Lower: Image, base, 2,833 → 2,113; Image, each tile, 5,667 → 4,227; Image, at most, 50,000 → 37,290.",
  );
  expect(adviceWords(raise)).toBe(
    "In 30 days, 50 requests that were mostly images used at most 134% of what was reserved; 2 used more than that was.",
  );
  expect(changeText(MODEL, raise)).toStartWith("Raise: Image, base, 2,833 → 5,236");
  for (const part of BOUND_PARTS)
    for (const one of [use(part, 50, 1_340, 2), use(part, 12_400, 610)])
      expect([part, adviceText(one)]).toEqual([part, adviceWords(one)]);
});

test("the suggested bounds would have covered every answer that was counted", async () => {
  const request = fc.record({
    ...{ text: fc.nat(3_000), messages: fc.integer({ min: 1, max: 60 }), tiles: fc.array(fc.nat(7), { maxLength: 3 }) },
    ...{ elsewhere: fc.nat(2), share: fc.double({ min: 0.001, max: 2.5, noNaN: true }) },
  });
  const partsIn = (
    model: BoundedModel,
    { text, messages, tiles, elsewhere }: { text: number; messages: number; tiles: number[]; elsewhere: number },
  ) => ({
    textTokens: text,
    overheadTokens: model.requestTokens + messages * model.messageTokens,
    imageTokens: [
      ...tiles.map((n) => Math.min(model.imageMostTokens, model.imageBaseTokens + n * model.imageTileTokens)),
      ...Array.from({ length: elsewhere }, () => model.imageMostTokens),
    ].reduce((sum, n) => sum + n, 0),
    fileTokens: 0,
  });
  const boundIn = (model: BoundedModel, parts: ReturnType<typeof partsIn>) =>
    ((parts.textTokens + parts.overheadTokens + parts.imageTokens) * model.marginPermille) / 1_000;
  let runs = 0;
  await holds(
    fc.asyncProperty(fc.array(request, { minLength: 1, maxLength: 8 }), async (requests) => {
      const model = { ...MODEL, id: `run-${++runs}` };
      const uses = openBoundUses({ db, log });
      const asked = requests.map((one) => {
        const prompt = partsIn(model, one);
        const promptTokens = Math.ceil(boundIn(model, prompt) * one.share);
        // A thousand times, so that a lower bound is suggested too.
        for (let i = 0; i < 1_000; i++)
          uses.note(model, { prompt, capTokens: null, used: { promptTokens, completionTokens: 0 } });
        return { one, promptTokens };
      });
      await uses.stop();
      const advice = adviceOf(model, await usesOf(model));
      // All at once, as somebody does who applies each.
      const changed = Object.assign({ ...model }, ...advice.map(({ change }) => change));
      for (const { one, promptTokens } of asked)
        expect(boundIn(changed, partsIn(changed, one))).toBeGreaterThanOrEqual(promptTokens);
    }),
    { numRuns: 60 },
  );
});
