import { afterAll, beforeAll, expect, test } from "bun:test";
import { expectRefusal } from "../gateway/checks.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/** The endpoints of a price import, for admins. Source: IMP-2, IMP-4, IMP-5. */

let shop: Shop;
let admin: PanelSession;

beforeAll(async () => {
  shop = await openShop({ redisUrl: "" });
  admin = await signInTo(shop, await shop.world.addAdmin());
});
afterAll(() => shop.close());

const PATH = "/admin/model-import";
const addModel = (id: string) => admin.post("/admin/models", { id, prices: { inputMicroUsd: 1, outputMicroUsd: 2 } });
const itemOf = async (id: string, query = "provider=openai&markup=20") =>
  ok(await admin.get(`${PATH}?${query}`)).items.find((item: { modelId: string }) => item.modelId === id);

test("the list's providers are shown with its version", async () => {
  const { source, providers } = ok(await admin.get("/admin/price-list"));
  expect(source).toStartWith("@pydantic/genai-prices ");
  expect(providers).toContainEqual({ id: "openai", name: "OpenAI", models: expect.any(Number) });
});

test("a comparison is applied as it was shown, by the admin who confirmed it, and requests cost the new price", async () => {
  await addModel("gpt-4o");
  const item = await itemOf("gpt-4o");
  expect(item).toMatchObject({ listed: "openai/gpt-4o", kind: "changed", reason: null });
  const input = item.changes.find(({ label }: { label: string }) => label === "Input");
  expect(input).toMatchObject({ unit: "per_million", from: 1 });
  const body = { providers: ["openai"], markup: "20", confirmed: [{ modelId: "gpt-4o", digest: item.digest }] };
  expect(ok(await admin.post(PATH, body))).toEqual({ added: [], changed: ["gpt-4o"] });
  const model = ok(await admin.get("/admin/model?id=gpt-4o"));
  expect(model.prices.inputMicroUsd).toBe(input.to);
  const [entry] = await shop.world.sql`
    select actor_id::int as actor, request_id is not null as request, after from audit_entries where subject = 'price_imports'`;
  expect(entry).toMatchObject({
    ...{ actor: admin.accountId, request: true },
    after: { providers: ["openai"], markup_percent: 20, added: [], changed: ["gpt-4o"] },
  });
  // Sent again, it no longer matches the prices.
  expectRefusal(await admin.post(PATH, body), "validation_failed", { param: "confirmed" });
});

test("with addsNew, the comparison also has models that the catalog lacks; they are added disabled", async () => {
  const { items, newModels } = ok(await admin.get(`${PATH}?provider=openai&markup=0`));
  expect(items.filter(({ kind }: { kind: string }) => kind === "new")).toEqual([]);
  expect(newModels).toBeGreaterThan(10);
  const item = await itemOf("gpt-4.1", "provider=openai&markup=0&addsNew=true");
  expect(item.kind).toBe("new");
  const confirmed = [{ modelId: "gpt-4.1", digest: item.digest }];
  expect(ok(await admin.post(PATH, { providers: ["openai"], markup: "0", confirmed }))).toMatchObject({
    added: ["gpt-4.1"],
  });
  expect(ok(await admin.get("/admin/model?id=gpt-4.1"))).toMatchObject({ enabled: false, routes: [] });
});

test("422 validation_failed names the field, and changes nothing", async () => {
  await addModel("gpt-4o-mini");
  const { digest } = await itemOf("gpt-4o-mini");
  const confirmed = [{ modelId: "gpt-4o-mini", digest }];
  for (const [query, param] of [
    ["markup=20", "provider"],
    ["provider=openai", "markup"],
    ["provider=nobody&markup=20", "providers"],
    ["provider=&markup=20", "provider"],
    ["provider=openai&markup=-1", "markup"],
    ["provider=openai&markup=1e30", "markup"],
    ["provider=openai&markup=NaN", "markup"],
    ["provider=openai&markup=1000.01", "markup"],
    ["provider=openai&markup=20&addsNew=yes", "addsNew"],
  ] as const)
    expectRefusal(await admin.get(`${PATH}?${query}`), "validation_failed", { param });
  for (const [over, param] of [
    [{ providers: ["nobody"] }, "providers"],
    [{ markup: 20 }, "markup"],
    [{ markup: "20,5" }, "markup"],
    [{ markup: "21" }, "confirmed"],
    [{ confirmed: [] }, "confirmed"],
    [{ confirmed: [{ modelId: "gpt-4o-mini", digest: "0".repeat(32) }] }, "confirmed"],
    [{ confirmed: [{ modelId: "gpt-4o-mini", digest: "short" }] }, "confirmed.0.digest"],
    [{ confirmed: [{ modelId: "chat-a", digest }] }, "confirmed"],
    [{ confirmed: [...confirmed, ...confirmed] }, "confirmed"],
  ] as const)
    expectRefusal(
      await admin.post(PATH, { providers: ["openai"], markup: "20", confirmed, ...over }),
      "validation_failed",
      {
        param,
      },
    );
  expect(ok(await admin.get("/admin/model?id=gpt-4o-mini")).prices.inputMicroUsd).toBe(1);
});
