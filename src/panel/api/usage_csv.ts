import {
  listNotCharged,
  listUsageRecords,
  type Page,
  type RefusedRow,
  type ReleasedRow,
  type UsageQuery,
  type UsageRow,
} from "../../books/usage_records_store.ts";
import type { Db } from "../../platform/db.ts";
import { type Cell, csvLine } from "./csv.ts";

/**
 * Usage as a file: UTC, raw units, one header, written page by page as the reader takes it. Each page is a read of its own:
 * whoever reads slowly, or never to the end, keeps neither a snapshot nor a connection. Pages that stopped at their time limit
 * are gone on from, so that a filter that hardly anything passes still gives the whole file.
 */

const PAGE_ROWS = 1000;
/** Rows of one file; a last line says when there would be more. */
const ROWS_MAX = 100_000;
/** Reading one file takes no longer than this, the reader's own time left out. */
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
type Asked = UsageQuery & { accountId: number };
/** Runs the reading of one page. `signal` is aborted when nobody takes the file any more. */
export type ReadPage = <T>(page: (deps: { db: Db }) => Promise<T>, signal: AbortSignal) => Promise<T>;

/** The whole file as a stream. Throws what the first page throws; a later failure breaks the download off. */
export async function usageCsv(
  read: ReadPage,
  kind: "charged" | "not_charged",
  asked: Asked,
): Promise<ReadableStream<Uint8Array>> {
  const left = new AbortController();
  const pages = pagesOf((page) => read(page, left.signal), kind, asked);
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
      left.abort();
      await pages.return(undefined);
    },
  });
}

async function* pagesOf(
  read: <T>(page: (deps: { db: Db }) => Promise<T>) => Promise<T>,
  kind: "charged" | "not_charged",
  asked: Asked,
): AsyncGenerator<string, undefined> {
  let text = csvLine(COLUMNS);
  let after: string | null | undefined;
  let readMs = 0;
  for (let written = 0; after !== null; ) {
    const query = { ...asked, limit: PAGE_ROWS, after };
    const startedMs = performance.now();
    const page = await read<Page<UsageRow | ReleasedRow | RefusedRow>>((deps) =>
      kind === "charged" ? listUsageRecords(deps, query) : listNotCharged(deps, query),
    );
    readMs += performance.now() - startedMs;
    text += page.rows.map((row) => toLine("kind" in row ? toNotCharged(row) : toCharged(row))).join("");
    written += page.rows.length;
    after = page.nextAfter;
    const cut = written >= ROWS_MAX ? `${ROWS_MAX} rows` : readMs >= READ_MS_MAX ? `${READ_MS_MAX / 1000} seconds` : "";
    if (after !== null && cut !== "") {
      text += csvLine([`Cut after ${cut}. Narrow the period: what is left out is older.`]);
      after = null;
    }
    // A page without a row has nothing to send.
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
