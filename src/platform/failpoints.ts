import process from "node:process";

/**
 * Named places in a request, or in the delivery of a message, where a test can kill or freeze the process. Without FAILPOINTS each place calls an empty function.
 * Production refuses to start with one set.
 */

export const FAILPOINTS = [
  "before_reserve",
  "after_reserve",
  "before_settle",
  "after_settle",
  "after_paid",
  "after_charge",
  "after_send",
  "after_export",
] as const;
export type FailpointName = (typeof FAILPOINTS)[number];
/** Called at the named place. */
export type Failpoint = (name: FailpointName) => void;

const SIGNALS = { kill: "SIGKILL", freeze: "SIGSTOP" } as const;
const FORM = /^(\w+)=(\w+)(?:@([1-9]\d{0,8}))?$/;

/** The place, the signal, and at which call of the place it is sent. */
export type ArmedFailpoint = { name: FailpointName; signal: "SIGKILL" | "SIGSTOP"; at: number };

/** Parses `name=kill` or `name=freeze`, with an optional `@n` for the nth call. undefined: not of that form. */
export function parseFailpoint(text: string): ArmedFailpoint | undefined {
  const [, name, action, at = "1"] = FORM.exec(text) ?? [];
  const known = FAILPOINTS.find((point) => point === name);
  if (known === undefined || (action !== "kill" && action !== "freeze")) return undefined;
  return { name: known, signal: SIGNALS[action], at: Number(at) };
}

/** A signal to the own process takes effect before the call returns, so nothing after the place runs. */
export function createFailpoint(armed: readonly ArmedFailpoint[]): Failpoint {
  if (armed.length === 0) return () => {};
  const reached = new Map<FailpointName, number>();
  return (name) => {
    const count = (reached.get(name) ?? 0) + 1;
    reached.set(name, count);
    for (const point of armed) if (point.name === name && point.at === count) process.kill(process.pid, point.signal);
  };
}
