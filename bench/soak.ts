import { readdirSync, readFileSync, readlinkSync, writeFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";
import { startServices } from "../scripts/services.ts";
import type { ReplicaProcess } from "../test/replica.ts";
import { curve, type Sample } from "./curve.ts";

/**
 * Many streams for a long time through one replica, most of them left by their clients at a random moment. Afterwards
 * the replica must be in its earlier state: memory within 10 % of the start, and no socket, hold or listener left
 * behind.
 * `bun run soak [--minutes 10] [--open 1000] [--aborts 10000] [--picture docs/soak.svg]`. Linux: it reads /proc.
 */

const TOKENS = 240;
const CHUNK_MS = 250;
/** Of the streams that begin, this share is left by its client; the others are read to their end. */
const LEFT_SHARE = 0.7;
const SAMPLE_MS = 2_000;
/**
 * The same load before the first measurement. After one such load a process keeps a different amount of memory than
 * after three; the goal is that it does not grow from there.
 */
const WARM_UP_MS = 300_000;
/** The time that the replica has to return to its earlier state. */
const REST_MS_MAX = 60_000;
const MEMORY_RATIO_MAX = 1.1;
/** The sockets that the garbage collector, a pool's spare connection or a timer may add. */
const SOCKETS_SPARE = 8;

const flags = readFlags();
if (process.platform !== "linux") {
  console.error("The soak reads /proc, which only Linux has.");
  process.exit(2);
}

type Flags = { soakMs: number; openMax: number; abortsWanted: number; picture: string | undefined };

/** Ends the process with 2, and one line, if the command line is invalid. */
function readFlags(): Flags {
  try {
    const { values } = parseArgs({
      options: {
        minutes: { type: "string", default: "10" },
        open: { type: "string", default: "1000" },
        aborts: { type: "string", default: "10000" },
        picture: { type: "string" },
      },
    });
    const [minutes, openMax, abortsWanted] = [Number(values.minutes), Number(values.open), Number(values.aborts)];
    if (![minutes, openMax, abortsWanted].every((n) => Number.isFinite(n) && n > 0))
      throw new Error("--minutes, --open and --aborts must be numbers above zero");
    return { soakMs: minutes * 60_000, openMax, abortsWanted, picture: values.picture };
  } catch (error) {
    console.error(error instanceof Error ? error.message.split(". ")[0] : error);
    process.exit(2);
  }
}

/** refused: with a status, as by an overloaded replica. broken: any other unexpected end. */
type Ending = "complete" | "left" | "refused" | "broken";

const services = await startServices();
process.env.DATABASE_URL = services.databaseUrl;
process.env.REDIS_URL = services.redisUrl;
// Both modules read the environment, so they are imported after it is set.
const { openShop, chatBody } = await import("../test/gateway/shop.ts");
const shop = await openShop({ env: { LOG_LEVEL: "info", LOG_REQUESTS: "0", LEASE_SECONDS: "60" } });
try {
  process.exitCode = (await run()) ? 0 : 1;
} finally {
  await shop.close();
  await services.stop();
}

async function run(): Promise<boolean> {
  const { soakMs, openMax, abortsWanted, picture } = flags;
  const replica = shop.replicas[0] as ReplicaProcess;
  const pid = replica.process.pid as number;
  const customers = await Promise.all(
    Array.from({ length: 20 }, () => shop.customer({ dailyLimit: 1_000_000, totalLimit: 30_000_000 })),
  );
  shop.provider.always({ tokens: TOKENS, chunkDelayMs: CHUNK_MS });
  let turn = 0;
  const secret = () => (customers[turn++ % customers.length] as { secret: string }).secret;

  const tally: Record<Ending, number> = { complete: 0, left: 0, refused: 0, broken: 0 };
  const open = new Set<Promise<void>>();
  const begin = (leaveAfterMs: number | undefined) => {
    const one = stream(replica.port, secret(), leaveAfterMs).then((ending) => {
      tally[ending]++;
      open.delete(one);
    });
    open.add(one);
  };

  // As many clients leave as requested, however long a stream lasts on this machine.
  const lifeMs = Math.min((soakMs * openMax * LEFT_SHARE) / abortsWanted, TOKENS * CHUNK_MS);
  /** Keeps the requested number of streams open until `over`; resolves when all have ended. */
  const load = async (over: () => boolean) => {
    while (!over()) {
      while (open.size < openMax) begin(Math.random() < LEFT_SHARE ? Math.random() * lifeMs : undefined);
      await sleep(20);
    }
    await Promise.all(open);
  };

  const fresh = await atRest(pid);
  console.log(`warming up: ${openMax} streams at once, as in the soak, for ${WARM_UP_MS / 60_000} minutes`);
  const warmUntilMs = performance.now() + WARM_UP_MS;
  await load(() => performance.now() > warmUntilMs);
  const start = await atRest(pid);
  const warm = { ...tally };
  console.log(
    `at rest: ${megabytes(fresh.rssBytes)} MB before the first stream, ${megabytes(start.rssBytes)} MB and ${start.sockets} sockets at the start`,
  );

  const samples: Sample[] = [];
  const startedMs = performance.now();
  const elapsed = () => performance.now() - startedMs;
  const sampler = setInterval(
    () => samples.push({ atSeconds: elapsed() / 1000, megabytes: megabytes(rssOf(pid)), open: open.size }),
    SAMPLE_MS,
  );
  const progress = setInterval(
    () =>
      console.log(
        `${Math.round(elapsed() / 1000)} s: ${open.size} open, ${tally.left} left, ${megabytes(rssOf(pid))} MB`,
      ),
    30_000,
  );
  await load(() => elapsed() >= soakMs && tally.left - warm.left >= abortsWanted);
  const end = await atRest(pid, start);
  clearInterval(sampler);
  clearInterval(progress);
  samples.push({ atSeconds: elapsed() / 1000, megabytes: megabytes(end.rssBytes), open: 0 });

  if (picture !== undefined) writeFileSync(picture, curve(samples, { startMegabytes: megabytes(start.rssBytes) }));
  const ratio = end.rssBytes / start.rssBytes;
  const holds = await waitForNoHold();
  const [books] = await shop.world.sql`
    select (select count(*)::int from receipts where outcome = 'settled') as settled, (select sum(units_taken - package_drawn(packages))::int from packages) as used`;
  const broken = await shop.world.unbalanced();
  const warnings = replica.logged().match(/MaxListenersExceeded|possible .*leak/gi) ?? [];
  console.log(
    `${tally.left - warm.left} streams left by their clients, ${tally.complete - warm.complete} read to the end, ${tally.refused - warm.refused} refused, ${tally.broken} broken, in ${Math.round(elapsed() / 1000)} s\n` +
      `memory ${megabytes(start.rssBytes)} → ${megabytes(end.rssBytes)} MB (×${ratio.toFixed(3)}), most ${Math.max(...samples.map((s) => s.megabytes))} MB\n` +
      `sockets ${start.sockets} → ${end.sockets}, holds ${holds}, listener warnings ${warnings.length}\n` +
      `usage records ${books?.settled}, units ${books?.used}, provider calls ${shop.provider.callCount()}, books that do not balance ${broken.length}`,
  );
  return (
    ratio <= MEMORY_RATIO_MAX &&
    end.sockets <= start.sockets + SOCKETS_SPARE &&
    holds === 0 &&
    warnings.length === 0 &&
    broken.length === 0 &&
    tally.broken === 0 &&
    books?.settled === books?.used &&
    books?.settled === tally.left + tally.complete
  );
}

/** One stream over a socket of its own; left after `leaveAfterMs`, or read to its end. */
function stream(port: number, secret: string, leaveAfterMs: number | undefined): Promise<Ending> {
  const body = JSON.stringify({ ...chatBody(), stream: true });
  return new Promise((resolve) => {
    let tail = "";
    let status: string | undefined;
    let left = false;
    const socket: Socket = connect(port, "127.0.0.1", () => {
      socket.write(
        `POST /v1/chat/completions HTTP/1.1\r\nhost: localhost:${port}\r\nauthorization: Bearer ${secret}\r\n` +
          `content-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
      );
    });
    const leave = () => {
      left = true;
      socket.destroy();
    };
    let timer: ReturnType<typeof setTimeout> | undefined;
    socket.on("data", (bytes) => {
      status ??= bytes.toString("latin1", 9, 12);
      if (status !== "200") return void socket.destroy();
      if (leaveAfterMs !== undefined) timer ??= setTimeout(leave, leaveAfterMs);
      tail = (tail + bytes.toString("latin1")).slice(-200);
      if (tail.includes("data: [DONE]")) socket.destroy();
    });
    socket.on("error", () => {}); // "close" follows, and decides.
    socket.on("close", () => {
      clearTimeout(timer);
      const isRefused = status !== undefined && status !== "200";
      resolve(isRefused ? "refused" : tail.includes("data: [DONE]") ? "complete" : left ? "left" : "broken");
    });
  });
}

type Rest = { rssBytes: number; sockets: number };

/** The replica at rest: the lowest values seen until it is in its earlier state, or until the time limit. */
async function atRest(pid: number, before?: Rest): Promise<Rest> {
  const begunMs = performance.now();
  let best: Rest = { rssBytes: Number.POSITIVE_INFINITY, sockets: Number.POSITIVE_INFINITY };
  const isWell = () =>
    before !== undefined && best.rssBytes <= before.rssBytes * MEMORY_RATIO_MAX && best.sockets <= before.sockets;
  while (performance.now() - begunMs < REST_MS_MAX && !isWell()) {
    await sleep(1_000);
    best = { rssBytes: Math.min(best.rssBytes, rssOf(pid)), sockets: Math.min(best.sockets, socketsOf(pid)) };
  }
  return best;
}

async function waitForNoHold(): Promise<number> {
  for (let tries = 0; ; tries++) {
    const [row] = await shop.world.sql`select count(*)::int as holds from escrows where units > 0 or nano_usd > 0`;
    if (row?.holds === 0 || tries === 30) return Number(row?.holds);
    await sleep(500);
  }
}

/** Resident memory, bytes. */
function rssOf(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]) * 1024;
}

function socketsOf(pid: number): number {
  const folder = `/proc/${pid}/fd`;
  return readdirSync(folder).filter((fd) => {
    try {
      return readlinkSync(`${folder}/${fd}`).startsWith("socket:");
    } catch {
      return false; // Closed since the folder was read.
    }
  }).length;
}

function megabytes(bytes: number): number {
  return Math.round(bytes / 1024 / 1024);
}
