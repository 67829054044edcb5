import { Refusal } from "../errors.ts";
import { within } from "./runtime.ts";

/** A look-up that takes longer than this is given up: the database does not answer. */
const LOOK_UP_MS_MAX = 1_800;

/** Awaits a look-up for at most 1.8 s. Throws service_unavailable after that, so that no client waits for a silent database. */
export function inTime<T>(lookUp: Promise<T>): Promise<T> {
  return within(LOOK_UP_MS_MAX, lookUp, () => new Refusal("service_unavailable"));
}
