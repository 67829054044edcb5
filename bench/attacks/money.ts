import { setTimeout as sleep } from "node:timers/promises";
import { encode } from "gpt-tokenizer/encoding/o200k_base";
import { openRawClient } from "../../test/gateway/raw_client.ts";
import { chatBody, eventsOf, imageBody, type Shop } from "../../test/gateway/shop.ts";
import type { Attack, Outcome } from "./attack.ts";
import { callsLetThrough } from "./other_counters.ts";

/**
 * Attempts of a customer to pay less, or to let others pay. Prices: 3 and 15 USD per million tokens, 0.04 USD an
 * image.
 */

const USD = 1_000_000_000n;
const HIDDEN_TOKENS = 5_000;
/** As a small model of a large provider counts an image of six tiles. */
const PICTURE_TOKENS = 36_835;
const RACERS = 500;
const UNITS = 50;
const FREE_IMAGES = 235;
const NEIGHBOUR_CALLS = 100;
const WAIT_MS_MAX = 30_000;
const SPACES = 32_768;
const SHAPED_CHARS = 20_000;
const SHAPES: Record<string, string> = {
  "Chinese characters": "闸门按它卖出的计数并且说明这一点",
  emoji: "🫠🪿🧌🛞🪬🫥",
};
const PIECE_CHARS = 64;
const SHAPED_TOKENS_MAX = 80_000;
const OUTPUT_NANO_USD = 15_000;
/** An estimate of what nobody reports may be a little too low. */
const ESTIMATE_SHARE_MIN = 0.95;
/** The tokenizer takes the square of an unbroken text's length. */
const COUNTED_CHARS = 256;

