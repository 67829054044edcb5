import type { Batch, MadeCode } from "../../commerce/vouchers_store.ts";
import { decimalUsd } from "../../platform/usd.ts";
import { csvLine } from "./formats.ts";

/** The codes of a new batch as CSV: the only time that anyone sees them. */

const COLUMNS = ["voucher", "code", "offering", "amount_usd", "uses", "ends_at"];

export function voucherCsv(batch: Batch, codes: readonly MadeCode[]): string {
  const { offering, amountNanoUsd, usesPerCode, endsAt } = batch;
  const amount = amountNanoUsd === null ? null : decimalUsd(amountNanoUsd);
  const lines = codes.map(({ voucherId, code }) =>
    csvLine([voucherId, code, offering?.name ?? null, amount, usesPerCode, endsAt]),
  );
  return [csvLine(COLUMNS), ...lines].join("");
}
