import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { expectRefusal, withoutEffect } from "../gateway/checks.ts";
import type { Answer } from "../gateway/shop.ts";
import type { Person } from "../world.ts";
import { ACME, type Billing, openBilling, USD } from "./billing_world.ts";
import { ok, type PanelSession, signInTo } from "./panel_client.ts";

/**
 * Money and packages: what an account has, what resellers and admins assign, and who pays for it.
 * Source: PAY-4, PAY-5, RES-1, RES-2, RES-3.
 */

let close: Billing["close"];
let signInFrom: Billing["signInFrom"];
let shop: Billing["shop"];
let acme: Billing["acme"];
let rival: Billing["rival"];
let customer: Billing["customer"];
let rivals: Billing["rivals"];
let house: Billing["house"];
let as: Billing["as"];
let topUp: Billing["topUp"];
let offering: Billing["offering"];
let balanceOf: Billing["balanceOf"];

beforeAll(async () => {
  ({ close, signInFrom, shop, acme, rival, customer, rivals, house, as, topUp, offering, balanceOf } =
    await openBilling());
});
afterAll(() => close());

/** The audit log's entries about an account, newest first. */
const audited = ({ accountId }: Person, subject: string) =>
  shop.world.sql`select * from audit_entries where account_id = ${accountId} and subject = ${subject} order by id desc`;
const freshCustomer = async () => {
  const person = await shop.world.addCustomer(acme.accountId);
  return { person, at: `/people/${person.accountId}` };
};

describe("what an account has", () => {
  test("GET /billing has the balance, packages with what is left, and a reseller's allotments", async () => {
    const person = await shop.world.addCustomer();
    const session = await signInTo(shop, person);
    expect(ok(await session.get("/billing"))).toEqual({
      balance: { balanceNanoUsd: "0", heldNanoUsd: "0", freeNanoUsd: "0", paygEnabled: false },
      packages: [],
      allotments: [],
    });
    await shop.world.setBalance(person, 12_400_000_001n);
    const packageId = await shop.world.givePackage(person, { days: 7, dailyLimit: 500, carryover: true });
    const { balance, packages } = ok(await session.get("/billing"));
    expect(balance).toMatchObject({ balanceNanoUsd: "12400000001", freeNanoUsd: "12400000001", paygEnabled: true });
    expect(packages).toMatchObject([
      { packageId, state: "active", allowance: { availableNow: 500, totalLeft: 3500, usedToday: 0 } },
    ]);
    const own = await offering(USD);
    await shop.world
      .sql`insert into allotments (reseller_id, offering_id, granted, used) values (${rival.accountId}, ${own}, 7, 0)`;
    expect(ok(await as.rival.get("/billing")).allotments).toMatchObject([{ offeringId: own, granted: 7, left: 7 }]);
    expect(ok(await as.customer.get("/billing")).allotments).toEqual([]);
  });

  test("GET /billing/entries has each transaction with its actor and the balance after it, filtered by kind and paged", async () => {
    const person = await shop.world.addCustomer();
    const session = await signInTo(shop, person);
    const key = await shop.world.addKey(person, { mode: "payg" });
    ok(
      await as.admin.post(`/people/${person.accountId}/balance`, {
        kind: "top_up",
        amountNanoUsd: String(USD),
        reason: "hi",
      }),
    );
    ok(await as.admin.patch(`/people/${person.accountId}/payg`, { enabled: true }));
    const chat = await shop.chat(key.secret);
    expect(chat.status).toBe(200);
    const { entries } = ok(await session.get("/billing/entries"));
    const { nextBefore } = ok(await session.get("/billing/entries?limit=1"));
    const balance = String(await balanceOf(session));
    expect(entries).toMatchObject([
      {
        kind: "charge",
        balanceAfterNanoUsd: balance,
        requestId: chat.headers.get("x-request-id"),
        actor: null,
        package: null,
      },
      {
        kind: "top_up",
        amountNanoUsd: String(USD),
        balanceAfterNanoUsd: String(USD),
        reason: "hi",
        actor: { accountId: as.admin.accountId },
      },
    ]);
    expect(ok(await session.get("/billing/entries?kind=top_up&limit=1")).entries).toHaveLength(1);
    const older = ok(await session.get(`/billing/entries?before=${nextBefore}`));
    expect(older).toMatchObject({ entries: [{ kind: "top_up" }], hasMore: false });
    for (const [query, param] of [
      ["kind=gift", "kind"],
      ["limit=x", "limit"],
      ["before=x", "before"],
      ["other=1", "other"],
      ["limit=0", "limit"],
      ["limit=101", "limit"],
      ["before=0", "before"],
    ] as const)
      expectRefusal(await session.get(`/billing/entries?${query}`), "validation_failed", { param });
  });

  test("a reseller's customer sees neither the operator's admins nor what its reseller pays", async () => {
    const { person, at } = await freshCustomer();
    const session = await signInFrom(person);
    const offeringId = await offering(3n * USD);
    ok(await as.admin.post(`${at}/balance`, { kind: "top_up", amountNanoUsd: "5", reason: "goodwill" }));
    await topUp(acme, 20n * USD);
    ok(await as.acme.post(`${at}/balance`, { kind: "top_up", amountNanoUsd: "7" }));
    ok(await as.acme.post(`${at}/packages`, { offeringId, when: "now" }));
    const { entries } = ok(await session.get("/billing/entries"));
    expect(entries).toMatchObject([
      {
        kind: "transfer",
        amountNanoUsd: "7",
        reason: null,
        actor: { accountId: acme.accountId },
        counterpart: { accountId: acme.accountId },
      },
      { kind: "top_up", amountNanoUsd: "5", actor: null },
    ]);
    expect(ok(await as.acme.get(`${at}/billing/entries`)).entries[1].actor).toMatchObject({ role: "admin" });
    const [shown] = ok(await session.get("/billing")).packages;
    expect(shown.paidWith).toBeNull();
    expect(ok(await as.acme.get(`${at}/billing`)).packages[0].paidWith).toBe("balance");
    const sold = (answer: Answer) =>
      ok(answer).offerings.find((row: { offeringId: number }) => row.offeringId === offeringId);
    expect(sold(await session.get("/offerings")).wholesaleNanoUsd).toBeNull();
    expect(sold(await as.house.get("/offerings")).wholesaleNanoUsd).toBeNull();
    expect(sold(await as.acme.get("/offerings")).wholesaleNanoUsd).toBe(String(3n * USD));
    expect(sold(await as.admin.get("/offerings")).wholesaleNanoUsd).toBe(String(3n * USD));
    await shop.world.sql`update offerings set enabled = false where id = ${offeringId}`;
    expect(sold(await as.acme.get("/offerings"))).toBeUndefined();
  });
});

