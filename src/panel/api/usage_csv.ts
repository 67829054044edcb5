import {
  listNotCharged,
  listUsageRecords,
  type Page,
  type RefusedRow,
  type ReleasedRow,
  type UsageQuery,
  type UsageRow,
} from "../../books/usage_records_store.ts";
import { PAGE_ROWS, type ReadFile, type ReadPage, streamPages } from "./csv_stream.ts";
import { type Cell, csvLine } from "./formats.ts";

/**
 * Usage as CSV: UTC, raw units, one header, written page by page as the client reads. Each page is a separate read, so that a slow
 * client keeps neither a snapshot nor a connection open. A page that stopped at its time limit is continued, so that a filter with
 * few matches still gives the whole file.
 */

/** Rows of one file; a last line says if there are more. */
const ROWS_MAX = 100_000;
/** Database time for one file, without the time the client takes. */
const READ_MS_MAX = 300_000;

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
type FileQuery = UsageQuery & { accountId: number };

/** The whole file as a stream. Throws what the first page throws; a later failure aborts the download. */
export function usageCsv(
  read: ReadPage,
  kind: "charged" | "not_charged",
  query: FileQuery,
): Promise<ReadableStream<Uint8Array>> {
  return streamPages(read, (readFile) => pagesOf(readFile, kind, query));
}

async function* pagesOf(
  read: ReadFile,
  kind: "charged" | "not_charged",
  query: FileQuery,
): AsyncGenerator<string, undefined> {
  let text = csvLine(COLUMNS);
  let after: string | null | undefined;
  let readMs = 0;
  for (let written = 0; after !== null; ) {
    const pageQuery = { ...query, limit: PAGE_ROWS, after };
    const startedMs = performance.now();
    const page = await read<Page<UsageRow | ReleasedRow | RefusedRow>>((deps) =>
      kind === "charged" ? listUsageRecords(deps, pageQuery) : listNotCharged(deps, pageQuery),
    );
    readMs += performance.now() - startedMs;
    text += page.rows.map((row) => toLine("kind" in row ? toNotCharged(row) : toCharged(row))).join("");
    written += page.rows.length;
    after = page.nextAfter;
    const cut = written >= ROWS_MAX ? `${ROWS_MAX} rows` : readMs >= READ_MS_MAX ? `${READ_MS_MAX / 1000} seconds` : "";
    if (after !== null && cut !== "") {
      text += csvLine([`Cut after ${cut}. The missing rows are older: choose a shorter period.`]);
      after = null;
    }
    // A page that stopped at its time limit may have no rows.
    if (text === "") continue;
    yield text;
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
