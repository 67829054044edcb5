import { expect } from "bun:test";
import { connect } from "node:net";
import { closing } from "../closing.ts";
import { until } from "../platform/own_redis.ts";
import type { Answer, Shop } from "./shop.ts";

/** A replica renews its lease every second: one that has not for this long is dead. */
const DEAD_MS = 6_000;

/** Status and type of each error code: the error table, deliberately written a second time. Source: ERR-2. */
export const ERRORS: Readonly<Record<string, readonly [status: number, type: string]>> = {
  invalid_api_key: [401, "authentication_error"],
  host_not_allowed: [403, "permission_error"],
  package_required: [402, "billing_error"],
  package_expired: [402, "billing_error"],
  package_quota_exceeded: [402, "billing_error"],
  daily_quota_exceeded: [402, "billing_error"],
  carryover_quota_exceeded: [402, "billing_error"],
  insufficient_balance: [402, "billing_error"],
  payg_pricing_unavailable: [402, "billing_error"],
  key_request_limit_exceeded: [402, "billing_error"],
  key_spend_limit_exceeded: [402, "billing_error"],
  model_not_in_package: [403, "permission_error"],
  model_not_found: [404, "invalid_request_error"],
  invalid_request: [400, "invalid_request_error"],
  context_length_exceeded: [400, "invalid_request_error"],
  not_found: [404, "invalid_request_error"],
  method_not_allowed: [405, "invalid_request_error"],
  request_too_large: [413, "invalid_request_error"],
  unsupported_media_type: [415, "invalid_request_error"],
  idempotency_conflict: [409, "invalid_request_error"],
  idempotency_mismatch: [400, "invalid_request_error"],
  already_exists: [409, "invalid_request_error"],
  too_many_requests: [429, "rate_limit_error"],
  provider_unavailable: [503, "provider_unavailable"],
  service_unavailable: [503, "server_error"],
  internal_error: [500, "server_error"],
  invalid_token: [401, "authentication_error"],
  insufficient_scope: [403, "permission_error"],
  insufficient_role: [403, "permission_error"],
  session_required: [401, "authentication_error"],
  second_factor_required: [401, "authentication_error"],
  read_only: [403, "permission_error"],
  csrf_failed: [403, "permission_error"],
  no_active_key: [422, "invalid_request_error"],
  validation_failed: [422, "invalid_request_error"],
};

const UUID_V7 = /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;
/** Text that only a stack trace, a database error or a path of ours contains. */
const LEAKS = /\bat \S+ \(|\.ts:\d|node_modules|postgres|<html|<!doctype|select .* from |relation "/i;

export type Expected = { param?: string | null; status?: number };

/** Checks status, envelope and headers of a refusal by the error table. */
export function expectRefusal(answer: Answer, code: string, { param = null, status }: Expected = {}): void {
  const [tableStatus, type] = ERRORS[code] as readonly [number, string];
  const { error, request_id: requestId, ...rest } = answer.json ?? {};
  expect({ status: answer.status, ...error, message: typeof error?.message }).toMatchObject({
    status: status ?? tableStatus,
    message: "string",
    type,
    code,
    param,
  });
  expect(rest).toEqual({});
  expect(error.message.length).toBeGreaterThan(5);
  expect(Object.keys(error)).toEqual(expect.arrayContaining(["message", "type", "code", "param"]));
  expect(requestId).toMatch(UUID_V7);
  expect(answer.headers.get("x-request-id")).toBe(requestId);
  expect(answer.headers.get("content-type")).toMatch(/^application\/json\b/);
  expect(answer.text).not.toMatch(LEAKS);
  if (tableStatus === 402) {
    expect(answer.headers.get("x-should-retry")).toBe(answer.status === 402 ? "false" : null);
  }
  if (tableStatus === 429 || tableStatus === 503) {
    expect(answer.headers.get("retry-after")).toMatch(/^[1-9]\d*$/);
  }
  if (tableStatus === 409) {
    // Either worth a retry, with a time, or not at all.
    const after = answer.headers.get("retry-after");
    if (after !== null) expect(after).toMatch(/^[1-9]\d*$/);
    expect(answer.headers.get("x-should-retry")).toBe(after === null ? "false" : null);
  }
  if (tableStatus === 405) expect(answer.headers.get("allow")).toMatch(/^[A-Z]+(, [A-Z]+)*$/);
}

/** The number of answers by kind: `served`, or status and code as in `402 package_required`. */
export function tally(answers: readonly Answer[]): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const { status, json } of answers) {
    const name = status === 200 ? "served" : `${status} ${json?.error?.code}`;
    counts[name] = (counts[name] ?? 0) + 1;
  }
  return counts;
}

