import { copyFileSync } from "node:fs";
import { join } from "node:path";
import postgres from "postgres";
import { revokeKey } from "../../src/accounts/keys_store.ts";
import type { Behaviour } from "../../src/demo/provider/faults.ts";
import type { FailpointName } from "../../src/platform/failpoints.ts";
import type { Random } from "../random.ts";
import type { Buyer, Load } from "./load.ts";
import { LEASE_SECONDS, noteRevoked, type Seat, type Stage, sleep } from "./stage.ts";

/** The faults: what each breaks, and how it is repaired. */

const FAILPOINT_MS_MAX = 8_000;
const SPOOL_MS_MAX = 8_000;
const TEN_MINUTES_MS = 600_000;
/** Request ids have to stay within an hour of the ledger's clock, and replicas' clocks are up to ten minutes off. */
const CLOCK_AHEAD_SECONDS_MAX = 1_800;
const CONNECTIONS_TAKEN_MAX = 150;
const BOMB_BYTES = 16 * 1024 * 1024;
const DAY_SECONDS = 86_400;

/** What a fault uses exclusively while it lasts. "A replica": any one; some replicas are always left alone. */
export type Need = "replica" | "postgres" | "redis" | "provider" | "clients" | "accounts";
export type Scene = { stage: Stage; load: Load; seat: Seat };
export type Heal = () => void | Promise<void>;
export type Fault = {
  name: string;
  does: string;
  needs: Need;
  /** The time that it lasts once it has begun, in ms. */
  lastsMs: readonly [number, number];
  /** Breaks something, and returns a function that repairs it. Everything but the timing depends on `random`. */
  inject(scene: Scene, random: Random): Promise<Heal>;
};

const HURRY_MS = LEASE_SECONDS * 1000 + 4000;
const BEYOND_LEASE_MS = [LEASE_SECONDS * 1000 + 1200, LEASE_SECONDS * 1000 + 2800] as const;
const KILLED_AT: readonly [FailpointName, string][] = [
  ["before_reserve", "before reserve"],
  ["after_reserve", "between reserve and dispatch"],
  ["before_settle", "before settle"],
  ["after_settle", "between settle and reply"],
];
const FROZEN_AT: readonly [FailpointName, string][] = [
  ["after_reserve", "between reserve and dispatch"],
  ["before_settle", "before settle"],
];

