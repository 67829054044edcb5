import type { Sql } from "postgres";

/**
 * A reseller's month, computed again from receipts and price versions alone. It imports nothing of the service and shares no
 * arithmetic with it: SQL reads the rows, and amounts are added up in whole pico-USD. Source: MRK-2, MRK-5, MRK-6, MRK-9.
 */

type Row = Record<string, unknown>;

export type MonthAgain = {
  requests: number;
  retail: bigint;
  wholesale: bigint;
  margin: bigint;
  /** Margin by UTC day, without days that earned nothing. */
  byDay: Map<string, bigint>;
  /** By "customer model": retail, wholesale, margin. */
  lines: Map<string, [bigint, bigint, bigint]>;
  /** Receipts whose charge or cost is not what their tokens, images, price version and markup give. */
  wrong: string[];
};

export async function monthAgain(sql: Sql, resellerId: number, [from, to]: [string, string]): Promise<MonthAgain> {
  const rows = await sql`
    select r.request_id::text as id, r.account_id::int as customer, r.model_id as model, r.mode, r.prompt_tokens, r.completion_tokens,
      r.cached_tokens, r.further_counts, r.markup_basis_points as markup, r.charged_nano_usd::text as charged,
      r.shortfall_nano_usd::text as shortfall, r.cost_nano_usd::text as cost, v.prices, a.reseller_id is not null as sold,
      to_char(r.finished_at at time zone 'UTC', 'YYYY-MM-DD') as day
    from receipts r join accounts a on a.id = r.account_id left join price_versions v on v.id = r.price_version_id
    where (a.reseller_id = ${resellerId} or a.id = ${resellerId}) and r.outcome = 'settled'
      and r.finished_at >= ${from}::text::timestamptz and r.finished_at < ${to}::text::timestamptz`;
  const all: MonthAgain = {
    requests: 0,
    retail: 0n,
    wholesale: 0n,
    margin: 0n,
    byDay: new Map(),
    lines: new Map(),
    wrong: [],
  };
  for (const row of rows) add(all, row);
  return all;
}

function add(all: MonthAgain, row: Row): void {
  const charged = BigInt(String(row.charged));
  const { cost, retail } = row.mode === "payg" ? amountsOf(row) : { cost: 0n, retail: 0n };
  if (charged + BigInt(String(row.shortfall ?? 0)) !== retail)
    all.wrong.push(`${row.id}: charged ${charged}, not ${retail}`);
  if (row.markup !== null && BigInt(String(row.cost)) !== cost)
    all.wrong.push(`${row.id}: cost ${row.cost}, not ${cost}`);
  const margin = charged > cost ? charged - cost : 0n;
  all.requests++;
  all.retail += charged;
  all.margin += margin;
  all.wholesale += charged - margin;
  if (margin > 0n) all.byDay.set(String(row.day), (all.byDay.get(String(row.day)) ?? 0n) + margin);
  const line = `${row.customer} ${row.model}`;
  const [a, b, c] = all.lines.get(line) ?? [0n, 0n, 0n];
  all.lines.set(line, [a + charged, b + charged - margin, c + margin]);
}

/** The price of what was used, and the same with the markup; each rounded up once to whole nano-USD. */
function amountsOf(row: Row): { cost: bigint; retail: bigint } {
  // biome-ignore lint/suspicious/noExplicitAny: JSON of the database.
  const { prices, prompt_tokens, completion_tokens, further_counts, markup } = row as any;
  const picoUsd = further_counts?.image
    ? BigInt(prices.images[further_counts.image]) * 1_000_000n
    : BigInt(prompt_tokens) * BigInt(prices.tokens.input) + BigInt(completion_tokens) * BigInt(prices.tokens.output);
  const tenThousandths = picoUsd * (10_000n + BigInt(markup ?? 0));
  return { cost: (picoUsd + 999n) / 1_000n, retail: (tenThousandths + 9_999_999n) / 10_000_000n };
}
