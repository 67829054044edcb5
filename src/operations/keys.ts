import { type StaticDecode, Type } from "@sinclair/typebox";
import { findAccount } from "../accounts/accounts_store.ts";
import {
  createKey as create,
  disableKey as disable,
  enableKey as enable,
  findKey,
  findShownKey,
  type Key,
  listKeys as readKeys,
  revokeKey as revoke,
  rotateKey as rotate,
  updateKey as update,
} from "../accounts/keys_store.ts";
import { Refusal } from "../errors.ts";
import { HOST_CHARS_MAX, MODEL_ID_CHARS_MAX } from "../limits.ts";
import { holderInScope, resellerOf } from "./fence.ts";
import {
  Amount,
  At,
  BillingMode,
  Instant,
  KeyLimits,
  Maker,
  NanoUsd,
  orNull,
  RowId,
  ShownLimits,
  text,
} from "./fields.ts";
import { type Call, type Caller, changing, listOperation, type OperationDeps, operation } from "./operation.ts";

/** API keys: everyone's own. An admin may also change those of other accounts, and a reseller may disable those of its customers. */

const EVERYONE = ["customer", "reseller", "admin"] as const;
const SELLERS = ["reseller", "admin"] as const;
const NAME_LENGTH_MAX = 400;
const MODELS_MAX = 200;
const HOSTS_MAX = 50;

const Name = text(NAME_LENGTH_MAX);
/** Where a key may be used; null: everywhere. */
const SCOPE = {
  modelIds: Type.Optional(orNull(Type.Array(text(MODEL_ID_CHARS_MAX), { maxItems: MODELS_MAX }))),
  hosts: Type.Optional(orNull(Type.Array(text(HOST_CHARS_MAX), { maxItems: HOSTS_MAX }))),
};
const OfKey = { keyId: RowId };
const Budget = Type.Optional(orNull(NanoUsd));
const ShownBudget = orNull(Amount);
/** A key's own limits: requests a day, and what it may spend from the balance; null: no limit. */
const OWN_LIMITS = {
  dailyUnitsMax: Type.Optional(orNull(Type.Integer())),
  dailySpendMaxNanoUsd: Budget,
  weeklySpendMaxNanoUsd: Budget,
  monthlySpendMaxNanoUsd: Budget,
  totalSpendMaxNanoUsd: Budget,
};
const KeyShape = Type.Object(
  {
    keyId: RowId,
    accountId: RowId,
    name: Type.String(),
    madeBy: orNull(Maker),
    masked: Type.String({ description: "The first and last characters." }),
    mode: BillingMode,
    modelIds: orNull(Type.Array(Type.String())),
    hosts: orNull(Type.Array(Type.String())),
    status: Type.Union([
      Type.Literal("enabled"),
      Type.Literal("disabled"),
      Type.Literal("revoked"),
      Type.Literal("expired"),
    ]),
    expiresAt: orNull(At),
    dailyUnitsMax: orNull(Type.Integer()),
    dailySpendMaxNanoUsd: ShownBudget,
    weeklySpendMaxNanoUsd: ShownBudget,
    monthlySpendMaxNanoUsd: ShownBudget,
    totalSpendMaxNanoUsd: ShownBudget,
    totalSpendFrom: orNull(Type.String({ description: "The first day that counts against its limit in total." })),
    timeZone: Type.String({ description: "Of the days, weeks and months of its own limits." }),
    limits: orNull(ShownLimits),
    createdAt: At,
  },
  { title: "Key" },
);
const KeyUseShape = Type.Object(
  {
    keyId: RowId,
    lastUsedAt: orNull(At),
    lastHost: orNull(Type.String()),
    used: orNull(
      Type.Object(
        {
          units: Type.Integer({ description: "Requests of today." }),
          spentNanoUsd: Type.Object({
            dailySpendMaxNanoUsd: Amount,
            weeklySpendMaxNanoUsd: Amount,
            monthlySpendMaxNanoUsd: Amount,
            totalSpendMaxNanoUsd: Amount,
          }),
          resetsAt: Type.Object({ day: At, week: At, month: At }),
        },
        { description: "Of its own limits, requests in flight included; null: it has none." },
      ),
    ),
  },
  { title: "KeyUse" },
);
const NewKey = {
  secret: Type.String({ description: "The whole key. It is shown only in this answer." }),
  key: KeyShape,
};

export const listKeys = listOperation({
  name: "keys.list",
  says: "Lists keys, newest first: your own, or those of an account that you manage.",
  scope: "keys:read",
  roles: SELLERS,
  route: "GET /keys",
  filter: { accountId: Type.Optional(RowId) },
  before: Type.Optional(RowId),
  item: KeyShape,
  cursor: ({ keyId }: Key) => keyId,
  async list(deps, { caller }, { accountId, ...page }) {
    // The command line has no keys of its own, and lists all.
    if (accountId === undefined && caller.by === undefined) return readKeys(deps, page);
    const holder = await holderInScope(deps, caller, accountId ?? caller.accountId);
    return readKeys(deps, { ...page, accountId: holder.accountId });
  },
});

export const getKey = operation({
  name: "keys.get",
  says: "Returns a key, without its secret.",
  scope: "keys:read",
  roles: SELLERS,
  route: "GET /keys/{keyId}",
  input: OfKey,
  output: KeyShape,
  run: (deps, call, { keyId }) => keyOf(deps, call, keyId),
});

