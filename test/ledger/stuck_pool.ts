/**
 * Spools two settlements, replays them and looks a name up, while every thread of the runtime's pool is stuck: each opens a pipe that
 * nobody writes to. Prints what was done. A process of its own, because its pool stays stuck. Run by spool.test.ts, on Bun and on Deno.
 * Arguments: a folder, a pipe, a name server, and a settlement as JSON.
 */
import { open } from "node:fs/promises";
import process from "node:process";
import type { Finish } from "../../src/ledger/ledger_store.ts";
import { openSpool } from "../../src/ledger/spool.ts";
import { createLog } from "../../src/platform/log.ts";
import { resolveName, setNameServers } from "../../src/platform/names.ts";

/** More than any pool has threads. */
const STUCK = 2_000;

const [directory = "", pipe = "", nameServer = "", settlement = "{}"] = process.argv.slice(2);
let opened = 0;
for (let i = 0; i < STUCK; i++) open(pipe, "r").then(() => opened++);
const finish: Finish = {
  ...JSON.parse(settlement),
  chargeNanoUsd: 1n,
  heldNanoUsd: 1n,
  costNanoUsd: null,
  providerCostNanoUsd: null,
};
const spool = await openSpool({ directory, bytesMax: 1_000_000, startedMs: 2, log: createLog("silent") });
await Promise.all([spool.add(finish), spool.add(finish)]);
const { settlements } = spool.waiting();
const replayed = await spool.replay(async () => {});
setNameServers([nameServer]);
const found = await resolveName("a.example");
console.log(JSON.stringify({ opened, settlements, replayed, found }));
// Its threads never end.
process.kill(process.pid, "SIGKILL");
