import { setTimeout as sleep } from "node:timers/promises";
import { encrypt } from "../../src/platform/crypto.ts";
import { startFakeProvider } from "../../test/fake_provider.ts";
import { chatBody, PRICES, type Shop } from "../../test/gateway/shop.ts";
import { TEST_SECRET_KEY } from "../../test/replica.ts";
import type { Person, World } from "../../test/world.ts";
import { answerQuestions, startHelper } from "../helper.ts";

/**
 * Ordinary customers: one small chat every 40 ms, whatever the others do. They and their provider are a process of their own, so that the
 * work of an attack that is run in the bench's process does not count as a wait of theirs.
 */

const EVERY_MS = 40;
/** One request in this many has a key that the replica does not know yet, and must look up. */
const FRESH_EVERY = 5;
const GIVE_UP_MS = 30_000;
const CUSTOMERS = 5;
/** Enough for one request in five, alone and during an attack. */
const FRESH_KEYS = 300;
const WARM_UP_MS = 2_000;
/** How long the neighbour is watched alone, and at least during an attack: so a percentile is of as many requests. */
const ALONE_MS = 8_000;
const ANSWER_MS_MAX = 120_000;
const MODEL = "chat-neighbour";
/** The maximum ratio of the neighbour's p99 to its p99 alone. */
const P99_RATIO_MAX = 3;

/** The requests of a span of time. `refused`: how many answers had each status; "none": no answer. */
type Seen = { requests: number; refused: Record<string, number>; p50Ms: number; p99Ms: number };
/** `secrets`: keys of enough customers to keep each within its rate, used in turn. `fresh`: keys that are used once. */
type Target = { origins: readonly string[]; secrets: readonly string[]; fresh: string[] };
type Question = { say: "watch"; target: Target; forMs: number } | { say: "begin"; target: Target } | { say: "end" };
type Ready = { port: number; baseUrl: string; apiKey: string };

/** Alone and beside the attack. */
export type Beside = { alone: Seen; during: Seen };

export type Neighbour = {
  /** The port of its provider on 127.0.0.1. */
  port: number;
  /** Adds its provider and its model to a catalog. */
  addModel(world: World): Promise<void>;
  /** Adds its customers, watches them alone, and then until the returned function is called. */
  watch(shop: Shop, origins: readonly string[]): Promise<() => Promise<Beside>>;
  stop(): Promise<void>;
};

/** Starts the neighbour's process. */
export async function startNeighbour(): Promise<Neighbour> {
  const { helper, ready } = await startHelper<Question, Seen | null, Ready>(import.meta.path, {});
  const watchFor = async (target: Target, forMs: number): Promise<Seen> => {
    const seen = await helper.ask({ say: "watch", target, forMs }, ANSWER_MS_MAX);
    if (seen === null) throw new Error("the neighbour saw nothing");
    return seen;
  };
  return {
    port: ready.port,
    addModel: (world) => addModel(world, ready),
    async watch(shop, origins) {
      const target = { origins, ...(await addCustomers(shop)) };
      const known = { ...target, fresh: [] };
      await watchFor(known, WARM_UP_MS);
      const half = target.fresh.length / 2;
      const alone = await watchFor({ ...target, fresh: target.fresh.slice(0, half) }, ALONE_MS);
      await helper.ask({ say: "begin", target: { ...target, fresh: target.fresh.slice(half) } }, ANSWER_MS_MAX);
      const longEnough = sleep(ALONE_MS);
      return async () => {
        await longEnough;
        const during = await helper.ask({ say: "end" }, ANSWER_MS_MAX);
        if (during === null) throw new Error("the neighbour was not watched");
        return { alone, during };
      };
    },
    stop: () => helper.stop(),
  };
}

/** No refusal, and a p99 within three times its own alone. */
export function isServed({ alone, during }: Beside): boolean {
  return refusals(during) === 0 && during.p99Ms <= P99_RATIO_MAX * alone.p99Ms;
}

