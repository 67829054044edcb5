import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { type Mapped, mapPrices, readMarkup } from "../../src/catalog/price_import.ts";
import { type ListedModel, packagedPriceList, parsePriceList } from "../../src/catalog/price_list.ts";
import { checkPrices } from "../../src/catalog/token_prices.ts";
import { InputError } from "../../src/errors.ts";
import { PRICE_TIERS_MAX } from "../../src/limits.ts";
import { holds } from "../property.ts";

/** Price lists, and how their prices become prices of models. Source: IMP-1, IMP-2, IMP-3. */

const DAY = "2026-11-23";
const model = (prices: unknown, over: Record<string, unknown> = {}) => ({
  id: "m",
  match: { equals: "m" },
  prices,
  ...over,
});
const listText = (...models: unknown[]) => JSON.stringify([{ id: "acme", name: "Acme", models }]);

async function listed(prices: unknown, over: Record<string, unknown> = {}): Promise<ListedModel> {
  const list = await parsePriceList(listText(model(prices, over)), "prices.json");
  return list.find("acme", "m") as ListedModel;
}

type Given = { markup?: string; day?: string; name?: string };
async function map(prices: unknown, { markup = "0", day = DAY, ...over }: Given = {}): Promise<Mapped> {
  return mapPrices(await listed(prices, over), { markup: readMarkup(markup), day });
}

/** The error of a list: its sentence and the path of the field. */
async function wrong(text: string): Promise<string> {
  const error = await parsePriceList(text, "prices.json").then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof InputError)) throw new Error(`accepted, or failed otherwise: ${error}`);
  return `${error.param}: ${error.message}`;
}

