import {
  type StaticDecode,
  type TInteger,
  type TObject,
  type TOptional,
  type TProperties,
  type TSchema,
  Type,
} from "@sinclair/typebox";
import { TypeCompiler } from "@sinclair/typebox/compiler";
import { type MemberRole, mayWrite } from "../accounts/member_roles.ts";
import type { Role } from "../accounts/roles.ts";
import type { Access, Scope } from "../accounts/scopes.ts";
import { SUBJECT_NAMES, type Subject } from "../accounts/subjects.ts";
import type { PriceList } from "../catalog/price_list.ts";
import type { Deps } from "../deps.ts";
import { Refusal, sentence } from "../errors.ts";
import { problemOf } from "../http/field_errors.ts";
import type { Actor } from "../platform/changes_store.ts";
import type { Db } from "../platform/db.ts";
import type { CallKind } from "./asked_calls.ts";

/**
 * An operation is defined once, as data. The panel, the management API and the command line call it: each finds out who asks, and calls
 * `perform`, which checks access.
 */

/** What operations need of a replica, or of the command line. */
export type OperationDeps = Pick<Deps, "config" | "db" | "bus" | "log">;

/** Who asks. The command line is an admin without an account (id 0). */
export type Caller = {
  accountId: number;
  role: Role;
  /** The role in the account of the person who asks; the command line and an admin are owners. */
  member: MemberRole;
  /** The reseller of a customer; a reseller's own id; else 0. */
  tenantId: number;
  /** For the audit log. undefined: the command line. */
  by: Actor | undefined;
  /** What a token may do; undefined: everything that the role may. */
  scopes?: ReadonlySet<Scope> | undefined;
};

/** `passwordHash`: of a new account, instead of an invitation. `priceList`: a list of prices instead of the installed one. */
export type Brings = { passwordHash?: string | undefined; priceList?: PriceList | undefined };

/** A call of an operation: who asks, and what it may use meanwhile. */
export type Call = {
  caller: Caller;
  /** The host that was asked; null: the command line. */
  hostName: string | null;
  /** Aborted when nobody waits for the answer. */
  signal?: AbortSignal | undefined;
  /** Runs a read that may take long, within the caller's share. */
  read<T>(work: (deps: { db: Db }) => Promise<T>): Promise<T>;
  /** Calls another server, within the caller's share: Stripe, or the receiver of a webhook. */
  callOut<T>(kind: CallKind, work: () => Promise<T>): Promise<T>;
  /** Counts a delivery that is made later because the caller asks for it. */
  countDelivery(): Promise<void>;
  /** Makes a batch of a seller's vouchers, when it is that seller's turn. */
  makeBatch<T>(sellerId: number, work: () => Promise<T>): Promise<T>;
  /** What only the operator has, at the command line with the database. */
  brings?: Brings;
};

export type Method = "get" | "post" | "put" | "patch" | "delete";
/** A page of a list. `next`: what `before` is for the next page; null: there is none. */
export type ResultPage<Row> = { rows: Row[]; hasMore: boolean; next: string | number | null };

type Facts<In extends TSchema, Out extends TSchema> = {
  /** As in `keys.rotate`: the subject, and what is done. */
  name: `${string}.${string}`;
  /** What it does, in one sentence. */
  says: string;
  /** null: only in the panel and on the command line, because it makes tokens. */
  scope: `${Subject}:${Access}` | null;
  /** For everyone else there is no such operation. */
  roles: readonly Role[];
  /** Method and path of the management API. Names in braces are fields of the input. */
  route: `${Uppercase<Method>} /${string}`;
  input: In;
  output: Out;
};

/** `run` does it. Throws Refusal, InputError. Whether the caller may do it with these ids is its own check: `fence.ts`. */
export type Operation<In extends TSchema, Out extends TSchema, Result> = Facts<In, Out> & {
  run(deps: OperationDeps, call: Call, input: StaticDecode<In>): Promise<Result>;
  /** Checks a value as it came in JSON, and does it. Throws invalid_request. */
  runJson(deps: OperationDeps, call: Call, given: unknown): Promise<Result>;
  /** The same of a list; null: it is none. */
  pageJson: ((deps: OperationDeps, call: Call, given: unknown) => Promise<ResultPage<unknown>>) | null;
};

/** Any operation, for what treats all alike. */
export type AnyOperation = Facts<TObject, TSchema> & {
  runJson(deps: OperationDeps, call: Call, given: unknown): Promise<unknown>;
  pageJson: ((deps: OperationDeps, call: Call, given: unknown) => Promise<ResultPage<unknown>>) | null;
};

type Spec<In extends TProperties, Out extends TSchema, Result> = Omit<Facts<TObject<In>, Out>, "input"> & {
  input: In;
  run(deps: OperationDeps, call: Call, input: StaticDecode<TObject<In>>): Promise<Result>;
};

export function operation<In extends TProperties, Out extends TSchema, Result extends StaticDecode<Out>>(
  spec: Spec<In, Out, Result>,
): Operation<TObject<In>, Out, Result> {
  return build(spec);
}

