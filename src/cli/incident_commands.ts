import { type Command, Option } from "commander";
import {
  IMPACTS,
  type Impact,
  INCIDENT_STATUSES,
  type Incident,
  type IncidentStatus,
} from "../commerce/incidents_store.ts";
import { createIncident, getIncident, listIncidents, removeIncident, updateIncident } from "../operations/incidents.ts";
import { PAGE_MAX } from "../operations/operation.ts";
import { defineOperations, sellerBy } from "./door.ts";
import { idOf, SELLER } from "./options.ts";
import { type Output, table } from "./output.ts";

/** The command `incident`: what a status page says of incidents and planned maintenance. Source: STA-4. */

export function addIncidentCommands(program: Command): void {
  const incident = program.command("incident").description("incidents and planned maintenance on the status page");
  addCreate(incident);
  addUpdate(incident);
  addList(incident);
  addShow(incident);
  addRemove(incident);
}

const COMPONENTS = "what it affects, separated by commas: api, panel, models, or model:<id>";
const TIME = "time with its zone, as in 2030-01-31T12:00:00Z";

type Fields = {
  title?: string;
  text?: string;
  affects?: string;
  impact?: Impact;
  status?: IncidentStatus;
  begins?: string;
  ends?: string;
  seller?: string;
};

function addCreate(incident: Command): void {
  defineOperations<Fields & { title: string; text: string; affects: string; maintenance?: boolean }>(
    incident
      .command("create")
      .description("publish an incident, or planned maintenance")
      .requiredOption("--title <title>", "one line")
      .requiredOption("--text <text>", "what customers should know, as plain text")
      .requiredOption("--affects <components>", COMPONENTS)
      .option("--maintenance", "planned maintenance; it needs --begins and --ends")
      .addOption(impactOption(" (default: degraded)"))
      .addOption(statusOption(" (default: investigating)"))
      .option("--begins <time>", `${TIME} (default: now)`)
      .option("--ends <time>", TIME)
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { maintenance = false, title, text, affects, seller, ...fields }) => {
      const made = await ask(createIncident, {
        ...(await sellerBy(ask, seller)),
        kind: maintenance ? "maintenance" : "incident",
        title,
        body: text,
        components: listOf(affects),
        ...fieldsOf(fields),
      });
      return { text: incidentTable([made]), json: made };
    },
  );
}

function addUpdate(incident: Command): void {
  defineOperations<Fields>(
    incident
      .command("update <incident>")
      .description("change an incident or maintenance, and tell customers about it; what is left out stays")
      .option("--text <text>", "an update for customers, as plain text")
      .option("--title <title>", "one line")
      .option("--affects <components>", COMPONENTS)
      .addOption(impactOption())
      .addOption(statusOption())
      .option("--begins <time>", TIME)
      .option("--ends <time>", TIME)
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { title, text, affects, seller, ...fields }, [incident]) => {
      const owned = { ...(await sellerBy(ask, seller)), incidentId: idOf(incident, "incident") };
      const { version } = await ask(getIncident, owned);
      const changed = await ask(updateIncident, {
        ...owned,
        version,
        ...(title !== undefined && { title }),
        ...(text !== undefined && { body: text }),
        ...(affects !== undefined && { components: listOf(affects) }),
        ...fieldsOf(fields),
      });
      return { text: incidentTable([changed]), json: changed };
    },
  );
}

function addList(incident: Command): void {
  defineOperations<{ seller?: string }>(
    incident
      .command("list")
      .description("list incidents and maintenance, newest first")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }) => {
      const { rows } = await ask(listIncidents, { ...(await sellerBy(ask, seller)), limit: PAGE_MAX });
      return { text: incidentTable(rows), json: { incidents: rows } };
    },
  );
}

function addShow(incident: Command): void {
  defineOperations<{ seller?: string }>(
    incident
      .command("show <incident>")
      .description("show an incident with its updates")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }, [incident]): Promise<Output> => {
      const owned = { ...(await sellerBy(ask, seller)), incidentId: idOf(incident, "incident") };
      const found = await ask(getIncident, owned);
      const updates = found.updates.map(
        ({ at, status, body }) => `${at}${status === null ? "" : ` ${status}`}\n${body}`,
      );
      return { text: [incidentTable([found]), ...updates].join("\n\n"), json: found };
    },
  );
}

function addRemove(incident: Command): void {
  defineOperations<{ seller?: string }>(
    incident
      .command("remove <incident>")
      .description("remove an incident from the status page, with its updates")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }, [incident]): Promise<Output> => {
      const owned = { ...(await sellerBy(ask, seller)), incidentId: idOf(incident, "incident") };
      return { text: `Removed incident ${owned.incidentId}.`, json: await ask(removeIncident, owned) };
    },
  );
}

function impactOption(more = ""): Option {
  return new Option("--impact <impact>", `how bad an incident is${more}`).choices(IMPACTS);
}

function statusOption(more = ""): Option {
  return new Option("--status <status>", `how far an incident is${more}`).choices(INCIDENT_STATUSES);
}

function fieldsOf({ impact, status, begins, ends }: Fields) {
  return {
    ...(impact !== undefined && { impact }),
    ...(status !== undefined && { status }),
    ...(begins !== undefined && { beginsAt: begins }),
    ...(ends !== undefined && { endsAt: ends }),
  };
}

function listOf(text: string): string[] {
  return text.split(",").map((each) => each.trim());
}

function incidentTable(rows: readonly Omit<Incident, "updates">[]): string {
  return table(
    ["ID", "KIND", "TITLE", "STATUS", "IMPACT", "AFFECTS", "BEGINS", "ENDS"],
    rows.map((row) => [
      String(row.incidentId),
      row.kind,
      row.title,
      row.status,
      row.impact ?? "",
      row.components.join(", "),
      row.beginsAt,
      row.endsAt ?? "",
    ]),
    "No incidents.",
  );
}
