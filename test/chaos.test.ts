import { expect, test } from "bun:test";
import process from "node:process";
import { newSeed, reportText, runChaos } from "./chaos/run.ts";

/** `bun run chaos` for less than a minute, with another seed each time. A failure is repeated with the seed that it names. */

const LOAD_SECONDS = 45;
const TEST_MS_MAX = 460_000;
/** Below these nothing would have been tried: the load goes on until they are reached. */
const COMPLETE_MIN = 20;
const FAULTS_MIN = 10;

test(
  "random faults lose nothing and charge nothing twice, and the books balance",
  async () => {
    const seed = Number(process.env.CHAOS_SEED ?? newSeed());
    console.log(`seed ${seed}: again with  bun run chaos --seconds ${LOAD_SECONDS} --seed ${seed}`);
    const report = await runChaos({
      seed,
      seconds: LOAD_SECONDS,
      least: { complete: COMPLETE_MIN, faults: FAULTS_MIN },
    });
    console.log(reportText(report));
    expect(report.findings).toEqual([]);
    expect(report.history.filter(({ saw }) => saw === "complete").length).toBeGreaterThanOrEqual(COMPLETE_MIN);
    expect(new Set(report.injections.map(({ fault }) => fault)).size).toBeGreaterThanOrEqual(FAULTS_MIN);
  },
  TEST_MS_MAX,
);
