import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import { until } from "../platform/own_redis.ts";
import type { ReplicaProcess } from "../replica.ts";
import type { ModelSpec, World } from "../world.ts";
import { closeBalanced, expectRefusal } from "./checks.ts";
import { checkLifeCycle, readEvents } from "./response_events.ts";
import { eventsOf, openShop, responsesBody, type Shop } from "./shop.ts";

/**
 * How long a route may be silent before its first token, by its fact. What happens is compared with what happens to another route, or to
 * the same one under another limit: no test reads a clock. Source: DIA-10.
 */

/** A route without the fact has failed after this, also on a busy machine. */
const USUAL_MS = 500;
const NEVER_MS = 3_600_000;

let shop: Shop;
/** Its usual limit is longer than any test. */
let patient: ReplicaProcess;
/** Its limit of a whole answer ends streams that have not begun, too. */
let short: ReplicaProcess;

beforeAll(async () => {
  shop = await openShop({
    redisUrl: "",
    env: { PROVIDER_FIRST_BYTE_MS: String(USUAL_MS), STREAM_HEADERS_MS: "0" },
    fill: addModels,
  });
  patient = await shop.start({ PROVIDER_FIRST_BYTE_MS: String(NEVER_MS), PROVIDER_TOTAL_MS: String(NEVER_MS) });
  short = await shop.start({ PROVIDER_FIRST_BYTE_MS: String(NEVER_MS), PROVIDER_TOTAL_MS: String(USUAL_MS) });
});
afterEach(() => {
  shop.provider.reset();
  shop.second.reset();
});
afterAll(() =>
  closeBalanced(shop, async () => {
    await patient.kill();
    await short.kill();
  }),
);

/** Routes that fail: each test has its own, so that no breaker is open. */
const usualModels = Array.from({ length: 8 }, (_, i) => `usual-${i}`);
let usualsUsed = 0;

/** Models of one route each: by the route's own fact, by the provider's, without one, and with one that is shorter than usual. */
async function addModels({ sql, addModels: add }: World): Promise<void> {
  await sql`update providers set facts = ${sql.json({ firstTokenSeconds: 3_600 })} where name = 'second'`;
  const model = (id: string, provider: string, facts = {}): ModelSpec => ({ id, routes: [{ provider, facts }] });
  await add(
    model("by-route", "first", { firstTokenSeconds: 3_600 }),
    model("by-provider", "second"),
    ...usualModels.map((id) => model(id, "first")),
    model("brief", "first", { firstTokenSeconds: 1 }),
  );
}

const PATHS = ["/v1/chat/completions", "/v1/responses"] as const;
type Path = (typeof PATHS)[number];

function ask(path: Path, model: string, secret: string, origin?: string) {
  const chat = { model, messages: [{ role: "user", content: "Think." }], stream: true };
  const body = path === "/v1/responses" ? responsesBody({ model, stream: true }) : chat;
  return shop.call(path, { secret, body, ...(origin !== undefined && { origin }) });
}

function expectWhole(path: Path, text: string): void {
  if (path === "/v1/chat/completions") expect(eventsOf(text).at(-1)).toBe("[DONE]");
  else expect(["completed", "incomplete"]).toContain(checkLifeCycle(readEvents(text)).status);
}

describe.each(PATHS.map((path) => [path]))("%s", (path) => {
  test.each([
    ["by the route's fact, before the headers", "by-route", "gate"],
    ["by the route's fact, behind the headers", "by-route", "gateAfter"],
    ["by the provider's fact, before the headers", "by-provider", "gate"],
    ["by the provider's fact, behind the headers", "by-provider", "gateAfter"],
  ] as const)(
    "a route that may be silent for longer answers after another has failed: %s",
    async (_, model, silence) => {
      const { secret, accountId } = await shop.customer();
      const provider = model === "by-route" ? shop.provider : shop.second;
      const held = silence === "gate" ? provider.gate() : provider.gateAfter(0);
      provider.next(held.held);
      const answering = ask(path, model, secret);
      await provider.waitForCalls(1);
      // Another route is asked later, and has been silent for too long: so this one has been silent for longer.
      const usual = shop.provider.gate();
      shop.provider.next(usual.held);
      expectRefusal(await ask(path, usualModels[usualsUsed++] ?? "", secret), "provider_unavailable");
      held.open();
      usual.open();
      const { status, text } = await answering;
      expect(status).toBe(200);
      expectWhole(path, text);
      await until(async () => (await shop.counters(accountId)).usage === 1);
      expect(await shop.counters(accountId)).toMatchObject({ holds: 0, units: 1 });
    },
  );

  test("a route that may be silent for less than usual fails while the usual limit is not reached", async () => {
    const { secret } = await shop.customer();
    const brief = shop.provider.gate();
    shop.provider.next(brief.held);
    expectRefusal(await ask(path, "brief", secret, patient.origin), "provider_unavailable");
    brief.open();
  });

  test("no fact is longer than PROVIDER_TOTAL_MS", async () => {
    const { secret } = await shop.customer();
    const held = shop.provider.gate();
    shop.provider.next(held.held);
    expectRefusal(await ask(path, "by-route", secret, short.origin), "provider_unavailable");
    held.open();
  });
});
