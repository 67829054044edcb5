import { Type } from "@sinclair/typebox";
import { listMovements, type Movement } from "../books/balance_movements_store.ts";
import { type BalanceTransaction, TRANSACTION_KINDS } from "../books/balance_transactions_store.ts";
import { InputError } from "../errors.ts";
import { addBalance, transferBalance } from "../ledger/balances_store.ts";
import { holdingsOf } from "../ledger/holdings_store.ts";
import { accountInScope, holderInScope } from "./fence.ts";
import { Amount, At, orNull, RowId, SignedNanoUsd, text } from "./fields.ts";
import { type Call, type Caller, changing, listOperation, type OperationDeps, operation } from "./operation.ts";

/** Balances of the accounts that a caller manages: top-ups, corrections, and what moved. */

const SELLERS = ["reseller", "admin"] as const;
const REASON_LENGTH_MAX = 1000;

const Balance = Type.Object(
  { balanceNanoUsd: Amount, heldNanoUsd: Amount, freeNanoUsd: Amount, paygEnabled: Type.Boolean() },
  { title: "Balance" },
);
const Named = Type.Object({ accountId: RowId, name: Type.String() });
const MovementShape = Type.Object(
  {
    entryId: RowId,
    kind: Type.String({ description: TRANSACTION_KINDS.join(", ") }),
    amountNanoUsd: Amount,
    reason: orNull(Type.String()),
    counterpart: orNull(Named),
    package: orNull(Type.Object({ name: Type.String(), holder: Named })),
    orderId: orNull(RowId),
    actor: orNull(Named),
    createdAt: At,
  },
  { title: "Movement" },
);

export const changeBalance = operation({
  name: "balances.change",
  says: "Adds to a balance. A reseller transfers from its own. An admin may also correct one, and gives a reason.",
  scope: "balances:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/balance",
  input: {
    accountId: RowId,
    kind: Type.Union([Type.Literal("top_up"), Type.Literal("correction")]),
    amountNanoUsd: SignedNanoUsd,
    reason: Type.Optional(text(REASON_LENGTH_MAX)),
  },
  output: Type.Object({ balance: Balance }),
  async run(deps, call, { accountId, amountNanoUsd: nanoUsd, ...rest }) {
    await accountInScope(deps, call.caller, accountId);
    await move(deps, call, { ...rest, accountId, nanoUsd });
    return { balance: (await holdingsOf(deps, accountId)).balance };
  },
});

type Wanted = { kind: "top_up" | "correction"; accountId: number; nanoUsd: bigint; reason?: string };

/**
 * An admin adds to or corrects a balance, with a reason; a reseller transfers from its own balance. Throws InputError,
 * insufficient_balance.
 */
async function move(deps: OperationDeps, call: Call, { kind, accountId, nanoUsd, reason }: Wanted): Promise<void> {
  const { caller } = call;
  const by = changing(deps, call);
  const actorId = caller.by?.accountId ?? null;
  const why = reason?.trim() || null;
  if (caller.role === "admin") {
    // The command line may top up without one.
    if (why === null && (caller.by !== undefined || kind === "correction"))
      throw new InputError("Give a reason. It is kept with the transaction.", "reason");
    await addBalance(by, { accountId, nanoUsd, kind, reason: why, actorId });
    return;
  }
  if (kind !== "top_up") throw new InputError("Only the operator can correct a balance.", "kind");
  await transferBalance(by, { fromId: caller.accountId, toId: accountId, nanoUsd, reason: why, actorId });
}

export const listBalanceMovements = listOperation({
  name: "balances.movements",
  says: "Lists the transactions of a balance that are no charges of requests, newest first.",
  scope: "balances:read",
  roles: SELLERS,
  route: "GET /accounts/{accountId}/movements",
  filter: { accountId: RowId },
  before: Type.Optional(RowId),
  item: MovementShape,
  cursor: ({ entryId }: Movement) => entryId,
  async list(deps, call, query) {
    await holderInScope(deps, call.caller, query.accountId);
    const { rows, hasMore } = await call.read((reading) => listMovements(reading, query));
    return { rows: rows.map((row) => withoutStaff(call.caller, row)), hasMore };
  },
});

/** The operator's staff are not named to customers of resellers. */
export function withoutStaff<Row extends Pick<BalanceTransaction, "actor">>(
  { role, tenantId }: Pick<Caller, "role" | "tenantId">,
  row: Row,
): Row {
  const maySee = row.actor?.role !== "admin" || role !== "customer" || tenantId === 0;
  return maySee ? row : { ...row, actor: null };
}
