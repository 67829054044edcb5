import type { Command } from "commander";
import {
  findReceipt,
  findRequestAccount,
  moneyOf,
  type Receipt,
  recomputeReceipt,
  whyNotKept,
} from "../books/receipts_store.ts";
import { InputError } from "../errors.ts";
import type { Recomputed } from "../ledger/price.ts";
import { type Context, defineCommand } from "./context.ts";
import { formatPercent, formatPico, formatPrice, formatUsd } from "./money.ts";
import { facts, type Output, table } from "./output.ts";

/** The command `receipt`: one request, with its charge computed again from the receipt and the price version that it names. */

const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

export function addReceiptCommand(program: Command): void {
  defineCommand(
    program
      .command("receipt <request-id>")
      .description("show a request's receipt, and compute its charge again; exits with 1 if it differs"),
    {},
    async (context, _, [id = ""]) => {
      const { receipt, accountId } = await receiptOf(context, id.trim().replace(/^req_/i, "").toLowerCase());
      return show(receipt, accountId);
    },
  );
}

/** Throws InputError if there is no such receipt. */
async function receiptOf(context: Context, requestId: string): Promise<{ receipt: Receipt; accountId: number }> {
  if (!REQUEST_ID.test(requestId))
    throw new InputError("A request id looks as in the X-Request-Id header: 0190a5b2-6c1e-7d3f-8a4b-5c6d7e8f9a0b.");
  const account = await findRequestAccount(context, { requestId, scope: "everybody" });
  const receipt = account && (await findReceipt(context, { accountId: account.accountId, requestId }));
  if (!receipt)
    throw new InputError(
      account
        ? "The request was refused, so it has no receipt."
        : ((await whyNotKept(context.db.sql, requestId)) ?? "There is no finished request with this id."),
    );
  return { receipt, accountId: account.accountId };
}

/**
 * The charge of a balance, computed again; null if that is impossible: a package paid, the hold was released, or the
 * receipt names no prices.
 */
function chargeAgain(receipt: Receipt): Recomputed | "no price" | null {
  const { mode, status, prices } = receipt;
  if (mode !== "payg" || status !== "settled" || prices === null) return null;
  return recomputeReceipt({ ...receipt, prices }) ?? "no price";
}

/** Whether the charge, and the operator's price in it, equal those of the receipt. */
function isSame({ nanoUsd, costNanoUsd }: Recomputed, { markup, ...receipt }: Receipt): boolean {
  const isCharged = nanoUsd === receipt.chargedNanoUsd + receipt.shortfallNanoUsd;
  return isCharged && (markup === null || markup.costNanoUsd === costNanoUsd);
}

function show(receipt: Receipt, accountId: number): Output {
  const again = chargeAgain(receipt);
  const isExact = again === null || (again !== "no price" && isSame(again, receipt));
  const lines = [facts(factsOf(receipt, accountId))];
  if (again === "no price")
    lines.push("", "Its price version has no price for a part that it used: run bun run cli doctor.");
  else if (again !== null) lines.push("", calculation(again), "", ...comparison(again, receipt));
  if (receipt.reportedUsage) {
    const reported = Object.entries(receipt.reportedUsage).map(([name, value]) => [name, String(value)] as const);
    lines.push("", "Also reported by the provider:", facts(reported));
  }
  const recomputed = again === null || again === "no price" ? null : again;
  return {
    text: lines.join("\n"),
    json: { receipt: { accountId, ...receipt }, recomputed, isExact },
    exitCode: isExact ? 0 : 1,
  };
}

function factsOf(receipt: Receipt, accountId: number): [string, string][] {
  const { prices, status, reason, estimated, heldNanoUsd, chargedNanoUsd, shortfallNanoUsd } = receipt;
  return [
    ["Request", receipt.requestId],
    ["Account", String(accountId)],
    ["Key", `${receipt.keyId} ${receipt.keyName ?? "(deleted)"}`],
    ["Model", receipt.modelId],
    ["Host", receipt.host],
    ["Received", receipt.createdAt],
    ["Finished", receipt.finishedAt ?? ""],
    ["End", `${status}: ${reason ?? ""}${estimated ? ", tokens estimated" : ""}`],
    ["Tokens", `${receipt.promptTokens} in (${receipt.cachedTokens} cached), ${receipt.completionTokens} out`],
    [
      "Billing",
      receipt.mode === "package"
        ? `package, ${receipt.units} ${receipt.units === 1 ? "request" : "requests"}`
        : "balance",
    ],
    ["Reserved", formatUsd(heldNanoUsd)],
    ["Charged", formatUsd(chargedNanoUsd)],
    ...(shortfallNanoUsd > 0n ? [["Loss", formatUsd(shortfallNanoUsd)] satisfies [string, string]] : []),
    ...answerFacts(receipt),
    ...moneyFacts(receipt),
    ["Price version", prices === null ? "none" : `${prices.versionId}, in force since ${prices.validFrom}`],
  ];
}

function answerFacts({ answeredBy }: Receipt): [string, string][] {
  if (answeredBy === null) return [];
  const { routeId, provider, firstMs, providerCostNanoUsd } = answeredBy;
  return [
    ["Answered by", `route ${routeId} (${provider ?? "deleted"}), after ${firstMs} ms`],
    ["Provider cost", providerCostNanoUsd === null ? "not known" : formatUsd(providerCostNanoUsd)],
  ];
}

/** As the operator defines them. Source: MON-21, MON-22, MON-23. */
function moneyFacts(receipt: Receipt): [string, string][] {
  const money = moneyOf(receipt, "operator");
  if (money === null) return [];
  return [
    ["Usage revenue", formatUsd(money.usageRevenueNanoUsd)],
    ["Margin", money.marginNanoUsd === null ? "not known" : formatUsd(money.marginNanoUsd)],
  ];
}

function calculation({ lines }: Recomputed): string {
  return table(
    ["PART", "COUNT", "PRICE", "AMOUNT", ""],
    lines.map(({ part, count, microUsd, picoUsd, hasOwnPrice }) => [
      part,
      String(count),
      `${formatPrice(microUsd)}${part === "image" || part === "request" ? "" : "/M"}`,
      formatPico(picoUsd),
      hasOwnPrice ? "" : "no price of its own: the highest of its kind",
    ]),
    "Nothing was used.",
  );
}

function comparison(again: Recomputed, receipt: Receipt): string[] {
  const { markup, chargedNanoUsd, shortfallNanoUsd } = receipt;
  const sum = `Sum, rounded up: ${formatUsd(again.costNanoUsd)}`;
  const whole =
    markup === null
      ? sum
      : `${sum}. With the markup of ${formatPercent(markup.basisPoints)}: ${formatUsd(again.nanoUsd)}`;
  if (!isSame(again, receipt))
    return [`${whole}. It was charged ${formatUsd(chargedNanoUsd + shortfallNanoUsd)}: run bun run cli doctor --full.`];
  return [
    `${whole}, as charged.`,
    ...(markup === null ? [] : [`The reseller earned ${formatUsd(markup.earnedNanoUsd)}.`]),
  ];
}
