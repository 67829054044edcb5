import { describe, expect, test } from "bun:test";
import { createBodies, createGate, type LagState, watchLag } from "../../src/gateway/gate.ts";
import { asDuration } from "../../src/gateway/limit_headers.ts";
import type { ShedReason } from "../../src/platform/metrics.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";

const BUSY = { accountId: 1, tenantId: 0 };
const IDLE = { accountId: 2, tenantId: 0 };
const FRACTIONS = { account: 1, tenant: 1 };

function gateOf() {
  const state: { lag: LagState; isSpoolFull: boolean } = { lag: "none", isSpoolFull: false };
  const shed: ShedReason[] = [];
  const gate = createGate({
    max: 10,
    fractions: FRACTIONS,
    isSpoolFull: () => state.isSpoolFull,
    lag: () => state.lag,
    onShed: (reason) => shed.push(reason),
  });
  return { gate, state, shed };
}

test("a body that still arrives after its request was answered is not kept, and its memory stays free", () => {
  const bodies = createBodies({ readsMax: 2, bytesMax: 100, bodyBytesMax: 10, fractions: FRACTIONS, onShed: () => {} });
  const room = bodies.open(BUSY, 10);
  room.grow(5);
  expect([bodies.reading(), bodies.bytes()]).toEqual([1, 15]);
  room.close();
  expect(() => room.grow(5)).toThrow("not kept any more");
  room.close();
  expect([bodies.reading(), bodies.bytes()]).toEqual([0, 0]);
});

describe("the gate", () => {
  test("while the event loop lags, an account that has a request here is refused, and others are admitted", () => {
    const { gate, state, shed } = gateOf();
    const first = gate.admit(BUSY);
    state.lag = "behind";
    expect(() => gate.admit(BUSY)).toThrow();
    gate.admit(IDLE).release();
    gate.admit(IDLE).release();
    first.release();
    first.release();
    gate.admit(BUSY).release();
    expect(shed).toEqual(["lag"]);
  });

  test("it knows the most requests that had a slot at once since it was last asked", () => {
    const { gate } = gateOf();
    const [first, second] = [gate.admit(BUSY), gate.admit(BUSY)];
    expect(gate.takePeak()).toBe(0);
    first.takeSlot();
    second.takeSlot();
    first.release();
    expect(gate.takePeak()).toBe(2);
    expect(gate.takePeak()).toBe(1);
    second.release();
    expect(gate.takePeak()).toBe(1);
    expect(gate.takePeak()).toBe(0);
  });

  test("while all slots are taken, a request is refused before its body is read", () => {
    const { gate, shed } = gateOf();
    const taken = Array.from({ length: 10 }, () => gate.admit(BUSY));
    for (const one of taken) one.takeSlot();
    expect(() => gate.admit(IDLE)).toThrow();
    expect(shed).toEqual(["full"]);
    taken[0]?.release();
    gate.admit(IDLE).release();
  });

  test("while the replica is overwhelmed, every request is refused", () => {
    const { gate, state, shed } = gateOf();
    state.lag = "overwhelmed";
    expect(() => gate.admit(IDLE)).toThrow();
    state.lag = "none";
    gate.admit(IDLE).release();
    expect(shed).toEqual(["lag"]);
  });

  test("while the spool is full, every request is refused", () => {
    const { gate, state, shed } = gateOf();
    state.isSpoolFull = true;
    expect(() => gate.admit(IDLE)).toThrow();
    expect(shed).toEqual(["spool_full"]);
  });
});

/** A clock that the test moves: `lateMs` too much between two ticks of the watch. */
function watched(maxMs: number) {
  let now = 0;
  let lateMs = 0;
  let ticks = 0;
  const { log, lines } = quietLog();
  const nowMs = () => {
    ticks++;
    now += 100 + lateMs;
    return now;
  };
  const watch = watchLag({ nowMs, maxMs, log });
  return {
    watch,
    lines,
    /** Resolves after the next tick. */
    async tick(late: number): Promise<void> {
      lateMs = late;
      const before = ticks;
      await until(() => ticks > before);
    },
  };
}

describe("the event loop's lag", () => {
  test("one late tick is ignored; two in a row mean behind, or overwhelmed above four times the limit; one punctual tick resets the state", async () => {
    const { watch, lines, tick } = watched(500);
    try {
      await tick(0);
      expect([watch.state(), watch.lagMs()]).toEqual(["none", 0]);
      await tick(90_000);
      expect([watch.state(), watch.lagMs()]).toEqual(["none", 90_000]);
      await tick(0);
      expect(watch.state()).toBe("none");
      await tick(501);
      await tick(501);
      expect(watch.state()).toBe("behind");
      await tick(2_001);
      expect(watch.state()).toBe("overwhelmed");
      await tick(2_000);
      expect(watch.state()).toBe("behind");
      await tick(500);
      expect([watch.state(), watch.lagMs()]).toEqual(["none", 500]);
      expect(lines.map(({ level, lagMs }) => [level, lagMs])).toEqual([
        ["warn", 501],
        ["info", undefined],
      ]);
    } finally {
      watch.close();
    }
  });

  test("work that blocks the event loop is detected with the real clock, and so is its end", async () => {
    const { log } = quietLog();
    const watch = watchLag({ nowMs: () => performance.now(), maxMs: 200, log });
    const work = (ms: number) => {
      for (const end = performance.now() + ms; performance.now() < end; );
    };
    try {
      expect(watch.state()).toBe("none");
      for (let i = 0; i < 20 && watch.state() === "none"; i++) {
        work(600);
        await sleep(1);
      }
      expect(watch.state()).not.toBe("none");
      await until(() => watch.state() === "none");
    } finally {
      watch.close();
    }
  });
});

test("a reset is written in OpenAI's format, and never earlier than the real one", () => {
  const times = [0.2, 999, 999.2, 1_000.5, 59_001, 75_000];
  expect(times.map(asDuration)).toEqual(["1ms", "999ms", "1s", "2s", "1m0s", "1m15s"]);
});
