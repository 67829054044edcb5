import type { Command } from "commander";
import type { Batch, PayVoucherWith } from "../commerce/vouchers_store.ts";
import { InputError } from "../errors.ts";
import { PAGE_MAX } from "../operations/operation.ts";
import { createVouchers, disableVouchers, listVouchers } from "../operations/vouchers.ts";
import { voucherCsv } from "../panel/api/voucher_csv.ts";
import { defineOperations, offeringBy, sellerBy } from "./door.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { END_OF_DAY, endOfDay, idOf, integer, parsedBy, SELLER } from "./options.ts";
import { type Output, table } from "./output.ts";

/** The command `voucher`. Source: VOU-1. */

export function addVoucherCommands(program: Command): void {
  const voucher = program.command("voucher").description("codes for a package or an amount, which customers redeem");
  addCreate(voucher);
  addList(voucher);
  addDisable(voucher);
}

type Create = {
  name: string;
  offering?: string;
  amount?: bigint;
  codes: number;
  uses: number;
  ends: string;
  seller?: string;
  payWith?: "balance" | "allotment";
};

function addCreate(voucher: Command): void {
  defineOperations<Create>(
    voucher
      .command("create")
      .description("make a batch of codes and print them as CSV, once")
      .requiredOption("--name <name>", "what you call the batch; customers do not see it")
      .option("--offering <offering>", "the package that a code is for, by id or name")
      .option("--amount <usd>", "or the amount that a code adds to a balance", parsedBy(parseUsd))
      .option("--codes <number>", "how many codes", integer, 1)
      .option("--uses <number>", "how many accounts can redeem each code, once each", integer, 1)
      .requiredOption("--ends <time>", `until when codes can be redeemed: ${END_OF_DAY}`)
      .option("--seller <reseller>", SELLER)
      .option("--pay-with <what>", "what a reseller pays with: balance or allotment (default: balance)"),
    {},
    async (ask, { name, offering, amount, codes, uses, ends, seller, payWith }) => {
      const made = await ask(createVouchers, {
        name,
        ...(await sellerBy(ask, seller)),
        offeringId: offering === undefined ? null : (await offeringBy(ask, offering)).offeringId,
        amountNanoUsd: amount ?? null,
        payWith: paymentOf(payWith),
        codes,
        usesPerCode: uses,
        endsAt: endOfDay(ends),
      });
      return { text: voucherCsv(made.batch, made.codes).trimEnd(), json: made };
    },
  );
}

function addList(voucher: Command): void {
  defineOperations<{ seller?: string }>(
    voucher
      .command("list")
      .description("list batches, newest first, without their codes")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }) => {
      const { rows } = await ask(listVouchers, { ...(await sellerBy(ask, seller)), limit: PAGE_MAX });
      return { text: batchTable(rows), json: { batches: rows } };
    },
  );
}

function addDisable(voucher: Command): void {
  defineOperations<{ seller?: string }>(
    voucher
      .command("disable <batch>")
      .description("disable all codes of a batch; what was redeemed stays")
      .option("--seller <reseller>", SELLER),
    {},
    async (ask, { seller }, [batch]): Promise<Output> => {
      const owned = { ...(await sellerBy(ask, seller)), batchId: idOf(batch, "batch") };
      const disabled = await ask(disableVouchers, owned);
      return { text: batchTable([disabled]), json: disabled };
    },
  );
}

function paymentOf(text: string | undefined): PayVoucherWith | undefined {
  if (text === undefined || text === "balance" || text === "allotment") return text;
  throw new InputError("--pay-with must be balance or allotment.");
}

function batchTable(rows: readonly Batch[]): string {
  return table(
    ["ID", "NAME", "FOR", "CODES", "USES EACH", "REDEEMED", "LEFT", "ENDS", "STATE"],
    rows.map((row) => [
      String(row.batchId),
      row.name,
      row.offering?.name ?? formatUsd(row.amountNanoUsd ?? 0n),
      String(row.codes),
      String(row.usesPerCode),
      String(row.used),
      String(row.left),
      row.endsAt,
      row.state,
    ]),
    "No vouchers.",
  );
}
