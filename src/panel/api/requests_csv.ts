import { listRequests, type RequestQuery } from "../../books/requests_store.ts";
import type { Page } from "../../books/usage_records_store.ts";
import { requestFor } from "../../operations/usage.ts";
import { PAGE_ROWS, type ReadFile, type ReadPage, streamPages } from "./csv_stream.ts";
import { csvLine } from "./formats.ts";
import type { Person } from "./panel_session.ts";

/** Requests of many accounts as CSV, as their reader may see them: UTC, raw units, page by page as the client reads. */

const ROWS_MAX = 100_000;
/** Database time for one file. */
const READ_MS_MAX = 300_000;

type Shown = ReturnType<typeof requestFor>;

const COLUMNS = {
  request_id: "requestId",
  at: "createdAt",
  finished_at: "finishedAt",
  outcome: "outcome",
  reason: "reason",
  account_id: "accountId",
  key_id: "keyId",
  key: "keyName",
  model: "modelId",
  host: "host",
  mode: "mode",
  route_id: "routeId",
  provider: "provider",
  first_ms: "firstMs",
  duration_ms: "durationMs",
  prompt_tokens: "promptTokens",
  cached_tokens: "cachedTokens",
  completion_tokens: "completionTokens",
  estimated: "estimated",
  units: "units",
  charged_nano_usd: "chargedNanoUsd",
  usage_revenue_nano_usd: "usageRevenueNanoUsd",
  cost_nano_usd: "costNanoUsd",
  margin_nano_usd: "marginNanoUsd",
} as const satisfies Record<string, keyof Shown>;

/** The whole file as a stream. Throws what the first page throws; a later failure aborts the download. */
export function requestsCsv(read: ReadPage, person: Person, query: RequestQuery): Promise<ReadableStream<Uint8Array>> {
  return streamPages(read, (readFile) => pagesOf(readFile, person, query));
}

async function* pagesOf(read: ReadFile, person: Person, query: RequestQuery): AsyncGenerator<string, undefined> {
  yield csvLine(Object.keys(COLUMNS));
  const startedMs = performance.now();
  let after: string | null | undefined;
  for (let written = 0; after !== null; ) {
    const pageQuery = { ...query, limit: PAGE_ROWS, after };
    const page = await read((deps) => listRequests(deps, pageQuery));
    written += page.rows.length;
    after = page.nextAfter;
    const text = linesOf(page, person);
    const isCut = after !== null && (written >= ROWS_MAX || performance.now() - startedMs >= READ_MS_MAX);
    if (isCut) after = null;
    const advice = isCut ? csvLine(["Cut here. The missing rows are older: choose a shorter period."]) : "";
    if (text !== "" || isCut) yield text + advice;
  }
}

function linesOf({ rows }: Page<Parameters<typeof requestFor>[1]>, person: Person): string {
  return rows
    .map((row) => {
      const shown = requestFor(person, row);
      return csvLine(Object.values(COLUMNS).map((field) => shown[field]));
    })
    .join("");
}