export const FAULTS: readonly Fault[] = [
  {
    name: "replica killed",
    does: "SIGKILL at any moment; a new process on the same port and spool",
    needs: "replica",
    lastsMs: [100, 1200],
    async inject({ seat }) {
      await seat.kill();
      return () => seat.start();
    },
  },
  ...KILLED_AT.map(([point, where]) => killedAt(point, where)),
  {
    name: "replica frozen",
    does: "SIGSTOP beyond its lease, then SIGCONT",
    needs: "replica",
    lastsMs: BEYOND_LEASE_MS,
    async inject({ load, seat }, random) {
      await load.hurryPoor(HURRY_MS, random);
      await sleep(random.whole(100, 400));
      seat.freeze();
      return () => seat.thaw();
    },
  },
  ...FROZEN_AT.map(([point, where]) => frozenAt(point, where)),
  {
    name: "replica ended",
    does: "SIGTERM with streams open, sometimes twice; a new process on the same port and spool",
    needs: "replica",
    lastsMs: [0, 200],
    async inject({ stage, seat }, random) {
      const twice = random.chance(0.2);
      const code = await seat.term(twice);
      // A drain that leaves settlements for the next start has another exit code.
      if (code !== 0 && !twice && seat.spooled().length === 0)
        stage.note("broken", `replica ${seat.index} ended with ${code} at SIGTERM`);
      return () => seat.start();
    },
  },
  {
    name: "clock ten minutes off",
    does: "one replica's clock jumps ten minutes ahead or back, and returns",
    needs: "replica",
    lastsMs: [1500, 4000],
    async inject({ seat }, random) {
      seat.setClock(random.pick([-TEN_MINUTES_MS, TEN_MINUTES_MS]));
      return () => seat.setClock(0);
    },
  },
  {
    name: "COMMIT reply lost",
    does: "Postgres's replies to one replica are swallowed, one after another, and the connections reset",
    needs: "replica",
    lastsMs: [0, 300],
    async inject({ seat }, random) {
      for (let left = random.whole(3, 9); left > 0; left--)
        await Promise.race([seat.postgresWay.dropNextReply(), sleep(500)]);
      return () => seat.postgresWay.mend();
    },
  },
  {
    name: "Postgres silent",
    does: "one replica's connections to Postgres stay open and carry nothing, or lose every reply",
    needs: "replica",
    lastsMs: [800, 4500],
    async inject({ seat }, random) {
      if (random.chance(0.5)) seat.postgresWay.hang();
      else seat.postgresWay.dropReplies();
      return () => seat.postgresWay.mend();
    },
  },
  {
    name: "Postgres connections reset",
    does: "one replica's connections to Postgres are reset, new ones too",
    needs: "replica",
    lastsMs: [50, 1500],
    async inject({ seat }) {
      seat.postgresWay.reset();
      return () => seat.postgresWay.mend();
    },
  },
  {
    name: "Postgres slow",
    does: "every byte between one replica and Postgres comes 80 to 500 ms later",
    needs: "replica",
    lastsMs: [1500, 3500],
    async inject({ seat }, random) {
      seat.postgresWay.latency(random.whole(80, 500));
      return () => seat.postgresWay.mend();
    },
  },
  {
    name: "spool full",
    does: "one replica is cut off from Postgres for longer than its small spool has room",
    needs: "replica",
    lastsMs: [2500, 4500],
    async inject({ load, seat }, random) {
      await load.hurryPoor(HURRY_MS, random);
      await sleep(random.whole(100, 400));
      seat.postgresWay.cut();
      return () => seat.postgresWay.mend();
    },
  },
  {
    name: "settlement replayed twice",
    does: "a spool file is copied, its replica killed, and both files are replayed",
    needs: "replica",
    lastsMs: [0, 300],
    inject: replayTwice,
  },
  {
    name: "Postgres crashed",
    does: "immediate shutdown, or SIGKILL to all of its processes; started again on the same data",
    needs: "postgres",
    lastsMs: [0, 1500],
    async inject({ stage }, random) {
      await stage.database.crash(random.chance(0.5));
      return () => stage.database.start();
    },
  },
  {
    name: "Postgres frozen",
    does: "SIGSTOP to all of its processes, then SIGCONT",
    needs: "postgres",
    lastsMs: [800, 4500],
    async inject({ stage }) {
      await stage.database.freeze();
      return () => stage.database.thaw();
    },
  },
  {
    name: "account lock held",
    does: "another session holds the advisory locks of some accounts",
    needs: "postgres",
    lastsMs: [1000, 4000],
    inject: (scene, random) =>
      inTransaction(scene, random, async (tx, ids) => {
        for (const id of ids.sort((a, b) => a - b)) await tx`select pg_advisory_xact_lock(${id})`;
      }),
  },
  {
    name: "row lock held",
    does: "another session holds the rows of some packages and balances, whose batches wait within their locks",
    needs: "postgres",
    lastsMs: [1000, 4000],
    inject: (scene, random) =>
      inTransaction(scene, random, async (tx, ids) => {
        await tx`select id from packages where account_id = any(${ids}) for update`;
        await tx`select account_id from balances where account_id = any(${ids}) for update`;
      }),
  },
  {
    name: "pool exhausted",
    does: "the server's connections are all taken, and the replicas' are ended",
    needs: "postgres",
    lastsMs: [500, 3000],
    inject: takeAllConnections,
  },
  {
    name: "midnight",
    does: "a day ends for packages and keys in the middle of their requests; sometimes the database's clock jumps there",
    needs: "accounts",
    lastsMs: [2500, 4000],
    inject: midnight,
  },
  {
    name: "package ends mid-stream",
    does: "packages of accounts at work are ended, or replaced",
    needs: "accounts",
    lastsMs: [300, 1500],
    inject: endPackages,
  },
  {
    name: "key revoked",
    does: "keys in use are revoked",
    needs: "accounts",
    lastsMs: [500, 1500],
    inject: revokeKeys,
  },
  {
    name: "Redis killed",
    does: "SIGKILL; a new, empty one on the same port",
    needs: "redis",
    lastsMs: [500, 3000],
    async inject({ stage }) {
      await stage.redis.kill();
      return () => stage.redis.start();
    },
  },
  {
    name: "Redis frozen",
    does: "SIGSTOP, then SIGCONT",
    needs: "redis",
    lastsMs: [1000, 5000],
    async inject({ stage }) {
      stage.redis.freeze();
      return () => stage.redis.thaw();
    },
  },
  {
    name: "Redis slow",
    does: "every byte between the replicas and Redis comes 50 to 800 ms later",
    needs: "redis",
    lastsMs: [1500, 3500],
    async inject({ stage }, random) {
      const ms = random.whole(50, 800);
      for (const { redisWay } of stage.replicas) redisWay.latency(ms);
      return () => mendRedis(stage);
    },
  },
  {
    name: "Redis messages lost",
    does: "all that Redis says to the replicas is dropped, while keys in use are revoked",
    needs: "redis",
    lastsMs: [800, 2500],
    async inject(scene, random) {
      for (const { redisWay } of scene.stage.replicas) redisWay.dropReplies();
      await revokeKeys(scene, random);
      return () => mendRedis(scene.stage);
    },
  },
  {
    name: "provider out of reach",
    does: "the first provider's connections are cut, and new ones refused",
    needs: "provider",
    lastsMs: [200, 2000],
    async inject({ stage }) {
      stage.providerWay.cut();
      return () => stage.providerWay.mend();
    },
  },
  spoiled("provider answers errors", "4xx and 5xx in place of answers", () =>
    [500, 502, 503, 429, 401, 400].map((status) => ({ status })),
  ),
  spoiled("provider hangs", "before its headers, before its first byte, in the middle", () => [
    { hang: "headers" },
    { hang: "first_byte" },
    { hang: "mid_stream" },
  ]),
  spoiled("provider answers HTML", "a page of a proxy, with 200 or 502", () => [
    { html: true },
    { html: true, status: 502 },
  ]),
  spoiled("provider sends a gzip bomb", "16 MiB of spaces, gzipped", () => [{ gzipBomb: BOMB_BYTES }]),
  spoiled("provider cuts", "the connection closes after any number of bytes, or before the headers", (random) => [
    { cutBeforeHeaders: true },
    { cutAfterBytes: 0 },
    { cutAfterBytes: random.whole(1, 300) },
    { cutAfterBytes: random.whole(300, 3000) },
    { cutAfterBytes: random.whole(1000, 9000) },
    { cutAfterChunks: random.whole(1, 12) },
  ]),
  spoiled("provider breaks off", "streams end without a finish, or in an error event", (random) => [
    { endWithoutDone: true, endWithoutFinish: true },
    { errorEventAfterChunks: random.whole(1, 8) },
  ]),
  spoiled("provider slow", "answers take longer than a lease", () => [
    { delayMs: LEASE_SECONDS * 1000 + 1500 },
    { firstByteDelayMs: LEASE_SECONDS * 1000 + 1000 },
    // The longest answer has 500 chunks, and must end while its client still waits.
    { chunkDelayMs: 40 },
  ]),
  {
    name: "clients leave",
    does: "most clients leave at once, several times",
    needs: "clients",
    lastsMs: [0, 300],
    async inject({ load }, random) {
      for (let left = random.whole(2, 5); left > 0; left--) {
        load.leave(0.8, random);
        await sleep(random.whole(50, 400));
      }
      return () => {};
    },
  },
  {
    name: "clients stop reading",
    does: "some clients take nothing of a large stream, until they are cut",
    needs: "clients",
    lastsMs: [0, 0],
    async inject({ load }, random) {
      await load.stopReading(random.whole(1, 2), random);
      return () => {};
    },
  },
];

