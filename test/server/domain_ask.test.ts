import { afterAll, beforeAll, expect, test } from "bun:test";
import { openHostLookup } from "../../src/accounts/host_lookup.ts";
import { addHost } from "../../src/accounts/hosts_store.ts";
import { Refusal } from "../../src/errors.ts";
import { createDomainAsk } from "../../src/server/domain_ask.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";

/** The rate limit of a TLS proxy's questions. The answers are tested in internal.test.ts. Source: DOM-7. */

/** Deliberately written a second time. */
const LOOK_UPS_A_SECOND = 100;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(() => world.close());

test("unknown names cost the database at most 100 look-ups a second; known names are still answered", async () => {
  const reseller = await world.addReseller();
  for (const host of ["ai.known.example", "ai.later.example"])
    await addHost(world.deps, { host, resellerId: reseller.accountId, status: "active" });
  let nowMs = 5_000;
  const hosts = openHostLookup({ ...world.deps, nowMs: () => nowMs });
  const ask = createDomainAsk({ hosts, clock: { nowMs: () => nowMs, unixMs: () => 0 } });
  const asked = (domain: string) =>
    ask(new URL(`http://localhost/ask?domain=${domain}`)).then(
      ({ status }) => status,
      (error: unknown) => (error instanceof Refusal ? error : Promise.reject(error)),
    );
  const refusal = (code: string, facts = {}) =>
    expect.objectContaining({ code, facts: expect.objectContaining(facts) });

  expect(await asked("ai.known.example")).toBe(200);
  for (let i = 1; i < LOOK_UPS_A_SECOND; i++)
    expect(await asked(`x${i}.stranger.example`)).toEqual(refusal("not_found"));
  nowMs += 400;
  expect(await asked("x0.stranger.example")).toEqual(refusal("too_many_requests", { retryAfterSeconds: 0.6 }));
  expect(await asked("ai.later.example")).toEqual(refusal("too_many_requests"));
  // These need no look-up.
  expect(await asked("ai.known.example")).toBe(200);
  expect(await asked("api.tollgate.example")).toBe(200);
  expect(await asked("x1.stranger.example")).toEqual(refusal("not_found"));
  nowMs += 600;
  expect(await asked("ai.later.example")).toBe(200);
});
