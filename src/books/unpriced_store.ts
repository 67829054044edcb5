import type { Sql } from "../platform/db.ts";
import { byPart, UNPRICED_PARTS, type UnpricedPart } from "../price_parts.ts";

/**
 * Counts of tokens that providers report and that the rates of their request, those of its tier, do not name: they are charged at the dearest rate of their
 * kind (MON-12). Folding finds them (`unpriced_counts` in drizzle/0005_books.sql) and sums them by price version, kind and day. Source: IMP-6.
 */

/** Begins the kind of these sums in `book_sums`; the rate follows. */
export const UNPRICED = "unpriced_";
/** As an array of Postgres. */
const SUM_KINDS = `{${UNPRICED_PARTS.map((kind) => `${UNPRICED}${kind}`).join(",")}}`;
/** What was not reported for this long is not shown any more. */
const SHOWN_DAYS = 30;
const SHOWN_MAX = 50;

export type UnpricedTokens = Readonly<Record<UnpricedPart, number>>;
export const NO_UNPRICED_TOKENS = toTokens([]);

export type UnpricedCount = {
  modelId: string;
  kind: UnpricedPart;
  tokens: bigint;
  requests: number;
  /** The first and the last UTC day, as 2026-01-31. */
  since: string;
  until: string;
};

/**
 * What models with no such rate in their present prices, or in a tier of them, were reported to use, if it was reported in the last 30 days; most tokens
 * first, at most 50.
 */
export async function listUnpriced(sql: Sql): Promise<UnpricedCount[]> {
  const rows = await sql`
    select c.model_id, c.kind, c.tokens::text as tokens, c.requests::float8 as requests, c.since::text as since, c.until::text as until
    from (
      select v.model_id, substr(s.kind, ${UNPRICED.length + 1}) as kind, sum(s.tokens) as tokens, sum(s.rows) as requests,
        min(s.day) as since, max(s.day) as until
      from book_sums s join price_versions v on v.id = s.id
      where s.kind = any(${SUM_KINDS}::text::text[]) group by 1, 2) c
    cross join lateral (select prices from price_versions v where v.model_id = c.model_id order by id desc limit 1) present
    where (present.prices #> array['tokens', c.kind] is null
        or exists (select from jsonb_array_elements(present.prices #> '{tokens,tiers}') as tier where tier -> c.kind is null))
      and c.until > (clock_timestamp() at time zone 'UTC')::date - ${SHOWN_DAYS}::int
    order by c.tokens desc, c.model_id, c.kind limit ${SHOWN_MAX}`;
  return rows.flatMap((row) => {
    const kind = UNPRICED_PARTS.find((known) => known === row.kind);
    return kind === undefined
      ? []
      : [
          {
            modelId: String(row.model_id),
            kind,
            tokens: BigInt(String(row.tokens)),
            requests: Number(row.requests),
            since: String(row.since),
            until: String(row.until),
          },
        ];
  });
}

/** All such tokens that were ever counted, by kind. */
export async function sumUnpricedTokens(sql: Sql): Promise<UnpricedTokens> {
  const rows = await sql`
    select kind, sum(tokens)::float8 as tokens from book_sums where kind = any(${SUM_KINDS}::text::text[]) group by kind`;
  return toTokens(rows.map(({ kind, tokens }) => [String(kind), Number(tokens)]));
}

function toTokens(sums: readonly (readonly [kind: string, tokens: number])[]): UnpricedTokens {
  return byPart(UNPRICED_PARTS, (part) => sums.find(([sum]) => sum === `${UNPRICED}${part}`)?.[1] ?? 0);
}
