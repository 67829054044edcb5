import { Elysia } from "elysia";
import { recentRefusals } from "../../accounts/refusal_counts_store.ts";
import { sellerHome } from "../../commerce/seller_home_store.ts";
import type { Deps } from "../../deps.ts";
import {
  type Entitlement,
  entitlementOf,
  hasLeft,
  type PackageState,
  type Surroundings,
  surroundingsOf,
} from "../../ledger/entitlement_store.ts";
import { firstSteps } from "./first_steps_store.ts";
import { toJson } from "./formats.ts";
import { longRead, signedIn } from "./panel_session.ts";

/** Home: the active package, the balance, notices, recent refusals, and the first steps of a new account. */

const REFUSALS_SHOWN = 5;
const DAY_MS = 86_400_000;

export function homeEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(signedIn(deps).get("/home", async ({ person }) => toJson(await homeOf(deps, person.accountId))))
    .use(
      signedIn(deps).get("/home/first-steps", async ({ person }) => ({ steps: await firstSteps(deps.db.sql, person) })),
    )
    .use(
      signedIn(deps, "reseller").get("/home/selling", async ({ person, request: { signal } }) => {
        const seller = { sellerId: person.accountId, timeZone: deps.config.billingTimeZone };
        return toJson(await longRead(deps, { person, signal }, ({ db }) => sellerHome(db, seller)));
      }),
    );
}

/** Something the account may want to act on. The page writes the text. */
export type Notice =
  | {
      kind: "package_none";
      endedName: string | null;
      endedAt: string | null;
      /** The package's time zone. */
      endedTimeZone: string | null;
      nextStartsAt: string | null;
    }
  | { kind: "package_used_up"; name: string }
  | { kind: "allowance_used_up"; name: string; carryover: boolean; resetsAt: string | null }
  | { kind: "package_low"; name: string; left: number; totalLimit: number }
  | { kind: "tokens_used_up"; name: string; tokenLimit: number }
  | { kind: "package_ending"; name: string; endsAt: string; nextName: string | null }
  | { kind: "balance_low"; freeNanoUsd: bigint; belowNanoUsd: bigint };

async function homeOf(deps: Deps, accountId: number) {
  const { sql } = deps.db;
  const [entitlement, around, refusals] = await Promise.all([
    entitlementOf(sql, accountId),
    surroundingsOf(sql, accountId),
    recentRefusals(deps, accountId, REFUSALS_SHOWN),
  ]);
  const { package: state, balanceNanoUsd, heldNanoUsd, paygEnabled } = entitlement;
  return {
    serverTime: around.now,
    package: state && packageOf(state),
    next: around.next,
    balance: { balanceNanoUsd, heldNanoUsd, freeNanoUsd: balanceNanoUsd - heldNanoUsd, paygEnabled },
    notices: noticesOf(entitlement, around),
    refusals,
  };
}

function packageOf({ id, modelIds: _, dailyRemaining, totalRemaining, ...state }: PackageState) {
  return {
    packageId: id,
    ...state,
    availableNow: Math.max(0, dailyRemaining),
    totalUsed: state.totalLimit - totalRemaining,
  };
}

/** The notices that are due, by the thresholds set in Settings. */
export function noticesOf(entitlement: Entitlement, around: Surroundings): Notice[] {
  const { package: state, paygEnabled, balanceNanoUsd, heldNanoUsd } = entitlement;
  const freeNanoUsd = balanceNanoUsd - heldNanoUsd;
  const belowNanoUsd = around.notice.balanceNanoUsd;
  const notices = state === null ? withoutPackage(entitlement, around) : aboutPackage(state, around);
  if (paygEnabled && freeNanoUsd < belowNanoUsd) notices.push({ kind: "balance_low", freeNanoUsd, belowNanoUsd });
  return notices;
}

/** An account that can pay with its balance needs no package. */
function withoutPackage({ paygEnabled, balanceNanoUsd }: Entitlement, { ended, next }: Surroundings): Notice[] {
  if (paygEnabled && balanceNanoUsd > 0n) return [];
  return [
    {
      kind: "package_none",
      endedName: ended?.name ?? null,
      endedAt: ended?.endedAt ?? null,
      endedTimeZone: ended?.timeZone ?? null,
      nextStartsAt: next?.startsAt ?? null,
    },
  ];
}

function aboutPackage(state: PackageState, { now, next, notice, renews }: Surroundings): Notice[] {
  const { name, totalRemaining: left, totalLimit, carryover, resetsAt, endsAt } = state;
  const notices: Notice[] = [];
  if (left <= 0) notices.push({ kind: "package_used_up", name });
  else if (state.dailyRemaining <= 0) notices.push({ kind: "allowance_used_up", name, carryover, resetsAt });
  else if (!hasLeft(state)) notices.push({ kind: "tokens_used_up", name, tokenLimit: state.tokenLimit ?? 0 });
  else if (left * 100 <= totalLimit * notice.unitsPercent)
    notices.push({ kind: "package_low", name, left, totalLimit });
  if (!renews && Date.parse(endsAt) - Date.parse(now) <= notice.days * DAY_MS)
    notices.push({ kind: "package_ending", name, endsAt, nextName: next?.name ?? null });
  return notices;
}
