import { afterAll, beforeAll, expect, test } from "bun:test";
import type { Locator } from "playwright-core";
import { formatCalendarDay, formatCompact, formatCount, formatMoney } from "../../src/panel/web/format.ts";
import { PHONE, settled, textOf, until, type Visit } from "./browser.ts";
import { LUMEN_HOST, openSeededPanel, type Seeded } from "./seed.ts";

/** A seller's Overview, and what it shows of one customer: charts and lines that equal the receipts. Source: MON-21, MON-24, MON-25, MON-26. */

const DAYS = 4;
const SLOW_MS = 240_000;
const REGION = "Usage revenue and margin";

let seeded: Seeded;
beforeAll(async () => {
  seeded = await openSeededPanel({ days: DAYS, dns: false });
  await seeded.panel.shop.world.sql`
    insert into error_sums (account_id, span, begins, code, model_id, requests)
    select scope, span, span_begins(span, ledger_now() - interval '1 hour'), 'provider_unavailable', 'atlas-large', 7
    from unnest(array[15, 1440]) span, unnest(array[0, ${seeded.jonas.accountId}]::bigint[]) scope`;
});
afterAll(() => seeded.close());

type Day = {
  day: string;
  requests: number;
  input: number;
  cached: number;
  output: number;
  retail: bigint;
  share: bigint;
  cost: bigint;
};

/** Receipts by UTC day, added up one by one. `customersOf`: only of a reseller's customers. */
async function daysAgain(customersOf?: number): Promise<Day[]> {
  const rows = await seeded.panel.shop.world.sql`
    select to_char(r.created_at at time zone 'UTC', 'YYYY-MM-DD') as day, prompt_tokens, cached_tokens, completion_tokens, r.units,
      charged_nano_usd::text as charged, coalesce(cost_nano_usd, charged_nano_usd)::text as at_cost, coalesce(provider_cost_nano_usd, 0)::text as cost,
      coalesce(p.unit_nano_usd, 0)::text as unit, coalesce(p.unit_cost_nano_usd, 0)::text as unit_cost
    from receipts r join accounts a on a.id = r.account_id left join packages p on p.id = r.package_id
    where outcome = 'settled' and (${customersOf ?? null}::bigint is null or a.reseller_id = ${customersOf ?? null}::bigint)`;
  const days = new Map<string, Day>();
  for (const row of rows) {
    const day = String(row.day);
    const sums = days.get(day) ?? { day, requests: 0, input: 0, cached: 0, output: 0, retail: 0n, share: 0n, cost: 0n };
    sums.requests++;
    sums.input += row.prompt_tokens - row.cached_tokens;
    sums.cached += row.cached_tokens;
    sums.output += row.completion_tokens;
    sums.retail += BigInt(row.charged) + BigInt(row.units) * BigInt(row.unit);
    sums.share += BigInt(row.at_cost) + BigInt(row.units) * BigInt(row.unit_cost);
    sums.cost += BigInt(row.cost);
    days.set(day, sums);
  }
  return [...days.values()];
}

/** The cells of the chart's table by their row, with each head. */
async function numbers(region: Locator, measure: string): Promise<Map<string, Record<string, string>>> {
  await region.getByRole("group", { name: "Measure" }).getByText(measure, { exact: true }).click();
  const table = region.getByRole("region", { name: `${measure} by day` }).getByRole("table");
  await table.waitFor();
  const heads = await table.locator("thead th").allInnerTexts();
  const rows = await table.locator("tbody tr").all();
  const cells = await Promise.all(rows.map((row) => row.locator("th, td").allInnerTexts()));
  return new Map(
    cells.map(([day = "", ...own]) => [day, Object.fromEntries(own.map((text, i) => [heads[i + 1], text]))]),
  );
}

const regionOf = ({ page }: Visit) => page.getByRole("region", { name: REGION });

