import { and, asc, count, desc, eq, inArray, lt, or, type SQL, sql } from "drizzle-orm";
import { alias } from "drizzle-orm/pg-core";
import { checkInstant, checkLines, checkName, isRowId } from "../accounts/input_checks.ts";
import { InputError, Refusal, sentence } from "../errors.ts";
import {
  INCIDENT_BODY_CHARS_MAX,
  INCIDENT_COMPONENTS_MAX,
  INCIDENT_PAST_DAYS_MAX,
  INCIDENT_TITLE_CHARS_MAX,
  INCIDENT_UPDATES_MAX,
  INCIDENTS_MAX,
  INCIDENTS_OPEN_MAX,
  MAINTENANCE_AHEAD_DAYS_MAX,
  MAINTENANCE_DAYS_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { type Page, pageOf, pageSize } from "../platform/pages.ts";
import { inSlices } from "../platform/prune.ts";
import { models } from "../platform/schema_catalog.ts";
import { sellers } from "../platform/schema_sellers.ts";
import { incidents, incidentUpdates } from "../platform/schema_status.ts";
import { ALL_MODELS, modelIdOf, SERVICES } from "./status_components.ts";

/** Incidents and planned maintenance, which sellers describe for their status page. Source: STA-4, STA-5, STA-6. */

const PAGE_MAX = 100;
/** Rows deleted in one statement. Each may have INCIDENT_UPDATES_MAX updates. */
const PRUNE_MAX = 100;
/** Of each incident of a list or a status page, the latest. */
const LISTED_UPDATES_MAX = 10;
const DAY_MS = 86_400_000;
/** How far the clock of whoever writes may be ahead. */
const CLOCK_MS_MAX = 60_000;

export const INCIDENT_STATUSES = ["investigating", "identified", "monitoring", "resolved"] as const;
export type IncidentStatus = (typeof INCIDENT_STATUSES)[number];
export const IMPACTS = ["degraded", "outage"] as const;
export type Impact = (typeof IMPACTS)[number];
/** Of maintenance: it follows from the times. */
export const MAINTENANCE_STATUSES = ["scheduled", "in_progress", "completed"] as const;
type MaintenanceStatus = (typeof MAINTENANCE_STATUSES)[number];

export type Incident = {
  incidentId: number;
  /** 0: the operator. */
  sellerId: number;
  kind: "incident" | "maintenance";
  title: string;
  /** null: maintenance. */
  impact: Impact | null;
  /** By the database's clock. */
  status: IncidentStatus | MaintenanceStatus;
  components: string[];
  beginsAt: string;
  /** When it was resolved, or is planned to end; null: it is open. */
  endsAt: string | null;
  version: number;
  createdAt: string;
  /** Newest first; in a list at most LISTED_UPDATES_MAX. `status`: of an incident, at that time. */
  updates: { updateId: number; status: IncidentStatus | null; body: string; at: string }[];
};

/** What a seller writes. Times as `checkInstant` takes them. */
type Written = {
  title: string;
  impact?: Impact | null | undefined;
  status?: IncidentStatus | null | undefined;
  components: readonly string[];
  beginsAt?: string | null | undefined;
  endsAt?: string | null | undefined;
};
export type NewIncident = Written & { sellerId: number; kind: Incident["kind"]; body: string };
type Owned = { sellerId: number; incidentId: number };
/** What is left out stays. `version`: of the incident that the writer has seen. */
export type IncidentChange = Owned & Partial<Written> & { version: number; body?: string | null | undefined };

/** Describes an incident or planned maintenance. Throws InputError. */
export async function createIncident(
  deps: ChangeDeps,
  { sellerId, kind, body, ...written }: NewIncident,
): Promise<Incident> {
  const said = checkBody(body);
  if (said === null) throw new InputError("Say what happens.", "body");
  return changing(deps, async (tx) => {
    await lockSeller(tx, sellerId);
    await checkRoom(tx, sellerId);
    const row = await checked(tx, kind, { written, given: written });
    const [added] = await tx
      .insert(incidents)
      .values({ ...row, sellerId, kind })
      .returning({ incidentId: incidents.id });
    const incidentId = Number(added?.incidentId);
    await tx.insert(incidentUpdates).values({ incidentId, status: row.status, body: said });
    return one(tx, { sellerId, incidentId });
  });
}

/** Changes an incident, and adds an update if there is a text. Throws not_found, InputError. */
export async function changeIncident(
  deps: ChangeDeps,
  { sellerId, incidentId, version, body, ...change }: IncidentChange,
): Promise<Incident> {
  const owned = { sellerId, incidentId };
  const said = checkBody(body ?? null);
  return changing(deps, async (tx) => {
    await lockSeller(tx, sellerId);
    const before = await one(tx, owned);
    if (before.version !== version)
      throw new InputError("Someone else has changed this in the meantime. Look at it again first.", "version");
    const row = await checked(tx, before.kind, { written: merged(before, change), given: change });
    if (row.status !== null && row.status !== before.status && said === null)
      throw new InputError("Say what has changed.", "body");
    if (row.status !== "resolved" && before.status === "resolved") await checkRoom(tx, sellerId, { isNew: false });
    if (said !== null) {
      if (before.updates.length >= INCIDENT_UPDATES_MAX)
        throw new InputError(
          sentence("There can be {incidentUpdatesMax} updates. Begin a new incident.", {
            incidentUpdatesMax: INCIDENT_UPDATES_MAX,
          }),
          "body",
        );
      await tx.insert(incidentUpdates).values({ incidentId, status: row.status, body: said });
    }
    await tx
      .update(incidents)
      .set({ ...row, version: version + 1 })
      .where(isOwned(owned));
    return one(tx, owned);
  });
}

/** Removes an incident with its updates. Throws not_found. */
export async function removeIncident(deps: ChangeDeps, owned: Owned): Promise<void> {
  await changing(deps, async (tx) => {
    await one(tx, owned);
    await tx.delete(incidents).where(isOwned(owned));
  });
}

/** Deletes incidents and maintenance that were over `days` ago, with their updates. Called by a job. Returns how many. Source: STA-5. */
export async function pruneIncidents({ db }: { db: Db }, days: number): Promise<number> {
  return inSlices(PRUNE_MAX, async () => {
    const deleted = await db.sql`
      delete from incidents where id = any (array(
        select id from incidents where ends_at < ledger_now() - make_interval(days => ${days}) limit ${PRUNE_MAX}))
      returning 1`;
    return deleted.length;
  });
}

/** A seller's incidents, newest first. `before`: the last id of the previous page. */
export async function listIncidents(
  { db }: { db: Db },
  { sellerId, before, limit = PAGE_MAX }: { sellerId: number; before?: number; limit?: number },
): Promise<Page<Incident>> {
  const size = pageSize(limit, PAGE_MAX);
  const after = before === undefined ? undefined : lt(incidents.id, before);
  const where = and(eq(incidents.sellerId, sellerId), after);
  return pageOf(await select(db.orm, where, { limit: size + 1 }), size);
}

/** One incident of a seller. Throws not_found. */
export async function findIncident({ db }: { db: Db }, owned: Owned): Promise<Incident> {
  return one(db.orm, owned);
}

/**
 * What a seller's status page shows, newest first: its own incidents and the operator's that are open, or were over at most `days` ago. At
 * most `max`; open ones first.
 */
export async function shownIncidents(
  { db }: { db: Db },
  { sellerIds, days, max }: { sellerIds: readonly number[]; days: number; max: number },
): Promise<Incident[]> {
  const where = and(
    inArray(incidents.sellerId, [...sellerIds]),
    or(sql`${incidents.endsAt} is null`, sql`${incidents.endsAt} > ledger_now() - make_interval(days => ${days}::int)`),
  );
  const isOver = sql`coalesce(${incidents.endsAt} <= ledger_now(), false)`;
  return select(db.orm, where, { limit: max, order: [asc(isOver), desc(incidents.beginsAt), desc(incidents.id)] });
}

function isOwned({ sellerId, incidentId }: Owned): SQL | undefined {
  return and(eq(incidents.id, isRowId(incidentId) ? incidentId : 0), eq(incidents.sellerId, sellerId));
}

async function one(tx: Pick<Tx, "select">, owned: Owned): Promise<Incident> {
  const [found] = await select(tx, isOwned(owned), { limit: 1, updatesMax: INCIDENT_UPDATES_MAX });
  if (!found) throw new Refusal("not_found");
  return found;
}

type Selection = { limit: number; updatesMax?: number; order?: SQL[] };

async function select(
  tx: Pick<Tx, "select">,
  where: SQL | undefined,
  { limit, updatesMax = LISTED_UPDATES_MAX, order = [desc(incidents.id)] }: Selection,
): Promise<Incident[]> {
  const rows = await tx
    .select({
      incidentId: incidents.id,
      sellerId: incidents.sellerId,
      kind: incidents.kind,
      title: incidents.title,
      impact: incidents.impact,
      status: sql<
        Incident["status"]
      >`coalesce(${incidents.status}, case when ledger_now() < ${incidents.beginsAt} then 'scheduled'
        when ledger_now() < ${incidents.endsAt} then 'in_progress' else 'completed' end)`,
      components: incidents.components,
      beginsAt: incidents.beginsAt,
      endsAt: incidents.endsAt,
      version: incidents.version,
      createdAt: incidents.createdAt,
    })
    .from(incidents)
    .where(where)
    .orderBy(...order)
    .limit(limit);
  const ids = rows.map(({ incidentId }) => incidentId);
  const newer = alias(incidentUpdates, "newer");
  const isLatest = sql`(select count(*) from ${incidentUpdates} ${newer}
    where ${newer.incidentId} = ${incidentUpdates.incidentId} and ${newer.id} > ${incidentUpdates.id}) < ${updatesMax}`;
  const updates = await tx
    .select()
    .from(incidentUpdates)
    .where(and(inArray(incidentUpdates.incidentId, ids), isLatest))
    .orderBy(desc(incidentUpdates.id));
  const of = Map.groupBy(updates, ({ incidentId }) => incidentId);
  return rows.map((row) => ({
    ...row,
    beginsAt: toIso(row.beginsAt),
    endsAt: toIso(row.endsAt),
    createdAt: toIso(row.createdAt),
    updates: (of.get(row.incidentId) ?? []).map(({ id, status, body, createdAt }) => ({
      updateId: id,
      status,
      body,
      at: toIso(createdAt),
    })),
  }));
}

/** Serializes the changes of a seller's incidents. */
async function lockSeller(tx: Tx, sellerId: number): Promise<void> {
  await tx.insert(sellers).values({ sellerId }).onConflictDoNothing();
  await tx.select({ id: sellers.sellerId }).from(sellers).where(eq(sellers.sellerId, sellerId)).for("no key update");
}

async function checkRoom(tx: Tx, sellerId: number, { isNew = true } = {}): Promise<void> {
  const isOver = sql`coalesce(${incidents.endsAt} <= ledger_now(), false)`;
  const [counts] = await tx
    .select({ all: count(), open: sql<number>`(count(*) filter (where not ${isOver}))::int` })
    .from(incidents)
    .where(eq(incidents.sellerId, sellerId));
  if (isNew && Number(counts?.all) >= INCIDENTS_MAX)
    throw new InputError(
      sentence("There can be {incidentsMax} incidents. Remove old ones first.", { incidentsMax: INCIDENTS_MAX }),
    );
  if (Number(counts?.open) >= INCIDENTS_OPEN_MAX)
    throw new InputError(
      sentence("{incidentsOpenMax} incidents can be open or planned at once. Resolve one first.", {
        incidentsOpenMax: INCIDENTS_OPEN_MAX,
      }),
    );
}

function checkBody(body: string | null): string | null {
  return checkLines(body, { param: "body", charsMax: INCIDENT_BODY_CHARS_MAX });
}

/** What is changed, over what stays. An incident that is open again has no end. */
function merged(before: Incident, change: Partial<Written>): Written {
  const isIncident = before.kind === "incident";
  const known = INCIDENT_STATUSES.find((status) => status === before.status);
  const status = change.status ?? known;
  return {
    title: change.title ?? before.title,
    impact: change.impact ?? before.impact,
    status: isIncident ? status : change.status,
    components: change.components ?? before.components,
    beginsAt: change.beginsAt ?? before.beginsAt,
    endsAt: change.endsAt ?? (isIncident && status !== "resolved" ? null : before.endsAt),
  };
}

type Row = Pick<typeof incidents.$inferInsert, "title" | "components" | "beginsAt"> & {
  impact: Impact | null;
  status: IncidentStatus | null;
  endsAt: string | null;
};

/** Checks what an incident is to be. `given`: what is new of it; what has stayed may be older than what can be written now. */
async function checked(
  tx: Tx,
  kind: Incident["kind"],
  { written, given }: { written: Written; given: Partial<Written> },
): Promise<Row> {
  const nowMs = await databaseNowMs(tx);
  const title = checkName(written.title, { param: "title", charsMax: INCIDENT_TITLE_CHARS_MAX });
  const components =
    given.components === undefined ? [...written.components] : await checkComponents(tx, given.components);
  const times = {
    begins: instantOf(written.beginsAt, "beginsAt"),
    ends: instantOf(written.endsAt, "endsAt"),
    isNew: given.beginsAt !== undefined,
  };
  if (kind === "maintenance") {
    if (written.status || written.impact)
      throw new InputError("Maintenance has no state and no impact: they follow from its times.", "status");
    return { title, components, impact: null, status: null, ...maintenanceTimes(times, nowMs) };
  }
  const status = written.status ?? "investigating";
  const incident = { title, components, impact: written.impact ?? "degraded", status };
  return { ...incident, ...incidentTimes(times, { nowMs, isResolved: status === "resolved" }) };
}

type Times = { begins: string | null; ends: string | null; isNew: boolean };

function incidentTimes({ begins, ends, isNew }: Times, { nowMs, isResolved }: { nowMs: number; isResolved: boolean }) {
  const now = new Date(nowMs).toISOString();
  const beginsAt = begins ?? now;
  if (Date.parse(beginsAt) > nowMs + CLOCK_MS_MAX)
    throw new InputError("An incident cannot begin in the future.", "beginsAt");
  if (isNew && Date.parse(beginsAt) < nowMs - INCIDENT_PAST_DAYS_MAX * DAY_MS)
    throw new InputError(
      sentence("An incident can have begun at most {incidentPastDaysMax} days ago.", {
        incidentPastDaysMax: INCIDENT_PAST_DAYS_MAX,
      }),
      "beginsAt",
    );
  if (!isResolved) {
    if (ends !== null) throw new InputError("Only a resolved incident has an end.", "endsAt");
    return { beginsAt, endsAt: null };
  }
  const endsAt = ends ?? now;
  if (Date.parse(endsAt) < Date.parse(beginsAt))
    throw new InputError("An incident cannot be resolved before it began.", "endsAt");
  if (Date.parse(endsAt) > nowMs + CLOCK_MS_MAX)
    throw new InputError("An incident cannot be resolved in the future.", "endsAt");
  return { beginsAt, endsAt };
}

function maintenanceTimes({ begins, ends, isNew }: Times, nowMs: number) {
  if (begins === null) throw new InputError("Say when the maintenance begins.", "beginsAt");
  if (ends === null) throw new InputError("Say when the maintenance ends.", "endsAt");
  const [beginsMs, endsMs] = [Date.parse(begins), Date.parse(ends)];
  if (endsMs <= beginsMs) throw new InputError("Maintenance must end after it begins.", "endsAt");
  if (endsMs - beginsMs > MAINTENANCE_DAYS_MAX * DAY_MS)
    throw new InputError(
      sentence("Maintenance may take at most {maintenanceDaysMax} days.", { maintenanceDaysMax: MAINTENANCE_DAYS_MAX }),
      "endsAt",
    );
  const [firstMs, lastMs] = [nowMs - INCIDENT_PAST_DAYS_MAX * DAY_MS, nowMs + MAINTENANCE_AHEAD_DAYS_MAX * DAY_MS];
  if (isNew && (beginsMs < firstMs || beginsMs > lastMs))
    throw new InputError(
      sentence(
        "Maintenance can begin from {incidentPastDaysMax} days ago to {maintenanceAheadDaysMax} days from now.",
        { incidentPastDaysMax: INCIDENT_PAST_DAYS_MAX, maintenanceAheadDaysMax: MAINTENANCE_AHEAD_DAYS_MAX },
      ),
      "beginsAt",
    );
  return { beginsAt: begins, endsAt: ends };
}

function instantOf(value: string | null | undefined, param: "beginsAt" | "endsAt"): string | null {
  if (value === null || value === undefined) return null;
  return checkInstant(value, param);
}

async function databaseNowMs(tx: Tx): Promise<number> {
  const [row] = await tx.execute<{ ms: number }>(sql`select (extract(epoch from ledger_now()) * 1000)::float8 as ms`);
  return Number(row?.ms);
}

/** Without duplicates. A model must be in the catalog. */
async function checkComponents(tx: Tx, wanted: readonly string[]): Promise<string[]> {
  const components = [...new Set(wanted)];
  if (components.length === 0) throw new InputError("Name at least one component.", "components");
  if (components.length > INCIDENT_COMPONENTS_MAX)
    throw new InputError(
      sentence("Name at most {incidentComponentsMax} components.", { incidentComponentsMax: INCIDENT_COMPONENTS_MAX }),
      "components",
    );
  const modelIds = components.flatMap((component) => modelIdOf(component) ?? []);
  const found =
    modelIds.length === 0 ? [] : await tx.select({ id: models.id }).from(models).where(inArray(models.id, modelIds));
  const known = new Set(found.map(({ id }) => id));
  const unknown = components.find((component) => {
    const id = modelIdOf(component);
    return id === null ? !isService(component) : !known.has(id);
  });
  if (unknown !== undefined)
    throw new InputError(
      sentence("There is no component {unknown}. Use api, panel, models, or model: and a model's id.", {
        unknown: JSON.stringify(unknown.slice(0, 60)),
      }),
      "components",
    );
  return components;
}

function isService(component: string): boolean {
  return component === ALL_MODELS || SERVICES.some((id) => id === component);
}
