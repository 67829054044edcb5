import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql as expression } from "drizzle-orm";
import postgres from "postgres";
import type { MemberRole } from "../src/accounts/member_roles.ts";
import { REQUEST_BOUNDS_DEFAULT, type RequestBounds } from "../src/limits.ts";
import { newApiKey } from "../src/platform/crypto.ts";
import { type Db, openDb } from "../src/platform/db.ts";
import { imagePrices, models, providers, routes } from "../src/platform/schema_catalog.ts";
import { closing } from "./closing.ts";
import { createTestDatabase } from "./database.ts";

/** A small world in a real database: accounts, offerings, packages, keys. Each test file makes its own. */

export type World = Awaited<ReturnType<typeof createWorld>>;
export type Person = { accountId: number };
export type TestKey = { keyId: number; secret: string };

export type OfferingSpec = {
  kind?: "daily" | "custom";
  days?: number;
  dailyLimit?: number;
  totalLimit?: number;
  carryover?: boolean;
  tokenLimit?: number | null;
  modelIds?: string[] | null;
  timeZone?: string;
  wholesaleNanoUsd?: bigint;
  /** As `RateLimits` of src/platform/rate_tallies.ts. */
  limits?: object | null;
  requestBounds?: Partial<RequestBounds>;
};

/** What is not given has the column's default. */
export type ModelSpec = Partial<typeof models.$inferInsert> & {
  id: string;
  /** In the order in which they are tried. `upstreamModel` is `up-<id>`, unless given. */
  routes?: readonly (Partial<typeof routes.$inferInsert> & { provider: string })[];
  /** Micro-USD an image, by size. */
  imagePrices?: Readonly<Record<string, number>>;
};

/** On a busy machine, fifty transactions at once wait for each other for longer than a replica lets them. */
const LOCK_MS_MAX = 20_000;

