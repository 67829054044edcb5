import { Type } from "@sinclair/typebox";
import { type Figures, type FiguresScope, figuresOf } from "../books/figures_store.ts";
import { operatorMoney, resellerMoney } from "../books/usage_money.ts";
import { listUsageRecords, type UsageRow } from "../books/usage_records_store.ts";
import { InputError } from "../errors.ts";
import { HOST_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../limits.ts";
import type { Db } from "../platform/db.ts";
import { accountInScope, holderInScope, resellerInScope } from "./fence.ts";
import { Amount, At, BillingMode, Instant, orNull, RowId, text } from "./fields.ts";
import { type Caller, listOperation, operation } from "./operation.ts";

/** Usage records of the accounts that a caller manages, and figures of them. Source: USE-1, MON-24. */

export const listUsage = listOperation({
  name: "usage.list",
  says: "Lists usage records of your own account, or of one that you manage, newest first.",
  scope: "usage:read",
  roles: ["reseller", "admin"],
  route: "GET /usage",
  filter: {
    accountId: Type.Optional(RowId),
    keyId: Type.Optional(RowId),
    modelId: Type.Optional(text(MODEL_ID_CHARS_MAX)),
    host: Type.Optional(text(HOST_CHARS_MAX)),
    mode: Type.Optional(BillingMode),
    start: Type.Optional(Instant),
    end: Type.Optional(Instant),
  },
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
};

export const getFigures = operation({
  name: "usage.figures",
  says: "Gets usage revenue, cost and margin of a period: of all accounts, a reseller's customers, or one account.",
  scope: "usage:read",
  roles: ["reseller", "admin"],
  route: "GET /usage/figures",
  input: {
    accountId: Type.Optional(RowId),
    resellerId: Type.Optional(Type.Integer({ minimum: 1, description: "A reseller. Only an admin names one." })),
    by: Type.Optional(
      Type.Union([Type.Literal("model"), Type.Literal("route")], { description: "`route` is for admins." }),
    ),
    start: Type.Optional(Instant),
    end: Type.Optional(Instant),
  },
  output: Type.Object(
    {
      from: At,
      to: At,
      total: Type.Object(Counts),
      before: Type.Object(Counts, { description: "The period of the same length before it." }),
      lines: Type.Array(Type.Object({ modelId: orNull(Type.String()), routeId: orNull(RowId), ...Counts })),
      hasMore: Type.Boolean({ description: "There are more than 100 lines." }),
    },
    { title: "UsageFigures" },
  ),
  async run(deps, call, { accountId, resellerId, by, ...period }) {
    const { caller } = call;
    if (accountId !== undefined && resellerId !== undefined)
      throw new InputError("Name an account or a reseller, not both.", "accountId");
    if (by === "route" && caller.role !== "admin") throw new InputError("Only admins see routes.", "by");
    const scope = await scopeOf(deps, caller, { accountId, resellerId });
    const found = await call.read((reading) => figuresOf(reading, { ...period, scope, by }));
    const shown = (figures: Figures) => figuresFor(caller, figures);
    return {
      ...found,
      total: shown(found.total),
      before: shown(found.before),
      lines: found.lines.map(({ modelId, routeId, ...figures }) => ({ modelId, routeId, ...shown(figures) })),
    };
  },
});

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
  const isOperator = role === "admin";
  return {
    requests,
    promptTokens,
    cachedTokens,
    completionTokens,
    ...(isOperator ? operatorMoney(figures, providerCostNanoUsd) : resellerMoney(figures)),
    costUnknown: isOperator ? costUnknown : null,
  };
}
