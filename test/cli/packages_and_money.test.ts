import { expect, test } from "bun:test";
import { cli, json, refused, SLOW_MS, startCliWorld, world } from "./cli_world.ts";

/** Offerings, packages, allotments, balances, pay-as-you-go and what was used. */

startCliWorld();

test.concurrent(
  "a package of a reseller's customer is paid by the reseller, or with --paid-by operator by nobody",
  async () => {
    const reseller = await json("account add --role reseller --email boss@acme.example --name Acme");
    const customer = await json("account add --email Ann@Example.com --name Ann --reseller boss@acme.example");
    expect(customer).toMatchObject({
      role: "customer",
      email: "ann@example.com",
      resellerId: reseller.accountId,
      balanceUsd: "0.00",
    });
    const offering = await json(
      'offering add --name "Pro 500" --kind custom --daily 500 --days 7 --carryover --wholesale 4.20',
    );
    expect(offering).toMatchObject({
      totalLimit: 3500,
      carryover: true,
      timeZone: "UTC",
      wholesaleNanoUsd: "4200000000",
      wholesaleUsd: "4.20",
    });

    expect(await refused('package assign ann@example.com --offering "Pro 500"')).toContain(
      "does not cover the wholesale price",
    );
    expect(await json(`package list ${customer.accountId}`)).toEqual({ packages: [] });

    expect(await json("balance add boss@acme.example 10.000000001 --reason deposit")).toMatchObject({
      balanceUsd: "10.000000001",
      balanceNanoUsd: "10000000001",
    });
    const bought = await json('package assign ann@example.com --offering "Pro 500"');
    expect(bought).toMatchObject({ state: "active", paidWith: "balance", dailyLimit: 500 });
    const given = await json(
      `package assign ann@example.com --offering ${offering.offeringId} --after --paid-by operator`,
    );
    expect(given).toMatchObject({ state: "queued", paidWith: "operator", startsAt: bought.endsAt });
    const own = await json(`package assign ${reseller.accountId} --offering ${offering.offeringId}`);
    expect(own.paidWith).toBe("balance");
    const { accounts } = await json("account list --role reseller");
    expect(accounts.find((row: { accountId: number }) => row.accountId === reseller.accountId).balanceUsd).toBe(
      "1.600000001",
    );

    expect(await refused(`package end boss@acme.example ${bought.packageId}`)).toContain("has no package");
    expect(await json(`package end ann@example.com ${bought.packageId}`)).toMatchObject({
      state: "ended",
      endedEarly: "ended",
      unitsDropped: 3500,
    });
    expect((await json("package list ann@example.com")).packages.map((row: { state: string }) => row.state)).toEqual([
      "active",
      "ended",
    ]);
    expect((await cli("package list ann@example.com")).out).toContain("ended, 3500 dropped");
    await json(`offering disable ${offering.offeringId}`);
    expect(await refused(`package assign ann@example.com --offering ${offering.offeringId}`)).toContain("for sale");
  },
  SLOW_MS,
);

