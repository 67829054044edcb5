import { afterAll, beforeAll, expect, test } from "bun:test";
import { pruneAll } from "../src/replica.ts";
import { type AccountsWorld, createAccountsWorld } from "./accounts/accounts_world.ts";
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
    await pruneAll({ ...world.deps, log });
    return (await sql`select 1 from bound_uses where model_id = 'old'`).length;
  };
  expect([await round(), lines]).toEqual([0, []]);
  await sql`alter table sessions rename to sessions_away`;
  expect(await round()).toBe(0);
  expect(lines).toMatchObject([{ kind: "sessions", message: "pruning failed; it is tried again later" }]);
  await sql`alter table sessions_away rename to sessions`;
});
