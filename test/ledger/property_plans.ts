import fc from "fast-check";
import { END_REASONS } from "../../src/ledger/ledger_store.ts";

/** Random sequences of commands for properties.test.ts, and the counter-examples that were found. */

const COMMANDS_MAX = 60;
/** The most that each replica draws ahead, and its share of what is left. */
export const REPLICAS = [
  { unitsMax: 256, share: 1 },
  { unitsMax: 4, share: 2 },
  { unitsMax: 0, share: 8 },
];
export const MODELS = ["model-a", "model-b"] as const;
/** Zones whose clocks change by an hour, by half an hour, at midnight or over midnight, and zones whose clocks never change. */
const ZONES = [
  "UTC",
  "Europe/Berlin",
  "America/Havana",
  "Atlantic/Azores",
  "America/Santiago",
  "Africa/Cairo",
  "Asia/Beirut",
  "Asia/Kathmandu",
  "Australia/Lord_Howe",
  "America/Nuuk",
];
/** A day or two before some of them change. */
const STARTS = ["2026-03-27", "2026-04-03", "2026-04-23", "2026-06-15", "2026-09-04", "2026-10-23", "2026-10-30"];
/** Output and prompt, pico-USD; the first has no price, the last costs more than any balance. */
export const PRICES: [bigint, bigint][] = [
  [-1n, 0n],
  [0n, 250_000n],
  [500n, 1n],
  [1000n, 0n],
  [1333n, 333_333n],
  [1000n, 9_000_000_000_000_000_000n],
];

const ENABLED = ["enabled", "enabled", "enabled"] as const;
const ACTIVE = [true, true, true, true];

// What a run begins with.

const offering = fc
  .record({
    days: fc.integer({ min: 1, max: 4 }),
    dailyLimit: fc.oneof(fc.integer({ min: 1, max: 4 }), fc.integer({ min: 5, max: 40 })),
    totalShare: fc.constantFrom(1, 1, 0.6, 0.3),
    carryover: fc.boolean(),
    tokenLimit: fc.option(fc.integer({ min: 40, max: 400 }), { freq: 2 }),
    modelIds: fc.constantFrom<string[] | null>(null, null, ["model-a"]),
    timeZone: fc.constantFrom(...ZONES),
    wholesaleNanoUsd: fc.bigInt({ min: 0n, max: 800n }),
  })
  .map(({ totalShare, ...spec }) => ({
    ...spec,
    totalLimit: Math.max(1, Math.floor(spec.dailyLimit * spec.days * totalShare)),
  }));

export const key = fc.record({
  unitsMax: fc.option(fc.integer({ min: 1, max: 6 }), { freq: 1 }),
  nanoUsdMax: fc.option(fc.bigInt({ min: 300n, max: 5000n }), { freq: 1 }),
  timeZone: fc.constantFrom(...ZONES),
  modelIds: fc.constantFrom<string[] | null>(null, null, null, null, null, ["model-a"]),
});

const person = fc.record({
  paygEnabled: fc.boolean(),
  nanoUsd: fc.constantFrom<bigint>(0n, 700n, 3000n, 20_000n),
  package: fc.option(fc.nat(2), { freq: 8 }),
  packageKey: key,
  paygKey: key,
});

const setup = fc.record({
  start: fc.constantFrom(...STARTS),
  startMinute: fc.nat(2 * 24 * 60),
  offerings: fc.tuple(offering, offering, offering),
  /** A reseller, its customer, and a customer without a reseller. */
  people: fc.tuple(person, person, person),
});

// The commands.

