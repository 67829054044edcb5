import { afterAll, beforeAll, expect, test } from "bun:test";
import { openPanel, type Panel, settled, textOf } from "./browser.ts";

/** The page Usage in the browser: its chart, the sum above it, and the list. Source: USE-5. */

const DAY_MS = 86_400_000;

let panel: Panel;
beforeAll(async () => {
  panel = await openPanel();
});
afterAll(() => panel.close());

/** Inserts receipts of a new customer that began and ended at these times. */
async function used(times: readonly number[]) {
  const { world } = panel.shop;
  const person = await world.addCustomer();
  const { keyId } = await world.addKey(person);
  for (const [i, ms] of times.entries()) {
    const at = new Date(ms).toISOString();
    const suffix = String(i + 1).padStart(12, "0");
    await world.sql`
      insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd,
        charged_nano_usd, shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
      select overlay(request_id_floor(${at})::text placing ${suffix} from 25)::uuid, ${person.accountId}, ${keyId}, 'chat-a',
        'panel.localhost', 'package', 'settled', 'complete', 0, 0, 0, 0, 100, 10, 50, 0, false, ${at}, ${at}`;
  }
  return person;
}

test("the sum above the list is that of the list; of all time it says which days it covers", async () => {
  const { world } = panel.shop;
  // The receipts of October need their partition.
  await world.setClock(new Date(Date.now() - 100 * DAY_MS).toISOString());
  await world.sql`select make_receipt_months(6)`;
  await world.setClock(null);
  const now = Date.now();
  const midnight = now - (now % DAY_MS);
  // Seven calendar days begin six midnights ago; seven times 24 hours, earlier.
  const person = await used([now, midnight - 5 * DAY_MS, midnight - 6 * DAY_MS - 1_000, now - 95 * DAY_MS]);
  const visit = await panel.visit(person, "/usage?range=7");
  const { page } = visit;
  const requests = page.getByRole("table").last().locator("tbody tr");
  const chart = (title: string) => page.locator("section").filter({ has: page.getByRole("heading", { name: title }) });
  expect(await textOf(chart("By day"))).toContain("2 requests");
  expect(await requests.count()).toBe(2);
  await page.goto("/usage?range=all");
  await settled(page);
  expect(await textOf(chart("Last 90 days"))).toContain("3 requests");
  expect(await requests.count()).toBe(4);
  await visit.check();
  await visit.close();
});
