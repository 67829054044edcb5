import { afterAll, beforeAll, beforeEach, describe, expect, test } from "bun:test";
import {
  changeIncident,
  createIncident,
  findIncident,
  type Incident,
  listIncidents,
  type NewIncident,
  pruneIncidents,
  removeIncident,
  shownIncidents,
} from "../../src/commerce/incidents_store.ts";
import { INCIDENT_UPDATES_MAX, INCIDENTS_MAX, INCIDENTS_OPEN_MAX } from "../../src/limits.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import { runCli } from "../cli/cli_process.ts";

/** Incidents and planned maintenance: what can be written, and by whom it is seen. Source: STA-4, STA-5, STA-6. */

const SLOW_MS = 120_000;
const NOW = "2031-03-30 12:00+00";

let world: AccountsWorld;
let reseller: number;
beforeAll(async () => {
  world = await createAccountsWorld();
  reseller = (await world.addReseller()).accountId;
  await world.addModels({ id: "chat-a" });
});
beforeEach(async () => {
  await world.sql`delete from incidents`;
  await world.setClock(NOW);
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const INCIDENT: NewIncident = {
  ...{ sellerId: 0, kind: "incident", title: "Slow answers", body: "We look into it.", components: ["api"] },
};
const create = (more: Partial<NewIncident> = {}) => createIncident(world.deps, { ...INCIDENT, ...more });
const planned = { kind: "maintenance" as const, beginsAt: "2031-04-01T01:00:00Z", endsAt: "2031-04-01T02:00:00Z" };
const change = ({ incidentId, sellerId, version }: Incident, more: object) =>
  changeIncident(world.deps, { incidentId, sellerId, version, ...more });

describe("an incident", () => {
  test("goes from its begin to its end, with an update for each step, newest first", async () => {
    const made = await create({ impact: "outage", components: ["api", "api", "models"] });
    expect(made).toMatchObject({
      ...{ kind: "incident", impact: "outage", status: "investigating", components: ["api", "models"] },
      ...{ beginsAt: "2031-03-30T12:00:00.000Z", endsAt: null, version: 1 },
      updates: [{ status: "investigating", body: "We look into it." }],
    });
    await world.setClock("2031-03-30 12:30+00");
    const found = await change(made, { status: "identified", body: "A disk.\r\nIt is replaced." });
    expect(found).toMatchObject({ status: "identified", version: 2, impact: "outage" });
    await expect(change(found, { status: "resolved" })).rejects.toThrow("Say what has changed.");
    const resolved = await change(found, { status: "resolved", body: "It is over." });
    expect(resolved).toMatchObject({ status: "resolved", endsAt: "2031-03-30T12:30:00.000Z" });
    expect(resolved.updates.map(({ status, body }) => [status, body])).toEqual([
      ["resolved", "It is over."],
      ["identified", "A disk.\nIt is replaced."],
      ["investigating", "We look into it."],
    ]);
    expect(await change(resolved, { status: "monitoring", body: "It is back." })).toMatchObject({
      ...{ status: "monitoring", endsAt: null },
    });
  });

  test("cannot be resolved before it began, begin or end in the future, or have begun long ago", async () => {
    const resolved = { status: "resolved" as const, beginsAt: "2031-03-30T11:00:00Z" };
    await expect(create({ ...resolved, endsAt: "2031-03-30T10:59:59Z" })).rejects.toThrow("before it began");
    await expect(create({ ...resolved, endsAt: "2031-03-30T13:00:00Z" })).rejects.toThrow("in the future");
    await expect(create({ beginsAt: "2031-03-30T12:05:00Z" })).rejects.toThrow("in the future");
    await expect(create({ beginsAt: "2030-12-01" })).rejects.toThrow("90 days ago");
    await expect(create({ endsAt: "2031-03-30T12:00:00Z" })).rejects.toThrow("Only a resolved incident");
    for (const beginsAt of ["yesterday", "2031-02-30", "2031-03-30T11:00:00", "0000-01-01"])
      await expect(create({ beginsAt })).rejects.toThrow("beginsAt must be");
    expect(await listIncidents(world.deps, { sellerId: 0 })).toMatchObject({ rows: [] });
  });

  test("a time with a zone is that moment: across a change to daylight saving time an hour is missing", async () => {
    // Berlin, where 02:00 is followed by 03:00.
    const times = { beginsAt: "2031-03-30T01:30:00+01:00", endsAt: "2031-03-30T03:30:00+02:00" };
    const made = await create({ status: "resolved", ...times });
    expect(made).toMatchObject({ beginsAt: "2031-03-30T00:30:00.000Z", endsAt: "2031-03-30T01:30:00.000Z" });
  });

  test("what has become old stays as it is when something else is changed", async () => {
    const { accountId: _, ...old } = { accountId: 0, ...(await create({ beginsAt: "2031-01-15" })) };
    await world.setClock("2031-12-01 00:00+00");
    expect(await change(old, { title: "Slow answers in January" })).toMatchObject({
      ...{ title: "Slow answers in January", beginsAt: "2031-01-15T00:00:00.000Z" },
    });
  });

  test("affects components that exist, at least one and at most 50", async () => {
    await expect(create({ components: [] })).rejects.toThrow("at least one");
    for (const components of [["apis"], ["model:nobody"], ["api", "model:"], ["chat-a"], ["model:chat-a' or 1=1"]])
      await expect(create({ components })).rejects.toThrow("There is no component");
    const many = Array.from({ length: 51 }, (_, i) => `model:m${i}`);
    await expect(create({ components: many })).rejects.toThrow("at most 50");
    expect((await create({ components: ["panel", "models", "model:chat-a"] })).components).toHaveLength(3);
  });

  test("has a title on one line and texts without control characters; markup stays as it is", async () => {
    for (const title of ["", "  ", "two\nlines", "x".repeat(121), "\u202eturned"])
      await expect(create({ title })).rejects.toThrow("title");
    for (const body of ["", " \n ", "\u0000", "x".repeat(2_001)]) await expect(create({ body })).rejects.toThrow();
    const made = await create({ title: "<b>Bold</b>", body: "<script>alert(1)</script>" });
    expect([made.title, made.updates[0]?.body]).toEqual(["<b>Bold</b>", "<script>alert(1)</script>"]);
  });
});

describe("maintenance", () => {
  test("is scheduled, in progress and completed by its times, and can be ended early", async () => {
    const made = await create(planned);
    expect(made).toMatchObject({ status: "scheduled", impact: null, updates: [{ status: null }] });
    const statusAt = async (at: string) => {
      await world.setClock(at);
      return (await findIncident(world.deps, made)).status;
    };
    expect(await statusAt("2031-04-01 01:00+00")).toBe("in_progress");
    expect(await statusAt("2031-04-01 02:00+00")).toBe("completed");
    await world.setClock("2031-04-01 01:30+00");
    const ended = await change(made, { endsAt: "2031-04-01T01:20:00Z", body: "It is done." });
    expect(ended).toMatchObject({ status: "completed", endsAt: "2031-04-01T01:20:00.000Z" });
  });

  test("has a begin and an end, takes at most 7 days, and is planned at most a year ahead", async () => {
    await expect(create({ ...planned, beginsAt: null })).rejects.toThrow("when the maintenance begins");
    await expect(create({ ...planned, endsAt: undefined })).rejects.toThrow("when the maintenance ends");
    await expect(create({ ...planned, endsAt: planned.beginsAt })).rejects.toThrow("after it begins");
    await expect(create({ ...planned, endsAt: "2031-04-09" })).rejects.toThrow("at most 7 days");
    const far = { beginsAt: "2032-04-01T00:00:00Z", endsAt: "2032-04-01T01:00:00Z" };
    await expect(create({ ...planned, ...far })).rejects.toThrow("365 days from now");
    await expect(create({ ...planned, status: "resolved" })).rejects.toThrow("follow from its times");
    await expect(create({ ...planned, impact: "outage" })).rejects.toThrow("follow from its times");
  });
});

test("of two who change at once one is told that the other has changed it, and nothing of it is written", async () => {
  const made = await create();
  const writers = ["first", "second"].map((body) => change(made, { status: "identified", body }));
  const ended = await Promise.allSettled(writers);
  expect(ended.map(({ status }) => status).sort()).toEqual(["fulfilled", "rejected"]);
  const refused = ended.find(({ status }) => status === "rejected");
  expect(refused).toMatchObject({ reason: { param: "version" } });
  expect(await findIncident(world.deps, made)).toMatchObject({ version: 2, updates: [{}, {}] });
});

test("incidents of another seller are not found, listed, changed or removed", async () => {
  const made = await create();
  const theirs = { ...made, sellerId: reseller };
  await expect(findIncident(world.deps, theirs)).rejects.toMatchObject({ code: "not_found" });
  await expect(change(theirs, { title: "x" })).rejects.toMatchObject({ code: "not_found" });
  await expect(removeIncident(world.deps, theirs)).rejects.toMatchObject({ code: "not_found" });
  for (const incidentId of [-1, 0, 1.5, Number.NaN, 2 ** 60])
    await expect(findIncident(world.deps, { ...made, incidentId })).rejects.toMatchObject({ code: "not_found" });
  expect((await listIncidents(world.deps, { sellerId: reseller })).rows).toEqual([]);
  await removeIncident(world.deps, made);
  expect((await listIncidents(world.deps, { sellerId: 0 })).rows).toEqual([]);
  expect(await world.sql`select 1 from incident_updates`).toHaveLength(0);
});

test("a seller has a limited number of open incidents, also when all are written at once; others have their own", async () => {
  const all = await Promise.allSettled(Array.from({ length: INCIDENTS_OPEN_MAX + 3 }, () => create()));
  expect(all.filter(({ status }) => status === "fulfilled")).toHaveLength(INCIDENTS_OPEN_MAX);
  await create({ sellerId: reseller });
  const [first] = (await listIncidents(world.deps, { sellerId: 0 })).rows;
  if (first === undefined) throw new Error("nothing was listed");
  const resolved = await change(first, { status: "resolved", body: "Over." });
  await create();
  await expect(change(resolved, { status: "monitoring", body: "Again." })).rejects.toThrow("open or planned at once");
});

test("a seller has a limited number of incidents, and an incident of updates", async () => {
  const made = await create();
  await world.sql`
    insert into incidents (seller_id, kind, title, impact, status, components, begins_at, ends_at)
    select 0, 'incident', 'old', 'degraded', 'resolved', '{api}', '2031-01-01Z', '2031-01-01Z' from generate_series(2, ${INCIDENTS_MAX})`;
  await expect(create()).rejects.toThrow("Remove old ones first");
  await world.sql`
    insert into incident_updates (incident_id, status, body) select ${made.incidentId}, 'investigating', 'x' from generate_series(2, ${INCIDENT_UPDATES_MAX})`;
  await expect(change(made, { body: "One more." })).rejects.toThrow("Begin a new incident");
  const shown = await shownIncidents(world.deps, { sellerIds: [0], days: 30, max: 50 });
  expect(shown.map(({ incidentId }) => incidentId)).toEqual([made.incidentId]);
  // A list has the latest ones of each.
  const latest = (await findIncident(world.deps, made)).updates.slice(0, 10);
  expect(shown[0]?.updates).toEqual(latest);
  const { rows } = await listIncidents(world.deps, { sellerId: 0, before: made.incidentId + 1 });
  expect(rows[0]?.updates).toEqual(latest);
});

test("what is over goes after its days, with its updates, and makes room; what is open or planned stays", async () => {
  const { sql } = world;
  const open = await create();
  await sql`update incidents set begins_at = begins_at - interval '500 days' where id = ${open.incidentId}`;
  await sql`
    with made as (
      insert into incidents (seller_id, kind, title, impact, status, components, begins_at, ends_at)
      select 0, 'incident', 'long over', 'degraded', 'resolved', '{api}', ledger_now() - interval '401 days', ledger_now() - interval '401 days'
      from generate_series(2, ${INCIDENTS_MAX}) returning id)
    insert into incident_updates (incident_id, status, body) select id, 'resolved', 'x' from made`;
  await sql`
    insert into incidents (seller_id, kind, title, components, begins_at, ends_at)
    values (${reseller}, 'maintenance', 'over for less', '{api}', ledger_now() - interval '400 days', ledger_now() - interval '399 days')`;
  await expect(create()).rejects.toThrow("Remove old ones first");
  expect(await pruneIncidents(world.deps, 400)).toBe(INCIDENTS_MAX - 1);
  await create();
  expect(await sql`select 1 from incidents where title = 'long over'`).toHaveLength(0);
  expect(await sql`select 1 from incident_updates where body = 'x' and status = 'resolved'`).toHaveLength(0);
  expect(await sql`select 1 from incidents where title = 'over for less' or id = ${open.incidentId}`).toHaveLength(2);
});

test("every change is in the audit log, with its texts", async () => {
  const made = await create();
  await change(made, { status: "resolved", body: "Over." });
  await removeIncident(world.deps, made);
  const entries = await world.sql`
    select action, subject, after, before from audit_entries where subject in ('incidents', 'incident_updates') order by id desc limit 5`;
  expect(entries.toReversed()).toMatchObject([
    {
      action: "added",
      subject: "incidents",
      after: { title: "Slow answers", status: "investigating", components: ["api"] },
    },
    { action: "added", subject: "incident_updates", after: { body: "We look into it." } },
    { action: "added", subject: "incident_updates", after: { body: "Over.", status: "resolved" } },
    { action: "changed", subject: "incidents", before: { status: "investigating" }, after: { status: "resolved" } },
    { action: "removed", subject: "incidents", before: { title: "Slow answers" } },
  ]);
});

test(
  "the command line publishes, updates, shows and removes incidents",
  async () => {
    await world.setClock(null);
    const cli = (args: string) =>
      runCli(args, { stdin: "", env: { DATABASE_URL: world.url, SPOOL_DIR: world.spoolDir } });
    const made = await cli(
      "incident create --title Slow --text Slow. --affects api,model:chat-a --impact outage --json",
    );
    expect(made).toMatchObject({ code: 0, err: "" });
    const { incidentId } = JSON.parse(made.out);
    const changed = await cli(`incident update ${incidentId} --status resolved --text Over.`);
    expect(changed.out).toMatch(/Slow\s+resolved\s+outage\s+api, model:chat-a/);
    expect((await cli(`incident show ${incidentId}`)).out).toContain("resolved\nOver.");
    expect((await cli("incident list")).out).toContain("Slow");
    const bad = await cli("incident create --title Slow --text Slow. --affects everything");
    expect(bad).toMatchObject({ code: 1, out: "" });
    expect(bad.err).toContain('There is no component "everything"');
    expect((await cli(`incident remove ${incidentId}`)).out).toContain("Removed");
    expect((await cli("incident list")).out).toContain("No incidents.");
  },
  SLOW_MS,
);
