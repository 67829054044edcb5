import type { IncomingMessage, ServerResponse } from "node:http";
import { Value } from "@sinclair/typebox/value";
import { Behaviour, type Behaviours } from "./faults.ts";
import type { Journal } from "./journal.ts";
import { isRecord } from "./text.ts";

const JOURNAL_PAGE_MAX = 10_000;
const JOURNAL_PAGE_DEFAULT = 1_000;

/** What the control endpoints read and set. */
export interface Controlled {
  readonly journal: Journal;
  readonly behaviours: Behaviours;
}

/** Serves one request to a control endpoint. */
export function serveControl(
  controlled: Controlled,
  request: IncomingMessage,
  response: ServerResponse,
  body: string,
): void {
  const [status, value] = control(controlled, `${request.method}`, `${request.url}`, body);
  response.writeHead(status, { "content-type": "application/json" });
  response.end(JSON.stringify(value));
}

/** GET /__journal?after=&limit= · POST /__reset · POST /__behave {scope: "next"|"always", behaviour: Behaviour|null} */
function control(
  controlled: Controlled,
  method: string,
  target: string,
  body: string,
): [status: number, value: unknown] {
  const { pathname, searchParams } = new URL(target, "http://localhost");
  switch (`${method} ${pathname}`) {
    case "GET /__journal": {
      const limit = Math.min(Number(searchParams.get("limit") ?? JOURNAL_PAGE_DEFAULT) || 0, JOURNAL_PAGE_MAX);
      const found = controlled.journal.list(Number(searchParams.get("after")) || 0, limit + 1);
      const page = { data: found.slice(0, limit), has_more: found.length > limit };
      return [200, { object: "list", ...page, counters: controlled.journal.counters() }];
    }
    case "POST /__reset":
      reset(controlled);
      return [200, { ok: true }];
    case "POST /__behave": {
      const problem = setBehaviour(controlled, body);
      return problem === null ? [200, { ok: true }] : [400, { error: problem }];
    }
    default:
      return [404, { error: "Not a control endpoint." }];
  }
}

/** Sets a behaviour from JSON. Returns why it is invalid, or null. */
function setBehaviour(controlled: Controlled, text: string): string | null {
  let input: unknown;
  try {
    input = JSON.parse(text);
  } catch {
    return "not JSON";
  }
  if (!isRecord(input)) return "not an object";
  const { scope, behaviour } = input;
  if (scope === "always" && behaviour === null) controlled.behaviours.always(undefined);
  else if (!Value.Check(Behaviour, behaviour)) {
    const first = Value.Errors(Behaviour, behaviour).First();
    return `behaviour${first?.path ?? ""}: ${first?.message ?? "invalid"}`;
  } else if (scope === "always") controlled.behaviours.always(behaviour);
  else if (scope === "next") controlled.behaviours.next(behaviour);
  else return 'scope must be "next" or "always"';
  return null;
}

export function reset(controlled: Controlled): void {
  controlled.journal.reset();
  controlled.behaviours.clear();
}