/** Everything that a refusal must not change, over all accounts. What replicas have drawn ahead comes and goes by itself. */
async function effects(shop: Shop) {
  const [books] = await shop.world.sql`
    select (select count(*)::int from receipts) as receipts,
      (select count(*)::int from balance_entries) as entries,
      (select coalesce(sum(units_taken - package_drawn(packages)), 0)::int from packages) as units,
      (select coalesce(sum(package_tokens_shown(packages)), 0)::int from packages) as tokens,
      (select coalesce(sum(balance_nano_usd), 0)::text from balances) as balance,
      (select coalesce(sum(units - least(idle_units, units)), 0)::int from escrows) as units_in_flight,
      (select coalesce(sum(nano_usd - least(idle_nano_usd, nano_usd)), 0)::text from escrows) as money_in_flight`;
  return { ...books, providerCalls: shop.provider.callCount() + shop.second.callCount() };
}

/** Runs `work`, which must reach no provider, write nothing and charge nothing. */
export async function withoutEffect<T>(shop: Shop, work: () => Promise<T>): Promise<T> {
  const before = await effects(shop);
  const result = await work();
  expect(await effects(shop)).toEqual(before);
  return result;
}

/**
 * Waits until nothing is drawn: no request is in flight, and replicas have returned what they had drawn ahead. Does not wait for the
 * leases of killed replicas: it ends them.
 */
export async function untilNothingIsDrawn({ world: { sql } }: Shop): Promise<void> {
  const startedMs = performance.now();
  const leases = await sql`select id, ends_at::text as ends_at from leases where not ended`;
  await until(async () => {
    const [drawn] = await sql`select from escrows where units > 0 or tokens > 0 or nano_usd > 0 limit 1`;
    if (drawn !== undefined && performance.now() - startedMs > DEAD_MS) {
      for (const { id, ends_at } of leases)
        await sql`update leases set ended = true where id = ${id} and ends_at::text = ${ends_at}`;
      await sql`
        select reap_account(account_id) from (
          select distinct account_id from escrows join leases on leases.id = lease_id where ended) as accounts`;
    }
    return drawn === undefined;
  });
}

/** Ends a test file: waits until nothing is drawn, checks that the books balance, then runs `others` and closes the shop. */
export async function closeBalanced(shop: Shop, ...others: (() => unknown)[]): Promise<void> {
  try {
    await untilNothingIsDrawn(shop);
    expect(await shop.world.unbalanced()).toEqual([]);
  } finally {
    for (const other of others) await closing(String(other), Promise.resolve(other()));
    await shop.close();
  }
}

/** Ends the provider's faults after a test. A good answer to `call` closes the route's breaker. */
export async function endFaults(shop: Shop, call: (secret: string) => Promise<Answer>): Promise<void> {
  shop.provider.reset();
  const { secret } = await shop.customer();
  await until(async () => (await call(secret)).status === 200);
  shop.provider.reset();
}

/** Sends raw bytes and reads the first response to its end: for input that no HTTP client would send. */
export function rawCall(port: number, ...parts: (string | Uint8Array)[]): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const got: Buffer[] = [];
    const socket = connect(port, "127.0.0.1", () => {
      for (const part of parts) socket.write(part);
    });
    const finish = () => {
      clearTimeout(timer);
      socket.destroy();
      resolve(parseAnswer(Buffer.concat(got)));
    };
    const timer = setTimeout(() => {
      socket.destroy();
      reject(new Error(`no whole answer in time: ${Buffer.concat(got).toString().slice(0, 300)}`));
    }, 10_000);
    socket.on("data", (bytes: Buffer) => {
      got.push(bytes);
      if (isWhole(Buffer.concat(got))) finish();
    });
    socket.on("error", () => {}); // A server may reset after it has answered: "close" decides.
    socket.on("close", finish);
  });
}

function isWhole(bytes: Buffer): boolean {
  const end = bytes.indexOf("\r\n\r\n");
  const length = /content-length: (\d+)/i.exec(bytes.subarray(0, Math.max(0, end)).toString())?.[1];
  return end >= 0 && length !== undefined && bytes.length >= end + 4 + Number(length);
}

function parseAnswer(bytes: Buffer): Answer {
  const end = bytes.indexOf("\r\n\r\n");
  const [line = "", ...fields] = bytes.subarray(0, Math.max(0, end)).toString().split("\r\n");
  const headers = new Headers(
    fields.map((field): [string, string] => [field.split(":", 1)[0] ?? "", field.slice(field.indexOf(":") + 1).trim()]),
  );
  const sent = bytes.subarray(end + 4).toString();
  const text = headers.get("transfer-encoding") === "chunked" ? unchunked(sent) : sent;
  let json: Answer["json"];
  try {
    json = JSON.parse(text);
  } catch {
    json = undefined; // The test will name it.
  }
  return { status: Number(line.split(" ")[1] ?? 0), headers, text, json };
}

/** The text of chunks. */
function unchunked(sent: string): string {
  let text = "";
  for (let at = 0; ; ) {
    const start = sent.indexOf("\r\n", at) + 2;
    const size = Number.parseInt(sent.slice(at, start), 16);
    if (!(size > 0)) return text;
    text += sent.slice(start, start + size);
    at = start + size + 2;
  }
}
