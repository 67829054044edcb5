import { afterAll, beforeAll, expect, mock, test } from "bun:test";
import * as timersPromises from "node:timers/promises";
import * as argon2 from "@node-rs/argon2";
import { readConfig } from "../../src/config.ts";
import { restOfStepMs } from "../../src/panel/api/own_reset.ts";
import { createLog } from "../../src/platform/log.ts";
import type { Replica } from "../../src/replica.ts";
import { expectRefusal } from "../gateway/checks.ts";
import type { Answer, Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { MAIL, openMailingShop } from "./mailed_links.ts";
import { givePassword, PANEL, PASSWORD } from "./panel_client.ts";
import { solved, TERMS } from "./sign_up_form.ts";

/**
 * The time of an answer does not reveal who has an account: the work is the same, or the answer waits for the end of a step. Work is
 * counted, and timers are read as they are set, in a replica within this process. Source: SGN-1, SGN-2.
 */

const STEP_MS = 400;
/** The parameters of each hash that was computed to check a password, as the stored hash names them. */
const checked: string[] = [];
const OwnWorker = globalThis.Worker;
globalThis.Worker = class extends OwnWorker {
  override postMessage(message: { job?: { stored?: string } }): void {
    const stored = message.job?.stored;
    if (stored !== undefined) checked.push(stored.split("$").slice(1, 4).join("$"));
    super.postMessage(message);
  }
} as typeof OwnWorker;

let shop: Shop;
let replica: Replica;
/** Unless null, the clock stands nearly still: each reading is a microsecond after the one before. */
let tickMs: number | null = null;
let addresses = 0;
/** How long each wait of the replica's code is, in ms. */
const waits: number[] = [];
const { setTimeout: wait } = timersPromises;
mock.module("node:timers/promises", () => ({
  ...timersPromises,
  setTimeout: (ms: number, ...rest: unknown[]) => {
    waits.push(ms);
    return wait(ms, ...rest);
  },
}));

beforeAll(async () => {
  const { startReplica } = await import("../../src/replica.ts");
  ({ shop } = await openMailingShop());
  const config = readConfig({
    DATABASE_URL: shop.world.url,
    SECRET_KEY: TEST_SECRET_KEY,
    PORT: "0",
    PANEL_URL: `http://${PANEL}`,
    BASE_URL: "http://api.tollgate.test/v1",
    TRUSTED_PROXIES: "127.0.0.1,::1",
    SPOOL_DIR: `${shop.world.spoolDir}/here`,
    LOG_LEVEL: "silent",
    ...MAIL,
  });
  const nowMs = () => {
    if (tickMs === null) return performance.now();
    // Little, because the replica's own work reads the clock meanwhile, on a slow machine often.
    tickMs += 0.001;
    return tickMs;
  };
  replica = await startReplica(config, { nowMs, wallMs: () => Date.now() }, createLog("silent"));
});
afterAll(async () => {
  globalThis.Worker = OwnWorker;
  await replica.drain();
  await shop.close();
});

function post(path: string, body: object) {
  return shop.call(`/api/panel${path}`, {
    host: PANEL,
    body,
    origin: `http://127.0.0.1:${replica.port}`,
    headers: { origin: `http://${PANEL}`, "x-forwarded-for": `198.51.100.${++addresses}` },
  });
}

test("an unknown e-mail costs the same work as a wrong password: one hash, with the same parameters", async () => {
  const person = await shop.world.addCustomer();
  const email = await givePassword(shop, person);
  // As a person sets it: `givePassword` stores a cheaper hash.
  const stored = await argon2.hash(PASSWORD, { memoryCost: 19_456, timeCost: 2, parallelism: 1 });
  await shop.world.sql`update accounts set password_hash = ${stored} where id = ${person.accountId}`;
  const workOf = async (typed: string) => {
    checked.length = 0;
    expectRefusal(await post("/sign-in", { email: typed, password: "a wrong password" }), "session_required");
    return [...checked];
  };
  const known = await workOf(email);
  expect(known).toEqual(["argon2id$v=19$m=19456,t=2,p=1"]);
  for (let i = 0; i < 3; i++) expect(await workOf(`unknown${i}@example.com`)).toEqual(known);
});

test("a forgotten password is answered at the end of a step, whether or not there is such an account", async () => {
  for (const workMs of [0.5, 1, 130, 399, 400, 401, 1_999]) {
    expect((workMs + restOfStepMs(workMs)) % STEP_MS).toBe(0);
    expect(restOfStepMs(workMs)).toBeWithin(0, STEP_MS);
  }
  const email = await givePassword(shop, await shop.world.addCustomer());
  for (const asked of [email, "nobody@example.com", "not an address"])
    await expectWholeStep(() => post("/sign-in/forgot", { email: asked }));
});

test("a sign-up is answered at the end of a step, whether or not the address has an account", async () => {
  const email = await givePassword(shop, await shop.world.addCustomer());
  await shop.world.sql`
    insert into sign_up_settings (seller_id, is_open, terms_url, privacy_url) values (0, true, ${TERMS.termsUrl}, ${TERMS.privacyUrl})`;
  for (const asked of [email, email, "nobody@people.example", "nobody@people.example"]) {
    const proof = await solved(shop);
    await expectWholeStep(() => post("/sign-up", { email: asked, name: "Ann", accepted: true, proof }));
  }
});

/** Expects that the answer waits for the end of the first step, while the clock stands nearly still. */
async function expectWholeStep(ask: () => Promise<Answer>): Promise<void> {
  waits.length = 0;
  tickMs = performance.now();
  try {
    expect((await ask()).status).toBe(200);
    // Readings of the clock took a little of the first step.
    expect(waits.filter((ms) => ms > STEP_MS - 30 && ms <= STEP_MS)).toHaveLength(1);
  } finally {
    tickMs = null;
  }
}
