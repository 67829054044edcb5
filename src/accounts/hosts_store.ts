import { and, asc, eq, type SQL, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Bus } from "../platform/bus.ts";
import { changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { accounts, hosts } from "../platform/schema.ts";
import { isRowId, toIso } from "./checks.ts";
import { checkDomain, type HostConfig, ownHosts } from "./host_names.ts";
import { lockTenant } from "./locks_store.ts";

/** Resellers' own domains. Only an active one is answered. Source: contract › What the service does, 3. */

const HOSTS_MAX = 50;
const LIST_MAX = 1000;

export type HostStatus = "pending" | "verifying" | "active" | "failed" | "suspended" | "removed";
export type ResellerHost = { host: string; resellerId: number; status: HostStatus; createdAt: string };

type Deps = { db: Db; bus: Bus };

/** Adds a reseller's domain, waiting for its check unless `status` says otherwise. Throws InputError. */
export async function addHost(
  deps: Deps & { config: HostConfig },
  { host, resellerId, status = "pending" }: { host: string; resellerId: number; status?: HostStatus },
): Promise<ResellerHost> {
  const domain = checkDomain(host, ownHosts(deps.config));
  return changing(deps, async (tx) => {
    await checkRoom(tx, resellerId);
    const added = await tx
      .insert(hosts)
      .values({ host: domain, resellerId, status })
      .onConflictDoNothing()
      .returning({ host: hosts.host });
    if (added.length === 0) throw new InputError("This domain was added before.", "host");
    return findOrThrow(tx, domain);
  });
}

/** Domains by name, of one reseller or of all. */
export async function listHosts(
  { db }: { db: Db },
  { resellerId }: { resellerId?: number } = {},
): Promise<ResellerHost[]> {
  return select(db.orm, resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId));
}

/** One domain; with `resellerId` only if it is that reseller's. */
export async function findHost(
  { db }: { db: Db },
  { host, resellerId }: { host: string; resellerId?: number },
): Promise<ResellerHost | undefined> {
  if (host.includes("\0")) return undefined;
  return (
    await select(
      db.orm,
      and(eq(hosts.host, host), resellerId === undefined ? undefined : eq(hosts.resellerId, resellerId)),
    )
  )[0];
}

/** Sets a domain's status. Leaving `active` stops its requests: none is granted after it. Throws InputError if there is no such domain. */
export async function setHostStatus(
  deps: Deps,
  { host, status }: { host: string; status: HostStatus },
): Promise<ResellerHost> {
  const known = await findHost(deps, { host });
  if (!known) throw noSuchHost();
  return changing(deps, async (tx) => {
    if (status !== "active") await lockTenant(tx, known.resellerId);
    const set = await tx
      .update(hosts)
      .set({ status })
      // The lock that was taken is this reseller's; in other hands the domain is another one.
      .where(and(eq(hosts.host, host), eq(hosts.resellerId, known.resellerId)))
      .returning({ host: hosts.host });
    if (set.length === 0) throw noSuchHost();
    return findOrThrow(tx, host);
  });
}

/** The reseller whose active domain this is, if the reseller is active too. */
export async function loadActiveHost(
  { db }: { db: Db },
  host: string,
): Promise<{ host: string; resellerId: number } | undefined> {
  const [row] = await db.orm
    .select({ host: hosts.host, resellerId: hosts.resellerId })
    .from(hosts)
    .innerJoin(accounts, and(eq(accounts.id, hosts.resellerId), eq(accounts.status, "active")))
    .where(and(eq(hosts.host, host), eq(hosts.status, "active")));
  return row;
}

async function checkRoom(tx: Tx, resellerId: number): Promise<void> {
  const found = isRowId(resellerId)
    ? await tx
        .select({ id: accounts.id })
        .from(accounts)
        .where(and(eq(accounts.id, resellerId), eq(accounts.role, "reseller")))
        .for("no key update")
    : [];
  if (found.length === 0) throw new InputError("There is no such reseller.", "resellerId");
  const [counted] = await tx
    .select({ count: sql<number>`count(*)::int` })
    .from(hosts)
    .where(eq(hosts.resellerId, resellerId));
  if ((counted?.count ?? 0) >= HOSTS_MAX)
    throw new InputError(`A reseller may have ${HOSTS_MAX} domains.`, "resellerId");
}

async function findOrThrow(tx: Tx, host: string): Promise<ResellerHost> {
  const [row] = await select(tx, eq(hosts.host, host));
  if (!row) throw noSuchHost();
  return row;
}

function noSuchHost(): InputError {
  return new InputError("There is no such domain.", "host");
}

async function select(tx: Tx, where: SQL | undefined): Promise<ResellerHost[]> {
  const rows = await tx.select().from(hosts).where(where).orderBy(asc(hosts.host)).limit(LIST_MAX);
  return rows.map(({ host, resellerId, status, createdAt }) => ({
    host,
    resellerId,
    status,
    createdAt: toIso(createdAt),
  }));
}
