import { expect } from "bun:test";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import { chatBody, PRICES, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";

/**
 * Shared by the fault tests: calls that may be cut off, behaviours of the provider for single calls, and reads of the
 * books.
 */

/** For tests in which a request must be given up in time: see their own limits. */
export const PROMPT = { LEDGER_TIMEOUT_MS: "1800" };

/**
 * The amount that `chatBody` with `max_tokens: 10` reserves: 20 bytes of text, 16 further tokens of input, 10 of
 * output.
 */
export const HELD_NANO_USD = BigInt((36 * PRICES.inputMicroUsd) / 1000) + BigInt((10 * PRICES.outputMicroUsd) / 1000);
/** The report of a provider that used all of it. */
export const HELD_USAGE = { prompt_tokens: 36, completion_tokens: 10 };
/**
 * Usage that is within the hold, however the prompt was counted: if the balance does not cover the bound by bytes, the
 * hold uses the tokenizer's smaller count. A larger usage would be an overrun.
 */
export const SMALL_USAGE = { prompt_tokens: 16, completion_tokens: 10 };

/** The maximum number of replicas that start concurrently: each needs a second of a processor. */
const STARTS_AT_ONCE = 2;
/** Tests of a file that begin at once wait for each other: a little shorter than the time limit of most, so that they say so. */
const START_WAIT_MS_MAX = 110_000;
const LOG_CHARS_SHOWN = 3000;
let starting = 0;

/** Starts a replica, runs `work` with it, and kills it. An error contains the replica's last output. */
export async function withReplica<R extends ReplicaProcess>(
  start: () => Promise<R>,
  work: (replica: R) => Promise<void>,
  startWaitMs = START_WAIT_MS_MAX,
): Promise<void> {
  await until(() => starting < STARTS_AT_ONCE, startWaitMs);
  starting++;
  const replica = await start().finally(() => {
    starting--;
  });
  try {
    await work(replica);
  } catch (error) {
    const { exitCode, signalCode } = replica.process;
    const end = `${exitCode ?? signalCode ?? "running"}: ${replica.logged().slice(-LOG_CHARS_SHOWN)}`;
    throw new Error(`${error instanceof Error ? error.message : error}\nThe replica (${end})`, { cause: error });
  } finally {
    await replica.kill();
  }
}

/** A buyer of one request: a package of one unit, or a balance that covers one hold. */
export type Buyer = { accountId: number; secret: string; keyId: number };
export type Purse = "package" | "balance";

export async function buyerOfOne(shop: Shop, purse: Purse): Promise<Buyer> {
  return purse === "package"
    ? await shop.customer({ dailyLimit: 1, days: 1, totalLimit: 1 })
    : await shop.payer(HELD_NANO_USD);
}

/** A chat call and the bytes that arrived so far. `ended` resolves, however the call ended. */
export type OpenCall = {
  /** undefined: no answer yet, or none at all. */
  status(): number | undefined;
  got(): string;
  /** Why it was cut off. */
  failure(): string;
  over(): boolean;
  /** Cuts the connection, as a client that leaves. */
  leave(): void;
  ended: Promise<void>;
};

/** Sends a chat of ten tokens, with a mark by which the provider can recognise it: see `behave`. */
export function openCall(origin: string, secret: string, over: Record<string, unknown> = {}): OpenCall {
  const cut = new AbortController();
  let status: number | undefined;
  let got = "";
  let over_ = false;
  let failure = "";
  const run = async () => {
    const response = await fetch(`${origin}/v1/chat/completions`, {
      method: "POST",
      headers: { authorization: `Bearer ${secret}`, "content-type": "application/json" },
      body: JSON.stringify({ ...chatBody(), max_tokens: 10, ...over }),
      signal: cut.signal,
    });
    status = response.status;
    const decoder = new TextDecoder();
    for await (const bytes of response.body ?? []) got += decoder.decode(bytes, { stream: true });
  };
  const ended = run()
    .catch((error) => {
      failure = String(error); // It was cut off: only the bytes until then count.
    })
    .finally(() => {
      over_ = true;
    });
  return {
    status: () => status,
    failure: () => failure,
    got: () => got,
    over: () => over_,
    leave: () => cut.abort(),
    ended,
  };
}

/** Waits for the first event of each of these streams. Throws with the bytes that arrived instead. */
export async function flowing(calls: readonly OpenCall[]): Promise<void> {
  const open = (call: OpenCall) => call.got().includes("data: ");
  await until(() => calls.every((call) => open(call) || call.over()));
  const other = calls.filter((call) => !open(call)).map((call) => `${call.status()} ${call.got()} ${call.failure()}`);
  if (other.length > 0) throw new Error(`${other.length} streams did not begin: ${other[0]}`);
}

/** A field of the body that identifies calls. A number, because the hold would count the bytes of a text. */
export type Mark = { seed: number };
let marks = 1_000_000;

/** Has the provider behave like this for every call that carries the mark, which it returns: fields for the body. */
export function behave(shop: Shop, behaviour: Behaviour): Mark {
  const mark = { seed: ++marks };
  shop.provider.when((call) => hasMark(call.body, mark), behaviour);
  return mark;
}

/** As `behave`, for streams that the provider stops after their first chunk until `open` is called. */
export function behaveHeld(shop: Shop, behaviour: Behaviour): { mark: Mark; open(): void } {
  const { held, open } = shop.provider.gateAfter(1, behaviour);
  return { mark: behave(shop, held), open };
}

/** How many calls with this mark the provider got. */
export function callsOf(shop: Shop, mark: Mark): number {
  return shop.provider.calls().filter((call) => call.generation && hasMark(call.body, mark)).length;
}

/** Whether a body carries the mark. */
export function hasMark(body: string, { seed }: Mark): boolean {
  return body.includes(`"seed":${seed}`);
}

export type Receipt = {
  requestId: string;
  outcome: "settled" | "released";
  reason: string;
  units: number;
  charged: number;
  shortfall: number;
  day: string | null;
  /** Seconds, by the database's clock. */
  livedSeconds: number;
  createdAt: string;
  finishedAt: string;
};

/** An account's receipts, oldest first. */
export async function receiptsOf(shop: Shop, accountId: number): Promise<Receipt[]> {
  const rows = await shop.world.sql<Receipt[]>`
    select request_id as "requestId", outcome, reason, units, charged_nano_usd::float8 as charged,
      shortfall_nano_usd::float8 as shortfall, day::text, created_at::text as "createdAt", finished_at::text as "finishedAt",
      extract(epoch from finished_at - created_at)::float8 as "livedSeconds"
    from receipts where account_id = ${accountId} order by created_at, request_id`;
  return [...rows];
}

/** Waits until every request of an account has ended in the books, and replicas have returned what was idle. */
export async function accountAtRest(shop: Shop, accountId: number, maxMs = 30_000): Promise<void> {
  const drawn = () => shop.world.sql`
    select 1 from escrows where account_id = ${accountId} and (units > 0 or nano_usd > 0) limit 1`;
  await until(async () => (await drawn()).length === 0, maxMs);
}

/** Waits until no units or money are drawn, then checks every invariant. */
export async function booksAtRest(shop: Shop, maxMs = 30_000): Promise<void> {
  const drawn = () => shop.world.sql`select 1 from escrows where units > 0 or nano_usd > 0 limit 1`;
  await until(async () => (await drawn()).length === 0, maxMs);
  expect(await shop.world.unbalanced()).toEqual([]);
}

/** Ends a test file: waits for the books as `booksAtRest`, then closes the shop and what `others` close. */
export async function closeAtRest(shop: Shop, ...others: (() => unknown)[]): Promise<void> {
  try {
    await booksAtRest(shop);
  } finally {
    await shop.close();
    for (const other of others) await other();
  }
}