describe("prices", () => {
  test("every price that a model can have is mapped to its rate, in micro-USD per million tokens", async () => {
    expect(
      await map({
        input_mtok: 3,
        output_mtok: 15,
        cache_read_mtok: 0.3,
        cache_write_mtok: 3.75,
        cache_write_1h_mtok: 6,
        output_reasoning_mtok: 20,
        input_audio_mtok: 32,
        output_audio_mtok: 64,
        input_image_mtok: 5,
        output_image_mtok: 40,
        requests_kcount: 5,
      }),
    ).toEqual({
      prices: {
        tokens: {
          input: 3_000_000,
          output: 15_000_000,
          cached_input: 300_000,
          cache_write: 3_750_000,
          cache_write_1h: 6_000_000,
          reasoning: 20_000_000,
          audio_input: 32_000_000,
          audio_output: 64_000_000,
          image_input: 5_000_000,
          image_output: 40_000_000,
        },
        request: 5_000,
      },
      notes: [],
    });
  });

  test("a price that a model's prices cannot express is named with its amount", async () => {
    expect(
      await map({ input_mtok: 1, output_mtok: 2, web_searches_kcount: 10, cache_audio_read_mtok: 0.4 }),
    ).toMatchObject({
      notes: [
        "Not imported, because models have no such price: web_searches_kcount, $10",
        "Not imported, because models have no such price: cache_audio_read_mtok, $0.4",
      ],
    });
  });

  test("a one-hour cache write without a price of its own costs as much as a cache write, not as plain input", async () => {
    expect(await map({ input_mtok: 3, output_mtok: 15, cache_write_mtok: 3.75 })).toMatchObject({
      prices: { tokens: { cache_write: 3_750_000, cache_write_1h: 3_750_000 } },
    });
  });

  test("a model has at most the tiers that it can be stored with; with more it is not imported, and says why", async () => {
    const tiers = (count: number) => ({
      input_mtok: { base: 1, tiers: Array.from({ length: count }, (_, i) => ({ start: (i + 1) * 1_000, price: 2 })) },
      output_mtok: 3,
    });
    const mapped = await map(tiers(PRICE_TIERS_MAX));
    const { tokens } = "prices" in mapped ? mapped.prices : {};
    expect(tokens?.tiers).toHaveLength(PRICE_TIERS_MAX);
    const { input = 0, output = 0, tiers: stored } = tokens ?? {};
    const columns = { inputMicroUsd: input, cachedInputMicroUsd: null, outputMicroUsd: output };
    expect(checkPrices({ ...columns, further: { tiers: stored } })).toMatchObject(columns);
    expect(await map(tiers(PRICE_TIERS_MAX + 1))).toEqual({ reason: `It has more than ${PRICE_TIERS_MAX} tiers.` });
  });

  test("tiers replace all rates of the request; prices without tiers stay, and tiers with different starts are combined", async () => {
    const tiers = (base: number, ...rest: [start: number, price: number][]) => ({
      base,
      tiers: rest.map(([start, price]) => ({ start, price })),
    });
    expect(
      await map({
        input_mtok: tiers(1.25, [200_000, 2.5]),
        // The order in the list says nothing.
        output_mtok: tiers(10, [500_000, 20], [128_000, 15]),
        cache_read_mtok: 0.125,
      }),
    ).toEqual({
      prices: {
        tokens: {
          ...{ input: 1_250_000, output: 10_000_000, cached_input: 125_000 },
          tiers: [
            { above_input_tokens: 128_000, input: 1_250_000, output: 15_000_000, cached_input: 125_000 },
            { above_input_tokens: 200_000, input: 2_500_000, output: 15_000_000, cached_input: 125_000 },
            { above_input_tokens: 500_000, input: 2_500_000, output: 20_000_000, cached_input: 125_000 },
          ],
        },
      },
      notes: [],
    });
  });

  test("today's prices apply; a later change is announced", async () => {
    const prices = [
      { prices: { input_mtok: 10, output_mtok: 40 } },
      { constraint: { start_date: "2026-06-10" }, prices: { input_mtok: 2, output_mtok: 8 } },
      { constraint: { start_date: "2027-01-01", type: "start_date" }, prices: { input_mtok: 3, output_mtok: 9 } },
    ];
    expect(await map(prices)).toEqual({
      prices: { tokens: { input: 2_000_000, output: 8_000_000 } },
      notes: ["Its prices change on 2027-01-01: import them again then"],
    });
    expect(await map(prices, { day: "2026-06-09" })).toMatchObject({ prices: { tokens: { input: 10_000_000 } } });
    expect(await map(prices, { day: "2026-06-10" })).toMatchObject({ prices: { tokens: { input: 2_000_000 } } });
    expect(await map(prices, { day: "2027-01-01" })).toMatchObject({
      prices: { tokens: { input: 3_000_000 } },
      notes: [],
    });
    expect(await map(prices.slice(2))).toEqual({ reason: "Its prices are not valid yet." });
  });

  test("the comparison says why a model cannot be sold by the token", async () => {
    const peak = { start_time: "00:30:00Z", end_time: "16:30:00Z", type: "time_of_date" };
    const usual = { input_mtok: 1, output_mtok: 2 };
    for (const [prices, reason] of [
      [[{ prices: usual }, { constraint: peak, prices: usual }], "Its prices depend on the time of day."],
      [{ audio_hours: 0.6 }, "It has no price of input tokens. It has: audio_hours."],
      [{}, "It has no price of input tokens. It has: nothing."],
      [{ input_mtok: 1 }, "It has no price of output tokens. It has: input_mtok."],
      [{ input_mtok: 1_000.000001, output_mtok: 1 }, "A price is above $1,000 per million tokens."],
    ] as const)
      expect(await map(prices)).toEqual({ reason });
  });

  test("an embedding model has no price for output", async () => {
    expect(await map({ input_mtok: 0.02 }, { name: "Text Embedding 3" })).toEqual({
      prices: { tokens: { input: 20_000, output: 0 } },
      notes: [],
    });
  });
});