function killedAt(point: FailpointName, where: string): Fault {
  return {
    name: `replica killed ${where}`,
    does: `SIGKILL to itself the nth time it is at ${point}`,
    needs: "replica",
    lastsMs: [0, 0],
    async inject({ seat }, random) {
      await seat.kill();
      await seat.start({ FAILPOINTS: `${point}=kill@${random.whole(1, 25)}` });
      await Promise.race([seat.ended(), sleep(FAILPOINT_MS_MAX)]);
      return async () => {
        await seat.kill();
        await seat.start();
      };
    },
  };
}

function frozenAt(point: FailpointName, where: string): Fault {
  return {
    name: `replica frozen ${where}`,
    does: `SIGSTOP to itself the nth time it is at ${point}, SIGCONT beyond its lease`,
    needs: "replica",
    lastsMs: BEYOND_LEASE_MS,
    async inject({ load, seat }, random) {
      await seat.kill();
      await load.hurryPoor(HURRY_MS, random);
      await seat.start({ FAILPOINTS: `${point}=freeze@${random.whole(1, 25)}` });
      const endsAt = performance.now() + FAILPOINT_MS_MAX;
      let isFrozen = false;
      while (!isFrozen && performance.now() < endsAt) {
        isFrozen = seat.isFrozen();
        await sleep(50);
      }
      return async () => {
        seat.thaw();
        if (isFrozen) return;
        // It never reached the failpoint, and must not freeze later.
        await seat.kill();
        await seat.start();
      };
    },
  };
}