describe("assigning a package", () => {
  test("a reseller pays the wholesale price from its balance, as the preview says", async () => {
    const { person, at } = await freshCustomer();
    const offeringId = await offering(4n * USD, { days: 7, dailyLimit: 500 });
    await topUp(acme, 10n * USD);
    const had = await balanceOf(as.acme);
    const told = ok(await as.acme.post(`${at}/packages/preview`, { offeringId, when: "now" }));
    expect(told).toMatchObject({
      dropped: null,
      costNanoUsd: String(4n * USD),
      payer: { accountId: acme.accountId, balanceAfterNanoUsd: String(had - 4n * USD) },
      allotmentLeftAfter: null,
      enough: true,
      limits: { before: null, after: { dailyLimit: 500, totalLimit: 3500 } },
    });
    expect(await balanceOf(as.acme)).toBe(had);
    const given = ok(await as.acme.post(`${at}/packages`, { offeringId, when: "now" })).package;
    expect(given).toMatchObject({ accountId: person.accountId, state: "active", paidWith: "balance" });
    expect(await balanceOf(as.acme)).toBe(had - 4n * USD);
    const [entry] = ok(await as.acme.get("/billing/entries?kind=wholesale&limit=1")).entries;
    expect(entry).toMatchObject({
      amountNanoUsd: String(-4n * USD),
      reason: null,
      counterpart: null,
      package: { name: given.name, holder: { accountId: person.accountId, name: expect.any(String) } },
      actor: { accountId: acme.accountId },
    });
    const [note] = await audited(person, "packages");
    expect({ actor: Number(note?.actor_id), action: note?.action, request: note?.request_id }).toMatchObject({
      actor: acme.accountId,
      action: "added",
      request: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });

    const after = ok(await as.acme.post(`${at}/packages/preview`, { offeringId, when: "after" }));
    expect(after).toMatchObject({ dropped: null, startsAt: given.endsAt, limits: { before: { dailyLimit: 500 } } });
    const now = ok(await as.acme.post(`${at}/packages/preview`, { offeringId, when: "now" }));
    expect(now.dropped).toMatchObject({ packageId: given.packageId, unitsLeft: 3500 });
    const ended = ok(await as.acme.post(`${at}/packages/${given.packageId}/end`));
    expect(ended).toMatchObject({ unitsDropped: 3500, package: { state: "ended", endedEarly: "ended" } });
    expectRefusal(await as.acme.post(`${at}/packages/${given.packageId}/end`), "validation_failed", {
      param: "packageId",
    });
  });

  test("402 insufficient_balance assigns nothing and charges nothing", async () => {
    const { person, at } = await freshCustomer();
    const offeringId = await offering(1_000_000n * USD);
    expect(ok(await as.acme.post(`${at}/packages/preview`, { offeringId, when: "now" }))).toMatchObject({
      enough: false,
    });
    const had = Number(await balanceOf(as.acme));
    await withoutEffect(shop, async () => {
      const answer = await as.acme.post(`${at}/packages`, { offeringId, when: "now" });
      expectRefusal(answer, "insufficient_balance");
      expect(answer.json.error.remaining).toBeCloseTo(had / 1e9, 6);
    });
    expect(ok(await as.acme.get(`${at}/billing`)).packages).toEqual([]);
    expect(await audited(person, "packages")).toHaveLength(0);
  });

  test("a reseller cannot let the operator pay; an admin who assigns to a reseller's customer charges the reseller by default", async () => {
    const { at } = await freshCustomer();
    const offeringId = await offering(2n * USD);
    await topUp(acme, 10n * USD);
    for (const path of ["packages", "packages/preview"])
      expectRefusal(
        await as.acme.post(`${at}/${path}`, { offeringId, when: "now", payWith: "operator" }),
        "validation_failed",
        { param: "payWith" },
      );
    const had = await balanceOf(as.acme);
    expect(ok(await as.admin.post(`${at}/packages`, { offeringId, when: "now" })).package.paidWith).toBe("balance");
    expect(await balanceOf(as.acme)).toBe(had - 2n * USD);
    const free = ok(await as.admin.post(`${at}/packages`, { offeringId, when: "now", payWith: "operator" }));
    expect(free.package.paidWith).toBe("operator");
    const given = ok(await as.admin.post(`/people/${house.accountId}/packages`, { offeringId, when: "now" }));
    expect(given.package.paidWith).toBe("operator");
    expectRefusal(
      await as.admin.post(`/people/${house.accountId}/packages`, { offeringId, when: "now", payWith: "balance" }),
      "validation_failed",
      { param: "payWith" },
    );
    expect(await balanceOf(as.acme)).toBe(had - 2n * USD);
  });

  test("a reseller can assign itself a package and pays for it; an admin's own package is paid by the operator", async () => {
    const offeringId = await offering(USD);
    await topUp(acme, 5n * USD);
    const had = await balanceOf(as.acme);
    const own = ok(await as.acme.post(`/people/${acme.accountId}/packages`, { offeringId, when: "after" }));
    expect(own.package).toMatchObject({ accountId: acme.accountId, paidWith: "balance" });
    expect(await balanceOf(as.acme)).toBe(had - USD);
    expect(ok(await as.acme.get(`/people/${acme.accountId}/billing`)).packages).toHaveLength(1);
    const admins = ok(await as.admin.post(`/people/${as.admin.accountId}/packages`, { offeringId, when: "now" }));
    expect(admins.package.paidWith).toBe("operator");
  });

  test("each assignment uses one piece of an allotment; only admins grant and withdraw allotments", async () => {
    const { at } = await freshCustomer();
    const offeringId = await offering(5n * USD);
    const grant = { resellerId: acme.accountId, offeringId, pieces: 2, reason: "launch offer" };
    for (const session of [as.acme, as.customer, as.house])
      expectRefusal(await session.post("/allotments", grant), "not_found");
    const { allotment } = ok(await as.admin.post("/allotments", grant));
    expect(allotment).toMatchObject({ granted: 2, used: 0, left: 2, resellerId: acme.accountId });
    const [note] = await audited(acme, "allotments");
    expect(note).toMatchObject({ action: "added", actor_id: String(as.admin.accountId) });
    const had = await balanceOf(as.acme);
    const wanted = { offeringId, when: "now", payWith: "allotment" };
    expect(ok(await as.acme.post(`${at}/packages/preview`, wanted))).toMatchObject({
      costNanoUsd: "0",
      allotmentLeftAfter: 1,
      enough: true,
      payer: { balanceAfterNanoUsd: String(had) },
    });
    expect(ok(await as.acme.post(`${at}/packages`, wanted)).package.paidWith).toBe("allotment");
    expect(await balanceOf(as.acme)).toBe(had);
    expectRefusal(await as.acme.post(`/allotments/${allotment.allotmentId}/withdraw`), "not_found");
    expect(ok(await as.admin.post(`/allotments/${allotment.allotmentId}/withdraw`))).toMatchObject({
      withdrawn: 1,
      allotment: { granted: 1, left: 0 },
    });
    expectRefusal(await as.admin.post(`/allotments/${allotment.allotmentId}/withdraw`), "validation_failed", {
      param: "allotmentId",
    });
    expectRefusal(await as.admin.post("/allotments/999999/withdraw"), "not_found");
    expectRefusal(await as.acme.post(`${at}/packages`, wanted), "validation_failed", { param: "payWith" });
    expect(ok(await as.acme.post(`${at}/packages/preview`, wanted))).toMatchObject({ enough: false });
    const mine = ok(await as.acme.get("/allotments")).allotments;
    expect(mine.every((row: { resellerId: number }) => row.resellerId === acme.accountId)).toBe(true);
    expect(ok(await as.acme.get(`/allotments?resellerId=${rival.accountId}`)).allotments).toEqual(mine);
    expect(ok(await as.admin.get(`/allotments?resellerId=${acme.accountId}&limit=1`)).allotments[0].allotmentId).toBe(
      allotment.allotmentId,
    );
    for (const [over, param] of [
      [{ pieces: 0 }, "pieces"],
      [{ pieces: 1.5 }, "pieces"],
      [{ reason: "  " }, "reason"],
      [{ reason: "a\u0000b" }, "reason"],
      [{ resellerId: house.accountId }, "resellerId"],
      [{ offeringId: 999_999 }, "offeringId"],
    ] as const)
      expectRefusal(await as.admin.post("/allotments", { ...grant, ...over }), "validation_failed", { param });
  });

  test("a preview has the models that each key gains and loses", async () => {
    const { person, at } = await freshCustomer();
    const chats = await offering(0n, { modelIds: ["chat-a", "chat-unpriced"] });
    const images = await offering(0n, { modelIds: ["image-a", "chat-a"] });
    const all = await shop.world.addKey(person, {});
    const narrow = await shop.world.addKey(person, { modelIds: ["image-a", "vendor/chat-b"] });
    const payg = await shop.world.addKey(person, { mode: "payg" });
    const revoked = await shop.world.addKey(person, {});
    await shop.world.sql`update keys set status = 'revoked' where id = ${revoked.keyId}`;
    const preview = async (offeringId: number, when = "now") => {
      const { keys } = ok(await as.acme.post(`${at}/packages/preview`, { offeringId, when }));
      const rows = keys.map((key: { keyId: number; added: string[]; removed: string[] }) => [
        key.keyId,
        { added: key.added.toSorted(), removed: key.removed.toSorted() },
      ]);
      return Object.fromEntries(rows);
    };
    const same = { added: [], removed: [] };
    expect(await preview(chats)).toEqual({
      [all.keyId]: { added: ["chat-a", "chat-unpriced"], removed: [] },
      [narrow.keyId]: same,
      [payg.keyId]: same,
    });
    ok(await as.acme.post(`${at}/packages`, { offeringId: chats, when: "now" }));
    expect(await preview(images)).toEqual({
      [all.keyId]: { added: ["image-a"], removed: ["chat-unpriced"] },
      [narrow.keyId]: { added: ["image-a"], removed: [] },
      [payg.keyId]: same,
    });
    // Models that the balance pays for are available before and after.
    await shop.world.setBalance(person, USD);
    expect((await preview(images, "after"))[all.keyId]).toEqual({ added: [], removed: ["chat-unpriced"] });
  });
});

