import { desc, eq, inArray, type SQL, sql } from "drizzle-orm";
import { isRowId } from "../accounts/input_checks.ts";
import { InputError } from "../errors.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { packages } from "../platform/schema.ts";
import type { Assignment } from "./packages_and_balances_store.ts";

/** What an account holds, for people to read: its packages with what is left of them, its balance, and what one more would do. */

const PACKAGES_MAX = 1000;
/** Packages that are over, on the page that shows what an account has. */
const ENDED_SHOWN = 20;

export type Package = {
  packageId: number;
  accountId: number;
  offeringId: number | null;
  name: string;
  /** By the database's clock. */
  state: "active" | "queued" | "ended";
  startsAt: string;
  endsAt: string;
  timeZone: string;
  days: number;
  dailyLimit: number;
  totalLimit: number;
  carryover: boolean;
  tokenLimit: number | null;
  modelIds: string[] | null;
  unitsUsed: number;
  unitsHeld: number;
  /** Live holds included. */
  tokensUsed: number;
  /** `replaced` by another, or `ended` by hand, with what was left of it; null: it ran or runs its time. */
  endedEarly: "replaced" | "ended" | null;
  unitsDropped: number | null;
  /** Who paid the wholesale price, or gave a piece of its allotment; null: the operator. */
  paidByAccountId: number | null;
  allotmentId: number | null;
  /** What it grants now; null unless it is active. Live holds count as used. */
  allowance: Allowance | null;
};

export type Allowance = {
  /** Requests left now: today's, or with carryover all that was saved up; never above `totalLeft`. */
  availableNow: number;
  usedToday: number;
  totalLeft: number;
  /** The package's next midnight, if more is granted then. */
  resetsAt: string | null;
};

export type Holdings = {
  balance: { balanceNanoUsd: bigint; heldNanoUsd: bigint; freeNanoUsd: bigint; paygEnabled: boolean };
  /** Queued ones, the active one, and the last that ended; the latest first. */
  packages: Package[];
};

/** What an account has: its balance, and its packages. */
export async function holdingsOf({ db }: { db: Db }, accountId: number): Promise<Holdings> {
  const [row] = await db.orm.execute<Record<string, unknown>>(sql`
    select balance_nano_usd, held_nano_usd, payg_enabled from balances where account_id = ${accountId}::bigint`);
  const own = eq(packages.accountId, accountId);
  const ended = sql`(select id from packages where account_id = ${accountId}::bigint and ends_at <= ledger_now()
    order by ends_at desc, id desc limit ${ENDED_SHOWN})`;
  const balanceNanoUsd = BigInt(String(row?.balance_nano_usd ?? 0));
  const heldNanoUsd = BigInt(String(row?.held_nano_usd ?? 0));
  return {
    balance: {
      balanceNanoUsd,
      heldNanoUsd,
      freeNanoUsd: balanceNanoUsd - heldNanoUsd,
      paygEnabled: row?.payg_enabled === true,
    },
    packages: await selectPackages(
      db.orm,
      sql`${own} and (${packages.endsAt} > ledger_now() or ${packages.id} in ${ended})`,
    ),
  };
}

/** What a package grants. */
export type Terms = Pick<
  Package,
  "name" | "days" | "dailyLimit" | "totalLimit" | "carryover" | "tokenLimit" | "timeZone" | "modelIds"
>;

export type Preview = {
  startsAt: string;
  endsAt: string;
  /** The active package that would end now, and how many requests of it would be lost. */
  dropped: { packageId: number; name: string; unitsLeft: number } | null;
  /** The package in force right before it: when it takes over the active one, else the last of the queue. */
  before: Package | null;
  after: Terms;
  costNanoUsd: bigint;
  /** What the payer has, before and after; null: the operator gives it. */
  payer: { accountId: number; freeNanoUsd: bigint; balanceNanoUsd: bigint; balanceAfterNanoUsd: bigint } | null;
  /** Pieces left in the payer's allotment afterwards; null: it is not paid from one. */
  allotmentLeftAfter: number | null;
  /** Whether the payer's free balance, or its allotment, covers it. */
  enough: boolean;
};