function build<In extends TProperties, Out extends TSchema, Result>(
  spec: Spec<In, Out, Result>,
): Operation<TObject<In>, Out, Result> {
  const input = closed(spec.input);
  const read = reader(input);
  return { ...spec, input, runJson: (deps, call, given) => spec.run(deps, call, read(given)), pageJson: null };
}

/** Rows of one page of a list. */
export const PAGE_MAX = 100;
const PAGE_DEFAULT = 50;

type Paging<Before extends TSchema> = { before: Before; limit: TOptional<TInteger> };
type ListInput<In extends TProperties, Before extends TSchema> = StaticDecode<TObject<In & Paging<Before>>>;

/**
 * A list, newest first. `before` is the optional schema of what the next page begins after, and `cursor` takes it from a row. The management API
 * gives an opaque cursor instead of `before`. `list` returns `next` itself if a page can end without a row.
 */
export function listOperation<
  In extends TProperties,
  Before extends TSchema,
  Item extends TSchema,
  Row extends StaticDecode<Item>,
>({
  filter,
  before,
  item,
  list,
  cursor,
  ...spec
}: Omit<Facts<TObject, TSchema>, "input" | "output"> & {
  filter: In;
  before: Before;
  item: Item;
  cursor: (row: Row) => string | number;
  list(
    deps: OperationDeps,
    call: Call,
    input: ListInput<In, Before> & { limit: number },
  ): Promise<{ rows: Row[]; hasMore: boolean; next?: string | number | null }>;
}) {
  const limit = Type.Integer({
    minimum: 1,
    maximum: PAGE_MAX,
    description: `Rows of a page. ${PAGE_DEFAULT} unless it is given.`,
  });
  const input: In & Paging<Before> = { ...filter, before, limit: Type.Optional(limit) };
  const built = build({
    ...spec,
    input,
    output: Type.Object({ rows: Type.Array(item), hasMore: Type.Boolean() }),
    run: async (deps, call, wanted: ListInput<In, Before>): Promise<ResultPage<Row>> => {
      const { rows, hasMore, next } = await list(deps, call, { ...wanted, limit: limitOf(wanted) });
      const last = rows.at(-1);
      return { rows, hasMore, next: next ?? (hasMore && last !== undefined ? cursor(last) : null) };
    },
  });
  return { ...built, pageJson: built.runJson };
}

function limitOf(wanted: object): number {
  return "limit" in wanted && typeof wanted.limit === "number" ? wanted.limit : PAGE_DEFAULT;
}

/** An object without other fields: where money moves, a mistyped name must not be ignored. */
function closed<In extends TProperties>(properties: In): TObject<In> {
  return Type.Object(properties, { additionalProperties: false });
}

/** Checks a value as it came in JSON. Amounts become bigint. Throws invalid_request that names the first invalid field. */
function reader<T extends TSchema>(schema: T): (given: unknown) => StaticDecode<T> {
  const compiled = TypeCompiler.Compile(schema);
  return (given) => {
    if (!compiled.Check(given)) throw new Refusal("invalid_request", problemOf(compiled.Errors(given).First()));
    return compiled.Decode(given);
  };
}

/**
 * Does an operation that the caller may do. Throws not_found if it is not one of the caller's role, insufficient_role if the member may not
 * do it, insufficient_scope if the token may not, and what the operation throws.
 */
export async function perform<In extends TSchema, Out extends TSchema, Result>(
  deps: OperationDeps,
  { run, ...facts }: Operation<In, Out, Result>,
  call: Call,
  input: StaticDecode<In>,
): Promise<Result> {
  requireAccess(facts, call.caller);
  return await run(deps, call, input);
}

/** The same with a value as it came in JSON. Also throws invalid_request. */
export async function performJson<Result>(
  deps: OperationDeps,
  operation: Pick<AnyOperation, "scope" | "roles" | "route"> & {
    runJson(deps: OperationDeps, call: Call, given: unknown): Promise<Result>;
  },
  call: Call,
  given: unknown,
): Promise<Result> {
  requireAccess(operation, call.caller);
  return await operation.runJson(deps, call, given);
}

/** Whether a caller may do an operation at all. Throws not_found, insufficient_role, insufficient_scope. Source: MEM-2. */
export function requireAccess(
  { scope, roles, route }: Pick<AnyOperation, "scope" | "roles" | "route">,
  { role, member, scopes }: Pick<Caller, "role" | "member" | "scopes">,
): void {
  if (!roles.includes(role)) throw new Refusal("not_found");
  if (scopes === undefined) {
    if (!route.startsWith("GET ") && !mayWrite(member, subjectOf(scope))) throw new Refusal("insufficient_role");
    return;
  }
  if (scope === null) throw new Refusal("not_found");
  const code: string = scope;
  if (!scopes.has(scope))
    throw new Refusal("insufficient_scope", { message: sentence("This token lacks the scope {code}.", { code }) });
}

/** An operation without a scope is about tokens. */
function subjectOf(scope: AnyOperation["scope"]): Subject | "tokens" {
  const [subject] = SUBJECT_NAMES.filter((name) => scope?.startsWith(`${name}:`));
  return subject ?? "tokens";
}

/** What a change of the caller needs. */
export function changing(deps: OperationDeps, { caller: { by } }: Call) {
  return { ...deps, by };
}
