import { Type } from "@sinclair/typebox";
import { isLossKind, lossBoundsOf } from "../accounts/losses.ts";
import { forgetHour, type HolderLosses, listLosses as readLosses } from "../accounts/losses_store.ts";
import type { Config } from "../config.ts";
import { accountInScope } from "./fence.ts";
import { At, amountOf, orNull, RowId, text } from "./fields.ts";
import { changing, listOperation, operation } from "./operation.ts";

/** What the operator bore for requests that nobody paid, and who is refused for it. Source: LOS-1, LOS-2, LOS-3. */

const CURSOR_CHARS_MAX = 200;
const Borne = amountOf("In the unit of its kind: ms of a provider's time, nano-USD, or tokens.");
const LossShape = Type.Object(
  {
    holder: Type.Union([Type.Literal("account"), Type.Literal("reseller")], {
      description: "An account, or a reseller with its customers.",
    }),
    holderId: RowId,
    kind: Type.String({ description: "provider_time, shortfall or tokens." }),
    hourAmount: Borne,
    hourEndsAt: orNull(At),
    stopped: Type.Boolean({ description: "Its requests are refused until the hour ends." }),
    amount: Borne,
    times: Type.Integer({ description: "Requests." }),
    lastAt: At,
  },
  { title: "Loss" },
);

export const listLosses = listOperation({
  name: "losses.list",
  says: "Lists what nobody paid, by account and by reseller with its customers, the latest first.",
  scope: "usage:read",
  roles: ["admin"],
  route: "GET /losses",
  filter: { accountId: Type.Optional(RowId) },
  before: Type.Optional(text(CURSOR_CHARS_MAX)),
  item: LossShape,
  cursor: ({ cursor }: ReturnType<typeof shown>) => cursor,
  async list(deps, call, { accountId, before, limit }) {
    const found = await call.read((reading) => readLosses(reading, { holderId: accountId, before, limit: limit + 1 }));
    return { rows: found.slice(0, limit).map((row) => shown(deps, row)), hasMore: found.length > limit };
  },
});

export const forgetLosses = operation({
  name: "losses.forget",
  says: "Ends the hour of an account's losses, and of a reseller's customers with it: its requests are no longer refused for them.",
  scope: "accounts:write",
  roles: ["admin"],
  route: "POST /accounts/{accountId}/losses/forget",
  input: { accountId: RowId },
  output: Type.Object(
    { forgotten: Type.Boolean({ description: "Whether an hour ran." }) },
    { title: "ForgottenLosses" },
  ),
  async run(deps, call, { accountId }) {
    await accountInScope(deps, call.caller, accountId);
    return { forgotten: await forgetHour(changing(deps, call), accountId) };
  },
});

function shown({ config }: { config: Config }, { holder, ...losses }: HolderLosses) {
  const { kind, hourAmount } = losses;
  const stopped = isLossKind(kind) && hourAmount >= lossBoundsOf(config)[kind][holder];
  return { ...losses, holder: holder === "tenant" ? ("reseller" as const) : holder, stopped };
}