describe("money", () => {
  test("an admin tops up and corrects with a reason; a reseller's top-up is a transfer of its own money", async () => {
    const { person, at } = await freshCustomer();
    const topped = await as.admin.post(`${at}/balance`, { kind: "top_up", amountNanoUsd: "10", reason: " invoice 7 " });
    expect(ok(topped).balance.balanceNanoUsd).toBe("10");
    const corrected = { kind: "correction", amountNanoUsd: "-4", reason: "typo <b>&" };
    expect(ok(await as.admin.post(`${at}/balance`, corrected)).balance.balanceNanoUsd).toBe("6");
    await topUp(acme, 10n);
    const had = await balanceOf(as.acme);
    const moved = await as.acme.post(`${at}/balance`, { kind: "top_up", amountNanoUsd: "3", reason: "thanks" });
    expect(ok(moved).balance.balanceNanoUsd).toBe("9");
    expect(await balanceOf(as.acme)).toBe(had - 3n);
    const { entries } = ok(await as.acme.get(`${at}/billing/entries`));
    expect(entries).toMatchObject([
      { kind: "transfer", reason: "thanks", counterpart: { accountId: acme.accountId, name: expect.any(String) } },
      { kind: "correction", reason: "typo <b>&", amountNanoUsd: "-4" },
      { kind: "top_up", reason: "invoice 7", balanceAfterNanoUsd: "10" },
    ]);
    const notes = await audited(person, "balance_entries");
    expect(notes.map((note) => Number(note.actor_id))).toEqual([
      acme.accountId,
      as.admin.accountId,
      as.admin.accountId,
    ]);
  });

  test("422 validation_failed for wrong amounts and reasons, and nothing changes", async () => {
    const { at } = await freshCustomer();
    const good = { kind: "top_up", amountNanoUsd: "5", reason: "why" };
    await withoutEffect(shop, async () => {
      for (const [over, param] of [
        [{ reason: undefined }, "reason"],
        [{ reason: " " }, "reason"],
        [{ reason: "two\nlines" }, "reason"],
        [{ reason: "a\u0000" }, "reason"],
        [{ reason: "x".repeat(501) }, "reason"],
        [{ reason: "x".repeat(5000) }, "reason"],
        [{ amountNanoUsd: 5 }, "amountNanoUsd"],
        [{ amountNanoUsd: "0" }, "amountNanoUsd"],
        [{ amountNanoUsd: "05" }, "amountNanoUsd"],
        [{ amountNanoUsd: "1.5" }, "amountNanoUsd"],
        [{ amountNanoUsd: "1e3" }, "amountNanoUsd"],
        [{ amountNanoUsd: "-5" }, "amountNanoUsd"],
        [{ amountNanoUsd: "9000000000000001" }, "amountNanoUsd"],
        [{ amountNanoUsd: "99999999999999999" }, "amountNanoUsd"],
        [{ kind: "correction", amountNanoUsd: "-5" }, "amountNanoUsd"],
        [{ kind: "charge" }, "kind"],
        [{ extra: 1 }, "extra"],
      ] as const)
        expectRefusal(await as.admin.post(`${at}/balance`, { ...good, ...over }), "validation_failed", { param });
      expectRefusal(await as.acme.post(`${at}/balance`, { ...good, kind: "correction" }), "validation_failed", {
        param: "kind",
      });
      const much = { ...good, amountNanoUsd: String(8_000_000n * USD) };
      expectRefusal(await as.acme.post(`${at}/balance`, much), "insufficient_balance");
      // A reseller cannot top itself up or take money back.
      expectRefusal(await as.acme.post(`/people/${acme.accountId}/balance`, good), "not_found");
      expectRefusal(await as.acme.post(`${at}/balance`, { ...good, amountNanoUsd: "-5" }), "validation_failed", {
        param: "amountNanoUsd",
      });
    });
  });

  test("an admin switches pay-as-you-go with immediate effect; a reseller needs the right to", async () => {
    const { person, at } = await freshCustomer();
    const key = await shop.world.addKey(person, { mode: "payg" });
    await topUp(person, USD);
    for (const session of [as.rival, as.customer])
      expectRefusal(await session.patch(`${at}/payg`, { enabled: true }), "not_found");
    expectRefusal(await as.acme.patch(`${at}/payg`, { enabled: true }), "validation_failed");
    expect((await as.acme.get(at)).json).toMatchObject({ paygEnabled: false, canSwitchPayg: false });
    expectRefusal(await shop.chat(key.secret), "package_required");
    expect(ok(await as.admin.patch(`${at}/payg`, { enabled: true }))).toEqual({ paygEnabled: true });
    expect((await shop.chat(key.secret)).status).toBe(200);
    ok(await as.admin.patch(`${at}/payg`, { enabled: false }));
    expectRefusal(await shop.chat(key.secret), "package_required");
    const [note] = await audited(person, "balances");
    expect(note).toMatchObject({
      action: "changed",
      actor_id: String(as.admin.accountId),
      after: { payg_enabled: false },
    });
    expectRefusal(await as.admin.patch(`${at}/payg`, { enabled: "yes" }), "validation_failed", { param: "enabled" });
    expectRefusal(await as.admin.patch("/people/999999/payg", { enabled: true }), "not_found");
  });

  test("a reseller with the right switches pay-as-you-go for its own customers, until the right is withdrawn", async () => {
    const { person, at } = await freshCustomer();
    const right = (session: PanelSession, granted: boolean, of: Person = acme) =>
      session.patch(`/people/${of.accountId}/payg-right`, { granted });
    for (const session of [as.acme, as.rival, as.customer]) expectRefusal(await right(session, true), "not_found");
    for (const other of [person, house]) expectRefusal(await right(as.admin, true, other), "validation_failed");
    expect(ok(await right(as.admin, true))).toEqual({ maySwitchPayg: true });
    const [granted] = await audited(acme, "accounts");
    expect(granted).toMatchObject({
      action: "changed",
      actor_id: String(as.admin.accountId),
      after: { may_switch_payg: true },
    });
    const key = await shop.world.addKey(person, { mode: "payg" });
    const chat = () => shop.chat(key.secret, {}, { host: ACME });
    await topUp(person, USD);
    expectRefusal(await chat(), "package_required");
    expect((await as.acme.get(at)).json.canSwitchPayg).toBe(true);
    expect(ok(await as.acme.patch(`${at}/payg`, { enabled: true }))).toEqual({ paygEnabled: true });
    expect((await chat()).status).toBe(200);
    const [switched] = await audited(person, "balances");
    expect(switched).toMatchObject({ actor_id: String(acme.accountId), after: { payg_enabled: true } });
    // Not for itself, nor for a customer of another reseller or the operator.
    for (const { accountId } of [acme, rivals, house])
      expectRefusal(await as.acme.patch(`/people/${accountId}/payg`, { enabled: true }), "not_found");
    // Only acme has the right.
    expectRefusal(await as.rival.patch(`/people/${rivals.accountId}/payg`, { enabled: true }), "validation_failed");
    ok(await right(as.admin, false));
    expectRefusal(await as.acme.patch(`${at}/payg`, { enabled: false }), "validation_failed");
    expect((await chat()).status).toBe(200);
  });
});

