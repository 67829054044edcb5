import { setTimeout as sleep } from "node:timers/promises";
import { and, desc, eq, lt, type SQL, sql } from "drizzle-orm";
import { checkInstant, checkInteger, checkName, isRowId } from "../accounts/input_checks.ts";
import { requireOnSale } from "../accounts/offerings_store.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import {
  CENT_NANO_USD,
  MONEY_NANO_USD_MAX,
  VOUCHER_CODES,
  VOUCHER_CODES_KEPT_MAX,
  VOUCHER_CODES_PER_DAY_MAX,
  VOUCHER_NAME_CHARS_MAX,
  VOUCHER_USES,
  VOUCHER_YEARS_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { accounts } from "../platform/schema_accounts.ts";
import { offerings } from "../platform/schema_offerings.ts";
import { voucherBatches, voucherProblems, vouchers, voucherUses } from "../platform/schema_vouchers.ts";
import { OPERATOR } from "./sellers_store.ts";
import { type NewVoucherCode, newVoucherCode } from "./voucher_codes.ts";

/**
 * Vouchers: a seller makes a batch of codes, gets them once, and can disable the batch. Redeeming: voucher_redemption_store.ts.
 * Source: VOU-1, VOU-2.
 */

/** Batches of one seller: that have not ended, and made within 24 hours. */
const BATCHES_MAX = 1_000;
const BATCHES_PER_DAY_MAX = 200;
const PAGE_MAX = 100;
/** Codes inserted in one statement, and the pause before the next: a large batch leaves room for everything else. */
const INSERT_ROWS = 500;
const INSERT_PAUSE_MS = 10;
/** Batches deleted in one statement; each may have ten thousand codes. */
const PRUNE_ROWS = 5;

export type PayVoucherWith = "operator" | "balance" | "allotment";

export type NewBatch = {
  /** 0: the operator. */
  sellerId: number;
  /** For the seller. Customers do not see it. */
  name: string;
  /** What a code is for: one of these. */
  offeringId: number | null;
  amountNanoUsd: bigint | null;
  /** What pays when a code is redeemed; undefined: the reseller's balance, or nobody for the operator's codes. */
  payWith?: PayVoucherWith | undefined;
  codes: number;
  usesPerCode: number;
  /** As `checkInstant` takes it. */
  endsAt: string;
};

export type Batch = {
  batchId: number;
  sellerId: number;
  name: string;
  /** null: its codes are for an amount. */
  offering: { offeringId: number; name: string } | null;
  amountNanoUsd: bigint | null;
  payWith: PayVoucherWith;
  codes: number;
  usesPerCode: number;
  /** Redemptions, and how many more the codes allow. */
  used: number;
  left: number;
  /** By the database's clock. `used_up`: every code was redeemed as often as it can be. */
  state: "active" | "used_up" | "ended" | "disabled";
  endsAt: string;
  disabledAt: string | null;
  createdAt: string;
  /** Redemptions that could not be paid: their codes stayed unused. null: none. */
  problem: { why: "balance" | "allotment" | "offering"; count: number; lastAt: string } | null;
};

/** A code as its seller gets it, once. */
export type MadeCode = { voucherId: number; code: string };

/**
 * Makes a batch and returns its codes, which cannot be shown again. All of it is made, or nothing: nothing if `signal` is aborted before
 * the last code is written. Throws InputError, service_unavailable (aborted).
 */
export async function createBatch(
  deps: ChangeDeps,
  wanted: NewBatch,
  { signal }: { signal?: AbortSignal } = {},
): Promise<{ batch: Batch; codes: MadeCode[] }> {
  const row = checkBatch(wanted);
  return changing(deps, async (tx) => {
    await checkRoom(tx, row);
    if (row.offeringId !== null) await requireOnSale(tx, row.offeringId);
    const endsAt = await checkEnd(tx, wanted.endsAt);
    const [added] = await tx
      .insert(voucherBatches)
      .values({ ...row, endsAt, createdBy: deps.by?.accountId ?? null })
      .returning({ id: voucherBatches.id });
    const batchId = Number(added?.id);
    const codes: MadeCode[] = [];
    for (let left = row.codes; left > 0; left -= INSERT_ROWS) {
      if (codes.length > 0) await sleep(INSERT_PAUSE_MS);
      // Nobody would get the codes.
      if (signal?.aborted) throw new Refusal("service_unavailable");
      const made = Array.from({ length: Math.min(left, INSERT_ROWS) }, newVoucherCode);
      codes.push(...(await insertCodes(tx, { batchId, made, usesMax: row.usesPerCode })));
    }
    return { batch: await one(tx, eq(voucherBatches.id, batchId)), codes };
  });
}