/** What an assignment would do if it were made now: read, and nothing held. Throws InputError. */
export async function previewAssignment(
  { db }: { db: Db },
  { accountId, offeringId, when, payerId, fromAllotment = false }: Omit<Assignment, "actorId">,
): Promise<Preview> {
  if (!isRowId(accountId) || !isRowId(offeringId)) throw notAssignable();
  const [row] = await db.orm.execute<Record<string, unknown>>(sql`
    with clock as materialized (select ledger_now() as now), own as (
      select p.* from packages p, clock where p.account_id = ${accountId}::bigint and p.ends_at > clock.now
    ), start as (
      select case when ${when} = 'now' then now else greatest(now, (select max(ends_at) from own)) end as at from clock
    )
    select start.at as starts_at, package_end(start.at, f.days, f.time_zone) as ends_at, f.wholesale_nano_usd,
      f.name, f.days, f.daily_limit, f.total_limit, f.carryover, f.token_limit, f.time_zone, f.model_ids,
      (select id from own, clock where starts_at <= clock.now order by starts_at desc limit 1) as active_id,
      (select id from own order by ends_at desc, id desc limit 1) as last_id,
      coalesce(b.balance_nano_usd, 0) as balance, coalesce(b.balance_nano_usd - b.held_nano_usd, 0) as free,
      (select coalesce(sum(granted - used), 0) from allotments
       where reseller_id = ${payerId}::bigint and offering_id = f.id) as pieces
    from start cross join offerings f join accounts a on a.id = ${accountId}::bigint
    left join balances b on b.account_id = ${payerId}::bigint
    where f.id = ${offeringId}::bigint and f.enabled`);
  if (!row) throw notAssignable();
  const ids = [row.active_id, row.last_id].filter((id) => id !== null).map(Number);
  const own = ids.length === 0 ? [] : await selectPackages(db.orm, inArray(packages.id, ids));
  const active = own.find(({ packageId }) => packageId === Number(row.active_id)) ?? null;
  const last = own.find(({ packageId }) => packageId === Number(row.last_id)) ?? null;
  const costNanoUsd = payerId === null || fromAllotment ? 0n : BigInt(String(row.wholesale_nano_usd));
  const [balanceNanoUsd, freeNanoUsd] = [BigInt(String(row.balance)), BigInt(String(row.free))];
  const pieces = Number(row.pieces);
  return {
    startsAt: toIso(String(row.starts_at)),
    endsAt: toIso(String(row.ends_at)),
    dropped: when === "now" && active ? { ...pick(active), unitsLeft: unitsLeft(active) } : null,
    before: when === "now" ? active : last,
    after: toTerms(row),
    costNanoUsd,
    payer:
      payerId === null
        ? null
        : { accountId: payerId, freeNanoUsd, balanceNanoUsd, balanceAfterNanoUsd: balanceNanoUsd - costNanoUsd },
    allotmentLeftAfter: fromAllotment ? Math.max(0, pieces - 1) : null,
    enough: fromAllotment ? pieces > 0 : costNanoUsd <= (payerId === null ? costNanoUsd : freeNanoUsd),
  };
}

function toTerms(row: Record<string, unknown>): Terms {
  return {
    name: String(row.name),
    days: Number(row.days),
    dailyLimit: Number(row.daily_limit),
    totalLimit: Number(row.total_limit),
    carryover: row.carryover === true,
    tokenLimit: row.token_limit === null ? null : Number(row.token_limit),
    timeZone: String(row.time_zone),
    modelIds: Array.isArray(row.model_ids) ? row.model_ids.map(String) : null,
  };
}

function pick({ packageId, name }: Package) {
  return { packageId, name };
}

function unitsLeft({ totalLimit, unitsUsed, unitsHeld }: Package): number {
  return totalLimit - unitsUsed - unitsHeld;
}

/** Packages by a condition, the latest first. */
export async function selectPackages(tx: Tx, where: SQL): Promise<Package[]> {
  const rows = await tx
    .select({
      packageId: packages.id,
      accountId: packages.accountId,
      offeringId: packages.offeringId,
      name: packages.name,
      state: sql<
        Package["state"]
      >`case when ${packages.endsAt} <= ledger_now() then 'ended' when ${packages.startsAt} > ledger_now() then 'queued' else 'active' end`,
      startsAt: packages.startsAt,
      endsAt: packages.endsAt,
      timeZone: packages.timeZone,
      days: packages.days,
      dailyLimit: packages.dailyLimit,
      totalLimit: packages.totalLimit,
      carryover: packages.carryover,
      tokenLimit: packages.tokenLimit,
      modelIds: packages.modelIds,
      unitsUsed: packages.unitsUsed,
      unitsHeld: packages.unitsHeld,
      tokensUsed: sql<number>`${packages.tokensUsed} + ${packages.tokensHeld}`.mapWith(Number),
      endedEarly: packages.endedEarly,
      unitsDropped: packages.unitsDropped,
      paidByAccountId: packages.paidByAccountId,
      allotmentId: packages.allotmentId,
      usedToday: sql<number>`coalesce((select d.units_used + d.units_held from package_days d
        where d.package_id = ${packages.id} and d.day = (ledger_now() at time zone ${packages.timeZone})::date), 0)`,
      /** 1 on its first calendar day. */
      day: sql<number>`(ledger_now() at time zone ${packages.timeZone})::date - ${packages.firstDay} + 1`,
      midnight: sql<string>`day_begins((ledger_now() at time zone ${packages.timeZone})::date + 1, ${packages.timeZone})`,
    })
    .from(packages)
    .where(where)
    .orderBy(desc(packages.endsAt), desc(packages.id))
    .limit(PACKAGES_MAX);
  return rows.map(({ usedToday, day, midnight, ...rest }) => {
    const row = { ...rest, startsAt: toIso(rest.startsAt), endsAt: toIso(rest.endsAt) };
    return { ...row, allowance: row.state === "active" ? allowanceOf(row, { usedToday, day, midnight }) : null };
  });
}

/** The ledger's arithmetic of a day (ledger_reserve), for people to read. Source: rulings › Counting. */
function allowanceOf(
  row: Omit<Package, "allowance">,
  { usedToday, day, midnight }: { usedToday: number; day: number; midnight: string },
): Allowance {
  const used = row.unitsUsed + row.unitsHeld;
  const totalLeft = row.totalLimit - used;
  const dayLeft = row.carryover ? row.dailyLimit * Math.min(day, row.days) - used : row.dailyLimit - usedToday;
  const resetsAt = toIso(midnight);
  const tokensLeft = row.tokenLimit === null || row.tokensUsed < row.tokenLimit;
  const resets = resetsAt < row.endsAt && totalLeft > 0 && tokensLeft && !(row.carryover && day >= row.days);
  return { availableNow: Math.min(totalLeft, dayLeft), usedToday, totalLeft, resetsAt: resets ? resetsAt : null };
}

/** What to tell whoever names an account or an offering that cannot be used. */
export function notAssignable(): InputError {
  return new InputError("There is no such account, or no such offering for sale.", "offeringId");
}
