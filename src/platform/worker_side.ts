import { setPriority } from "node:os";
import process from "node:process";
import type { WorkerJob, WorkerReply } from "./worker_jobs.ts";

/** The worker's side of `worker_jobs.ts`. */

type Scope<Job, Result> = {
  addEventListener(type: "message", listener: (event: MessageEvent<WorkerJob<Job>>) => void): void;
  postMessage(reply: WorkerReply<Result>): void;
};

/** The nice value of a worker that yields; 0 is that of other threads, and 19 the lowest. */
const YIELDING = 10;

/**
 * Gives this worker a tenth of a processor that others want too, such as the event loop of requests. Called first. Only on Linux: elsewhere
 * a priority belongs to the whole process.
 */
export function yieldToRequests(): void {
  if (process.platform !== "linux") return;
  try {
    setPriority(0, YIELDING);
  } catch {
    // Not allowed here. Then the worker is like any other thread.
  }
}

/** Does the jobs that are sent to this worker, one after the other. Called once, when the worker is ready. */
export function serveJobs<Job, Result>(work: (job: Job) => Result | Promise<Result>): void {
  // The global types are those of a page: they do not know what a worker has.
  const scope = globalThis as unknown as Scope<Job, Result>;
  scope.addEventListener("message", async ({ data: { id, job } }) => {
    try {
      scope.postMessage({ id, result: await work(job) });
    } catch (error) {
      scope.postMessage({ id, error: error instanceof Error ? error.message : String(error) });
    }
  });
  scope.postMessage({ ready: true });
}
