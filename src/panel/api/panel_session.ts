import { Elysia } from "elysia";
import { type MemberRole, mayWrite } from "../../accounts/member_roles.ts";
import { requireMember } from "../../accounts/members_store.ts";
import type { Role } from "../../accounts/roles.ts";
import type { Session } from "../../accounts/sessions.ts";
import type { Viewed } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { hasBody, readBody } from "../../http/body.ts";
import type { Host } from "../../http/host.ts";
import { refuseRepeated } from "../../http/query.ts";
import { factsOf } from "../../http/request_facts.ts";
import { askedCall, countDelivery } from "../../operations/asked_calls.ts";
import { inBatchPlace } from "../../operations/batch_places.ts";
import type { Call } from "../../operations/operation.ts";
import type { Actor } from "../../platform/changes_store.ts";
import type { Db } from "../../platform/db.ts";
import { noteFormBody } from "./form_once.ts";
import { subjectOf } from "./member_subjects.ts";
import { cookieName, visitorOf } from "./session_auth.ts";

/**
 * What every signed-in endpoint of the panel starts with, in this order: host, session, CSRF, role, body, and the session once
 * more. A file of endpoints begins with `signedIn(deps, ...roles)`, which puts `person` into each handler's context.
 */

/** The largest form has a picture in base64. */
const BODY_BYTES_MAX = 1024 * 1024;

/** Who is signed in, and which account's panel is shown. */
export type Person = {
  /** The account that is shown and changed: the one that the person works in, or the one an admin views. */
  accountId: number;
  role: Role;
  /** The role of the person in the account. */
  member: MemberRole;
  /** The person whose sign-in and mails Settings shows: who signed in, or who began the account that an admin views. */
  self: Omit<Session["person"], "language">;
  /** The reseller of a customer; a reseller's own id; else 0. */
  tenantId: number;
  name: string;
  email: string;
  session: Session;
  host: Host;
  /** Set while an admin views another account's panel; then every change is refused with read_only. */
  viewing: Viewed | null;
  /** Leaves the request's place among the readers of Postgres, for what has places of its own. */
  leaveRead: () => void;
  /** The actor for the audit log: always the person who signed in. Pass it on as `{ ...deps, by: person.by }`. */
  by: Actor;
};

/** Endpoints for signed-in people. With `roles`, only for those: everyone else gets not_found. */
export function signedIn(deps: Deps, ...roles: Role[]) {
  const name = cookieName(deps);
  return new Elysia({ normalize: false })
    .onParse(async ({ request, cookie }) => {
      // Before the body is read: a request without a session gets 401 whatever it sent.
      const { session } = await personOf(deps, { request, token: cookie[name]?.value, roles });
      if (!hasBody(request)) return {};
      const { value, text, room } = await readBody(deps, request, { bytesMax: BODY_BYTES_MAX, owner: session });
      room.close(); // Only bodies still being read count against the limit; parsed forms are small.
      noteFormBody(request, text);
      // Again: the body may have taken a minute, in which the session may have ended.
      await visitorOf(deps, request, cookie[name]?.value);
      return value;
    })
    .derive(async ({ request, cookie, set }) => {
      set.headers["x-request-id"] = factsOf(request).requestId;
      set.headers["cache-control"] = "no-store";
      const person = await personOf(deps, { request, token: cookie[name]?.value, roles });
      refuseRepeated(factsOf(request).url.searchParams);
      // Not before the body has arrived, which may take a minute.
      await deps.readPlaces.enter(request, { side: "panel", ...person.session });
      return { person };
    });
}

/** Endpoints for people who are not signed in. */
export function signedOut() {
  return new Elysia({ normalize: false }).onBeforeHandle(({ request, set }) => {
    set.headers["x-request-id"] = factsOf(request).requestId;
    set.headers["cache-control"] = "no-store";
  });
}

const people = new WeakMap<Request, Person>();

type Credentials = { request: Request; token: unknown; roles: readonly Role[] };

/** Throws host_not_allowed, session_required, csrf_failed, read_only, not_found (endpoints of another role), insufficient_role. */
async function personOf(deps: Deps, { request, token, roles }: Credentials): Promise<Person> {
  const person = people.get(request) ?? (await loadPerson(deps, request, token));
  people.set(request, person);
  // Checked on every call: endpoints of one role may be nested in those of several.
  if (roles.length > 0 && !roles.includes(person.role)) throw new Refusal("not_found");
  requireWriter(request, person);
  return person;
}

async function loadPerson(deps: Deps, request: Request, token: unknown): Promise<Person> {
  const { session, host } = await visitorOf(deps, request, token);
  factsOf(request).accountId = session.accountId;
  await deps.limiter.take(`panel:${session.accountId}`);
  const { viewing, member } = session;
  if (viewing && request.method !== "GET") throw new Refusal("read_only");
  const { accountId, role, tenantId, name, email } = viewing ?? session;
  const self = viewing ?? session.person;
  const facts = factsOf(request);
  const leaveRead = () => facts.leaveRead?.();
  const by = { ...actorOf(session, facts.requestId), leaveRead };
  return { accountId, role, member, self, tenantId, name, email, session, host, viewing, leaveRead, by };
}

/** Whether the member may change what the endpoint changes; everyone may read. Throws insufficient_role. Source: MEM-2. */
export function requireWriter(request: Request, { member }: Pick<Session, "member">): void {
  if (request.method === "GET") return;
  if (!mayWrite(member, subjectOf(factsOf(request).url.pathname))) throw new Refusal("insufficient_role");
}

/** The person for the audit log. Nothing is written if they are no longer a member with the same role. */
export function actorOf({ person, accountId, role, member }: Session, requestId: string): Actor {
  const by = { accountId: person.accountId, worksIn: accountId, requestId };
  // An admin's account has one member.
  if (role === "admin") return by;
  const membership = { accountId, personId: person.accountId, role: member };
  return { ...by, beforeCommit: (tx) => requireMember(tx, membership) };
}

/**
 * The tenant whose mail server serves a person; 0: the operator. A reseller's server mails its customers; the
 * operator's mails the reseller.
 */
export function mailerOf({ role, tenantId }: Pick<Person, "role" | "tenantId">): number {
  return role === "customer" ? tenantId : 0;
}

/** `signal` ends the read when the page stops waiting. */
export type Reader = { person: Person; signal: AbortSignal };

/**
 * Runs a read that may take long on the connections reserved for that. It counts against the limits of the person who signed in,
 * whichever account is shown. Throws what `work` throws, too_many_requests, service_unavailable.
 */
export function longRead<T>(
  { longReads }: Pick<Deps, "longReads">,
  { person, ...options }: Reader & { readMsMax?: number; waitMsMax?: number },
  work: (deps: { db: Db }) => Promise<T>,
): Promise<T> {
  const { accountId, tenantId } = person.session;
  person.leaveRead();
  return longReads.run({ side: "panel", accountId, tenantId }, options, work);
}

/** The call of an operation by a person, through a page. */
export function callBy(deps: Deps, { person, request: { signal } }: { person: Person; request: Request }): Call {
  return {
    caller: person,
    hostName: person.host.name,
    signal,
    read: (work) => longRead(deps, { person, signal }, work),
    callOut: (kind, work) => askedCall(deps, { person, kind }, work),
    countDelivery: () => countDelivery(deps, person),
    makeBatch(sellerId, work) {
      person.leaveRead();
      return inBatchPlace(deps.batchPlaces, { sellerId, signal }, work);
    },
  };
}
