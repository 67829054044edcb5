import { type Static, type StaticEncode, type TObject, type TSchema, type TUnsafe, Type } from "@sinclair/typebox";
import type { Deps } from "../../deps.ts";
import { type Operation, performJson } from "../../operations/operation.ts";
import { once } from "./form_once.ts";
import { type AsJson, toJson } from "./formats.ts";
import { callBy, type Person } from "./panel_session.ts";

/**
 * Operations as endpoints of the panel. An operation says itself what its input is, and checks it; here the page gets its type.
 *
 *   .patch("/keys/:id", operate(deps, updateKey, { path: { id: "keyId" } }), { params: IdParam, body: bodyOf(updateKey, "keyId") })
 */

type Body<In extends TSchema, OfPath extends string> = Omit<StaticEncode<In>, OfPath>;

/** The body of an operation's endpoint, as its page sends it: all fields of the input but those of the path. */
export function bodyOf<In extends TSchema, OfPath extends Extract<keyof Static<In>, string> = never>(
  _operation: { input: In },
  ..._ofPath: OfPath[]
): TUnsafe<{ [Field in keyof Body<In, OfPath>]: Body<In, OfPath>[Field] }> {
  return Type.Unsafe(Type.Object({}, { additionalProperties: true }));
}

type Asked = {
  person: Person;
  request: Request;
  params?: Record<string, unknown>;
  query?: Record<string, unknown>;
  body?: unknown;
};

type Endpoint<In extends TObject> = {
  /** Which field of the input each name of the path is. */
  path?: Readonly<Record<string, Extract<keyof Static<In>, string>>>;
  /** Fields that the page does not choose. It runs first, and may throw. */
  add?: (asked: { person: Person; params: Record<string, unknown> }) => object | Promise<object>;
};

/**
 * The endpoint of an operation. Its input is the path's, the query's and the body's fields. A form with an Idempotency-Key is done once.
 */
export function operate<In extends TObject, Out extends TSchema, Result>(
  deps: Deps,
  operation: Operation<In, Out, Result>,
  { path = {}, add = () => ({}) }: Endpoint<In> = {},
): (asked: Asked) => Promise<AsJson<Result>> {
  return async ({ person, request, params = {}, query = {}, body }) => {
    const ofPath = Object.entries(params).map(([name, value]) => [path[name] ?? name, value]);
    const added = await add({ person, params });
    const given = { ...query, ...(body ?? {}), ...Object.fromEntries(ofPath), ...added };
    const work = () => performJson(deps, operation, callBy(deps, { person, request }), given);
    return toJson(request.method === "GET" ? await work() : await once(deps, { person, request }, work));
  };
}