export const moneyAttacks: Attack[] = [
  {
    name: "500 requests at once, through three replicas, against a package of 50",
    replicas: 3,
    async run(shop, begin) {
      await begin();
      const buyer = await shop.customer({ dailyLimit: UNITS, days: 1, totalLimit: UNITS });
      const before = shop.provider.callCount();
      const answers = await Promise.all(
        Array.from({ length: RACERS }, (_, n) =>
          shop.chat(buyer.secret, {}, { origin: shop.replicas[n % 3]?.origin ?? shop.origin }),
        ),
      );
      const served = answers.filter(({ status }) => status === 200).length;
      const refused = answers.filter(
        ({ json }) => json?.error?.code === "package_quota_exceeded" || json?.error?.code === "daily_quota_exceeded",
      ).length;
      const calls = shop.provider.callCount() - before;
      const { usage, units } = await shop.counters(buyer.accountId);
      const race = { body: JSON.stringify(chatBody()), requests: RACERS, units: UNITS, gateways: 3 };
      const checked = await callsLetThrough(shop.provider, { ...race, counting: "check, call, subtract" });
      const summed = await callsLetThrough(shop.provider, { ...race, counting: "sum from time to time" });
      return {
        attacker: `${served} served, ${refused} refused`,
        others: `${calls} provider calls, ${usage} usage records, ${units} units; a gateway that checks, calls, then subtracts: ${checked} calls; one that sums up every two seconds: ${summed} calls`,
        isStopped: [served, calls, usage, units].every((n) => n === UNITS) && refused === RACERS - UNITS,
      };
    },
  },
  {
    name: "leave a stream whose usage was already reported",
    async run(shop, begin) {
      await begin();
      const usage = { prompt_tokens: 10, completion_tokens: HIDDEN_TOKENS };
      const mark = behave(shop, { usage, usageIn: "every", chunkDelayMs: 20 });
      const whole = await readWhole(shop, mark);
      const left = await leaveEarly(shop, mark);
      return { attacker: `paid ${usd(left)} for what costs ${usd(whole)}`, isStopped: left >= whole };
    },
  },
  {
    name: "leave a stream of a model that hides its reasoning",
    async run(shop, begin) {
      await begin();
      const mark = behave(shop, {
        usage: { prompt_tokens: 10, completion_tokens: HIDDEN_TOKENS },
        tokens: 40,
        chunkDelayMs: 20,
      });
      // Other customers first read such answers to the end, so that the model is known to hide tokens.
      for (let n = 0; n < 10; n++) await readWhole(shop, mark);
      const whole = await readWhole(shop, mark);
      const left = await leaveEarly(shop, mark);
      return { attacker: `paid ${usd(left)} for what costs ${usd(whole)}`, isStopped: left >= whole };
    },
  },
  {
    name: "a picture that the provider counts as 36,835 tokens, 20 streams at once",
    async run(shop, begin) {
      await begin();
      // A dollar pays for six such pictures at the most that one may cost, and for nine at what it costs.
      const attacker = await shop.payer(USD);
      const mark = behave(shop, { usage: { prompt_tokens: PICTURE_TOKENS, completion_tokens: 5 }, tokens: 5 });
      const content = [{ type: "image_url", image_url: { url: "https://pictures.example/large.png" } }];
      const messages = [{ role: "user", content }];
      const before = shop.provider.callCount();
      await Promise.all(
        Array.from({ length: 20 }, () =>
          shop.chat(attacker.secret, { model: "vendor/chat-b", messages, max_tokens: 10, stream: true, ...mark }),
        ),
      );
      const calls = shop.provider.callCount() - before;
      const billed = calls * (PICTURE_TOKENS * 3_000 + 5 * 15_000);
      const paid = Number(USD) - (await shop.counters(attacker.accountId)).balance;
      // A normal hold is 36 tokens at 3 USD and 100 at 15 USD a million; the neighbour has three times that.
      let refused = 0;
      for (let n = 0; n < 20; n++) {
        const neighbour = await shop.payer(3n * (36n * 3_000n + 100n * 15_000n));
        const { status } = await shop.chat(neighbour.secret, { model: "vendor/chat-b", max_tokens: 100 });
        if (status !== 200) refused++;
      }
      return {
        attacker: `${calls} of 20 reached the provider; paid ${usd(paid)} for what costs ${usd(billed)}`,
        others: `${refused} of 20 with three times the money refused`,
        isStopped: refused === 0 && paid >= billed,
      };
    },
  },
  ...Object.keys(SHAPES).map(
    (kind): Attack => ({
      name: `leave a long answer that begins with ${SPACES} spaces and goes on with ${kind}`,
      async run(shop, begin) {
        await shop.world.sql`update models set context_length = 200000 where id = 'chat-a'`;
        const replica = await shop.start();
        await begin(replica.origin);
        const outcome = await leaveShaped(shop, replica.port, " ".repeat(SPACES) + textOf(kind, SHAPED_CHARS));
        return { ...outcome, close: replica.kill };
      },
    }),
  ),
  {
    name: "parameters that cost money or choose another model",
    async run(shop, begin) {
      await begin();
      const attacker = await shop.customer();
      const costly = {
        service_tier: "priority",
        models: ["other-vendor/dear"],
        provider: { order: ["other"] },
        web_search_options: {},
        store: true,
        best_of: 20,
        n_predict: 100_000,
        plugins: [{ id: "web" }],
        route: "fallback",
      };
      const answer = await shop.chat(attacker.secret, costly);
      const sent: Record<string, unknown> = JSON.parse(shop.provider.lastCall()?.body ?? "{}");
      const image = await shop.call("/v1/images/generations", {
        secret: attacker.secret,
        body: imageBody({ quality: "high", num_images: 10 }),
      });
      const sentImage: Record<string, unknown> = JSON.parse(shop.provider.lastCall()?.body ?? "{}");
      const names = [...Object.keys(costly), "quality", "num_images"];
      const passed = names.filter((name) => name in sent || name in sentImage);
      const told = [answer, image].flatMap(({ headers }) => headers.get("x-dropped-params")?.split(/, ?/) ?? []);
      return {
        attacker: `${passed.length} of ${names.length} were sent on, ${told.length} named as dropped`,
        isStopped: passed.length === 0 && told.length === names.length,
      };
    },
  },
  {
    name: `stream: true on ${FREE_IMAGES} image requests`,
    async run(shop, begin) {
      await begin();
      const attacker = await shop.customer({ dailyLimit: 100_000 });
      shop.provider.when((call) => call.path.endsWith("/images/generations") && /"stream":\s*true/.test(call.body), {
        body: 'event: image_generation.completed\ndata: {"b64_json":"aGk="}\n\n',
        contentType: "text/event-stream",
      });
      const before = shop.provider.callCount();
      for (let n = 0; n < FREE_IMAGES; n++)
        await shop.call("/v1/images/generations", { secret: attacker.secret, body: imageBody({ stream: true }) });
      const calls = shop.provider.callCount() - before;
      const neighbour = await shop.customer();
      const refused = await refusedOf(NEIGHBOUR_CALLS, () =>
        shop.call("/v1/images/generations", { secret: neighbour.secret, body: imageBody() }),
      );
      const { units } = await shop.counters(attacker.accountId);
      return {
        attacker: `${calls} provider calls, ${units} units paid`,
        others: `${refused} of ${NEIGHBOUR_CALLS} refused`,
        isStopped: units === calls && refused === 0,
      };
    },
  },
  {
    name: "ten prompts above the operator's token rate, ten pictures to a text model",
    async run(shop, begin) {
      await begin();
      const attacker = await shop.customer();
      const large = behave(shop, {
        status: 429,
        body: JSON.stringify({
          error: {
            message:
              "Request too large for up-chat-a in organization org-x on tokens per min (TPM): Limit 30000, Requested 36835. The input or output tokens must be reduced in order to run successfully.",
            type: "tokens",
            code: "rate_limit_exceeded",
          },
        }),
      });
      const picture = behave(shop, {
        status: 404,
        body: JSON.stringify({ error: { message: "No endpoints found that support image input", code: 404 } }),
      });
      const statuses = new Set<number>();
      for (let n = 0; n < 10; n++) {
        statuses.add((await shop.chat(attacker.secret, large)).status);
        statuses.add((await shop.chat(attacker.secret, picture)).status);
      }
      const neighbour = await shop.customer();
      const refused = await refusedOf(NEIGHBOUR_CALLS, () => shop.chat(neighbour.secret));
      return {
        attacker: `got ${[...statuses].join(", ")}`,
        others: `${refused} of ${NEIGHBOUR_CALLS} refused`,
        isStopped: refused === 0,
      };
    },
  },
  {
    name: "an answer whose connection drops between its usage and [DONE]",
    async run(shop, begin) {
      await begin();
      const payer = await shop.payer(10n * USD);
      const chunk = (fields: object) =>
        `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", ...fields })}\n\n`;
      const body =
        chunk({ choices: [{ index: 0, delta: { role: "assistant", content: "Tolls." }, finish_reason: null }] }) +
        chunk({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] }) +
        chunk({
          choices: [],
          usage: { prompt_tokens: 10, completion_tokens: HIDDEN_TOKENS, total_tokens: HIDDEN_TOKENS + 10 },
        });
      const mark = behave(shop, {
        body,
        contentType: "text/event-stream",
        chunked: true,
        cutAfterBytes: Buffer.byteLength(body),
        cutDelayMs: 100,
      });
      const { text } = await shop
        .chat(payer.secret, { stream: true, max_tokens: HIDDEN_TOKENS, ...mark })
        .catch((error) => ({ text: String(error) }));
      const paid = await paidBy(shop, payer.accountId, 10n * USD);
      return {
        attacker: `paid ${usd(paid)} for ${HIDDEN_TOKENS} tokens; ended ${eventsOf(text).at(-1) === "[DONE]" ? "with" : "without"} [DONE]`,
        isStopped: paid >= HIDDEN_TOKENS * 15_000 && eventsOf(text).at(-1) !== "[DONE]",
      };
    },
  },
];