const who = fc.nat(2);
const replica = fc.nat(REPLICAS.length - 1);
/** The sender of a batch, and its fate: the answer arrives, is lost, or the batch runs later, when no request waits for it. */
const at = {
  replica,
  fate: fc.oneof(
    { weight: 8, arbitrary: fc.constant("answered" as const) },
    { weight: 1, arbitrary: fc.constant("lost" as const) },
    { weight: 1, arbitrary: fc.constant("late" as const) },
  ),
};
const request = fc.record({
  who,
  byBalance: fc.boolean(),
  model: fc.constantFrom(0, 0, 0, 1),
  price: fc.constantFrom(0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 5),
  capMax: fc.integer({ min: 1, max: 1500 }),
  leastPercent: fc.constantFrom(100, 20, 0),
  promptTokens: fc.integer({ min: 1, max: 200 }),
  choices: fc.constantFrom(0, 0, 1, 2),
});
export type Charge = "none" | "half" | "exact" | "one_more" | "much_more";
const end = fc.record({
  /** The granted request, counted from the last. */
  pick: fc.nat(12),
  of: fc.constantFrom("living" as const, "living" as const, "living" as const, "reaped" as const, "all" as const),
  settles: fc.constantFrom(true, true, true, false),
  charge: fc.constantFrom<Charge>("none", "half", "exact", "one_more", "much_more"),
  promptTokens: fc.nat(150),
  completionTokens: fc.nat(150),
  strict: fc.boolean(),
  reason: fc.constantFrom(...END_REASONS),
});
const command = fc.oneof(
  {
    weight: 10,
    arbitrary: fc.record({
      do: fc.constant("batch" as const),
      reserves: fc.array(request, { maxLength: 5 }),
      ends: fc.array(end, { maxLength: 4 }),
      /** Every end occurs twice in the batch. */
      twice: fc.constantFrom(false, false, false, true),
      wait: fc.boolean(),
      skewMinutes: fc.oneof({ weight: 30, arbitrary: fc.constant(0) }, fc.constantFrom(-61, -59, 59, 61)),
      ...at,
    }),
  },
  { weight: 8, arbitrary: fc.record({ do: fc.constant("reserve" as const), request, ...at }) },
  {
    weight: 8,
    // One after the other: from the third on, units or money are drawn ahead.
    arbitrary: fc.record({ do: fc.constant("burst" as const), request, count: fc.integer({ min: 3, max: 8 }), ...at }),
  },
  { weight: 6, arbitrary: fc.record({ do: fc.constant("end" as const), end, ...at }) },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("draw" as const), who, ...at }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("recall" as const), who, ...at }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("run_late" as const), pick: fc.nat(3) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("die" as const), replica }) },
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("clock" as const),
      to: fc.constantFrom("minutes" as const, "midnight" as const, "package_end" as const, "moments" as const),
      who,
      n: fc.integer({ min: 1, max: 2000 }),
      /** A millisecond before the moment, at it, or behind it. */
      byMs: fc.constantFrom(-1, 0, 0, 1),
    }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("reaper" as const) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      do: fc.constant("money" as const),
      who,
      nanoUsd: fc.oneof(fc.bigInt({ min: 1n, max: 3000n }), fc.bigInt({ min: -3000n, max: -1n })),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("transfer" as const),
      who,
      to: who,
      nanoUsd: fc.bigInt({ min: 1n, max: 3000n }),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("payg" as const), who, enabled: fc.boolean() }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constant("assign" as const),
      who,
      offering: fc.nat(2),
      when: fc.constantFrom("now" as const, "after" as const),
      paid: fc.constantFrom("operator" as const, "balance" as const, "allotment" as const),
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("end_package" as const), pick: fc.nat(6) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("key" as const),
      who,
      byBalance: fc.boolean(),
      status: fc.constantFrom<"enabled" | "disabled" | "revoked">(...ENABLED, ...ENABLED, "disabled", "revoked"),
      unitsMax: fc.option(fc.integer({ min: 1, max: 6 })),
      nanoUsdMax: fc.option(fc.bigInt({ min: 300n, max: 5000n })),
    }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ do: fc.constant("account" as const), who, active: fc.constantFrom(...ACTIVE, false) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({
      do: fc.constant("allotment" as const),
      offering: fc.nat(2),
      pieces: fc.integer({ min: 1, max: 3 }),
    }),
  },
);

export const plan = fc.record({
  setup,
  commands: fc.array(command, { minLength: 1, maxLength: COMMANDS_MAX, size: "max" }),
});
export type Plan = { setup: Setup; commands: Command[] };
export type Setup = typeof setup extends fc.Arbitrary<infer T> ? T : never;
export type Command = typeof command extends fc.Arbitrary<infer T> ? T : never;
export type RequestPlan = typeof request extends fc.Arbitrary<infer T> ? T : never;
export type EndPlan = typeof end extends fc.Arbitrary<infer T> ? T : never;

