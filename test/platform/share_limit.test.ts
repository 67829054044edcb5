import { expect, test } from "bun:test";
import fc from "fast-check";
import { Refusal } from "../../src/errors.ts";
import type { ShedReason } from "../../src/platform/metrics.ts";
import { type Owner, ShareLimit } from "../../src/platform/share_limit.ts";
import { holds } from "../property.ts";

const REASONS = { replica: "full", account: "in_flight_per_account", tenant: "in_flight_per_tenant" } as const;

function open(max: number, account: number, tenant: number, min?: number) {
  const shed: ShedReason[] = [];
  const fractions = { account, tenant };
  const onShed = (reason: ShedReason) => void shed.push(reason);
  const shares = new ShareLimit({ max, fractions, what: "things", reasons: REASONS, onShed, ...(min && { min }) });
  /** The refusal of `amount` more; undefined: it was taken. */
  const take = (accountId: number, tenantId = 0, amount = 1) => {
    try {
      shares.take({ accountId, tenantId }, amount);
      return undefined;
    } catch (error) {
      expect(error).toBeInstanceOf(Refusal);
      return `${shed.at(-1)} ${(error as Refusal).code}`;
    }
  };
  return { shares, take };
}

test("429 for an account or a tenant that has used its share, 503 when the replica is full; released amounts are free", () => {
  const { shares, take } = open(8, 0.25, 0.5);
  expect([take(1), take(1), take(1)]).toEqual([undefined, undefined, "in_flight_per_account too_many_requests"]);
  expect([take(2, 7), take(2, 7), take(3, 7), take(7, 7)]).toEqual([undefined, undefined, undefined, undefined]);
  expect(take(3, 7)).toBe("in_flight_per_tenant too_many_requests");
  expect([take(4), take(4), take(5)]).toEqual([undefined, undefined, "full service_unavailable"]);
  shares.give({ accountId: 2, tenantId: 7 }, 1);
  expect([take(3, 7), shares.held]).toEqual([undefined, 8]);
});

test("a refusal takes nothing, and names whose limit it is, and the limit", () => {
  const { shares, take } = open(100, 0.1, 0.5);
  expect(take(1, 0, 11)).toBe("in_flight_per_account too_many_requests");
  expect(shares.held).toBe(0);
  expect(() => shares.check({ accountId: 1, tenantId: 0 }, 11)).toThrow("This account has too many things. Try again.");
  expect([take(1, 0, 10), shares.held]).toEqual([undefined, 10]);
});

test("an account and a tenant can always use the minimum, and never more than the whole", () => {
  const tiny = open(3, 0, 0);
  expect([tiny.take(1, 2), tiny.take(1, 2)]).toEqual([undefined, "in_flight_per_account too_many_requests"]);
  const least = open(50, 0.1, 0.1, 20);
  expect([least.take(1, 2, 20), least.take(3, 2, 1)]).toEqual([undefined, "in_flight_per_tenant too_many_requests"]);
  expect(open(10, 1, 1, 20).take(1, 2, 11)).toBe("full service_unavailable");
});

test("random takes and releases: no one exceeds its share, and in the end nothing is taken", () => {
  const owner = fc.record({ accountId: fc.integer({ min: 1, max: 4 }), amount: fc.integer({ min: 1, max: 12 }) });
  holds(
    fc.property(fc.array(fc.tuple(owner, fc.boolean())), (steps) => {
      const { shares, take } = open(40, 0.3, 0.6);
      const held: { owner: Owner; amount: number }[] = [];
      const sum = (is: (owner: Owner) => boolean) =>
        held.filter(({ owner }) => is(owner)).reduce((all, { amount }) => all + amount, 0);
      for (const [{ accountId, amount }, takes] of steps) {
        const owner = { accountId, tenantId: accountId % 2 };
        const last = takes ? undefined : held.pop();
        if (last) shares.give(last.owner, last.amount);
        else if (take(accountId, owner.tenantId, amount) === undefined) held.push({ owner, amount });
        expect(shares.held).toBe(sum(() => true));
        expect(sum((one) => one.accountId === accountId)).toBeLessThanOrEqual(12);
        expect(sum(({ tenantId }) => tenantId === 1)).toBeLessThanOrEqual(24);
      }
      for (const { owner, amount } of held) shares.give(owner, amount);
      expect(shares.held).toBe(0);
      for (const accountId of [1, 2, 3]) expect(take(accountId, accountId % 2, 12)).toBeUndefined();
    }),
  );
});
