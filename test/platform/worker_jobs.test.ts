import { expect, test } from "bun:test";
import { createWorkerJobs, type WorkerOptions } from "../../src/platform/worker_jobs.ts";
import { quietLog } from "./quiet_log.ts";

/** Who waits for a worker, and for how long: accounts take turns. Source: ADM-13. */

/** A worker that answers each job with itself. */
const ECHO = "onmessage = ({ data }) => postMessage({ id: data.id, result: data.job }); postMessage({ ready: true });";

const workerOf = (script: string) =>
  new Worker(URL.createObjectURL(new Blob([script], { type: "application/javascript" })), { type: "module" });

function jobsOf(options: Partial<WorkerOptions<string>> = {}) {
  return createWorkerJobs<string, string>({
    ...{ name: "test", log: quietLog().log, queueMax: 100, waitMs: 60_000, stuckMs: 60_000 },
    startWorker: () => workerOf(ECHO),
    ...options,
  });
}

const account = (accountId: number, tenantId = 0) => ({ owner: { accountId, tenantId } });

test("an account whose jobs fill its share of the queue does not delay another one by more than a job for each account", async () => {
  const jobs = jobsOf({ shares: { account: 20, tenant: 100 } });
  const done: string[] = [];
  // All wait while the worker starts, so their order does not depend on the machine.
  const run = async (job: string, accountId: number) => {
    if ((await jobs.run(job, account(accountId))) !== undefined) done.push(job);
    else done.unshift(`not done: ${job}`);
  };
  const flood = Array.from({ length: 25 }, (_, i) => run(`flood${i}`, 1));
  await Promise.all([...flood, run("b0", 2), run("b1", 2), run("c0", 3)]);
  jobs.close();
  expect(done.filter((job) => job.startsWith("not")).length).toBe(5);
  expect(done.slice(5, 13)).toEqual(["flood0", "b0", "c0", "flood1", "b1", "flood2", "flood3", "flood4"]);
  expect(done.length).toBe(28);
});

test("a tenant's accounts together have its share, and what is done makes room", async () => {
  const jobs = jobsOf({ shares: { account: 4, tenant: 6 } });
  const all = [1, 2, 3].flatMap((id) => [0, 1, 2].map(() => jobs.run("job", account(id, 9))));
  const direct = jobs.run("direct", account(4));
  const done = await Promise.all(all);
  expect(done.filter((one) => one === undefined).length).toBe(3);
  expect(await direct).toBe("direct");
  expect(await jobs.run("again", account(3, 9))).toBe("again");
  jobs.close();
});

test("a job that is nobody's waits like an account, and has the whole queue", async () => {
  const jobs = jobsOf({ queueMax: 5, shares: { account: 2, tenant: 2 } });
  const done = await Promise.all(Array.from({ length: 7 }, () => jobs.run("job")));
  expect(done.filter((one) => one === "job").length).toBe(5);
  jobs.close();
});

test("what is sent for a job depends on how many of its account wait then, and of how many accounts", async () => {
  const jobs = jobsOf({ toSend: (job, { own, accounts }) => `${job}: ${own} of ${accounts}` });
  const done = await Promise.all([
    ...["a", "b", "c"].map((job) => jobs.run(job, account(1))),
    jobs.run("d", account(2)),
  ]);
  expect(done).toEqual(["a: 3 of 2", "b: 2 of 1", "c: 1 of 1", "d: 1 of 2"]);
  jobs.close();
});

test("jobs that wait are done by the next worker, if they are worth it; the one that the worker had is not", async () => {
  const dies = "onmessage = () => { throw new Error('died'); }; postMessage({ ready: true });";
  for (const waitsForNext of [true, false]) {
    let started = 0;
    const jobs = jobsOf({
      waitsForNext,
      startWorker: () => workerOf(++started === 1 ? dies : ECHO),
    });
    const done = await Promise.all(["a", "b", "c"].map((job) => jobs.run(job, account(1))));
    expect(done).toEqual(waitsForNext ? [undefined, "b", "c"] : [undefined, undefined, undefined]);
    // While there is none.
    if (!waitsForNext) expect(await jobs.run("d")).toBeUndefined();
    jobs.close();
  }
});

test("a job waits no longer than its own time; after close nothing is done", async () => {
  const jobs = jobsOf({ startWorker: () => workerOf("onmessage = () => {}") });
  expect(await jobs.run("short", { waitMs: 10 })).toBeUndefined();
  const ended = jobs.run("ended");
  jobs.close();
  expect(await ended).toBeUndefined();
  expect(await jobs.run("too late")).toBeUndefined();
});