/** Some calls of one provider, or of both, are answered badly. */
function spoiled(name: string, does: string, behaviours: (random: Random) => Behaviour[]): Fault {
  return {
    name,
    does,
    needs: "provider",
    lastsMs: [1000, 3500],
    async inject({ stage }, random) {
      const chosen = random.chance(0.3) ? stage.spoil : [random.pick(stage.spoil)];
      const share = 0.2 + random.next() * 0.5;
      const heals = chosen.map((spoil) => spoil(share, behaviours(random), random.fork(name)));
      return () => {
        for (const heal of heals) heal();
      };
    },
  };
}

async function replayTwice({ stage, seat }: Scene): Promise<Heal> {
  seat.postgresWay.cut();
  const endsAt = performance.now() + SPOOL_MS_MAX;
  while (seat.spooled().length === 0 && performance.now() < endsAt) await sleep(50);
  const [file] = seat.spooled();
  if (file !== undefined)
    copyFileSync(join(seat.spoolDir, file), join(seat.spoolDir, file.replace(/-\d+\.spool$/, "-900000.spool")));
  await seat.kill();
  seat.postgresWay.mend();
  return async () => {
    await seat.start();
    if (file === undefined) stage.log(`replica ${seat.index} had spooled nothing within ${SPOOL_MS_MAX / 1000} s`);
  };
}

/** A session that takes locks of some accounts at work, and keeps them. */
async function inTransaction(
  { stage, load }: Scene,
  random: Random,
  lock: (tx: postgres.ReservedSql, accountIds: number[]) => Promise<void>,
): Promise<Heal> {
  const buyers = random.shuffled(load.buyers()).slice(0, random.whole(2, 5));
  const sql = postgres(stage.world.url, { max: 1, onnotice: () => {} });
  const tx = await sql.reserve();
  await tx`begin`;
  await lock(
    tx,
    buyers.map(({ accountId }) => accountId),
  );
  return async () => {
    await tx`commit`;
    tx.release();
    await sql.end({ timeout: 2 });
  };
}

async function takeAllConnections({ stage }: Scene): Promise<Heal> {
  const taken: postgres.Sql[] = [];
  const takeRest = async () => {
    while (taken.length < CONNECTIONS_TAKEN_MAX) {
      const sql = postgres(stage.world.url, { max: 1, connect_timeout: 2, onnotice: () => {} });
      const isMine = await sql`select 1`.then(
        () => true,
        () => false, // No connection is left, which is the purpose.
      );
      if (!isMine) return void (await sql.end({ timeout: 0 }));
      taken.push(sql);
    }
  };
  await takeRest();
  const [one] = taken;
  if (one === undefined) throw new Error("not one connection could be taken");
  await one`select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'tollgate'`;
  await takeRest();
  return async () => {
    await Promise.all(taken.map((sql) => sql.end({ timeout: 2 })));
  };
}