/** A seller's batches, newest first. `before`: the last id of the previous page. */
export async function listBatches(
  { db }: { db: Db },
  { sellerId, before, limit = PAGE_MAX }: { sellerId: number; before?: number; limit?: number },
): Promise<Page<Batch>> {
  const size = pageSize(limit, PAGE_MAX);
  const where = and(
    eq(voucherBatches.sellerId, sellerId),
    before === undefined ? undefined : lt(voucherBatches.id, before),
  );
  const rows = await select(db.orm, where, size + 1);
  return pageOf(rows, size);
}

/** One batch of a seller. Throws not_found. */
export async function findBatch({ db }: { db: Db }, owned: OwnedBatch): Promise<Batch> {
  return one(db.orm, isOwned(owned));
}

export type OwnedBatch = { sellerId: number; batchId: number };

/** Disables a batch: its codes are refused from now on, and what was redeemed stays. Throws not_found, InputError. */
export async function disableBatch(deps: ChangeDeps, owned: OwnedBatch): Promise<Batch> {
  const disable = async (tx: Tx) => {
    await one(tx, isOwned(owned));
    const disabled = await tx
      .update(voucherBatches)
      .set({ disabledAt: sql`clock_timestamp()` })
      .where(and(isOwned(owned), sql`${voucherBatches.disabledAt} is null`))
      .returning({ id: voucherBatches.id });
    if (disabled.length === 0) throw new InputError("This batch is already revoked.");
    return one(tx, isOwned(owned));
  };
  return changing(deps, disable, { protects: true });
}

export type VoucherUse = {
  useId: number;
  voucherId: number;
  /** The code's last characters. */
  suffix: string;
  account: { accountId: number; name: string; email: string };
  at: string;
};

/** Who redeemed codes of a batch, newest first. Throws not_found. */
export async function listUses(
  deps: { db: Db },
  { before, limit = PAGE_MAX, ...owned }: OwnedBatch & { before?: number; limit?: number },
): Promise<Page<VoucherUse>> {
  const { batchId } = await findBatch(deps, owned);
  const size = pageSize(limit, PAGE_MAX);
  const rows = await deps.db.orm
    .select({
      useId: voucherUses.id,
      voucherId: voucherUses.voucherId,
      suffix: vouchers.suffix,
      account: { accountId: accounts.id, name: accounts.name, email: accounts.email },
      at: voucherUses.createdAt,
    })
    .from(voucherUses)
    .innerJoin(vouchers, eq(vouchers.id, voucherUses.voucherId))
    .innerJoin(accounts, eq(accounts.id, voucherUses.accountId))
    .where(and(eq(voucherUses.batchId, batchId), before === undefined ? undefined : lt(voucherUses.id, before)))
    .orderBy(desc(voucherUses.id))
    .limit(size + 1);
  return pageOf(
    rows.map((row) => ({ ...row, at: toIso(row.at) })),
    size,
  );
}

/**
 * Deletes batches that ended more than `keptDays` ago, with their codes and the list of who redeemed them. Packages and transactions
 * stay. Returns how many batches.
 */
export async function pruneVouchers({ db }: { db: Db }, keptDays: number): Promise<number> {
  return await inSlices(PRUNE_ROWS, async () => {
    const deleted = await db.orm.execute(sql`
      delete from voucher_batches where id in (
        select id from voucher_batches where ends_at < ledger_now() - make_interval(days => ${keptDays}::int)
        order by ends_at limit ${PRUNE_ROWS} for update skip locked)
      returning 1`);
    return deleted.length;
  });
}