describe("access", () => {
  const calls = (
    id: number,
    offeringId: number,
    packageId: number,
  ): [keyof PanelSession & ("get" | "post"), string, unknown?][] => [
    ["get", `/people/${id}/billing`],
    ["get", `/people/${id}/billing/entries`],
    ["post", `/people/${id}/packages/preview`, { offeringId, when: "now" }],
    ["post", `/people/${id}/packages`, { offeringId, when: "now" }],
    ["post", `/people/${id}/packages/${packageId}/end`, {}],
    ["post", `/people/${id}/balance`, { kind: "top_up", amountNanoUsd: "5", reason: "x" }],
  ];

  test("another reseller's customer or package gets the answer of one that does not exist; customers manage nobody", async () => {
    const offeringId = await offering(0n);
    const packageId = await shop.world.givePackage(customer);
    await withoutEffect(shop, async () => {
      for (const id of [customer.accountId, house.accountId, as.admin.accountId, 999_999])
        for (const [method, path, body] of calls(id, offeringId, packageId))
          expectRefusal(await as.rival[method](path, body), "not_found");
      for (const session of [as.customer, as.house])
        for (const id of [session.accountId, rivals.accountId])
          for (const [method, path, body] of calls(id, offeringId, packageId))
            expectRefusal(await session[method](path, body), "not_found");
    });
    // Another account's package, under a customer of one's own.
    const theirs = await shop.world.givePackage(rivals);
    expectRefusal(await as.acme.post(`/people/${customer.accountId}/packages/${theirs}/end`), "not_found");
    expectRefusal(await as.admin.post(`/people/${customer.accountId}/packages/${theirs}/end`), "not_found");
    for (const path of [
      "/people/x/billing",
      "/people/0/billing",
      "/people/1e400/billing",
      "/people/99999999999999999999/billing",
    ])
      expectRefusal(await as.admin.get(path), "not_found");
  });
});