/** For the table. */
export function shownBeside({ alone, during }: Beside): string {
  const ratio = during.p99Ms / alone.p99Ms;
  const refused = `${refusals(during)} of ${during.requests} refused${refusals(during) > 0 ? ` (${said(during.refused)})` : ""}`;
  return `${refused}; p50 ${ms(alone.p50Ms)} → ${ms(during.p50Ms)}, p99 ${ms(alone.p99Ms)} → ${ms(during.p99Ms)} (× ${ratio.toFixed(1)})`;
}

/** Counts by status, as text. */
export function said(counts: Record<string, number>): string {
  return Object.entries(counts)
    .map(([status, n]) => `${n} × ${status}`)
    .join(", ");
}

export function ms(value: number): string {
  return `${value < 100 ? value.toFixed(1) : Math.round(value)} ms`;
}

function refusals({ refused }: Seen): number {
  return Object.values(refused).reduce((sum, n) => sum + n, 0);
}

async function addModel(world: World, { baseUrl, apiKey }: Ready): Promise<void> {
  const key = encrypt(Buffer.from(TEST_SECRET_KEY, "base64"), apiKey);
  await world.addProvider("neighbour", baseUrl, key);
  const { inputMicroUsd, outputMicroUsd } = PRICES;
  const model = { id: MODEL, contextLength: 8192, inputMicroUsd, outputMicroUsd, defaultCapTokens: 1000 };
  await world.addModels({ ...model, routes: [{ provider: "neighbour" }] });
}

async function addCustomers(shop: Shop): Promise<Pick<Target, "secrets" | "fresh">> {
  const spec = { dailyLimit: 1_000_000, totalLimit: 30_000_000 };
  const people = await Promise.all(Array.from({ length: CUSTOMERS }, () => shop.customer(spec)));
  const fresh = await Promise.all(
    Array.from({ length: FRESH_KEYS }, (_, i) => shop.world.addKey(people[i % CUSTOMERS] as Person)),
  );
  return { secrets: people.map(({ secret }) => secret), fresh: fresh.map(({ secret }) => secret) };
}

/** Sends until `isOver`, and reports the results. */
async function send({ origins, secrets, fresh }: Target, isOver: () => boolean): Promise<Seen> {
  const tookMs: number[] = [];
  const refused: Record<string, number> = {};
  let turn = 0;
  const one = async () => {
    const known = secrets[turn++ % secrets.length] ?? "";
    const secret = turn % FRESH_EVERY === 0 ? (fresh.pop() ?? known) : known;
    const startedMs = performance.now();
    let status = "none";
    try {
      const response = await fetch(`${origins[turn % origins.length]}/v1/chat/completions`, {
        method: "POST",
        headers: { authorization: `Bearer ${secret}`, "content-type": "application/json", host: "localhost" },
        body: JSON.stringify(chatBody({ model: MODEL })),
        signal: AbortSignal.timeout(GIVE_UP_MS),
      });
      await response.text();
      status = String(response.status);
    } catch {
      // Counted below as a missing answer.
    }
    tookMs.push(performance.now() - startedMs);
    if (status !== "200") refused[status] = (refused[status] ?? 0) + 1;
  };
  const open: Promise<void>[] = [];
  while (!isOver()) {
    open.push(one());
    await sleep(EVERY_MS);
  }
  await Promise.all(open);
  tookMs.sort((a, b) => a - b);
  const at = (share: number) => tookMs[Math.min(tookMs.length - 1, Math.floor(tookMs.length * share))] ?? 0;
  return { requests: tookMs.length, refused, p50Ms: at(0.5), p99Ms: at(0.99) };
}

if (import.meta.main) await serve();

async function serve(): Promise<void> {
  const provider = await startFakeProvider();
  let isOver = false;
  let watching: Promise<Seen> | null = null;
  const { port, baseUrl, apiKey } = provider;
  answerQuestions<Question, Seen | null>({ port, baseUrl, apiKey } satisfies Ready, async (question) => {
    if (question.say === "watch") {
      const endsAt = performance.now() + question.forMs;
      return await send(question.target, () => performance.now() > endsAt);
    }
    if (question.say === "begin") {
      isOver = false;
      watching = send(question.target, () => isOver);
      return null;
    }
    isOver = true;
    return await watching;
  });
}