test.concurrent(
  "an allotment is granted with a reason, assigned package by package instead of money, and withdrawn",
  async () => {
    const reseller = await json("account add --role reseller --email pieces@r.example --name Pieces");
    await json("account add --email cut@example.com --name Cut --reseller pieces@r.example");
    await json("account add --email own@example.com --name Own");
    const { offeringId } = await json("offering add --name Piece --kind daily --daily 100 --wholesale 4.20");
    const granted = await json('allotment grant pieces@r.example --offering Piece --pieces 3 --reason "launch offer"');
    expect(granted).toMatchObject({ resellerId: reseller.accountId, offeringId, granted: 3, left: 3 });
    const given = await json("package assign cut@example.com --offering Piece --allotment");
    expect(given).toMatchObject({ paidWith: "allotment" });
    expect((await cli("package list cut@example.com")).out).toContain("the reseller's allotment");
    const { accounts } = await json("account list --role reseller");
    expect(accounts.find((row: { accountId: number }) => row.accountId === reseller.accountId).balanceUsd).toBe("0.00");
    expect((await cli("allotment list --reseller pieces@r.example")).out).toMatch(
      /Pieces\s+Piece\s+3\s+1\s+2\s+\S+\s+launch offer/,
    );
    expect(await json("allotment list --limit 1")).toMatchObject({ allotments: [{ used: 1 }], hasMore: false });
    expect(await json(`allotment withdraw ${granted.allotmentId}`)).toMatchObject({
      withdrawn: 2,
      granted: 1,
      left: 0,
    });
    expect(await refused(`allotment withdraw ${granted.allotmentId}`)).toContain("withdrawn before");
    expect(await refused("allotment withdraw 999999")).toContain("There is no allotment 999999");
    expect(await refused("package assign cut@example.com --offering Piece --allotment")).toContain("allotment");
    expect(await refused("package assign own@example.com --offering Piece --allotment")).toContain(
      "belongs to no reseller",
    );
    expect(await refused("package assign cut@example.com --offering Piece --allotment --paid-by operator")).toContain(
      "--paid-by",
    );
    expect(await refused("allotment grant own@example.com --offering Piece --pieces 1 --reason x")).toContain(
      "no such reseller",
    );
    expect(await refused("allotment grant pieces@r.example --offering Piece --pieces 0 --reason x")).toContain("1 to");
    expect((await cli("allotment grant pieces@r.example --offering Piece --pieces 1")).code).toBe(2);
  },
  SLOW_MS,
);

test.concurrent(
  "package assign says what it drops; with --if-missing, commands that add change nothing the second time",
  async () => {
    const script = [
      "account add --email again@example.com --name Again --if-missing",
      "offering add --name Again --kind custom --days 30 --daily 500 --carryover --wholesale 1 --if-missing",
      "package assign again@example.com --offering Again --if-missing",
      "key add --account again@example.com --name ci --if-missing",
    ];
    for (const command of script) expect(await json(command)).not.toHaveProperty("exists");
    const state = async () => [
      await json("package list again@example.com"),
      await json("key list --account again@example.com"),
    ];
    const before = await state();
    for (const command of script) expect(await json(command)).toMatchObject({ exists: true });
    expect((await json("package list again@example.com")).packages).toEqual(before[0].packages);
    expect((await json("key list --account again@example.com")).keys).toHaveLength(1);
    expect(await refused("account add --email again@example.com --name Again")).toContain("already");
    // A wrong value stays an error.
    expect(await refused("account add --email nothing --name Again --if-missing")).not.toContain("Nothing is changed");

    const [first] = before[0].packages;
    const second = await json("package assign again@example.com --offering Again");
    expect(second.replaced).toMatchObject([{ packageId: first.packageId, unitsDropped: 15_000 }]);
    const { out } = await cli("package assign again@example.com --offering Again");
    expect(out).toContain(`It replaced package ${second.packageId} (Again): 15000 unused requests were dropped.`);
    expect(out).not.toContain(`package ${first.packageId} (`);
  },
  SLOW_MS,
);

test.concurrent(
  "a package of a customer without a reseller is paid by nobody",
  async () => {
    await json("account add --email direct@example.com --name Direct");
    await json("offering add --name Day --kind daily --daily 100 --wholesale 1 --time-zone Europe/Berlin");
    expect(await json("package assign direct@example.com --offering Day")).toMatchObject({
      paidWith: "operator",
      timeZone: "Europe/Berlin",
    });
    expect(await refused("package assign direct@example.com --offering Day --paid-by reseller")).toContain(
      "belongs to no reseller",
    );
    expect(await refused("offering add --name Two --kind daily --daily 99 --wholesale 1")).toContain("100 to 2000");
  },
  SLOW_MS,
);

