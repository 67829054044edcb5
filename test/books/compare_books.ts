import { expect } from "bun:test";
import { type Entitlement, entitlementOf } from "../../src/ledger/entitlement_store.ts";
import {
  dateIn,
  daysBegun,
  type LedgerModel,
  type ModelEscrow,
  type ModelPackage,
  type ModelReceipt,
} from "../ledger/model.ts";
import type { World } from "../world.ts";

/** What is written down, against what the model counts. */

/** Compares all that stands in the tables of some accounts, and what they are told, with the model. Throws where they differ. */
export async function compareBooks({ sql }: World, model: LedgerModel): Promise<void> {
  const ids = [...model.accounts.keys()];
  const [packages, days, balances, keyDays, escrows, receipts, allotments] = await Promise.all([
    sql`select id::int, starts_at, ends_at, first_day::text, units_taken as units, package_drawn(packages) as units_held,
          package_tokens_shown(packages)::int as tokens, ended_early is not null as ended_early from packages where account_id = any(${ids}) order by id`,
    sql`select d.package_id::int as id, d.day::text, d.units_taken as units from package_days d
        join packages p on p.id = d.package_id where p.account_id = any(${ids}) and d.units_taken > 0 order by 1, 2`,
    sql`select account_id::int as id, balance_nano_usd::text as balance, held_nano_usd::text as held, tokens_used::int as tokens,
          payg_enabled from balances where account_id = any(${ids}) order by 1`,
    sql`select d.key_id::int as id, d.day::text, d.units_taken + d.units_before as units,
          (d.taken_nano_usd + d.nano_usd_before)::text as nano_usd
        from key_days d join keys k on k.id = d.key_id where k.account_id = any(${ids}) and
          (d.units_taken + d.units_before > 0 or d.taken_nano_usd > 0) order by 1, 2`,
    sql`select account_id::int as account, lease_id::text as lease, package_id::int as package, key_id::int as key, day::text, units,
          tokens::int, nano_usd::text, idle_units, idle_nano_usd::text, recalled
        from escrows where account_id = any(${ids}) order by account_id, lease_id::text, package_id, key_id, day`,
    sql`select request_id::text as id, mode, day::text, key_day::text, outcome, reason, units::int, charged_nano_usd::text as charged,
          shortfall_nano_usd::text as shortfall, charged_tokens::int as tokens
        from receipts where account_id = any(${ids}) order by request_id`,
    sql`select id::int, granted, used from allotments where reseller_id = any(${ids}) order by id`,
  ]);
  const rows = (result: readonly object[]) => result.map((row) => ({ ...row }));
  same("packages", packages.map(toPackageRow), model.packages.map((p) => packageRow(model, p)).sort(byId));
  same("days", rows(days), model.packages.flatMap((p) => dayRows(model, p)).sort(byIdAndDay));
  same("balances", rows(balances), ids.map((id) => balanceRow(model, id)).sort(byId));
  same("key days", rows(keyDays), keyDayRows(model).sort(byIdAndDay));
  same(
    "escrows",
    rows(escrows)
      .map((row) => JSON.stringify(row))
      .sort(),
    model.escrows.map((e) => JSON.stringify(escrowRow(e))).sort(),
  );
  same("receipts", rows(receipts), [...model.receipts.values()].map(receiptRow).sort(byText));
  const wanted = ids.map((id) => entitlementRow(model, id));
  same("entitlements", (await Promise.all(ids.map((id) => entitlementOf(sql, id)))).map(toEntitlementRow), wanted);
  same(
    "allotments",
    rows(allotments),
    model.allotments.map((a) => ({ id: a.allotmentId, granted: a.granted, used: model.piecesUsed(a.allotmentId) })),
  );
}
type Compared = Record<string, unknown>;

/** The first day of a package that never began says nothing. */
function toPackageRow({ first_day, ...row }: Compared): Compared {
  return toInstant(row.starts_at) === toInstant(row.ends_at) ? row : { ...row, first_day };
}

function toInstant(value: unknown): string {
  return value instanceof Date ? value.toISOString() : String(value);
}

function packageRow(model: LedgerModel, p: ModelPackage): Compared {
  const row = {
    id: p.packageId,
    starts_at: new Date(p.startsAtMs),
    ends_at: new Date(p.endsAtMs),
    units: model.units(p),
    units_held: model.escrows.reduce((n, e) => (e.package === p ? n + e.units : n), 0),
    tokens: model.tokens(p),
    ended_early: p.endedEarly,
  };
  return p.startsAtMs === p.endsAtMs ? row : { ...row, first_day: dateIn(p.timeZone, p.startsAtMs) };
}