describe("exact arithmetic", () => {
  test("digits that come from a double's rounding are not part of a price", async () => {
    // 0.1 + 0.08: 0.18000000000000002 as a double.
    expect(await map({ input_mtok: 0.1 + 0.08, output_mtok: 1.1 * 3 })).toEqual({
      prices: { tokens: { input: 180_000, output: 3_300_000 } },
      notes: [],
    });
  });

  test("a price is rounded up to whole micro-USD once, after the markup, and the rounding is named", async () => {
    expect(await map({ input_mtok: 0.08333333333333334, output_mtok: 0.0000001 }, { markup: "20" })).toEqual({
      prices: { tokens: { input: 100_000, output: 1 } },
      notes: ["Rounded up to whole micro-USD: input_mtok, output_mtok"],
    });
    // 0.003625 × 1.125 = 0.004078125.
    expect(await map({ input_mtok: 0.003625, output_mtok: 2 }, { markup: "12.5" })).toEqual({
      prices: { tokens: { input: 4_079, output: 2_250_000 } },
      notes: ["Rounded up to whole micro-USD: input_mtok"],
    });
  });

  test("every imported price is the smallest one that is not below price × markup", async () => {
    await holds(
      fc.asyncProperty(fc.nat(900_000_000), fc.nat(100_000), fc.nat(6), async (units, markup, decimals) => {
        const usd = Number(`${units}e-${decimals}`);
        fc.pre(usd * (1 + markup / 10_000) < 999);
        const percent = `${Math.floor(markup / 100)}.${String(markup % 100).padStart(2, "0")}`;
        const mapped = await map({ input_mtok: usd, output_mtok: 0 }, { markup: percent });
        if (!("prices" in mapped)) throw new Error(mapped.reason);
        // Both sides × 10^decimals × 10,000.
        const exact = BigInt(units) * (10_000n + BigInt(markup)) * 1_000_000n;
        const given = BigInt(mapped.prices.tokens?.input ?? -1) * 10n ** BigInt(decimals) * 10_000n;
        expect(given >= exact).toBe(true);
        expect(given - exact < 10n ** BigInt(decimals) * 10_000n).toBe(true);
      }),
    );
  });

  test("a markup is a percentage from 0 to 1,000 with at most two decimals", () => {
    expect(["0", "20", " 12.5 ", "1000", "0.01"].map(readMarkup)).toEqual([0n, 2_000n, 1_250n, 100_000n, 1n]);
    for (const percent of ["", "-1", "1000.01", "1e3", "12,5", "12.345", "NaN", "20%", "0x10"])
      expect(() => readMarkup(percent)).toThrow("A markup is a percentage");
  });
});

