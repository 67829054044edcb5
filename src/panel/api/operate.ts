import {
  type Static,
  type StaticEncode,
  type TObject,
  type TProperties,
  type TSchema,
  type TUnsafe,
  Type,
} from "@sinclair/typebox";
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

type Body<In extends TSchema, Said extends string> = Flat<Omit<StaticEncode<In>, Said>>;
type Flat<T> = { [Field in keyof T]: T[Field] };

/**
 * The body of an operation's endpoint, as its page sends it: the fields of the input but those that the path or the session says. Any other
 * field is refused by name.
 */
export function bodyOf<In extends TObject, Said extends Extract<keyof Static<In>, string> = never>(
  operation: { input: In },
  ...said: Said[]
): TUnsafe<Body<In, Said>> {
  return bodyWith(operation, {}, ...said);
}

/** The same with more fields, which the endpoint takes out. */
export function bodyWith<
  In extends TObject,
  More extends TProperties,
  Said extends Extract<keyof Static<In>, string> = never,
>({ input }: { input: In }, more: More, ...said: Said[]): TUnsafe<Body<In, Said> & Static<TObject<More>>> {
  const names = Object.keys(input.properties).filter((name) => !said.some((one) => one === name));
  // Their values are checked by the operation.
  const fields = Object.fromEntries(names.map((name) => [name, Type.Optional(Type.Unknown())]));
  return Type.Unsafe(Type.Object({ ...fields, ...more }, { additionalProperties: false }));
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
