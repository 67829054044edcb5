import { Type } from "@sinclair/typebox";
import type { Role } from "../accounts/roles.ts";
import { InputError, Refusal } from "../errors.ts";
import {
  type Allotment,
  allotmentsOf,
  grantAllotment as grant,
  listAllotments as readAllotments,
  withdrawAllotment as withdraw,
} from "../ledger/allotments_store.ts";
import { currentPackagesOf, holdingsOf } from "../ledger/holdings_store.ts";
import {
  assignPackage as assign,
  endPackage as end,
  findPackage,
  type Package,
  type PayWith,
  payerOf,
} from "../ledger/packages_store.ts";
import type { Db } from "../platform/db.ts";
import { holderInScope } from "./fence.ts";
import { Amount, At, orNull, PackagePayment, PackageStart, RowId, text } from "./fields.ts";
import { type Caller, changing, listOperation, operation } from "./operation.ts";

/**
 * Packages, balance and allotments of the accounts that a caller manages: a reseller its customers, an admin everyone. A reseller may also
 * assign packages to itself.
 */

const SELLERS = ["reseller", "admin"] as const;
const REASON_LENGTH_MAX = 1000;
const OfAccount = { accountId: RowId };

export const PackageShape = Type.Object(
  {
    packageId: RowId,
    accountId: RowId,
    offeringId: orNull(RowId),
    name: Type.String(),
    state: Type.Union([Type.Literal("active"), Type.Literal("queued"), Type.Literal("ended")]),
    startsAt: At,
    endsAt: At,
    timeZone: Type.String(),
    days: Type.Integer(),
    dailyLimit: Type.Integer(),
    totalLimit: Type.Integer(),
    carryover: Type.Boolean(),
    tokenLimit: orNull(Type.Integer()),
    modelIds: orNull(Type.Array(Type.String())),
    unitsUsed: Type.Integer(),
    unitsHeld: Type.Integer(),
    tokensUsed: Type.Integer(),
    endedEarly: orNull(Type.Union([Type.Literal("replaced"), Type.Literal("ended")])),
    unitsDropped: orNull(Type.Integer()),
    paidWith: orNull(PackagePayment),
    allowance: orNull(
      Type.Object({
        availableNow: Type.Integer(),
        usedToday: Type.Integer(),
        totalLeft: Type.Integer(),
        resetsAt: orNull(At),
        availableAtReset: Type.Integer(),
      }),
    ),
  },
  { title: "Package" },
);
const AllotmentShape = Type.Object(
  {
    allotmentId: RowId,
    resellerId: RowId,
    resellerName: Type.String(),
    offeringId: RowId,
    offeringName: Type.String(),
    granted: Type.Integer(),
    used: Type.Integer(),
    left: Type.Integer(),
    reason: orNull(Type.String()),
    createdAt: At,
  },
  { title: "Allotment" },
);

export type PackageView = Omit<Package, "paidByAccountId" | "allotmentId"> & {
  /** What paid for the package. null for customers, who do not see it. */
  paidWith: PayWith | null;
};

export function viewOf({ role }: Pick<Caller, "role">, { paidByAccountId, allotmentId, ...row }: Package): PackageView {
  const paidWith = allotmentId !== null ? "allotment" : paidByAccountId !== null ? "balance" : "operator";
  return { ...row, paidWith: role === "customer" ? null : paidWith };
}

/** The active and queued packages of several accounts, by account. For a caller that manages them. */
export async function packagesOfAll(
  deps: { db: Db },
  accountIds: readonly number[],
): Promise<Map<number, PackageView[]>> {
  const rows = await currentPackagesOf(deps, accountIds);
  return Map.groupBy(
    rows.map((row) => viewOf({ role: "admin" }, row)),
    ({ accountId }) => accountId,
  );
}

/** Only an admin may assign a package that nobody pays for. Throws InputError. Source: RES-2. */
export function checkPayWith({ role }: Pick<Caller, "role">, payWith: PayWith | undefined): void {
  if (payWith === "operator" && role !== "admin")
    throw new InputError("Pay with your balance or your allotment.", "payWith");
}

