import process from "node:process";
import type { BrowserContext, Page } from "playwright-core";
import { openSeededPanel, type Seeded } from "../test/browser/seed.ts";
import { startPostgres } from "./services.ts";

/**
 * Measures how fast the panel's home page loads: `bun scripts/measure_panel.ts`. A seeded database, a signed-in customer, and
 * Chromium with an empty cache (cold), then with the cache of that visit (warm). Each figure is the median of RUNS.
 *
 * In ms after navigation starts: `paint`, first contentful paint; `heading`, the page's h1 is visible; `data`, its content is too;
 * `idle`, the main thread has no more long tasks. KB are transferred bytes.
 */

const RUNS = 5;
const DAYS = 5;
/** The main thread is idle after this time without a task over 50 ms. */
const QUIET_MS = 1_000;
const WAIT_MS_MAX = 60_000;

type Profile = { name: string; cpu: number; network: null | { latency: number; downKbps: number; upKbps: number } };
/** Slow 4G as in Lighthouse, fast 3G as in Chromium, both with a CPU four times slower. */
const PROFILES: readonly Profile[] = [
  { name: "no throttling", cpu: 1, network: null },
  { name: "slow 4G, CPU 4x slower", cpu: 4, network: { latency: 150, downKbps: 1_638, upKbps: 750 } },
  { name: "fast 3G, CPU 4x slower", cpu: 4, network: { latency: 562, downKbps: 1_475, upKbps: 675 } },
];

const COLUMNS = ["paint", "heading", "data", "idle", "scriptKb", "allKb", "requests"] as const;
type Timing = Record<(typeof COLUMNS)[number], number>;
type Times = { heading: number; data: number; busyUntil: number };

async function main(): Promise<void> {
  const postgres = process.env.DATABASE_URL ? undefined : await startPostgres();
  if (postgres) process.env.DATABASE_URL = postgres.url;
  try {
    const seeded = await openSeededPanel({ days: DAYS, dns: false });
    try {
      console.log(table([["", "cache", ...COLUMNS], ...(await measureAll(seeded))]));
    } finally {
      await seeded.close();
    }
  } finally {
    await postgres?.stop();
  }
}

async function measureAll(seeded: Seeded): Promise<string[][]> {
  const rows: string[][] = [];
  for (const profile of PROFILES) {
    const runs: { cold: Timing; warm: Timing }[] = [];
    for (let run = 0; run < RUNS; run++) runs.push(await measure(seeded, profile));
    for (const cache of ["cold", "warm"] as const) {
      const figures = COLUMNS.map((name) => median(runs.map((each) => each[cache][name])));
      rows.push([profile.name, cache, ...figures.map((figure) => String(Math.round(figure)))]);
    }
  }
  return rows;
}

async function measure({ panel, jonas }: Seeded, profile: Profile): Promise<{ cold: Timing; warm: Timing }> {
  const { context, page, close } = await panel.enter(jonas);
  await recordTimes(context);
  await throttle(context, page, profile);
  const cold = await open(page);
  await page.goto("about:blank");
  const warm = await open(page);
  await close();
  return { cold, warm };
}

async function throttle(context: BrowserContext, page: Page, { cpu, network }: Profile): Promise<void> {
  const client = await context.newCDPSession(page);
  await client.send("Emulation.setCPUThrottlingRate", { rate: cpu });
  if (network === null) return;
  const bytesPerSecond = (kbps: number) => (kbps * 1_000) / 8;
  const { latency, downKbps, upKbps } = network;
  const speed = { downloadThroughput: bytesPerSecond(downKbps), uploadThroughput: bytesPerSecond(upKbps) };
  await client.send("Network.enable");
  await client.send("Network.emulateNetworkConditions", { offline: false, latency, ...speed });
}

/** Makes every page record in `globalThis.times` when its heading and its data appeared, and the end of its last long task. */
async function recordTimes(context: BrowserContext): Promise<void> {
  await context.addInitScript(() => {
    const times = { heading: 0, data: 0, busyUntil: 0 };
    Object.assign(globalThis, { times });
    new MutationObserver(() => {
      if (document.querySelector("h1") === null) return;
      times.heading ||= performance.now();
      if (document.querySelector("[role=status].animate-late") !== null) times.data = 0;
      else times.data ||= performance.now();
    }).observe(document, { childList: true, subtree: true });
    new PerformanceObserver((list) => {
      for (const { startTime, duration } of list.getEntries()) times.busyUntil = startTime + duration;
    }).observe({ type: "longtask", buffered: true });
  });
}

async function open(page: Page): Promise<Timing> {
  await page.goto("/", { timeout: WAIT_MS_MAX });
  const isIdle = (quietMs: number) => {
    const { data, busyUntil }: Times = Reflect.get(globalThis, "times");
    return data > 0 && performance.now() - Math.max(data, busyUntil) > quietMs;
  };
  await page.waitForFunction(isIdle, QUIET_MS, { timeout: WAIT_MS_MAX });
  return page.evaluate(() => {
    const { heading, data, busyUntil }: Times = Reflect.get(globalThis, "times");
    const paint = performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? Number.NaN;
    const loaded = [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")].filter(
      (entry) => entry instanceof PerformanceResourceTiming,
    );
    const kilobytes = (entries: PerformanceResourceTiming[]) =>
      entries.reduce((sum, { transferSize }) => sum + transferSize, 0) / 1024;
    return {
      paint,
      heading,
      data,
      idle: Math.max(data, busyUntil),
      scriptKb: kilobytes(loaded.filter(({ name }) => name.endsWith(".js"))),
      allKb: kilobytes(loaded),
      requests: loaded.filter(({ transferSize }) => transferSize > 0).length,
    };
  });
}

function median(figures: number[]): number {
  const sorted = figures.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
}

function table(rows: string[][]): string {
  const widths = rows[0]?.map((_, column) => Math.max(...rows.map((row) => row[column]?.length ?? 0))) ?? [];
  const line = (row: string[]) =>
    row.map((cell, column) => (column < 2 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0)));
  return rows.map((row) => line(row).join("  ").trimEnd()).join("\n");
}

if (import.meta.main) await main();
