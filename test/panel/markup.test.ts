import { afterAll, beforeAll, expect, test } from "bun:test";
import { closeBalanced, expectRefusal } from "../gateway/checks.ts";
import { openShop, PRICES, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import type { Person } from "../world.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/** The page Markup, and the parts of a markup that each role sees. Source: MRK-1, MRK-8, MRK-9. */
const HOST = "ai.acme.test";
let shop: Shop;
let acme: Person;
let secret: string;
let ann: Person;
let as: Record<"admin" | "acme" | "rival" | "ann", PanelSession>;

beforeAll(async () => {
  shop = await openShop();
  const { world } = shop;
  acme = await world.addReseller();
  ann = await world.addCustomer(acme.accountId);
  await world.setBalance(ann, 10n ** 12n);
  secret = (await world.addKey(ann, { mode: "payg" })).secret;
  await world.addHost(acme, HOST);
  as = {
    admin: await signInTo(shop, await world.addAdmin()),
    acme: await signInTo(shop, acme, { host: HOST }),
    rival: await signInTo(shop, await world.addReseller()),
    ann: await signInTo(shop, ann, { host: HOST }),
  };
});
afterAll(() => closeBalanced(shop));

/** A settled request of ann at this markup. Returns its id. */
async function requestAt(basisPoints: number): Promise<string> {
  let found: string | undefined;
  await until(async () => {
    await shop.chat(secret);
    const [row] = await shop.world.sql`
      select request_id::text as id from receipts where account_id = ${ann.accountId} and outcome = 'settled'
        and markup_basis_points = ${basisPoints} order by request_id desc limit 1`;
    found = row?.id;
    return found !== undefined;
  });
  return String(found);
}

test("a reseller sets a markup for every model and for one, and takes it back; another reseller has its own", async () => {
  const first = await ok(await as.acme.get("/markup"));
  expect(first.basisPoints).toBe(0);
  expect(first.models.map(({ modelId }: { modelId: string }) => modelId)).toContain("chat-a");
  await ok(await as.acme.put("/markup", { modelId: null, basisPoints: 1_500 }));
  const set = await ok(await as.acme.put("/markup", { modelId: "chat-a", basisPoints: 2_500 }));
  expect(set.basisPoints).toBe(1_500);
  expect(set.models.find(({ modelId }: { modelId: string }) => modelId === "chat-a")).toMatchObject({
    own: 2_500,
    prices: [
      { part: "input", microUsd: PRICES.inputMicroUsd },
      { part: "output", microUsd: PRICES.outputMicroUsd },
    ],
  });
  const back = await ok(await as.acme.put("/markup", { modelId: "chat-a", basisPoints: null }));
  expect(back.models.filter(({ own }: { own: number | null }) => own !== null)).toEqual([]);
  expect((await ok(await as.rival.get("/markup"))).basisPoints).toBe(0);
});

test("customers and admins get 404 for the markup, and nothing changes", async () => {
  for (const who of [as.ann, as.admin]) {
    expectRefusal(await who.get("/markup"), "not_found");
    expectRefusal(await who.put("/markup", { modelId: null, basisPoints: 1 }), "not_found");
  }
  expect((await ok(await as.acme.get("/markup"))).basisPoints).toBe(1_500);
});

test("a markup that is below 0, above the limit, a fraction, a text, or for an unknown model is refused with its field", async () => {
  for (const basisPoints of [-1, 100_001, 1e11, 0.5, "15", true])
    expectRefusal(await as.acme.put("/markup", { modelId: null, basisPoints }), "validation_failed", {
      param: "basisPoints",
    });
  for (const modelId of ["no-such-model", "", "a\u0000"])
    expectRefusal(await as.acme.put("/markup", { modelId, basisPoints: 1 }), "validation_failed", { param: "modelId" });
  expect((await ok(await as.acme.get("/markup"))).basisPoints).toBe(1_500);
});

test("a customer's receipt and playground show retail prices alone; the reseller and admins see cost, markup and earning", async () => {
  await ok(await as.acme.put("/markup", { modelId: null, basisPoints: 1_533 }));
  const id = await requestAt(1_533);
  const own = await as.ann.get(`/receipts/${id}`);
  const atto = own.json.lines.reduce(
    (sum: bigint, line: { amountAttoUsd: string }) => sum + BigInt(line.amountAttoUsd),
    0n,
  );
  expect(String((atto + 999_999_999n) / 1_000_000_000n)).toBe(own.json.chargedNanoUsd);
  expect(own.json.lines[0].pricePicoUsd).toBe(String(BigInt(PRICES.inputMicroUsd) * 100n * 11_533n));
  expect(own.json).toMatchObject({ markup: null, priceVersionId: null, pricesFrom: null });
  const offers = await as.ann.get("/playground/models");
  expect(offers.json.models.find(({ id }: { id: string }) => id === "chat-a").prices.inputPicoUsd).toBe(
    String(BigInt(PRICES.inputMicroUsd) * 100n * 11_533n),
  );
  for (const text of [own.text, offers.text])
    expect(text).not.toMatch(/basisPoints|costNanoUsd|earned|11533|microUsd/i);

  for (const who of [as.acme, as.admin]) {
    const { json } = await who.get(`/receipts/${id}?accountId=${ann.accountId}`);
    const { costNanoUsd, earnedNanoUsd } = json.markup;
    expect(json.markup.basisPoints).toBe(1_533);
    expect(BigInt(costNanoUsd) + BigInt(earnedNanoUsd)).toBe(BigInt(json.chargedNanoUsd));
    expect(json.lines[0].pricePicoUsd).toBe(String(PRICES.inputMicroUsd * 1_000_000));
    expect(json.priceVersionId).toBeGreaterThan(0);
  }
});

test("the statement and its file show retail, cost and margin by customer and model", async () => {
  const month = new Date().toISOString().slice(0, 7);
  const { usage } = await ok(await as.acme.get(`/statement?month=${month}`));
  const [line] = usage.rows;
  expect(BigInt(line.costNanoUsd) + BigInt(line.earnedNanoUsd)).toBe(BigInt(line.chargedNanoUsd));
  expect(BigInt(line.earnedNanoUsd)).toBeGreaterThan(0n);
  const { text } = await as.acme.get(`/statement.csv?month=${month}`);
  const [head = "", ...rows] = text.split("\r\n").map((row) => row.split(","));
  const at = (name: string) => head.indexOf(name);
  const used = rows.find((row) => row[0] === "usage") ?? [];
  expect([used[at("charged_nano_usd")], used[at("cost_nano_usd")], used[at("earned_nano_usd")]]).toEqual([
    line.chargedNanoUsd,
    line.costNanoUsd,
    line.earnedNanoUsd,
  ]);
});
