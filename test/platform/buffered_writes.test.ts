import { expect, test } from "bun:test";
import { createBufferedWrites } from "../../src/platform/buffered_writes.ts";
import { createLog } from "../../src/platform/log.ts";

/** Facts that are written together every few seconds: bounded, kept while the database is away, never lost by a drain. */

function open({ max = 10, write }: { max?: number; write: (entries: { name: string; n: number }[]) => Promise<void> }) {
  const lines: string[] = [];
  const collector = createBufferedWrites<string, { name: string; n: number }>({
    name: "counts",
    max,
    merge: (older, newer) => ({ ...newer, n: older.n + newer.n }),
    write,
    log: createLog("info", { write: (line: string) => void lines.push(line) }),
  });
  return { collector, lines };
}

test("facts with the same key are merged; a flush writes them once", async () => {
  const written: unknown[] = [];
  const { collector } = open({ write: async (entries) => void written.push(entries) });
  for (const name of ["a", "b", "a"]) collector.note(name, { name, n: 1 });
  await collector.flush();
  await collector.stop();
  expect(written).toEqual([
    [
      { name: "a", n: 2 },
      { name: "b", n: 1 },
    ],
  ]);
});

test("facts above the limit are dropped and counted in the log; known keys still count", async () => {
  const written: unknown[] = [];
  const { collector, lines } = open({ max: 2, write: async (entries) => void written.push(entries) });
  for (const name of ["a", "b", "c", "d", "a"]) collector.note(name, { name, n: 1 });
  await collector.stop();
  expect(written).toEqual([
    [
      { name: "a", n: 2 },
      { name: "b", n: 1 },
    ],
  ]);
  expect(lines.join("\n")).toContain('"dropped":2');
});

test("while writing fails, facts are kept within the same limit, and one line is logged", async () => {
  const written: unknown[] = [];
  let away = true;
  const write = async (entries: unknown) => {
    if (away) throw new Error("away");
    written.push(entries);
  };
  const { collector, lines } = open({ max: 2, write });
  collector.note("a", { name: "a", n: 1 });
  const failing = collector.flush();
  collector.note("a", { name: "a", n: 1 });
  collector.note("b", { name: "b", n: 1 });
  collector.note("c", { name: "c", n: 1 });
  await failing;
  await collector.flush();
  expect(lines.filter((line) => line.includes("could not be written"))).toHaveLength(1);
  away = false;
  await collector.stop();
  expect(written).toEqual([
    [
      { name: "a", n: 2 },
      { name: "b", n: 1 },
    ],
  ]);
});

test("stop waits for the running flush and writes newer facts, within a time limit", async () => {
  const written: string[] = [];
  let go = () => {};
  const { collector } = open({
    write: async (entries) => {
      if (written.length === 0) await new Promise<void>((resolve) => (go = resolve));
      written.push(entries.map(({ name }) => name).join());
    },
  });
  collector.note("a", { name: "a", n: 1 });
  void collector.flush();
  collector.note("b", { name: "b", n: 1 });
  const stopped = collector.stop();
  go();
  await stopped;
  expect(written).toEqual(["a", "b"]);

  const silent = open({ write: () => new Promise(() => {}) });
  silent.collector.note("a", { name: "a", n: 1 });
  // The database stays silent: this does not wait for it.
  await silent.collector.stop();
  expect(silent.lines.join()).toContain("the remaining buffered entries are lost");
});