describe("a list with one wrong price is refused as a whole, with the path of the field", () => {
  const usual = '{"input_mtok":1,"output_mtok":2}';
  const withPrices = (prices: string) =>
    `[{"id":"acme","name":"Acme","models":[{"id":"m","match":{"equals":"m"},"prices":${prices}}]}]`;
  const tiers = (...starts: number[]) =>
    `{"input_mtok":{"base":1,"tiers":${JSON.stringify(starts.map((start) => ({ start, price: 2 })))}},"output_mtok":2}`;
  const cases: [what: string, text: string, error: string][] = [
    [
      "negative",
      withPrices('{"input_mtok":-1}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok must be a number from 0 to 1,000,000 or an object.",
    ],
    [
      "10^30",
      withPrices('{"input_mtok":1e30}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok must be a number from 0 to 1,000,000 or an object.",
    ],
    [
      "too large for a double",
      withPrices('{"input_mtok":1e400}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok must be a number from 0 to 1,000,000 or an object.",
    ],
    [
      "NaN",
      withPrices('{"input_mtok":NaN}'),
      "null: prices.json is not valid JSON. NaN and Infinity are no numbers in JSON.",
    ],
    [
      "NaN as text",
      withPrices('{"input_mtok":"NaN"}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok must be a number from 0 to 1,000,000 or an object.",
    ],
    [
      "null",
      withPrices('{"input_mtok":null}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok must be a number from 0 to 1,000,000 or an object.",
    ],
    [
      "missing",
      '[{"id":"acme","name":"Acme","models":[{"id":"m","match":{"equals":"m"}}]}]',
      "0.models.0.prices: The field 0.models.0.prices is required.",
    ],
    ["no versions", withPrices("[]"), "0.models.0.prices: "],
    [
      "twice in one object",
      withPrices('{"input_mtok":1,"input_mtok":2}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok occurs twice.",
    ],
    [
      "twice, escaped",
      withPrices('{"input_mtok":1,"input\\u005fmtok":2}'),
      "0.models.0.prices.input_mtok: The field 0.models.0.prices.input_mtok occurs twice.",
    ],
    [
      "a model twice",
      listText(model(JSON.parse(usual)), model(JSON.parse(usual), { id: "M" })),
      '0.models.1.id: The id "M" occurs twice.',
    ],
    [
      "a provider twice",
      `[${[1, 2].map(() => '{"id":"acme","name":"Acme","models":[]}').join()}]`,
      '1.id: The id "acme" occurs twice.',
    ],
    [
      "in euros, by model",
      listText(model(JSON.parse(usual), { currency: "EUR" })),
      "0.models.0.currency: The field 0.models.0.currency must be USD.",
    ],
    [
      "in euros, by provider",
      '[{"id":"acme","name":"Acme","currency":"EUR","models":[]}]',
      "0.currency: The field 0.currency must be USD.",
    ],
    [
      "tiers that overlap",
      withPrices(tiers(200_000, 200_000)),
      "0.models.0.prices.input_mtok.tiers: Two tiers of input_mtok of m begin at the same number of tokens.",
    ],
    [
      "a tier from 0",
      withPrices(tiers(0)),
      "0.models.0.prices.input_mtok.tiers.0.start: The field 0.models.0.prices.input_mtok.tiers.0.start must be a whole number from 1 to 100,000,000.",
    ],
    [
      "a tier from -1",
      withPrices(tiers(-1)),
      "0.models.0.prices.input_mtok.tiers.0.start: The field 0.models.0.prices.input_mtok.tiers.0.start must be a whole number from 1 to 100,000,000.",
    ],
    ["eleven tiers", withPrices(tiers(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)), "0.models.0.prices.input_mtok.tiers: "],
    [
      "a date that is none",
      withPrices(`[{"constraint":{"start_date":"soon"},"prices":${usual}}]`),
      "0.models.0.prices.0.constraint",
    ],
    [
      "a bad expression",
      '[{"id":"acme","name":"Acme","models":[{"id":"m","match":{"or":[{"regex":"("}]},"prices":{}}]}]',
      "0.models.0.match: The regular expression of m is not valid.",
    ],
    ["no list", "{}", "null: A price list must be an array of 1 to 500 elements."],
    ["no JSON", "", "null: prices.json is not valid JSON."],
    [
      "too deep",
      `[${"[".repeat(100)}${"]".repeat(100)}]`,
      "null: The price list has too many values, or is nested too deeply.",
    ],
    ["too large", `[${" ".repeat(4_000_001)}]`, "null: A price list has at most 4 MB."],
  ];
  test.each(cases)("%s", async (_, text, error) => {
    expect(await wrong(text)).toStartWith(error);
  });
});

describe("the installed list", () => {
  test("is valid, also as a file, and says its version", async () => {
    const { source, providers } = await packagedPriceList();
    expect(source).toMatch(/^@pydantic\/genai-prices \d+\.\d+\.\d+$/);
    expect(providers.length).toBeGreaterThan(20);
    // The same text as a file: its duplicates are looked for too.
    const again = await parsePriceList(JSON.stringify(providers), "prices.json");
    expect(again.providers).toEqual(providers);
  });

  test("most models of the large providers can be mapped, and each other one says why", async () => {
    const { providers } = await packagedPriceList();
    const given = { markup: readMarkup("20"), day: DAY };
    for (const id of ["openai", "anthropic", "google", "mistral"]) {
      const models = providers.find((provider) => provider.id === id)?.models ?? [];
      const mapped = models.map((one) => mapPrices(one, given));
      const usable = mapped.filter((one) => "prices" in one).length;
      expect([id, usable > models.length / 2]).toEqual([id, true]);
      for (const one of mapped) if ("reason" in one) expect(one.reason).toMatch(/^[A-Z].*\.$/);
    }
  });

  test("finds a model by its id, an alias and a dated name; of another provider only where the list says so", async () => {
    const list = await packagedPriceList();
    expect(list.find("openai", "gpt-4o-mini")?.id).toBe("gpt-4o-mini");
    expect(list.find("openai", "GPT-4o-mini")?.id).toBe("gpt-4o-mini");
    expect(list.find("openai", "gpt-5-2025-08-07")?.id).toBe("gpt-5");
    expect(list.find("openai", "claude-2")).toBeUndefined();
    expect(list.find("nobody", "gpt-4o-mini")).toBeUndefined();
    // Azure's own list is short; for the rest it names OpenAI.
    expect(list.find("azure", "gpt-4o-mini")?.id).toBe("gpt-4o-mini");
  });
});
