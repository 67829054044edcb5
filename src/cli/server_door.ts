import type { StaticDecode, TSchema } from "@sinclair/typebox";
import { Value } from "@sinclair/typebox/value";
import { ERROR_TABLE, type ErrorCode, ExistsError, InputError, Refusal } from "../errors.ts";
import { type AnyOperation, type Operation, PAGE_MAX } from "../operations/operation.ts";
import { isRecord } from "../platform/records.ts";

/** Does operations through the management API of a running Tollgate. */

const PREFIX = "/api/v1";
const WAIT_MS_MAX = 60_000;
const ALREADY_EXISTS: ErrorCode = "already_exists";

/** Does an operation. Its result has the fields of its output. Throws what it throws. */
export type Door = <In extends TSchema, Out extends TSchema, Result extends StaticDecode<Out>>(
  operation: Operation<In, Out, Result>,
  input: StaticDecode<In>,
) => Promise<StaticDecode<Out>>;

type Server = { server: string; token: string };

export function serverDoor(at: Server): Door {
  return async ({ route, output, pageJson }, input) =>
    Value.Decode(output, await askServer(at, { route, pageJson }, input));
}

/** The result of an operation as JSON. Throws what it throws. */
export async function askServer(
  at: Server,
  { route, pageJson }: Pick<AnyOperation, "route" | "pageJson">,
  input: unknown,
): Promise<unknown> {
  const given: Record<string, unknown> = { ...Object(input) };
  return pageJson === null ? await send(at, route, given) : await rowsOf(at, route, given);
}

/** Rows of as many pages as are wanted. */
async function rowsOf(at: Server, route: string, { limit, before, ...filter }: Record<string, unknown>) {
  if (before !== undefined) throw new InputError("With --server, give --limit instead of --before.");
  const wanted = typeof limit === "number" ? limit : PAGE_MAX;
  const rows: unknown[] = [];
  let cursor: unknown;
  do {
    const size = Math.min(PAGE_MAX, Math.max(1, wanted - rows.length));
    const page = await send(at, route, { ...filter, limit: size, cursor: cursor ?? undefined });
    rows.push(...(Array.isArray(page.data) ? page.data : []));
    cursor = page.nextCursor;
  } while (cursor !== null && rows.length < wanted);
  return { rows, hasMore: cursor !== null };
}

async function send({ server, token }: Server, route: string, given: Record<string, unknown>) {
  const [method = "", path = ""] = route.split(" ");
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => name);
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) => encodeURIComponent(String(given[name])));
  const rest = Object.entries(given).filter(([name, value]) => !names.includes(name) && value !== undefined);
  const hasQuery = method === "GET" || method === "DELETE";
  const query = new URLSearchParams(hasQuery ? rest.map(([name, value]) => [name, String(value)]) : []);
  const url = `${server.replace(/\/+$/, "")}${PREFIX}${filled}${query.size > 0 ? `?${query}` : ""}`;
  if (!URL.canParse(url)) throw new InputError("--server must be the URL of a panel, as in https://panel.example.com.");
  const answer = await fetch(url, {
    method,
    signal: AbortSignal.timeout(WAIT_MS_MAX),
    headers: {
      authorization: `Bearer ${token}`,
      ...(method !== "GET" && { "idempotency-key": crypto.randomUUID() }),
      ...(!hasQuery && { "content-type": "application/json" }),
    },
    ...(!hasQuery && { body: JSON.stringify(Object.fromEntries(rest), digits) }),
  }).catch((cause: unknown) => {
    throw new InputError(`The server does not answer: ${cause instanceof Error ? cause.message : "unknown error"}.`);
  });
  const json: unknown = await answer.json().catch(() => undefined);
  if (!isRecord(json)) throw new InputError(`The server answered ${answer.status} without JSON: is it a panel's URL?`);
  if (!answer.ok) throw refusalFrom(json, answer.status);
  return json;
}

const digits = (_: string, value: unknown) => (typeof value === "bigint" ? String(value) : value);

function refusalFrom({ error, request_id: requestId }: Record<string, unknown>, status: number): Error {
  const facts = isRecord(error) ? error : {};
  const said = typeof facts.message === "string" ? facts.message : `Status ${status}.`;
  if (facts.code === ALREADY_EXISTS) return new ExistsError(said, typeof facts.param === "string" ? facts.param : null);
  const message = `${said} (request ${requestId})`;
  return isCode(facts.code) ? new Refusal(facts.code, { message }) : new InputError(message);
}

function isCode(code: unknown): code is ErrorCode {
  return typeof code === "string" && Object.hasOwn(ERROR_TABLE, code);
}