// Counter-examples that were found, reduced by hand.

const PLAIN_KEY = { unitsMax: null, nanoUsdMax: null, timeZone: "UTC", modelIds: null };
const PLAIN_PERSON = { paygEnabled: false, nanoUsd: 0n, package: null, packageKey: PLAIN_KEY, paygKey: PLAIN_KEY };
const PAYING: Setup["people"][number] = { ...PLAIN_PERSON, paygEnabled: true, nanoUsd: 3000n };
const WITH_PACKAGE: Setup["people"][number] = { ...PLAIN_PERSON, package: 0 };
const PLAIN_OFFERING: Setup["offerings"][number] = {
  days: 2,
  dailyLimit: 4,
  totalLimit: 8,
  carryover: false,
  tokenLimit: null,
  modelIds: null,
  timeZone: "UTC",
  wholesaleNanoUsd: 0n,
};
/** Costs 1,000 nano-USD if the balance pays. */
const REQUEST: RequestPlan = {
  who: 0,
  byBalance: false,
  model: 0,
  price: 3,
  capMax: 1000,
  leastPercent: 100,
  promptTokens: 10,
  choices: 0,
};
const END: EndPlan = {
  pick: 0,
  of: "living",
  settles: true,
  charge: "exact",
  promptTokens: 75,
  completionTokens: 75,
  strict: false,
  reason: "complete",
};
const BATCH: Command & { do: "batch" } = {
  do: "batch",
  reserves: [],
  ends: [],
  twice: false,
  wait: false,
  skewMinutes: 0,
  replica: 2,
  fate: "answered",
};
const AT = { replica: 2, fate: "answered" } as const;
const LEASES_END: Command[] = [{ do: "die", replica: 2 }, { do: "reaper" }];

type Beginning = { start?: string; startMinute?: number; person: Setup["people"][number] };

function begins(
  { start = "2026-06-15", startMinute = 720, person }: Beginning,
  offering: Partial<Setup["offerings"][number]> = {},
): Setup {
  const offerings: Setup["offerings"] = [{ ...PLAIN_OFFERING, ...offering }, PLAIN_OFFERING, PLAIN_OFFERING];
  return { start, startMinute, offerings, people: [person, PLAIN_PERSON, PLAIN_PERSON] };
}