export const getKeyUse = operation({
  name: "keys.use",
  says: "Returns when a key was last used, what counts against its own limits, and when each of their periods begins anew.",
  scope: "keys:read",
  roles: SELLERS,
  route: "GET /keys/{keyId}/use",
  input: OfKey,
  output: KeyUseShape,
  async run(deps, { caller }, { keyId }) {
    const key = await findShownKey(deps, { keyId, ...(caller.role !== "admin" && { accountId: caller.accountId }) });
    if (!key) throw noKey();
    const { lastUsedAt, lastHost, used } = key;
    return { keyId, lastUsedAt, lastHost, used };
  },
});

export const createKey = operation({
  name: "keys.create",
  says: "Creates a key of your own. An admin may name another account.",
  scope: "keys:write",
  roles: EVERYONE,
  route: "POST /keys",
  input: {
    accountId: Type.Optional(RowId),
    name: Name,
    mode: BillingMode,
    ...SCOPE,
    expiresAt: Type.Optional(orNull(Instant)),
    limits: Type.Optional(KeyLimits),
    ...OWN_LIMITS,
  },
  output: Type.Object(NewKey, { title: "NewKey" }),
  async run(deps, call, wanted) {
    const { accountId = call.caller.accountId } = wanted;
    await requireOwn(deps, call.caller, accountId);
    const { modelIds = null, hosts = null, expiresAt = null } = wanted;
    return create(changing(deps, call), { ...wanted, accountId, modelIds, hosts, expiresAt });
  },
});

export const updateKey = operation({
  name: "keys.update",
  says: "Renames a key, or sets its models, hosts and limits. What is left out stays.",
  scope: "keys:write",
  roles: EVERYONE,
  route: "PATCH /keys/{keyId}",
  input: { ...OfKey, name: Type.Optional(Name), ...SCOPE, limits: Type.Optional(KeyLimits), ...OWN_LIMITS },
  output: KeyShape,
  async run(deps, call, { keyId, ...change }) {
    return update(changing(deps, call), await keyOf(deps, call, keyId), change);
  },
});

export const enableKey = changeOf("enable", "Enables a disabled key.", (deps, call, key) =>
  enable(changing(deps, call), key),
);
export const revokeKey = changeOf("revoke", "Ends a key permanently.", (deps, call, key) =>
  revoke(changing(deps, call), key),
);

export const disableKey = operation({
  name: "keys.disable",
  says: "Stops a key until it is enabled again: your own, or one of an account that you manage.",
  scope: "keys:write",
  roles: EVERYONE,
  route: "POST /keys/{keyId}/disable",
  input: OfKey,
  output: KeyShape,
  async run(deps, call, { keyId }) {
    const { caller } = call;
    const key = await findKey(deps, { keyId });
    if (key === undefined || !(await mayDisable(deps, caller, key))) throw noKey();
    return disable(changing(deps, call), key);
  },
});

export const rotateKey = operation({
  name: "keys.rotate",
  says: "Replaces a key with a new one that has the same settings. The old one works for a while.",
  scope: "keys:write",
  roles: EVERYONE,
  route: "POST /keys/{keyId}/rotate",
  input: { ...OfKey, overlapSeconds: Type.Integer({ description: "How long the old key still works." }) },
  output: Type.Object({ ...NewKey, old: KeyShape }, { title: "RotatedKey" }),
  async run(deps, call, { keyId, overlapSeconds }) {
    const { accountId } = await keyOf(deps, call, keyId);
    return rotate(changing(deps, call), { accountId, keyId, overlapSeconds });
  },
});

function changeOf(
  name: "enable" | "revoke",
  says: string,
  change: (deps: OperationDeps, call: Call, key: Key) => Promise<StaticDecode<typeof KeyShape>>,
) {
  return operation({
    name: `keys.${name}`,
    says,
    scope: "keys:write",
    roles: EVERYONE,
    route: `POST /keys/{keyId}/${name}`,
    input: OfKey,
    output: KeyShape,
    run: async (deps, call, { keyId }) => change(deps, call, await keyOf(deps, call, keyId)),
  });
}

/** A key that the caller may change. Throws not_found, also for another account's key. */
async function keyOf(deps: OperationDeps, { caller }: Call, keyId: number): Promise<Key> {
  const key = await findKey(deps, { keyId, ...(caller.role !== "admin" && { accountId: caller.accountId }) });
  if (!key) throw noKey();
  return key;
}

async function mayDisable(deps: OperationDeps, caller: Caller, { accountId }: Key): Promise<boolean> {
  if (accountId === caller.accountId) return true;
  return caller.role !== "customer" && (await findAccount(deps, accountId, resellerOf(caller))) !== undefined;
}

/** Only an admin makes keys for others: whoever has the secret of a key spends what its account has. Throws not_found. */
async function requireOwn(deps: OperationDeps, caller: Caller, accountId: number): Promise<void> {
  if (caller.role === "admin") await holderInScope(deps, caller, accountId);
  else if (accountId !== caller.accountId) throw new Refusal("not_found");
}

function noKey(): Refusal {
  return new Refusal("not_found");
}