/** Opens a fresh database with the schema, and a folder for spools. */
export async function createWorld() {
  const database = await createTestDatabase();
  const sql = postgres(database.url, { max: 4, onnotice: () => {} });
  // Small and round, so that a test can calculate holds: 8 tokens for the request and for each message.
  await sql`alter table models alter request_tokens set default 8, alter message_tokens set default 8`;
  const opened: Db[] = [];
  const { orm } = open(1);
  const spoolDir = await mkdtemp(join(tmpdir(), "tollgate-spool-"));
  let names = 0;
  /** The time set by `setClock`; null: the real time. */
  let clockMs: number | null = null;

  /** A Db like a replica's. Closed with the world, at the latest: dropping the database would end its connections under it. */
  function open(connections: number): Db {
    const config = { databaseUrl: database.url, dbPrepare: true, dbPoolMax: connections, lockMsMax: LOCK_MS_MAX };
    const db = openDb(config);
    opened.push(db);
    return db;
  }

  async function addAccount(
    role: "customer" | "reseller" | "admin",
    resellerId: number | null = null,
  ): Promise<Person> {
    const name = `${role}${++names}`;
    const [row] = await sql`
      insert into accounts (role, reseller_id, email, name) values (${role}, ${resellerId}, ${`${name}@example.com`}, ${name}) returning id`;
    const accountId = Number(row?.id);
    await sql`insert into balances (account_id) values (${accountId})`;
    return { accountId };
  }

  /** Gives a reseller an active domain. */
  async function addHost({ accountId }: Person, host: string): Promise<void> {
    await sql`insert into hosts (host, reseller_id, status) values (${host}, ${accountId}, 'active')`;
  }

  return {
    url: database.url,
    sql,
    spoolDir,
    openDb: (connections = 4) => open(connections),
    addCustomer: (resellerId?: number) => addAccount("customer", resellerId),
    /** A reseller whose domains are active. */
    async addReseller(...hosts: string[]): Promise<Person> {
      const reseller = await addAccount("reseller");
      for (const host of hosts) await addHost(reseller, host);
      return reseller;
    },
    addHost,
    addAdmin: () => addAccount("admin"),
    /** A person without an account of their own, who is a member. */
    async addMember({ accountId }: Person, role: MemberRole): Promise<Person> {
      const email = `${crypto.randomUUID()}@example.com`;
      const [row] = await sql`
        with person as (
          insert into accounts (role, reseller_id, email, name, only_person)
          select 'customer', reseller_id, ${email}, ${`The ${role}`}, true from accounts where id = ${accountId} returning id
        )
        insert into members (account_id, person_id, role) select ${accountId}, id, ${role} from person returning person_id`;
      return { accountId: Number(row?.person_id) };
    },

    /** A provider with one key. Returns its id. */
    async addProvider(name: string, baseUrl: string, keyCiphertext: Uint8Array): Promise<number> {
      const [row] = await sql`
        with added as (insert into providers (name, base_url) values (${name}, ${baseUrl}) returning id)
        insert into provider_keys (provider_id, name, key_ciphertext)
        select id, 'default', ${Buffer.from(keyCiphertext)} from added returning provider_id`;
      return Number(row?.provider_id);
    },

    /**
     * Adds models with their routes and prices, listed in this order. In one transaction, as replicas load the catalog from one snapshot:
     * a replica that knows one of them knows all of them, and the last of their routes.
     */
    async addModels(...specs: readonly ModelSpec[]): Promise<void> {
      const rows = specs.map(({ routes: _, imagePrices: __, ...columns }, i) => ({
        ...{ name: columns.id, ownedBy: "tollgate", createdAt: expression`now() + ${i} * interval '1 microsecond'` },
        ...columns,
      }));
      const idOf = (name: string) =>
        expression`(select ${providers.id} from ${providers} where ${providers.name} = ${name})`;
      const routeRows = specs.flatMap(({ id, routes: all = [] }) =>
        all.map(({ provider, ...columns }, priority) => ({
          ...{ modelId: id, providerId: idOf(provider), upstreamModel: `up-${id}`, priority },
          ...columns,
        })),
      );
      const imageRows = specs.flatMap(({ id, imagePrices: bySize = {} }) =>
        Object.entries(bySize).map(([size, microUsd]) => ({ modelId: id, size, microUsd })),
      );
      await orm.transaction(async (tx) => {
        await tx.insert(models).values(rows);
        if (routeRows.length > 0) await tx.insert(routes).values(routeRows);
        if (imageRows.length > 0) await tx.insert(imagePrices).values(imageRows);
      });
    },

    async addKey(
      person: Person,
      spec: { mode?: "package" | "payg"; modelIds?: string[]; hosts?: string[]; expiresAt?: string } = {},
    ): Promise<TestKey> {
      const { secret, digest, prefix, suffix } = newApiKey();
      const [row] = await sql`
        insert into keys (account_id, name, digest, prefix, suffix, mode, model_ids, hosts, expires_at)
        values (${person.accountId}, 'key', ${digest}, ${prefix}, ${suffix}, ${spec.mode ?? "package"}, ${spec.modelIds ?? null},
          ${spec.hosts ?? null}, ${spec.expiresAt ?? null}) returning id`;
      return { keyId: Number(row?.id), secret };
    },

    async addOffering(spec: OfferingSpec = {}): Promise<number> {
      const days = spec.days ?? 30;
      const daily = spec.dailyLimit ?? 1000;
      const [row] = await sql`
        insert into offerings (name, kind, days, daily_limit, total_limit, carryover, token_limit, limits, request_bounds, model_ids, time_zone, wholesale_nano_usd)
        values (${`offering${++names}`}, ${spec.kind ?? "custom"}, ${days}, ${daily}, ${spec.totalLimit ?? daily * days},
          ${spec.carryover ?? false}, ${spec.tokenLimit ?? null}, ${spec.limits ? sql.json({ models: {}, ...spec.limits }) : null},
          ${sql.json({ ...REQUEST_BOUNDS_DEFAULT, ...spec.requestBounds })},
          ${spec.modelIds ?? null}, ${spec.timeZone ?? "UTC"},
          ${String(spec.wholesaleNanoUsd ?? 0n)}) returning id`;
      return Number(row?.id);
    },

    async assign(person: Person, offeringId: number, when: "now" | "after" = "now", payer: Person | null = null) {
      const [row] =
        await sql`select * from assign_package(${person.accountId}, ${offeringId}, ${when}, ${payer?.accountId ?? null}, null)`;
      return { code: row?.code as string | null, packageId: Number(row?.package_id) };
    },

    /** Adds an offering and assigns it as a package. */
    async givePackage(person: Person, spec: OfferingSpec = {}): Promise<number> {
      return (await this.assign(person, await this.addOffering(spec))).packageId;
    },

    async setBalance(person: Person, nanoUsd: bigint): Promise<void> {
      await sql`select add_balance(${person.accountId}, ${String(nanoUsd)}, 'top_up', 'test', null)`;
      await sql`select set_payg(${person.accountId}, true)`;
    },

    /** The clock of a replica that agrees with the database: Unix time in ms. */
    unixMs: () => clockMs ?? Date.now(),

    /** Sets the ledger's clock to a fixed moment, or lets it run again. */
    async setClock(at: string | null): Promise<void> {
      clockMs = at === null ? null : Date.parse(at.replace(" ", "T").replace(/([+-]\d\d)$/, "$1:00"));
      const body = at === null ? "select clock_timestamp()" : `select timestamptz '${at}'`;
      await sql.unsafe(
        `create or replace function ledger_now() returns timestamptz language sql volatile as $$ ${body} $$`,
      );
    },

    /** The names of invariants that are broken; always empty in a correct system. */
    async unbalanced(): Promise<string[]> {
      const views =
        await sql`select table_name as name from information_schema.views where table_name like 'inv\\_%' order by 1`;
      const broken: string[] = [];
      for (const { name } of views) {
        const rows = await closing(name, sql.unsafe(`select * from ${name}`));
        if (rows.length > 0) broken.push(`${name}: ${JSON.stringify(rows.slice(0, 3))}`);
      }
      if (views.length < 8) broken.push("views are missing");
      return broken;
    },

    async close(): Promise<void> {
      await closing("the pools", Promise.all([sql.end({ timeout: 5 }), ...opened.map((db) => db.close())]));
      await closing("the database", database.drop());
      await rm(spoolDir, { recursive: true, force: true });
    },
  };
}
