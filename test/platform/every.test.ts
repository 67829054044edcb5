import { expect, test } from "bun:test";
import { every, type JobOptions, jobFigures, type Timer } from "../../src/platform/every.ts";
import { quietLog } from "./quiet_log.ts";

/** Background jobs, by a timer that the test lets go off. */

/** Calls wait until the test passes their time. */
function madeTimer() {
  let nowMs = 0;
  const due: { atMs: number; run: () => void }[] = [];
  const timer: Timer = {
    after(ms, run) {
      const one = { atMs: nowMs + ms, run };
      due.push(one);
      return () => void due.splice(due.indexOf(one), due.includes(one) ? 1 : 0);
    },
  };
  return {
    timer,
    waiting: () => due.map(({ atMs }) => atMs - nowMs),
    async pass(ms: number) {
      nowMs += ms;
      for (const one of due.filter(({ atMs }) => atMs <= nowMs)) {
        due.splice(due.indexOf(one), 1);
        one.run();
      }
      await settled();
    },
  };
}
/** Lets everything run that waits for nothing. */
const settled = () => new Promise<void>((resolve) => setImmediate(resolve));

function started(over: Partial<JobOptions> & Pick<JobOptions, "run">) {
  const clock = madeTimer();
  const { log, lines } = quietLog();
  const failure = "messages could not be delivered";
  const job = every({ name: "messages", ms: 1_000, log, failure, timer: clock.timer, random: () => 0, ...over });
  return { ...clock, job, lines };
}
/** A run that ends when the test says so. */
function held() {
  const open: PromiseWithResolvers<void>[] = [];
  const run = () => {
    const one = Promise.withResolvers<void>();
    open.push(one);
    return one.promise;
  };
  return { run, open };
}

test("a job runs again and again, with a pause after each run, and never twice at once", async () => {
  const { run, open } = held();
  const { pass, waiting, job } = started({ run });
  await pass(999);
  expect(open).toHaveLength(0);
  await pass(1);
  expect(open).toHaveLength(1);
  await pass(60_000);
  expect(open).toHaveLength(1);
  open[0]?.resolve();
  await settled();
  expect(waiting()).toEqual([1_000]);
  await pass(1_000);
  expect(open).toHaveLength(2);
  open[1]?.resolve();
  await job.close();
});

test("the first run may begin at once; pauses are shortened at random by at most a tenth", async () => {
  let runs = 0;
  const { waiting, job } = started({ run: () => runs++, isNow: true, random: () => 1 });
  await settled();
  expect(runs).toBe(1);
  expect(waiting()).toEqual([900]);
  await job.close();
});

test("an outage is logged once, and counted by run; the job goes on, and a later outage is logged again", async () => {
  let isBroken = true;
  const { pass, job, lines } = started({
    run: () => {
      if (isBroken) throw new Error("away");
    },
  });
  for (let i = 0; i < 3; i++) await pass(1_000);
  expect(lines).toMatchObject([{ job: "messages", message: "messages could not be delivered; it is tried again" }]);
  expect(jobFigures("runs").messages).toBe(3);
  expect(jobFigures("failures").messages).toBe(3);
  isBroken = false;
  await pass(1_000);
  isBroken = true;
  await pass(1_000);
  expect(lines).toHaveLength(2);
  expect(jobFigures("runs").messages).toBe(5);
  expect(jobFigures("failures").messages).toBe(4);
  await job.close();
});

test("a run that hangs has failed after its time limit, and the next one begins", async () => {
  const { run, open } = held();
  const { pass, job, lines } = started({ run, timeoutMs: 5_000 });
  await pass(1_000);
  await pass(5_000);
  expect(lines).toMatchObject([{ err: { message: "no end within 5000 ms" } }]);
  await pass(1_000);
  expect(open).toHaveLength(2);
  open[1]?.resolve();
  await settled();
  expect(jobFigures("failures").messages).toBe(1);
  await job.close();
});

test("a job that hangs delays no other", async () => {
  let runs = 0;
  const hanging = started({ run: () => new Promise(() => {}) });
  const other = started({ run: () => runs++ });
  await hanging.pass(1_000);
  for (let i = 0; i < 3; i++) await other.pass(1_000);
  expect(runs).toBe(3);
  await other.job.close();
});

test("closing waits for the present run, and begins no other", async () => {
  const { run, open } = held();
  const { pass, job, waiting } = started({ run });
  await pass(1_000);
  let isClosed = false;
  const closing = job.close().then(() => {
    isClosed = true;
  });
  await settled();
  expect(isClosed).toBe(false);
  open[0]?.resolve();
  await closing;
  expect(waiting()).toEqual([]);
  expect(open).toHaveLength(1);
});

test("closing waits for a run that hangs for a limited time, and says so", async () => {
  const { pass, job, lines } = started({ run: () => new Promise(() => {}), closeMs: 3_000 });
  await pass(1_000);
  const closing = job.close();
  await pass(3_000);
  await closing;
  expect(lines).toMatchObject([{ job: "messages", message: "a job had not ended at shutdown" }]);
});

test("a job that has not started counts nothing", () => {
  expect(jobFigures("runs").payments).toBe(0);
  expect(jobFigures("successAgeSeconds").payments).toBe(0);
});