/** Buyers whose midnight is some seconds away, with load until it has passed. */
async function midnight({ stage, load }: Scene, random: Random): Promise<Heal> {
  const inSeconds = random.whole(1, 4);
  const zone = await stage.books(() => zoneWithMidnightIn(stage, inSeconds));
  const { world } = stage;
  const make = async (spec: Parameters<typeof world.givePackage>[1], code: string): Promise<Buyer> => {
    const person = await world.addCustomer();
    const packageId = await world.givePackage(person, { days: 3, timeZone: zone, ...spec });
    const key = await world.addKey(person);
    return { ...person, ...key, packageId, models: ["chat-a", "chat-b"], may: new Set([code]), refusals: 0 };
  };
  const buyers = await stage.books(async () => {
    const limited = await make({ dailyLimit: 1000 }, "key_request_limit_exceeded");
    await world.sql`update keys set daily_units_max = 15, time_zone = ${zone} where id = ${limited.keyId}`;
    const standard = await make({ dailyLimit: 15 }, "daily_quota_exceeded");
    const carried = await make({ dailyLimit: 15, carryover: true }, "carryover_quota_exceeded");
    return [limited, standard, carried];
  });
  load.hurry(buyers, inSeconds * 1000 + 4000);
  await sleep(random.whole(200, 900));
  const jump = inSeconds + random.whole(0, 3);
  if (random.chance(0.5) && stage.clockAheadSeconds() + jump < CLOCK_AHEAD_SECONDS_MAX)
    await stage.books(() => stage.advanceClock(jump));
  else await sleep(inSeconds * 1000);
  return () => {};
}

/** A zone of our own, by its distance from UTC, in which the ledger's day ends in so many seconds. */
async function zoneWithMidnightIn({ world }: Stage, seconds: number): Promise<string> {
  const [row] =
    await world.sql`select floor(extract(epoch from (ledger_now() at time zone 'UTC')::time))::int as second_of_day`;
  const west = Number(row?.second_of_day) - (DAY_SECONDS - seconds);
  const near = west < -DAY_SECONDS / 2 ? west + DAY_SECONDS : west;
  const two = (n: number) => String(Math.floor(n)).padStart(2, "0");
  const size = Math.abs(near);
  return `<OWN>${near < 0 ? "-" : "+"}${two(size / 3600)}:${two((size / 60) % 60)}:${two(size % 60)}`;
}

async function endPackages({ stage, load }: Scene, random: Random): Promise<Heal> {
  const owners = random.shuffled(load.buyers().filter(({ packageId }) => packageId !== undefined)).slice(0, 3);
  const { world } = stage;
  for (const buyer of owners) {
    buyer.may.add("package_expired");
    if (random.chance(0.5))
      await stage.books(() => world.sql`select end_package(${buyer.accountId}, ${buyer.packageId ?? 0})`);
    else buyer.packageId = await stage.books(() => world.givePackage(buyer, { dailyLimit: 1_000_000 }));
  }
  return async () => {
    for (const buyer of owners)
      buyer.packageId = await stage.books(() => world.givePackage(buyer, { dailyLimit: 1_000_000 }));
  };
}

/** Additional keys of accounts with enough quota, used by many requests concurrently, and revoked meanwhile. */
async function revokeKeys({ stage, load }: Scene, random: Random): Promise<Heal> {
  const buyers = await stage.books(async () => {
    const made: Buyer[] = [];
    for (const owner of load.wide) {
      const key = await stage.world.addKey(owner);
      made.push({ ...owner, ...key, may: new Set([...owner.may, "invalid_api_key"]) });
    }
    return made;
  });
  load.hurry(buyers, 3000);
  await sleep(random.whole(300, 1200));
  for (const { accountId, keyId } of buyers)
    await stage.books(async (db) => {
      await revokeKey({ db, bus: stage.bus }, { accountId, keyId });
      await noteRevoked(stage.world, keyId);
    });
  return () => {};
}

function mendRedis(stage: Stage): void {
  for (const { redisWay } of stage.replicas) redisWay.mend();
}
