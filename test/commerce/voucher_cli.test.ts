import { afterAll, beforeAll, expect, test } from "bun:test";
import { redeemVoucher } from "../../src/commerce/voucher_redemption_store.ts";
import { type AccountsWorld, createAccountsWorld } from "../accounts/accounts_world.ts";
import { runCli } from "../cli/cli_process.ts";

/** The command `voucher`: codes are printed once, as CSV. Source: VOU-1. */

const SLOW_MS = 180_000;
const USD = 1_000_000_000n;

let world: AccountsWorld;
beforeAll(async () => {
  world = await createAccountsWorld();
});
afterAll(async () => {
  expect(await world.unbalanced()).toEqual([]);
  await world.close();
});

const cli = (args: string) => runCli(args, { stdin: "", env: { DATABASE_URL: world.url, SPOOL_DIR: world.spoolDir } });

test(
  "vouchers made on the command line are redeemed, listed without their codes, and disabled",
  async () => {
    const made = await cli("voucher create --name fair --amount 12.50 --codes 3 --ends 2029-06-30");
    expect(made).toMatchObject({ code: 0, err: "" });
    const rows = made.out.trimEnd().split("\r\n");
    expect(rows[0]).toBe("voucher,code,offering,amount_usd,uses,ends_at");
    const codes = rows.slice(1).map((row) => String(row.split(",")[1]));
    expect(codes).toHaveLength(3);
    const { accountId } = await world.addCustomer();
    expect(await redeemVoucher(world.deps, { accountId, code: String(codes[0]) })).toMatchObject({
      amountNanoUsd: 12_500_000_000n,
    });
    const list = await cli("voucher list");
    expect(list.out).toMatch(/fair\s+\$12\.50\s+3\s+1\s+1\s+2\s+2029-06-30T23:59:59\.000Z\s+active/);
    for (const code of codes) expect(list.out).not.toContain(code);
    const [batch] = await world.sql`select id from voucher_batches`;
    expect((await cli(`voucher disable ${batch?.id}`)).out).toContain("disabled");
    await expect(
      redeemVoucher(world.deps, { accountId: (await world.addCustomer()).accountId, code: String(codes[1]) }),
    ).rejects.toThrow("withdrawn");
  },
  SLOW_MS,
);

test(
  "a date without a time is the whole last day, in UTC, and a time is that time",
  async () => {
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString().slice(0, 10);
    const lines = async (ends: string) => {
      const made = await cli(`voucher create --name ends --amount 5 --ends ${ends}`);
      expect(made).toMatchObject({ code: 0, err: "" });
      return made.out;
    };
    expect(await lines(tomorrow)).toContain(`${tomorrow}T23:59:59.000Z`);
    expect(await lines("2029-06-30T12:00:00Z")).toContain("2029-06-30T12:00:00.000Z");
    expect(await lines("2029-06-30T12:00:00+02:00")).toContain("2029-06-30T10:00:00.000Z");
    for (const ends of [
      ...["2029-13-01", "2029-02-31", "2029-02-29T12:00:00Z", "01/02/2029", "2029", "2029-06-30T12:00:00", "soon"],
      ...["0000-01-01", "9999-12-31T23:59:59-01:00"],
    ]) {
      const failed = await cli(`voucher create --name ends --amount 5 --ends ${ends}`);
      const says = expect.stringContaining(
        "The field endsAt must be a date, as in 2030-01-31, or a time with its zone",
      );
      expect([ends, failed.code, failed.out, failed.err]).toEqual([ends, 1, "", says]);
    }
  },
  SLOW_MS,
);

test(
  "a reseller's vouchers made on the command line are paid by the reseller; errors are explained",
  async () => {
    const reseller = await world.addReseller();
    await world.setBalance(reseller, 50n * USD);
    const offeringId = await world.addOffering({ wholesaleNanoUsd: 4n * USD });
    const made = await cli(
      `voucher create --name r --offering ${offeringId} --ends 2029-06-30 --seller ${reseller.accountId} --json`,
    );
    const { codes } = JSON.parse(made.out);
    const { accountId } = await world.addCustomer(reseller.accountId);
    await redeemVoucher(world.deps, { accountId, code: codes[0].code });
    const [row] =
      await world.sql`select balance_nano_usd::text as nano from balances where account_id = ${reseller.accountId}`;
    expect(row?.nano).toBe(String(46n * USD));
    for (const [args, says] of [
      ["--name x --ends 2029-06-30", "for an offering or for an amount"],
      ["--name x --amount 0 --ends 2029-06-30", "above zero"],
      ["--name x --amount 5 --ends 2020-01-01", "in the future"],
      ["--name x --amount 5 --codes 0 --ends 2029-06-30", "codes must be"],
      [`--name x --amount 5 --ends 2029-06-30 --seller ${accountId}`, "Only the operator and resellers"],
      ["--name x --amount 5 --ends 2029-06-30 --pay-with gold", "balance or allotment"],
    ] as const) {
      const failed = await cli(`voucher create ${args}`);
      expect([failed.code, failed.out]).toEqual([1, ""]);
      expect(failed.err).toContain(says);
    }
  },
  SLOW_MS,
);
