import { sql } from "drizzle-orm";
import { bigint, check, index, integer, pgTable, primaryKey, smallint, text } from "drizzle-orm/pg-core";
import { id, instant } from "./schema_columns.ts";

/** What status pages show: how many requests were answered, and what sellers say about incidents and maintenance. Source: STA-1, STA-3. */

/**
 * Requests that were answered, and those that were not although nothing was wrong with them. Sums that all replicas add to every few seconds.
 * Rows of 5 minutes are kept for an hour, rows of a UTC day for 92 days. See `catalog/answer_sums.ts`.
 */
export const answerSums = pgTable(
  "answer_sums",
  {
    /** `api`, `panel`, or `model:` and the model's id. */
    component: text().notNull(),
    /** In minutes: 5 or 1440. */
    span: smallint().notNull(),
    begins: instant().notNull(),
    answered: bigint({ mode: "number" }).notNull(),
    failed: bigint({ mode: "number" }).notNull(),
  },
  (t) => [
    primaryKey({ columns: [t.component, t.span, t.begins] }),
    index("answer_sums_begins").on(t.span, t.begins),
    check("answer_sums_span", sql`${t.span} in (5, 1440)`),
    check("answer_sums_counts", sql`${t.answered} >= 0 and ${t.failed} >= 0`),
  ],
);

/** Incidents and planned maintenance, as their seller describes them. */
export const incidents = pgTable(
  "incidents",
  {
    id: id(),
    /** 0: the operator, whose incidents are shown on the status page of every brand. */
    sellerId: bigint({ mode: "number" }).notNull(),
    kind: text({ enum: ["incident", "maintenance"] }).notNull(),
    title: text().notNull(),
    /** Of an incident. */
    impact: text({ enum: ["degraded", "outage"] }),
    status: text({ enum: ["investigating", "identified", "monitoring", "resolved"] }),
    /** `api`, `panel`, `models` (all of them), or `model:` and a model's id. */
    components: text().array().notNull(),
    beginsAt: instant().notNull(),
    /** When it was resolved; of maintenance: when it is planned to end. */
    endsAt: instant(),
    /** Counts changes: who changes an older version is told. */
    version: integer().notNull().default(1),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [
    index("incidents_seller").on(t.sellerId, t.id),
    index("incidents_open").on(t.sellerId, t.endsAt),
    check("incidents_kind", sql`${t.kind} in ('incident', 'maintenance')`),
    check(
      "incidents_form",
      sql`case ${t.kind} when 'incident' then ${t.impact} in ('degraded', 'outage') and ${t.status} in ('investigating', 'identified', 'monitoring', 'resolved') and (${t.status} = 'resolved') = (${t.endsAt} is not null) else ${t.impact} is null and ${t.status} is null and ${t.endsAt} is not null end`,
    ),
    check("incidents_times", sql`${t.endsAt} >= ${t.beginsAt}`),
    check("incidents_components", sql`cardinality(${t.components}) between 1 and 50`),
  ],
);

/** What was said about an incident, with the status that it then had. */
export const incidentUpdates = pgTable(
  "incident_updates",
  {
    id: id(),
    incidentId: bigint({ mode: "number" })
      .notNull()
      .references(() => incidents.id, { onDelete: "cascade" }),
    /** null: of maintenance. */
    status: text({ enum: ["investigating", "identified", "monitoring", "resolved"] }),
    body: text().notNull(),
    createdAt: instant().notNull().default(sql`clock_timestamp()`),
  },
  (t) => [index("incident_updates_incident").on(t.incidentId, t.id)],
);