/** What an account is told that it has: /balance and the panel. */
function toEntitlementRow({ package: p, balanceNanoUsd, heldNanoUsd, balanceTokensUsed }: Entitlement): Compared {
  const { id, daysBegun, dailyRemaining, usedToday, totalRemaining, tokensUsed, tokensRemaining } = p ?? {};
  const { resetsAt, availableAtReset } = p ?? {};
  const used = { daysBegun, usedToday, tokensUsed };
  const left = { dailyRemaining, totalRemaining, tokensRemaining, resetsAt, availableAtReset };
  return { balanceNanoUsd, heldNanoUsd, balanceTokensUsed, id, ...used, ...left };
}

function entitlementRow(model: LedgerModel, accountId: number): Compared {
  const p = model.activePackage(accountId);
  const row = {
    balanceNanoUsd: model.balance(accountId),
    // What is drawn ahead is shown as available.
    heldNanoUsd: model.drawnNano(accountId) - model.idleNano(accountId),
    balanceTokensUsed: balanceRow(model, accountId).tokens,
  };
  if (p === undefined) return row;
  const { dayLeft, totalLeft, tokensLeft, resetsAt, leftAtReset } = model.allowanceOf(p, { asShown: true });
  const today = dateIn(p.timeZone, model.nowMs);
  return {
    ...row,
    id: p.packageId,
    daysBegun: daysBegun(p, today),
    dailyRemaining: Math.min(dayLeft, totalLeft),
    usedToday: model.units(p, (day) => day === today) - model.idleUnits(p, (day) => day === today),
    totalRemaining: totalLeft,
    resetsAt,
    availableAtReset: leftAtReset,
    tokensUsed: model.tokens(p),
    tokensRemaining: tokensLeft,
  };
}

function dayRows(model: LedgerModel, p: ModelPackage): { id: number; day: string; units: number }[] {
  const used = [...model.receipts.values()].flatMap(({ hold }) => (hold.package === p ? (hold.day ?? []) : []));
  const days = new Set([...used, ...model.escrows.flatMap((e) => (e.package === p ? e.day : []))]);
  return [...days]
    .map((day) => ({ id: p.packageId, day, units: model.units(p, (other) => other === day) }))
    .filter(({ units }) => units > 0);
}

function balanceRow(model: LedgerModel, id: number) {
  const paid = [...model.receipts.values()].filter(({ hold }) => hold.mode === "payg" && hold.request.accountId === id);
  return {
    id,
    balance: String(model.balance(id)),
    held: String(model.drawnNano(id)),
    tokens: paid.reduce((n, receipt) => n + receipt.tokens, 0),
    payg_enabled: model.accounts.get(id)?.paygEnabled,
  };
}

function keyDayRows(model: LedgerModel) {
  const used = [...model.receipts.values()].flatMap(({ hold, countedOn }) => {
    const day = hold.keyDay ?? countedOn;
    return day === null ? [] : `${hold.request.keyId} ${day}`;
  });
  const days = new Set([...used, ...model.escrows.flatMap((e) => (e.keyId > 0 ? `${e.keyId} ${e.day}` : []))]);
  return [...days]
    .map((name) => {
      const [id, day] = [Number(name.split(" ")[0]), String(name.split(" ")[1])];
      const { units, nanoUsd } = model.keyDay(id, day);
      return { id, day, units, nano_usd: String(nanoUsd) };
    })
    .filter(({ units, nano_usd }) => units > 0 || nano_usd !== "0");
}

function escrowRow(e: ModelEscrow) {
  return {
    account: e.accountId,
    lease: e.leaseId,
    package: e.package?.packageId ?? 0,
    key: e.keyId,
    day: e.day,
    units: e.units,
    tokens: e.tokens,
    nano_usd: String(e.nanoUsd),
    idle_units: e.idleUnits,
    idle_nano_usd: String(e.idleNanoUsd),
    recalled: e.recalled,
  };
}

function receiptRow(receipt: ModelReceipt) {
  const { hold, outcome, reason, units, chargedNanoUsd, shortfallNanoUsd, tokens } = receipt;
  return {
    id: hold.request.requestId,
    mode: hold.mode,
    day: hold.day,
    key_day: hold.keyDay,
    outcome,
    reason,
    units,
    charged: String(chargedNanoUsd),
    shortfall: String(shortfallNanoUsd),
    tokens,
  };
}

function byId(a: { id?: unknown }, b: { id?: unknown }): number {
  return Number(a.id) - Number(b.id);
}

function byIdAndDay(a: { id: number; day: string }, b: { id: number; day: string }): number {
  return a.id - b.id || a.day.localeCompare(b.day);
}

function byText(a: { id: string }, b: { id: string }): number {
  return a.id < b.id ? -1 : 1;
}

/** As the model says, or an error that names what differs. */
export function same(what: string, got: unknown, wanted: unknown): void {
  expect({ [what]: got }).toEqual({ [what]: wanted });
}
