import { afterAll, beforeAll, expect, test } from "bun:test";
import { pruneAll } from "../src/retention.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts/accounts_world.ts";
import { until } from "./platform/own_redis.ts";
import { quietLog } from "./platform/quiet_log.ts";

/** What is past its retention is deleted, kind by kind. */

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

test("a kind that cannot be pruned is logged, and the kinds behind it are pruned all the same", async () => {
  const { sql } = world;
  const { log, lines } = quietLog();
  const round = async () => {
    await sql`insert into bound_uses values ('old', '2020-01-01', 'overhead', 'k', 1, 0, 1)`;
    const ended = pruneAll({ ...world.deps, log }).catch((error: Error) => error.message);
    return { ended: await ended, left: (await sql`select 1 from bound_uses where model_id = 'old'`).length };
  };
  expect([await round(), lines]).toEqual([{ ended: undefined, left: 0 }, []]);
  await sql`alter table sessions rename to sessions_away`;
  expect(await round()).toEqual({ ended: "not pruned: sessions", left: 0 });
  expect(lines).toMatchObject([{ kind: "sessions", message: "pruning failed; it is tried again later" }]);
  await sql`alter table sessions_away rename to sessions`;
});

test("a kind that hangs does not keep the kinds behind it, and is left out until it has ended", async () => {
  const { sql } = world;
  const { log, lines } = quietLog();
  const late = new Set<string>();
  let free = () => {};
  const isFree = new Promise<void>((resolve) => {
    free = resolve;
  });
  // The changes are the first kind.
  let asked = 0;
  const held = new Proxy(world.deps.db.sql, {
    apply: (target, _this, args) => {
      const text = String((args[0] as readonly string[]).join("?"));
      if (!/from changes/.test(text)) return Reflect.apply(target, undefined, args);
      asked++;
      return isFree.then(() => Reflect.apply(target, undefined, args));
    },
  });
  const deps = { ...world.deps, db: { ...world.deps.db, sql: held }, log };
  await sql`insert into bound_uses values ('old', '2020-01-01', 'overhead', 'k', 1, 0, 1)`;
  await expect(pruneAll(deps, { late, msMax: 500 })).rejects.toThrow("changes");
  expect(await sql`select 1 from bound_uses where model_id = 'old'`).toHaveLength(0);
  expect(lines[0]).toMatchObject({ kind: "changes", err: { message: "no answer within 500 ms" } });
  expect(late.has("changes")).toBe(true);
  await pruneAll(deps, { late });
  expect(asked).toBe(1);
  free();
  await until(() => !late.has("changes"));
});
