import { Elysia, t } from "elysia";
import { namesOf } from "../../accounts/accounts_store.ts";
import { findRequestAccount } from "../../books/receipts_store.ts";
import { listReleased, listUsageRecords, type UsageQuery } from "../../books/usage_records_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import type { Db } from "../../platform/db.ts";
import { longRead } from "./long_read.ts";
import { signedIn, toWire, whole } from "./panel_session.ts";
import { Instant, RequestId } from "./usage_routes.ts";

/** Requests across accounts: whose one is, for whoever looks after that account; and everybody's, for admins. */

const PAGE_MAX = 200;
const PAGE_DEFAULT = 50;

export function requestsRoutes(deps: Deps) {
  return new Elysia({ normalize: false }).use(findingRoutes(deps)).use(adminRoutes(deps));
}

/** One's own request, a reseller's customer's, or for an admin anybody's. What is not in scope reads like what is not there. */
function findingRoutes(deps: Deps) {
  return signedIn(deps).get(
    "/requests/:requestId",
    async ({ person: { role, accountId }, params }) => {
      const scope = role === "admin" ? "everybody" : { accountId };
      const requester = await findRequestAccount(deps, { requestId: params.requestId.toLowerCase(), scope });
      if (!requester) throw new Refusal("not_found");
      return requester;
    },
    { params: t.Object({ requestId: RequestId }) },
  );
}

function adminRoutes(deps: Deps) {
  return signedIn(deps, "admin").get(
    "/admin/requests",
    async ({ person, request: { signal }, query: { kind = "charged", limit = PAGE_DEFAULT, ...page } }) => {
      const { rows, ...more } = await longRead(deps, { person, signal }, (reading) =>
        pageOf(reading, kind, { ...page, limit }),
      );
      const names = await namesOf(
        deps,
        rows.map(({ accountId }) => accountId),
      );
      return toWire({ rows: rows.map((row) => ({ ...row, accountName: names.get(row.accountId) ?? null })), ...more });
    },
    {
      query: t.Object({
        kind: t.Optional(t.Union([t.Literal("charged"), t.Literal("released")])),
        start: t.Optional(Instant),
        after: t.Optional(RequestId),
        limit: t.Optional(whole(1, PAGE_MAX)),
      }),
    },
  );
}

async function pageOf(reading: { db: Db }, kind: "charged" | "released", query: UsageQuery) {
  if (kind === "released") return listReleased(reading, query);
  const { rows, ...more } = await listUsageRecords(reading, query);
  return { rows: rows.map((row) => ({ kind: "charged" as const, ...row })), ...more };
}