let marks = 0;

/** Makes the provider behave like this for every call with the mark. Returns the mark as fields for the body. */
function behave(shop: Shop, behaviour: Parameters<Shop["provider"]["when"]>[1]): { metadata: { mark: string } } {
  const mark = `attack-${++marks}-`;
  shop.provider.when((call) => call.body.includes(mark), behaviour);
  return { metadata: { mark } };
}

/** A stream with this text, which its client leaves when all of it has arrived, before its usage is reported. */
async function leaveShaped(shop: Shop, port: number, text: string): Promise<Outcome> {
  // The provider sends both halves of the body, and then says nothing.
  const whole = { chunked: true, hang: "mid_stream", cutAfterChunks: 2 } as const;
  const mark = behave(shop, { body: eventsWith(text), contentType: "text/event-stream", ...whole });
  const payer = await shop.payer(10n * USD);
  const client = openRawClient(port, payer.secret, { ...chatBody(), max_tokens: SHAPED_TOKENS_MAX, ...mark });
  await until(() => client.events() >= Math.ceil(text.length / PIECE_CHARS));
  client.leave();
  const paid = await paidBy(shop, payer.accountId, 10n * USD);
  const written = tokensOf(text);
  return {
    attacker: `${written} tokens written; paid ${usd(paid)} for what costs ${usd(written * OUTPUT_NANO_USD)}`,
    isStopped: paid >= ESTIMATE_SHARE_MIN * written * OUTPUT_NANO_USD,
  };
}

