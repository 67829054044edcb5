import { Type } from "@sinclair/typebox";
import { type Figures, type FiguresBy, type FiguresScope, figuresOf } from "../books/figures_store.ts";
import { percentilesOf } from "../books/latency_marks.ts";
import { listRequests, type RequestQuery, type RequestRow } from "../books/requests_store.ts";
import { operatorMoney, resellerMoney } from "../books/usage_money.ts";
import { listUsageRecords, type UsageRow } from "../books/usage_records_store.ts";
import { InputError } from "../errors.ts";
import { HOST_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../limits.ts";
import type { Db } from "../platform/db.ts";
import { accountInScope, holderInScope, resellerInScope, resellerOf } from "./fence.ts";
import { Amount, At, BillingMode, Instant, orNull, RowId, text } from "./fields.ts";
import { type Caller, listOperation, operation } from "./operation.ts";

/** Which requests a list has: of an account, a key, a model, a host, a payer, a period. */
const OF_REQUESTS = {
  accountId: Type.Optional(RowId),
  keyId: Type.Optional(RowId),
  modelId: Type.Optional(text(MODEL_ID_CHARS_MAX)),
  host: Type.Optional(text(HOST_CHARS_MAX)),
  mode: Type.Optional(BillingMode),
  start: Type.Optional(Instant),
  end: Type.Optional(Instant),
};

/** Usage records of the accounts that a caller manages, and figures of them. Source: USE-1, MON-24. */

export const listUsage = listOperation({
  name: "usage.list",
  says: "Lists usage records of your own account, or of one that you manage, newest first.",
  scope: "usage:read",
  roles: ["reseller", "admin"],
  route: "GET /usage",
  filter: OF_REQUESTS,
  before: Type.Optional(Type.String({ format: "uuid" })),
  item: Type.Object(
    {
      requestId: Type.String({ format: "uuid" }),
      accountId: RowId,
      keyId: RowId,
      modelId: Type.String(),
      host: Type.String(),
      mode: BillingMode,
      units: Type.Integer(),
      promptTokens: Type.Integer(),
      cachedTokens: Type.Integer(),
      completionTokens: Type.Integer(),
      chargedNanoUsd: Amount,
      estimated: Type.Boolean(),
      reason: Type.String({ description: "How it ended." }),
      createdAt: At,
      finishedAt: At,
    },
    { title: "UsageRecord" },
  ),
  cursor: ({ requestId }: UsageRow) => requestId,
  async list(deps, call, { accountId, host, before, ...query }) {
    const holder = await holderInScope(deps, call.caller, accountId ?? call.caller.accountId);
    const filter = {
      ...query,
      accountId: holder.accountId,
      after: before,
      ...(host !== undefined && { hosts: [host] }),
    };
    const { rows, hasMore, nextAfter } = await call.read((reading) => listUsageRecords(reading, filter));
    return { rows, hasMore, next: nextAfter };
  },
});

const REASON_CHARS_MAX = 40;

export const listAllRequests = listOperation({
  name: "usage.requests",
  says: "Lists finished requests, charged or released, newest first: your own, and those of the accounts that you manage.",
  scope: "usage:read",
  roles: ["reseller", "admin"],
  route: "GET /usage/requests",
  filter: {
    outcome: Type.Optional(
      Type.Union([Type.Literal("charged"), Type.Literal("released")], { description: "`charged` unless it is given." }),
    ),
    reason: Type.Optional(text(REASON_CHARS_MAX, "How it ended, as `complete`.")),
    routeId: Type.Optional(Type.Integer({ minimum: 1, description: "Only an admin names a route." })),
    ...OF_REQUESTS,
  },
  before: Type.Optional(Type.String({ format: "uuid" })),
  item: Type.Object(
    {
      requestId: Type.String({ format: "uuid" }),
      outcome: Type.Union([Type.Literal("charged"), Type.Literal("released")]),
      reason: Type.String({ description: "How it ended." }),
      accountId: RowId,
      keyId: RowId,
      keyName: orNull(Type.String()),
      modelId: Type.String(),
      host: Type.String(),
      mode: BillingMode,
      routeId: orNull(Type.Integer({ minimum: 1, description: "The route that answered. null for a reseller." })),
      provider: orNull(Type.String({ description: "Its provider. null for a reseller." })),
      firstMs: orNull(Type.Integer({ description: "To the first event, or to the whole answer." })),
      durationMs: Type.Integer(),
      promptTokens: Type.Integer(),
      cachedTokens: Type.Integer(),
      completionTokens: Type.Integer(),
      estimated: Type.Boolean(),
      units: Type.Integer(),
      chargedNanoUsd: Amount,
      usageRevenueNanoUsd: Amount,
      costNanoUsd: orNull(Amount),
      marginNanoUsd: orNull(Amount),
      createdAt: At,
      finishedAt: At,
    },
    { title: "FinishedRequest" },
  ),
  cursor: ({ requestId }) => requestId,
  async list(deps, call, { before, limit, ...filter }) {
    const query = { ...(await requestQueryOf(deps, call.caller, filter)), after: before, limit };
    const { rows, hasMore, nextAfter } = await call.read((reading) => listRequests(reading, query));
    return { rows: rows.map((row) => requestFor(call.caller, row)), hasMore, next: nextAfter };
  },
});

type RequestFilter = Omit<RequestQuery, "hosts" | "tenantOf"> & { host?: string };

/** The filter of a list of requests within what a caller manages. Throws not_found, InputError. */
export async function requestQueryOf(
  deps: { db: Db },
  caller: Caller,
  { host, ...filter }: RequestFilter,
): Promise<RequestQuery> {
  if (filter.routeId !== undefined && caller.role !== "admin")
    throw new InputError("Only admins see routes.", "routeId");
  if (filter.accountId !== undefined) await holderInScope(deps, caller, filter.accountId);
  return { ...filter, tenantOf: resellerOf(caller), ...(host !== undefined && { hosts: [host] }) };
}

/** A request as a caller may see it: an admin for the operator, a reseller for itself, without route and provider. */
export function requestFor({ role }: Pick<Caller, "role">, { operator, reseller, ...row }: RequestRow) {
  return role === "admin" ? { ...row, ...operator } : { ...row, ...reseller, routeId: null, provider: null };
}

const Percentiles = orNull(
  Type.Object(
    { p50Ms: Type.Integer(), p95Ms: Type.Integer() },
    {
      description: "Estimates within a bucket: at most a tenth off. null: nothing was measured.",
    },
  ),
);

const Counts = {
  requests: Type.Integer(),
  promptTokens: Type.Integer(),
  cachedTokens: Type.Integer(),
  completionTokens: Type.Integer(),
  usageRevenueNanoUsd: Amount,
  costNanoUsd: Amount,
  marginNanoUsd: Amount,
  costUnknown: orNull(
    Type.Integer({
      description: "Requests whose provider cost is not known and not in the cost. null for a reseller.",
    }),
  ),
  firstEvent: Percentiles,
  wholeAnswer: Percentiles,
};

const Errors = Type.Array(Type.Object({ code: Type.String(), requests: Type.Integer() }), {
  description: "Requests that ended with an error, by its code. They are in no other figure.",
});

export const By = Type.Union(
  [
    Type.Literal("model"),
    Type.Literal("route"),
    Type.Literal("host"),
    Type.Literal("hour"),
    Type.Literal("day"),
    Type.Literal("month"),
    Type.Literal("key"),
    Type.Literal("account"),
    Type.Literal("reseller"),
  ],
  {
    description:
      "`route` and `reseller` are for admins. `key` needs an account, `account` none. `hour`: of at most two days. Days and months are those of UTC.",
  },
);

export const getFigures = operation({
  name: "usage.figures",
  says: "Gets usage revenue, cost, margin, latency and errors of a period: of all accounts, a reseller's customers, or one account.",
  scope: "usage:read",
  roles: ["reseller", "admin"],
  route: "GET /usage/figures",
  input: {
    accountId: Type.Optional(RowId),
    resellerId: Type.Optional(Type.Integer({ minimum: 1, description: "A reseller. Only an admin names one." })),
    by: Type.Optional(By),
    start: Type.Optional(Instant),
    end: Type.Optional(Instant),
  },
  output: Type.Object(
    {
      from: At,
      to: At,
      total: Type.Object(Counts),
      before: Type.Object(Counts, { description: "The period of the same length before it." }),
      errors: Errors,
      errorsBefore: Errors,
      lines: Type.Array(
        Type.Object({
          modelId: orNull(Type.String()),
          routeId: orNull(RowId),
          host: orNull(Type.String()),
          hour: orNull(At),
          day: orNull(At),
          month: orNull(At),
          keyId: orNull(RowId),
          accountId: orNull(Type.Integer({ minimum: 1, description: "An account, or a reseller with its customers." })),
          ...Counts,
          errors: orNull(
            Type.Integer({
              description: "Requests that ended with an error. null: they are not counted by route, host or key.",
            }),
          ),
        }),
      ),
      hasMore: Type.Boolean({ description: "There are more than 100 lines." }),
    },
    { title: "UsageFigures" },
  ),
  async run(deps, call, { accountId, resellerId, by, ...period }) {
    const { caller } = call;
    if (accountId !== undefined && resellerId !== undefined)
      throw new InputError("Name an account or a reseller, not both.", "accountId");
    if ((by === "route" || by === "reseller") && caller.role !== "admin")
      throw new InputError(by === "route" ? "Only admins see routes." : "Only admins see resellers.", "by");
    const scope = await scopeOf(deps, caller, { accountId, resellerId });
    const found = await call.read((reading) => figuresOf(reading, { ...period, scope, by }));
    const shown = (figures: Figures) => figuresFor(caller, figures);
    return {
      ...found,
      total: shown(found.total),
      before: shown(found.before),
      lines: found.lines.map(({ of, errors, ...figures }) => ({ ...lineOf(by, of), ...shown(figures), errors })),
    };
  },
});

/** What a line is of, in the field of its kind. */
export function lineOf(by: FiguresBy | undefined, of: string | null) {
  const id = of === null ? null : Number(of);
  return {
    modelId: by === "model" ? of : null,
    routeId: by === "route" ? id : null,
    host: by === "host" ? of : null,
    hour: by === "hour" ? of : null,
    day: by === "day" ? of : null,
    month: by === "month" ? of : null,
    keyId: by === "key" ? id : null,
    accountId: by === "account" || by === "reseller" ? id : null,
  };
}

/** Whose figures are asked for: a reseller's are those of its customers. Throws not_found, InputError. */
async function scopeOf(
  deps: { db: Db },
  caller: Caller,
  { accountId, resellerId }: { accountId: number | undefined; resellerId: number | undefined },
): Promise<FiguresScope> {
  if (accountId !== undefined) return { accountId: (await accountInScope(deps, caller, accountId)).accountId };
  if (caller.role === "admin" && resellerId === undefined) return "everyone";
  return { customersOf: await resellerInScope(deps, caller, resellerId) };
}

/** As the caller defines them: an admin for the operator, a reseller for itself. */
function figuresFor({ role }: Caller, figures: Figures) {
  const { requests, promptTokens, cachedTokens, completionTokens, providerCostNanoUsd, costUnknown } = figures;
  const { firstMarks, wholeMarks } = figures;
  const isOperator = role === "admin";
  return {
    requests,
    promptTokens,
    cachedTokens,
    completionTokens,
    ...(isOperator ? operatorMoney(figures, providerCostNanoUsd) : resellerMoney(figures)),
    costUnknown: isOperator ? costUnknown : null,
    firstEvent: percentilesOf(firstMarks),
    wholeAnswer: percentilesOf(wholeMarks),
  };
}
