import {
  notCharged,
  type RefusedRow,
  type ReleasedRow,
  type UsageQuery,
  type UsageRow,
  usage,
} from "../../ledger/usage_store.ts";
import type { Db } from "../../platform/db.ts";
import { type Cell, csvLine } from "./csv.ts";

/**
 * Usage as a file: UTC, raw units, one header, written page by page as the reader takes it. Each page is a statement of its
 * own: whoever reads slowly, or never to the end, keeps neither a snapshot nor a connection.
 */

const PAGE_ROWS = 1000;
/** Rows of one file; a last line says when there would be more. */
const ROWS_MAX = 100_000;

const COLUMNS = [
  "request_id",
  "at",
  "finished_at",
  "outcome",
  "reason",
  "count",
  "key_id",
  "key",
  "model",
  "host",
  "mode",
  "units",
  "prompt_tokens",
  "cached_tokens",
  "completion_tokens",
  "held_nano_usd",
  "charged_nano_usd",
  "estimated",
] as const;

type Line = Partial<Record<(typeof COLUMNS)[number], Cell>>;
type Asked = UsageQuery & { accountId: number };

/** The whole file as a stream. Throws what the first page throws; a later failure breaks the download off. */
export async function usageCsv(
  deps: { db: Db },
  kind: "charged" | "not_charged",
  asked: Asked,
): Promise<ReadableStream<Uint8Array>> {
  const pages = pagesOf(deps, kind, asked);
  const encoder = new TextEncoder();
  const first = await pages.next();
  let text: string | undefined = first.done ? undefined : first.value;
  return new ReadableStream({
    async pull(controller) {
      if (text === undefined) return controller.close();
      controller.enqueue(encoder.encode(text));
      const next = await pages.next();
      text = next.done ? undefined : next.value;
    },
    async cancel() {
      await pages.return(undefined);
    },
  });
}

async function* pagesOf(
  deps: { db: Db },
  kind: "charged" | "not_charged",
  asked: Asked,
): AsyncGenerator<string, undefined> {
  let text = csvLine(COLUMNS);
  let after: string | undefined;
  for (let written = 0; ; ) {
    const query = { ...asked, limit: PAGE_ROWS, after };
    const { rows, hasMore } = kind === "charged" ? await usage(deps, query) : await notCharged(deps, query);
    text += rows.map((row) => toLine("kind" in row ? toNotCharged(row) : toCharged(row))).join("");
    written += rows.length;
    after = rows.at(-1)?.requestId;
    const cut = hasMore && written >= ROWS_MAX;
    if (cut) text += csvLine([`Cut after ${ROWS_MAX} rows. Narrow the period: what is left out is older.`]);
    yield text;
    if (!hasMore || cut) return;
    text = "";
  }
}

function toCharged(row: UsageRow): Line {
  return {
    request_id: row.requestId,
    at: row.createdAt,
    finished_at: row.finishedAt,
    outcome: "charged",
    reason: row.reason,
    count: 1,
    key_id: row.keyId,
    key: row.keyName,
    model: row.modelId,
    host: row.host,
    mode: row.mode,
    units: row.units,
    prompt_tokens: row.promptTokens,
    cached_tokens: row.cachedTokens,
    completion_tokens: row.completionTokens,
    held_nano_usd: row.heldNanoUsd,
    charged_nano_usd: row.chargedNanoUsd,
    estimated: row.estimated,
  };
}

function toNotCharged(row: ReleasedRow | RefusedRow): Line {
  const common = {
    request_id: row.requestId,
    outcome: row.kind,
    key_id: row.keyId,
    key: row.keyName,
    model: row.modelId,
    host: row.host,
  };
  if (row.kind === "refused") return { ...common, at: row.minute, reason: row.code, count: row.count };
  return {
    ...common,
    at: row.createdAt,
    finished_at: row.finishedAt,
    reason: row.reason,
    count: 1,
    mode: row.mode,
    held_nano_usd: row.heldNanoUsd,
    charged_nano_usd: 0,
  };
}

function toLine(line: Line): string {
  return csvLine(COLUMNS.map((column) => line[column] ?? null));
}