/** An answer's events, without its end, as a provider sends them. */
function eventsWith(text: string): string {
  const events: string[] = [];
  for (let at = 0; at < text.length; at += PIECE_CHARS) {
    const delta = { content: text.slice(at, at + PIECE_CHARS) };
    events.push(
      JSON.stringify({
        id: "c",
        object: "chat.completion.chunk",
        created: 1,
        model: "m",
        choices: [{ index: 0, delta }],
      }),
    );
  }
  return events.map((event) => `data: ${event}\n\n`).join("");
}

function textOf(kind: string, chars: number): string {
  return (SHAPES[kind] ?? "").repeat(chars).slice(0, chars);
}

function tokensOf(text: string): number {
  let tokens = 0;
  for (let at = 0; at < text.length; at += COUNTED_CHARS) tokens += encode(text.slice(at, at + COUNTED_CHARS)).length;
  return tokens;
}

/** The cost of a stream that is read to its end, in nano-USD. */
async function readWhole(shop: Shop, mark: object): Promise<number> {
  const payer = await shop.payer(10n * USD);
  await shop.chat(payer.secret, { stream: true, max_tokens: HIDDEN_TOKENS, ...mark });
  return paidBy(shop, payer.accountId, 10n * USD);
}

/** The cost of the same stream if its client leaves after three events, in nano-USD. */
async function leaveEarly(shop: Shop, mark: object): Promise<number> {
  const payer = await shop.payer(10n * USD);
  const client = openRawClient(Number(new URL(shop.origin).port), payer.secret, {
    ...chatBody(),
    max_tokens: HIDDEN_TOKENS,
    ...mark,
  });
  await until(() => client.events() >= 3);
  client.leave();
  return paidBy(shop, payer.accountId, 10n * USD);
}

/** The part of its only top-up that an account has paid once all of its holds have ended, in nano-USD. */
async function paidBy(shop: Shop, accountId: number, toppedUp: bigint): Promise<number> {
  await until(async () => {
    const { holds, usage, released } = await shop.counters(accountId);
    return holds === 0 && usage + released > 0;
  });
  return Number(toppedUp) - (await shop.counters(accountId)).balance;
}

async function refusedOf(times: number, call: () => Promise<{ status: number }>): Promise<number> {
  let refused = 0;
  for (let n = 0; n < times; n++) if ((await call()).status !== 200) refused++;
  return refused;
}

async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  const endsAt = performance.now() + WAIT_MS_MAX;
  while (!(await holds())) {
    if (performance.now() > endsAt) throw new Error(`not so after ${WAIT_MS_MAX} ms: ${holds}`);
    await sleep(10);
  }
}

function usd(nanoUsd: number): string {
  return `$${(nanoUsd / 1e9).toFixed(6)}`;
}
