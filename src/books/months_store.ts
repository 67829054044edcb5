import type { Sql } from "../platform/db.ts";
import { chainProblems, missingSeals } from "./seal_check_store.ts";
import { listClosedMonths, listOpenMonths } from "./seals_store.ts";

/** The months of receipts that are over, as pages and programs read them. Source: RET-11. */

export type MonthState = "open" | "closed" | "sealed" | "dropped";

export type ReceiptMonth = {
  /** As 2030-01. */
  month: string;
  state: MonthState;
  /** Of a closed month that is not sealed: those that are hashed. null: it is open. */
  receipts: number | null;
  /** Of the charged requests, once the month is sealed. Money in nano-USD. */
  totals: { settled: number; chargedTokens: bigint; chargedNanoUsd: bigint } | null;
  /** SHA-256 in hexadecimal digits, as the one before it. null: it is not sealed. */
  seal: string | null;
  previous: string | null;
  sealedAt: string | null;
  exportedAt: string | null;
  droppedAt: string | null;
  /** When the month was last compared with its seal; null: never. */
  comparedAt: string | null;
  /** What differed then, and what differs now between its seal and the one before, in English. */
  problems: string[];
};

/** All months, the newest first. Adds up the totals of every account. */
export async function listReceiptMonths(sql: Sql): Promise<ReceiptMonth[]> {
  const closed = await listClosedMonths(sql);
  const missing = await missingSeals(sql);
  const totals = await totalsByMonth(sql);
  const sealed = closed.map((one, i): ReceiptMonth => {
    const { month, receipts, seal, exportedAt, droppedAt, comparedAt } = one;
    const now = chainProblems(one, closed[i - 1]).map(({ problem }) => problem);
    return {
      ...{ month, receipts, exportedAt, droppedAt, comparedAt },
      state: seal === null ? "closed" : droppedAt === null ? "sealed" : "dropped",
      totals: seal === null ? null : (totals.get(month) ?? NONE),
      ...{ seal: seal?.seal ?? null, previous: seal?.previous ?? null, sealedAt: seal?.sealedAt ?? null },
      problems: [...new Set([...one.problems, ...now])],
    };
  });
  const open = (await listOpenMonths(sql)).map(({ month }): ReceiptMonth => {
    const problems = missing.flatMap((other) => (other.month === month ? [other.problem] : []));
    return { ...OPEN, month, problems };
  });
  return [...sealed, ...open].sort((a, b) => (a.month < b.month ? 1 : -1));
}

const NONE = { settled: 0, chargedTokens: 0n, chargedNanoUsd: 0n };
const OPEN = {
  ...({ state: "open", receipts: null, totals: null, seal: null, previous: null } as const),
  ...{ sealedAt: null, exportedAt: null, droppedAt: null, comparedAt: null },
};

async function totalsByMonth(sql: Sql): Promise<Map<string, NonNullable<ReceiptMonth["totals"]>>> {
  const rows = await sql`
    select to_char(month, 'YYYY-MM') as month, sum(settled)::float8 as settled, sum(charged_tokens)::text as tokens,
      sum(charged_nano_usd)::text as nano from receipt_totals group by 1`;
  return new Map(
    rows.map(({ month, settled, tokens, nano }) => [
      String(month),
      { settled: Number(settled), chargedTokens: BigInt(String(tokens)), chargedNanoUsd: BigInt(String(nano)) },
    ]),
  );
}