function checkBatch({ sellerId, name, offeringId, amountNanoUsd, payWith, codes, usesPerCode }: NewBatch) {
  if ((offeringId === null) === (amountNanoUsd === null))
    throw new InputError("A voucher is for an offering or for an amount: name one of them.", "offeringId");
  if (amountNanoUsd !== null) checkAmount(amountNanoUsd);
  return {
    sellerId,
    name: checkName(name, { param: "name", charsMax: VOUCHER_NAME_CHARS_MAX }),
    offeringId,
    amountNanoUsd,
    payWith: checkPayment(payWith, { sellerId, isPackage: offeringId !== null }),
    codes: checkInteger(codes, { param: "codes", ...VOUCHER_CODES }),
    usesPerCode: checkInteger(usesPerCode, { param: "usesPerCode", ...VOUCHER_USES }),
  };
}

function checkAmount(nanoUsd: bigint): void {
  if (nanoUsd <= 0n || nanoUsd > MONEY_NANO_USD_MAX)
    throw new InputError("The amount must be above zero, and at most $9,000,000.", "amountNanoUsd");
  if (nanoUsd % CENT_NANO_USD !== 0n) throw new InputError("The amount must be in whole cents.", "amountNanoUsd");
}

/** Only the operator's codes are paid by nobody. Source: RES-2. */
function checkPayment(
  payWith: PayVoucherWith | undefined,
  { sellerId, isPackage }: { sellerId: number; isPackage: boolean },
): PayVoucherWith {
  const isOperator = sellerId === OPERATOR;
  const chosen = payWith ?? (isOperator ? "operator" : "balance");
  if ((chosen === "operator") !== isOperator)
    throw new InputError(
      isOperator ? "No balance pays for the operator's codes." : "Pay with your balance or your allotment.",
      "payWith",
    );
  if (chosen === "allotment" && !isPackage) throw new InputError("An allotment pays for packages only.", "payWith");
  return chosen;
}