export const FOUND: [Plan][] = [
  // A settlement of a reaped hold was in one batch twice, and was charged twice.
  [
    {
      setup: begins({ person: PAYING }),
      commands: [
        { do: "reserve", request: { ...REQUEST, byBalance: true }, ...AT },
        ...LEASES_END,
        { ...BATCH, ends: [{ ...END, of: "reaped" }], twice: true },
      ],
    },
  ],
  // An answer refused for its overrun returned its hold too late for the next overrun of the batch: an unnecessary loss.
  [
    {
      setup: begins({ person: PAYING }),
      commands: [
        { ...BATCH, reserves: [REQUEST, REQUEST].map((one) => ({ ...one, byBalance: true })) },
        { ...BATCH, ends: [0, 1].map((pick) => ({ ...END, pick, charge: "much_more" as const, strict: pick === 0 })) },
      ],
    },
  ],
  // Tokens of one package's answer beyond its hold were subtracted from the account's other package.
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { tokenLimit: 200 }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        { do: "assign", who: 0, offering: 0, when: "now", paid: "operator" },
        { do: "reserve", request: REQUEST, ...AT },
        { ...BATCH, ends: [END, { ...END, pick: 1 }] },
      ],
    },
  ],
  // Clocks that are set back over midnight: the reset of a key's day and of a package's day was an hour late.
  [
    {
      setup: begins({
        ...{ start: "2026-10-23", startMinute: 1440 },
        person: { ...PAYING, paygKey: { ...PLAIN_KEY, nanoUsdMax: 300n, timeZone: "Atlantic/Azores" } },
      }),
      commands: [{ do: "reserve", request: { ...REQUEST, byBalance: true }, ...AT }],
    },
  ],
  [
    {
      setup: begins(
        { start: "2026-10-30", startMinute: 2160, person: WITH_PACKAGE },
        { dailyLimit: 1, timeZone: "America/Havana" },
      ),
      commands: [{ ...BATCH, reserves: [REQUEST, REQUEST] }],
    },
  ],
  // A reset was announced that adds nothing, because the tokens are used up too.
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { dailyLimit: 1, tokenLimit: 100 }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        { do: "end", end: END, ...AT },
        { do: "reserve", request: REQUEST, ...AT },
      ],
    },
  ],
  // A mistake of the model: a late settlement takes what other ends of its batch return.
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { dailyLimit: 1 }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        ...LEASES_END,
        { do: "reserve", request: REQUEST, ...AT },
        {
          ...BATCH,
          ends: [
            { ...END, of: "reaped" },
            { ...END, settles: false },
          ],
        },
      ],
    },
  ],
  // A mistake of the model: a late settlement waits for money, or for a unit, that is idle in a replica.
  [
    {
      setup: begins({ person: PAYING }),
      commands: [
        { do: "reserve", request: { ...REQUEST, byBalance: true }, ...AT },
        ...LEASES_END,
        { do: "burst", request: { ...REQUEST, byBalance: true, capMax: 500 }, count: 3, ...AT, replica: 0 },
        { do: "end", end: { ...END, of: "reaped", charge: "much_more" }, ...AT },
      ],
    },
  ],
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { dailyLimit: 20, totalLimit: 20 }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        ...LEASES_END,
        ...[8, 8, 3].map((count) => ({ do: "burst" as const, request: REQUEST, count, ...AT, replica: 0 })),
        { do: "end", end: { ...END, of: "reaped" }, ...AT },
      ],
    },
  ],
  // A mistake of the model: a request above the balance waits for idle money even if it is also above its key's spending limit.
  [
    {
      setup: begins({ person: { ...PAYING, nanoUsd: 20_000n, packageKey: { ...PLAIN_KEY, nanoUsdMax: 300n } } }),
      commands: [
        { do: "burst", request: { ...REQUEST, byBalance: true, capMax: 1 }, count: 3, ...AT, replica: 0 },
        { do: "reserve", request: { ...REQUEST, price: 5 }, ...AT },
      ],
    },
  ],
];

// Cases that random commands rarely reach.
export const SELDOM: [Plan][] = [
  // A key's daily limit of requests is reached.
  [
    {
      setup: begins({ person: { ...WITH_PACKAGE, packageKey: { ...PLAIN_KEY, unitsMax: 1 } } }),
      commands: [1, 2].map(() => ({ do: "reserve" as const, request: REQUEST, ...AT })),
    },
  ],
  // The token allowance is used up before the units are.
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { tokenLimit: 100 }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        { do: "end", end: END, ...AT },
        { do: "reserve", request: REQUEST, ...AT },
      ],
    },
  ],
  // An overrun waits for money that is idle in another replica.
  [
    {
      setup: begins({ person: PAYING }),
      commands: [
        { do: "burst", request: { ...REQUEST, byBalance: true, capMax: 100 }, count: 3, ...AT, replica: 0 },
        { do: "reserve", request: { ...REQUEST, byBalance: true }, ...AT },
        { do: "end", end: { ...END, charge: "much_more" }, ...AT },
      ],
    },
  ],
  // An overrun that is sent twice does not take twice the money that the next one may need.
  [
    {
      setup: begins({ person: { ...PAYING, nanoUsd: 5400n } }),
      commands: [
        { ...BATCH, reserves: [REQUEST, REQUEST].map((one) => ({ ...one, byBalance: true })) },
        { ...BATCH, ends: [0, 1].map((pick) => ({ ...END, pick, charge: "much_more" as const })), twice: true },
      ],
    },
  ],
  // Carryover: before a late settlement of the first day, the second day has used the carried units.
  [
    {
      setup: begins({ person: WITH_PACKAGE }, { days: 3, dailyLimit: 1, totalLimit: 3, carryover: true }),
      commands: [
        { do: "reserve", request: REQUEST, ...AT },
        ...LEASES_END,
        { do: "clock", to: "midnight", who: 0, n: 1, byMs: 0 },
        { ...BATCH, reserves: [REQUEST, REQUEST, REQUEST] },
        { do: "end", end: { ...END, of: "reaped" }, ...AT },
      ],
    },
  ],
];