export const getHoldings = operation({
  name: "packages.holdings",
  says: "Returns the balance of an account, its packages, and a reseller's allotments.",
  scope: "packages:read",
  roles: SELLERS,
  route: "GET /accounts/{accountId}/holdings",
  input: OfAccount,
  output: Type.Object(
    {
      balance: Type.Object({
        balanceNanoUsd: Amount,
        heldNanoUsd: Amount,
        freeNanoUsd: Amount,
        paygEnabled: Type.Boolean(),
      }),
      packages: Type.Array(PackageShape),
      allotments: Type.Array(
        Type.Object({
          offeringId: RowId,
          offeringName: Type.String(),
          granted: Type.Integer(),
          used: Type.Integer(),
          left: Type.Integer(),
        }),
      ),
    },
    { title: "Holdings" },
  ),
  async run(deps, { caller }, { accountId }) {
    return holdingsFor(deps, caller, await holderInScope(deps, caller, accountId));
  },
});

/** Balance and packages; for a reseller also the allotments it may still assign from. */
export async function holdingsFor(
  deps: { db: Db },
  viewer: Pick<Caller, "role">,
  { accountId, role }: { accountId: number; role: Role },
) {
  const { balance, packages } = await holdingsOf(deps, accountId);
  return {
    balance,
    packages: packages.map((row) => viewOf(viewer, row)),
    allotments: role === "reseller" ? await allotmentsOf(deps, accountId) : [],
  };
}

export const assignPackage = operation({
  name: "packages.assign",
  says: "Assigns an offering to an account as a package. Its reseller pays the wholesale price, or gives a piece of its allotment.",
  scope: "packages:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/packages",
  input: { ...OfAccount, offeringId: RowId, when: PackageStart, payWith: Type.Optional(PackagePayment) },
  output: Type.Object({ package: PackageShape }),
  async run(deps, call, { accountId, offeringId, when, payWith }) {
    const { caller } = call;
    const holder = await holderInScope(deps, caller, accountId);
    checkPayWith(caller, payWith);
    const actorId = caller.by?.accountId ?? null;
    const wanted = { accountId, offeringId, when, ...payerOf(holder, payWith), actorId };
    return { package: viewOf(caller, await assign(changing(deps, call), wanted)) };
  },
});

export const endPackage = operation({
  name: "packages.end",
  says: "Ends an active or queued package now. Later ones move up, and what is left of it is dropped.",
  scope: "packages:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/packages/{packageId}/end",
  input: { ...OfAccount, packageId: RowId },
  output: Type.Object({ package: PackageShape, unitsDropped: Type.Integer() }),
  async run(deps, call, { accountId, packageId }) {
    await holderInScope(deps, call.caller, accountId);
    const found = await findPackage(deps, packageId);
    if (found?.accountId !== accountId) throw new Refusal("not_found");
    const ended = await end(changing(deps, call), { accountId, packageId });
    return { package: viewOf(call.caller, ended), unitsDropped: ended.unitsDropped ?? 0 };
  },
});

export const listAllotments = listOperation({
  name: "allotments.list",
  says: "Lists what resellers were granted, newest first.",
  scope: "packages:read",
  roles: SELLERS,
  route: "GET /allotments",
  filter: { resellerId: Type.Optional(RowId) },
  before: Type.Optional(RowId),
  item: AllotmentShape,
  cursor: ({ allotmentId }: Allotment) => allotmentId,
  async list(deps, { caller }, query) {
    const own = caller.role === "reseller" ? { resellerId: caller.accountId } : {};
    return readAllotments(deps, { ...query, ...own });
  },
});

export const grantAllotment = operation({
  name: "allotments.grant",
  says: "Grants a reseller a number of packages that it may assign without paying.",
  scope: "packages:write",
  roles: ["admin"],
  route: "POST /allotments",
  input: { resellerId: RowId, offeringId: RowId, pieces: Type.Integer(), reason: text(REASON_LENGTH_MAX) },
  output: Type.Object({ allotment: AllotmentShape }),
  async run(deps, call, wanted) {
    const reason = wanted.reason.trim();
    if (reason === "") throw new InputError("Give a reason. It is kept with the grant.", "reason");
    const actorId = call.caller.by?.accountId ?? null;
    return { allotment: await grant(changing(deps, call), { ...wanted, reason, actorId }) };
  },
});

export const withdrawAllotment = operation({
  name: "allotments.withdraw",
  says: "Takes back what is left of an allotment.",
  scope: "packages:write",
  roles: ["admin"],
  route: "POST /allotments/{allotmentId}/withdraw",
  input: { allotmentId: RowId },
  output: Type.Object({ allotment: AllotmentShape, withdrawn: Type.Integer() }),
  run: (deps, call, { allotmentId }) => withdraw(changing(deps, call), allotmentId),
});
