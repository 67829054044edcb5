import type { WorkerJob, WorkerReply } from "./worker_jobs.ts";

/** The worker's side of `worker_jobs.ts`. */

type Scope<Job, Result> = {
  addEventListener(type: "message", listener: (event: MessageEvent<WorkerJob<Job>>) => void): void;
  postMessage(reply: WorkerReply<Result>): void;
};

/** Does the jobs that are sent to this worker, one after the other. Called once, when the worker is ready. */
export function serveJobs<Job, Result>(work: (job: Job) => Result | Promise<Result>): void {
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
