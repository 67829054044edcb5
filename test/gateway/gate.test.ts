import { expect, test } from "bun:test";
import type { Lateness } from "../../src/gateway/event_loop_lag.ts";
import { createGate } from "../../src/gateway/gate.ts";
import type { ShedReason } from "../../src/platform/metrics.ts";

const BUSY = { accountId: 1, tenantId: 0 };
const IDLE = { accountId: 2, tenantId: 0 };
const FRACTIONS = { account: 1, tenant: 1 };

function gateOf() {
  const state: { lateness: Lateness; isSpoolFull: boolean } = { lateness: "none", isSpoolFull: false };
  const shed: ShedReason[] = [];
  const gate = createGate({
    max: 10,
    fractions: FRACTIONS,
    isSpoolFull: () => state.isSpoolFull,
    lateness: () => state.lateness,
    onShed: (reason) => shed.push(reason),
  });
  return { gate, state, shed };
}

test("while the event loop is late, an account with a request here is refused more, and one without is let in", () => {
  const { gate, state, shed } = gateOf();
  const first = gate.arrive(BUSY);
  state.lateness = "behind";
  expect(() => gate.arrive(BUSY)).toThrow();
  gate.arrive(IDLE).leave();
  gate.arrive(IDLE).leave();
  first.leave();
  first.leave();
  gate.arrive(BUSY).leave();
  expect(shed).toEqual(["lag"]);
});

test("while the event loop is far too late, everybody is refused", () => {
  const { gate, state, shed } = gateOf();
  state.lateness = "overwhelmed";
  expect(() => gate.arrive(IDLE)).toThrow();
  state.lateness = "none";
  gate.arrive(IDLE).leave();
  expect(shed).toEqual(["lag"]);
});

test("while the spool is full, everybody is refused", () => {
  const { gate, state, shed } = gateOf();
  state.isSpoolFull = true;
  expect(() => gate.arrive(IDLE)).toThrow();
  expect(shed).toEqual(["spool_full"]);
});