test.concurrent(
  "amounts are parsed exactly and within their range, and a correction needs a reason",
  async () => {
    await json("account add --email money@example.com --name Money");
    expect(await json("balance add money@example.com 0.123456789")).toMatchObject({ balanceUsd: "0.123456789" });
    expect(await json("balance add money@example.com -0.000000789 --reason typo")).toMatchObject({
      addedUsd: "-0.000000789",
      balanceUsd: "0.123456",
    });
    expect((await cli("balance add money@example.com 1")).out).toContain("$1.123456");
    for (const amount of ["1.0000000001", "9000001", "1e3", "1,50", "NaN", "0", "1.250", "1,250"]) {
      expect(await refused(`balance add money@example.com ${amount}`)).not.toContain("Unexpected");
    }
    expect(await refused("balance add money@example.com -1")).toContain("--reason");
    expect(await refused("balance add money@example.com -100 --reason much")).toContain("smaller than that");
    expect(await refused("balance add money@example.com 9000000")).toContain("at most $9,000,000");
    expect(await json("payg enable money@example.com")).toMatchObject({ paygEnabled: true });
    expect(await refused("payg grant money@example.com")).toContain("Only a reseller");
    const { accountId: resellerId } = await json("account add --role reseller --email shop@example.com --name Shop");
    for (const [command, granted] of [
      ["payg grant", true],
      ["payg withdraw", false],
    ] as const) {
      expect(await json(`${command} shop@example.com`)).toEqual({ accountId: resellerId, granted });
      const [row] = await world.sql`select may_switch_payg from accounts where id = ${resellerId}`;
      expect(row?.may_switch_payg).toBe(granted);
    }
    expect((await cli("account list")).out).toMatch(/money@example\.com\s+Money\s+active\s+\$1\.123456\s+yes/);
  },
  SLOW_MS,
);

test.concurrent(
  "usage lists records by account and time, and figures sums them, in exact USD",
  async () => {
    const { accountId } = await world.addCustomer();
    await world.sql`insert into receipts (request_id, account_id, key_id, model_id, host, mode, outcome, reason, units, held_nano_usd, charged_nano_usd,
      shortfall_nano_usd, prompt_tokens, cached_tokens, completion_tokens, charged_tokens, estimated, created_at, finished_at)
    select id, ${accountId}, 7, 'chat-1', 'api.example', 'payg', 'settled', 'complete', 0, 500, 123, 0, 10, 0, 20, 30, true, now(), now()
    from (select request_id_floor(now()) as id) as r`;
    const { usage } = await json(`usage --account ${accountId}`);
    expect(usage).toMatchObject([
      { modelId: "chat-1", chargedNanoUsd: "123", chargedUsd: "0.000000123", promptTokens: 10, completionTokens: 20 },
    ]);
    expect((await cli(`usage --account ${accountId}`)).out).toContain("$0.000000123");
    expect((await json(`usage --account ${accountId} --until 2020-01-01`)).usage).toEqual([]);
    expect(await refused("usage --since yesterday")).toContain("ISO 8601");
    const figures = await json(`figures --account ${accountId} --by model`);
    const summed = { requests: 1, usageRevenueNanoUsd: "123", costNanoUsd: "0", marginNanoUsd: "123", costUnknown: 1 };
    expect(figures).toMatchObject({
      total: summed,
      before: { requests: 0 },
      lines: [{ modelId: "chat-1", ...summed }],
    });
    expect((await cli(`figures --account ${accountId}`)).out).toMatch(
      /total +1 +30 +\$0\.000000123 +\$0\.00 +\$0\.000000123 +1 /,
    );
    expect(await refused(`figures --account ${accountId} --since 2020-01-02 --until 2020-01-01`)).toContain(
      "must begin before",
    );
    expect((await cli("figures --by nothing")).code).toBe(2);
    expect(await refused("figures --by key")).toContain("account");
    await world.sql`delete from receipts where account_id = ${accountId}`;
  },
  SLOW_MS,
);