/** Until commit, no other batch of the seller is made, so that the limits are exact. Throws InputError. Source: VOU-1. */
async function checkRoom(tx: Tx, { sellerId, codes }: { sellerId: number; codes: number }): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended('tollgate.vouchers', ${sellerId}::bigint))`);
  const ofDay = sql`filter (where ${voucherBatches.createdAt} > clock_timestamp() - interval '24 hours')`;
  const [made] = await tx
    .select({
      open: sql<number>`(count(*) filter (where ${voucherBatches.endsAt} > ledger_now()))::int`,
      batchesOfDay: sql<number>`(count(*) ${ofDay})::int`,
      codesOfDay: sql<number>`coalesce(sum(${voucherBatches.codes}) ${ofDay}, 0)::int`,
      codesKept: sql<number>`coalesce(sum(${voucherBatches.codes}), 0)::int`,
    })
    .from(voucherBatches)
    .where(eq(voucherBatches.sellerId, sellerId));
  const { open = 0, batchesOfDay = 0, codesOfDay = 0, codesKept = 0 } = made ?? {};
  if (open >= BATCHES_MAX)
    throw new InputError(
      sentence("You have {batchesMax} batches that have not ended, which is the limit.", { batchesMax: BATCHES_MAX }),
    );
  if (batchesOfDay >= BATCHES_PER_DAY_MAX)
    throw new InputError(
      sentence("You have made {batchesPerDayMax} batches within 24 hours, which is the limit.", {
        batchesPerDayMax: BATCHES_PER_DAY_MAX,
      }),
    );
  checkCodes(codes, {
    had: codesOfDay,
    max: VOUCHER_CODES_PER_DAY_MAX,
    text: /*i18n*/ "You can make {max, number} codes within 24 hours. {left, number} are left.",
  });
  checkCodes(codes, {
    had: codesKept,
    max: VOUCHER_CODES_KEPT_MAX,
    text: /*i18n*/ "You can have {max, number} codes, ended ones included. {left, number} are left.",
  });
}

/** Throws InputError. */
function checkCodes(codes: number, { had, max, text }: { had: number; max: number; text: string }): void {
  if (had + codes <= max) return;
  throw new InputError(sentence(text, { max, left: Math.max(0, max - had) }), "codes");
}

/** Throws InputError unless the end is in the future, by the database's clock. */
async function checkEnd(tx: Tx, endsAt: string): Promise<string> {
  const at = checkInstant(endsAt, "endsAt");
  const [row] = await tx.execute<{ ahead: boolean; near: boolean }>(sql`
    select ${at}::timestamptz > ledger_now() as ahead,
      ${at}::timestamptz <= ledger_now() + make_interval(years => ${VOUCHER_YEARS_MAX}) as near`);
  if (row?.ahead !== true) throw new InputError("The end must be in the future.", "endsAt");
  if (!row.near)
    throw new InputError(
      sentence("The end must be within {voucherYearsMax} years.", { voucherYearsMax: VOUCHER_YEARS_MAX }),
      "endsAt",
    );
  return at;
}

/** Inserts codes in their order, and returns them with their ids. */
async function insertCodes(
  tx: Tx,
  { batchId, made, usesMax }: { batchId: number; made: readonly NewVoucherCode[]; usesMax: number },
): Promise<MadeCode[]> {
  const list = (texts: readonly string[]) => `{${texts.join(",")}}`;
  const rows = await tx.execute<{ id: string; digest: string }>(sql`
    insert into vouchers (batch_id, digest, suffix, uses_max)
    select ${batchId}::bigint, decode(digest, 'hex'), suffix, ${usesMax}::int
    from unnest(${list(made.map(({ digest }) => digest.toString("hex")))}::text[], ${list(made.map(({ suffix }) => suffix))}::text[])
      with ordinality as given (digest, suffix, place) order by place
    returning id::text, encode(digest, 'hex') as digest`);
  const ids = new Map(rows.map(({ id, digest }) => [digest, Number(id)]));
  return made.map(({ code, digest }) => ({ code, voucherId: ids.get(digest.toString("hex")) ?? 0 }));
}

function isOwned({ sellerId, batchId }: OwnedBatch): SQL | undefined {
  return isRowId(batchId) ? and(eq(voucherBatches.id, batchId), eq(voucherBatches.sellerId, sellerId)) : sql`false`;
}

async function one(tx: Tx, where: SQL | undefined): Promise<Batch> {
  const [batch] = await select(tx, where, 1);
  if (!batch) throw new Refusal("not_found", { message: "There is no such batch of vouchers." });
  return batch;
}

async function select(tx: Tx, where: SQL | undefined, limit: number): Promise<Batch[]> {
  const rows = await tx
    .select({
      batchId: voucherBatches.id,
      sellerId: voucherBatches.sellerId,
      name: voucherBatches.name,
      offering: { offeringId: offerings.id, name: offerings.name },
      amountNanoUsd: voucherBatches.amountNanoUsd,
      payWith: voucherBatches.payWith,
      codes: voucherBatches.codes,
      usesPerCode: voucherBatches.usesPerCode,
      used: voucherBatches.used,
      state: sql<Batch["state"]>`case when ${voucherBatches.disabledAt} is not null then 'disabled'
        when ${voucherBatches.endsAt} <= ledger_now() then 'ended'
        when ${voucherBatches.used} >= ${voucherBatches.codes}::bigint * ${voucherBatches.usesPerCode} then 'used_up'
        else 'active' end`,
      endsAt: voucherBatches.endsAt,
      disabledAt: voucherBatches.disabledAt,
      createdAt: voucherBatches.createdAt,
      problem: { why: voucherProblems.why, count: voucherProblems.count, lastAt: voucherProblems.lastAt },
    })
    .from(voucherBatches)
    .leftJoin(offerings, eq(offerings.id, voucherBatches.offeringId))
    .leftJoin(voucherProblems, eq(voucherProblems.batchId, voucherBatches.id))
    .where(where)
    .orderBy(desc(voucherBatches.id))
    .limit(limit);
  return rows.map((row) => ({
    ...row,
    left: row.codes * row.usesPerCode - row.used,
    endsAt: toIso(row.endsAt),
    disabledAt: toIso(row.disabledAt),
    createdAt: toIso(row.createdAt),
    problem: row.problem && { ...row.problem, lastAt: toIso(row.problem.lastAt) },
  }));
}