test(
  "an admin's chart has the receipts of each day: money, requests with errors, tokens; by keyboard, and as a table",
  async () => {
    const visit = await seeded.panel.visit(seeded.mara, "/");
    const region = regionOf(visit);
    const chart = region.getByRole("group", { name: "Money by day" });
    await chart.waitFor();
    const last = chart.getByRole("img").last();
    await last.focus();
    const spoken = await last.getAttribute("aria-label");
    expect(spoken).toMatch(/^\d+ \w+: (Usage revenue|Provider cost) \$/);
    await visit.page.keyboard.press("Home");
    const first = await chart.getByRole("img").first().getAttribute("aria-label");
    expect(await visit.page.evaluate(() => document.activeElement?.getAttribute("aria-label"))).toBe(first);
    await visit.check();
    await region.getByRole("button", { name: "Show as table" }).click();
    const days = await daysAgain();
    expect(days.length).toBeGreaterThan(2);
    const [money, requests, tokens] = [
      await numbers(region, "Money"),
      await numbers(region, "Requests"),
      await numbers(region, "Tokens"),
    ];
    expect(money.size).toBe(31);
    for (const day of days) {
      const name = formatCalendarDay(day.day);
      expect([name, money.get(name)]).toEqual([
        name,
        { "Usage revenue": formatMoney(day.share), "Provider cost": formatMoney(day.cost) },
      ]);
      expect(requests.get(name)?.Charged).toBe(formatCount(day.requests));
      expect(tokens.get(name)).toEqual({
        Input: formatCount(day.input),
        "Cached input": formatCount(day.cached),
        Output: formatCount(day.output),
        All: formatCount(day.input + day.cached + day.output),
      });
    }
    const failed = [...requests.values()].reduce((sum, row) => sum + Number(row["Ended with an error"]), 0);
    const [told] = await seeded.panel.shop.world
      .sql`select sum(requests)::int as requests from error_sums where account_id = 0 and span = 1440`;
    expect(failed).toBe(Number(told?.requests));
    await visit.check();
    await visit.page.setViewportSize(PHONE);
    await settled(visit.page);
    await visit.check();
    await visit.close();
  },
  SLOW_MS,
);

test(
  "lines by customer have error rate and latency; a customer's page has its figures by key",
  async () => {
    const { jonas, mara, panel } = seeded;
    // Latency has a column where there is room.
    const visit = await panel.visit(mara, "/?by=account", { viewport: { width: 1800, height: 900 } });
    const row = regionOf(visit).getByRole("row", { name: /Jonas Weber/ });
    await row.waitFor();
    const [count] = await panel.shop.world.sql`
      select count(*)::int as n, (select sum(requests)::int from error_sums where account_id = ${jonas.accountId} and span = 1440) as errors
      from receipts where account_id = ${jonas.accountId} and outcome = 'settled'`;
    const cells = await row.getByRole("cell").allInnerTexts();
    expect(cells).toContain(formatCount(count?.n));
    const rate = cells.find((text) => /^\d+(\.\d+)?%$/.test(text));
    expect(Number.parseFloat(String(rate))).toBeCloseTo((100 * count?.errors) / (count?.errors + count?.n), 0);
    expect(cells.filter((text) => /p95/.test(text))).toHaveLength(2);
    await visit.check();
    await visit.page.goto(`/admin/people/${jonas.accountId}?tab=usage&by=key`);
    const keys = await panel.shop.world.sql`
      select k.name, count(*)::int as n from receipts r join keys k on k.id = r.key_id
      where r.account_id = ${jonas.accountId} and outcome = 'settled' group by 1`;
    expect(keys.length).toBeGreaterThan(1);
    for (const { name, n } of keys) {
      const line = regionOf(visit).getByRole("row", { name: new RegExp(`^${name} `) });
      await until(`${name} has ${n}`, async () => (await textOf(line)).startsWith(`${name} ${formatCount(n)} `));
    }
    await visit.check();
    await visit.close();
  },
  SLOW_MS,
);

test(
  "a reseller's chart is of its customers, at its own prices and costs",
  async () => {
    const { panel } = seeded;
    const visit = await panel.visit(panel.acme, "/?period=7", { host: LUMEN_HOST });
    const region = regionOf(visit);
    await region.getByRole("button", { name: "Show as table" }).click();
    const money = await numbers(region, "Money");
    const days = await daysAgain(panel.acme.accountId);
    expect(days.length).toBeGreaterThan(2);
    for (const day of days) {
      const name = formatCalendarDay(day.day);
      expect([name, money.get(name)]).toEqual([
        name,
        { "Usage revenue": formatMoney(day.retail), Cost: formatMoney(day.share) },
      ]);
    }
    const tokens = days.reduce((sum, { input, cached, output }) => sum + input + cached + output, 0);
    expect(await textOf(region)).toContain(`Tokens ${formatCompact(tokens)}`);
    await visit.check();
    await visit.close();
  },
  SLOW_MS,
);
