import { FormatRegistry, Type } from "@sinclair/typebox";
import { Elysia, ParseError, t, ValidationError } from "elysia";
import { claimForm, unclaimForm } from "../../accounts/forms_store.ts";
import type { Role } from "../../accounts/people_store.ts";
import type { Session } from "../../accounts/sessions.ts";
import type { Viewed } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { asRefusal, Refusal } from "../../errors.ts";
import { readBody } from "../../http/body.ts";
import { problemOf } from "../../http/field_errors.ts";
import type { Host } from "../../http/host.ts";
import { refuseRepeated } from "../../http/query.ts";
import { factsOf } from "../../http/request_facts.ts";
import type { Actor } from "../../platform/changes_store.ts";
import { sha256 } from "../../platform/runtime.ts";
import { cookieName, visitorOf } from "./session_auth.ts";

/**
 * What all routes of the panel have in common: host → session → CSRF → body, who it is, and how the answer goes out.
 * `signedIn(deps)` is an empty set of routes with `person` in each handler's context; a file of routes begins with it.
 */

const FORM_HEADER = "idempotency-key";
const FORM_KEY = /^[\x21-\x7e]{1,100}$/;
/** A form; the largest brings two pictures in base64. */
const BODY_BYTES_MAX = 1024 * 1024;

/** Who is signed in, and whose panel it is. */
export type Person = {
  /** The account whose things are shown and changed: one's own, or the one an admin looks at. */
  accountId: number;
  role: Role;
  /** The reseller of a customer; a reseller's own id; else 0. */
  tenantId: number;
  name: string;
  email: string;
  session: Session;
  host: Host;
  /** Set while an admin looks at somebody's panel; then nothing can be changed. */
  viewing: Viewed | null;
  /** Who acts, for the audit log: always the one who signed in. Hand it down as `{ ...deps, by: person.by }`. */
  by: Actor;
};

/** Routes for people who are signed in; with `role`, for them alone: to others they are not there. */
export function signedIn(deps: Deps, ...roles: Role[]) {
  const name = cookieName(deps);
  return new Elysia({ normalize: false })
    .onParse(async ({ request, cookie }) => {
      // Before the body: whoever is not signed in is told so, whatever was sent.
      const { session } = await personOf(deps, request, cookie[name]?.value, roles);
      if (request.body === null) return {};
      const { value, text, room } = await readBody(deps, request, { bytesMax: BODY_BYTES_MAX, owner: session });
      room.close(); // A form is small: what counts is how many are on their way.
      if (request.headers.has(FORM_HEADER)) bodies.set(request, sha256(text));
      return value;
    })
    .derive(async ({ request, cookie, set }) => {
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
      const person = await personOf(deps, request, cookie[name]?.value, roles);
      refuseRepeated(factsOf(request).url.searchParams);
      return { person };
    });
}

const people = new WeakMap<Request, Person>();
/** SHA-256 of the bodies of forms that are done once. */
const bodies = new WeakMap<Request, Uint8Array>();

/** Throws host_not_allowed, session_required, csrf_failed, read_only, not_found (another role's routes). */
async function personOf(deps: Deps, request: Request, token: unknown, roles: readonly Role[]): Promise<Person> {
  const person = people.get(request) ?? (await newPersonOf(deps, request, token));
  people.set(request, person);
  // Also for who is known: routes may stand within others that more roles have.
  if (roles.length > 0 && !roles.includes(person.role)) throw new Refusal("not_found");
  return person;
}

async function newPersonOf(deps: Deps, request: Request, token: unknown): Promise<Person> {
  const { session, host } = await visitorOf(deps, request, token);
  factsOf(request).accountId = session.accountId;
  await deps.limiter.take(`panel:${session.accountId}`);
  const { viewing } = session;
  if (viewing && request.method !== "GET") throw new Refusal("read_only");
  const { accountId, role, tenantId, name, email } = viewing ?? session;
  const by = { accountId: session.accountId, requestId: factsOf(request).requestId };
  return { accountId, role, tenantId, name, email, session, host, viewing, by };
}

/**
 * Does the work of a form once, by the key that its page sent as `Idempotency-Key`. A second click throws
 * idempotency_conflict, and with another body idempotency_mismatch; a form whose work failed may be sent again. Without a key
 * the work is done as it is.
 */
export async function once<T>(deps: Deps, person: Person, request: Request, work: () => Promise<T>): Promise<T> {
  const formKey = request.headers.get(FORM_HEADER);
  if (formKey === null) return await work();
  if (!FORM_KEY.test(formKey)) {
    throw new Refusal("invalid_request", {
      message: "The header Idempotency-Key must be 1 to 100 visible characters.",
    });
  }
  const form = { accountId: person.by.accountId, formKey, bodyDigest: digestOf(request) };
  const claimed = await claimForm(deps, form);
  if (claimed === "same") throw new Refusal("idempotency_conflict");
  if (claimed === "other")
    throw new Refusal("idempotency_mismatch", {
      message: "This form was sent before, with other contents. Open it anew.",
      status: 422,
    });
  try {
    return await work();
  } catch (error) {
    await unclaimForm(deps, form);
    throw error;
  }
}

/** SHA-256 of what a form was sent to, and of its body. */
function digestOf(request: Request): Buffer {
  const place = `${request.method} ${new URL(request.url).pathname}\0`;
  return Buffer.from(sha256(Buffer.concat([Buffer.from(place), bodies.get(request) ?? Buffer.alloc(0)])));
}

/**
 * A whole number in a path or a query. Not `t.Integer`: of one that is out of its range the framework keeps neither the field
 * nor where it stood, so that a wrong id would not read like an unknown one.
 */
export function whole(min: number, max: number) {
  const format = `whole:${min}:${max}`;
  FormatRegistry.Set(format, (text) => /^\d{1,16}$/.test(text) && Number(text) >= min && Number(text) <= max);
  const text = t.String({
    format,
    says: max < Number.MAX_SAFE_INTEGER ? `a whole number from ${min} to ${max}` : "a whole number",
  });
  return t.Transform(text).Decode(Number).Encode(String);
}

/** The id of a row in a path, or where a page of a list begins. */
export const Id = whole(1, Number.MAX_SAFE_INTEGER);

/** The id of a row in a body: a number, and no text that reads like one. */
export const IdInBody = Type.Integer({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER });

/** A failure under /api/panel: what is `invalid_request` on the gateway is `validation_failed` here. Source: rulings › Errors. */
export function asPanelRefusal(error: unknown): Refusal {
  // What the reading of a body threw comes wrapped.
  const thrown = error instanceof ParseError ? error.cause : error;
  const refusal = thrown instanceof ValidationError ? shapeRefusal(thrown) : asRefusal(thrown);
  if (refusal.code !== "invalid_request") return refusal;
  return new Refusal("validation_failed", { ...refusal.facts, message: refusal.message });
}

function shapeRefusal(error: ValidationError): Refusal {
  // An id in a path that can be no id is unknown, like any other that is not there.
  if (error.type === "params") return new Refusal("not_found");
  return new Refusal("invalid_request", problemOf(error.valueError));
}

/** A value as JSON carries it: bigint (nano-USD) as a string of digits. */
export type Wire<T> = T extends bigint
  ? string
  : T extends readonly (infer Item)[]
    ? Wire<Item>[]
    : T extends object
      ? { [Key in keyof T]: Wire<T[Key]> }
      : T;

/** Money goes out as text: a double would round what is exact. */
export function toWire<T>(value: T): Wire<T> {
  return JSON.parse(JSON.stringify(value, (_, inner) => (typeof inner === "bigint" ? String(inner) : inner)));
}
