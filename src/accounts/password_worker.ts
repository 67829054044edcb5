import { hashSync, verifySync } from "@node-rs/argon2";
import { serveJobs, yieldToRequests } from "../platform/worker_side.ts";
import { PARAMETERS } from "./password_parameters.ts";
import type { PasswordJob } from "./passwords.ts";

/** Hashes passwords in a worker. */

yieldToRequests();
serveJobs(({ password, stored }: PasswordJob) =>
  stored === undefined ? hashSync(password, PARAMETERS) : verifySync(stored, password),
);
