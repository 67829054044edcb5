import { expect, test } from "bun:test";
import { watchLag } from "../../src/gateway/event_loop_lag.ts";
import { sleep, until } from "../platform/own_redis.ts";
import { quietLog } from "../platform/quiet_log.ts";

/** A clock that the test moves: by `lateMs` more than it should between two ticks of the watch. */
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
    /** Lets the next tick come, and comes back behind it. */
    async tick(late: number): Promise<void> {
      lateMs = late;
      const before = ticks;
      await until(() => ticks > before);
    },
  };
}

test("one late tick is a pause; two in a row are too much, and far too much beyond four times the limit; one in time, and all is well", async () => {
  const { watch, lines, tick } = watched(500);
  try {
    await tick(0);
    expect([watch.lateness(), watch.lagMs()]).toEqual(["none", 0]);
    await tick(90_000);
    expect([watch.lateness(), watch.lagMs()]).toEqual(["none", 90_000]);
    await tick(0);
    expect(watch.lateness()).toBe("none");
    await tick(501);
    await tick(501);
    expect(watch.lateness()).toBe("behind");
    await tick(2_001);
    expect(watch.lateness()).toBe("overwhelmed");
    await tick(2_000);
    expect(watch.lateness()).toBe("behind");
    await tick(500);
    expect([watch.lateness(), watch.lagMs()]).toEqual(["none", 500]);
    expect(lines.map(({ level, lagMs }) => [level, lagMs])).toEqual([
      ["warn", 501],
      ["info", undefined],
    ]);
  } finally {
    watch.close();
  }
});

test("work that leaves no time is seen by the real clock, and its end too", async () => {
  const { log } = quietLog();
  const watch = watchLag({ nowMs: () => performance.now(), maxMs: 50, log });
  const work = (ms: number) => {
    for (const end = performance.now() + ms; performance.now() < end; );
  };
  try {
    expect(watch.lateness()).toBe("none");
    for (let i = 0; i < 20 && watch.lateness() === "none"; i++) {
      work(300);
      await sleep(1);
    }
    expect(watch.lateness()).not.toBe("none");
    await until(() => watch.lateness() === "none");
  } finally {
    watch.close();
  }
});
