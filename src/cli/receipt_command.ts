import type { StaticDecode } from "@sinclair/typebox";
import type { Command } from "commander";
import { InputError } from "../errors.ts";
import { getReceipt } from "../operations/receipts.ts";
import { defineOperations } from "./door.ts";
import { formatPercent, formatPico, formatPrice, formatUsd } from "./money.ts";
import { facts, type Output, table } from "./output.ts";

/** The command `receipt`: one request, with its charge computed again from the receipt and the price version that it names. */

const REQUEST_ID = /^[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

type Receipt = Exclude<StaticDecode<typeof getReceipt.output>, { status: "refused" }>;
type Recomputed = NonNullable<Receipt["recomputed"]>;

export function addReceiptCommand(program: Command): void {
  defineOperations(
    program
      .command("receipt <request-id>")
      .description("show a request's receipt, and compute its charge again; exits with 1 if it differs"),
    {},
    async (ask, _, [id = ""]) => {
      const requestId = id.trim().replace(/^req_/i, "").toLowerCase();
      if (!REQUEST_ID.test(requestId))
        throw new InputError("A request id looks as in the X-Request-Id header: 0190a5b2-6c1e-7d3f-8a4b-5c6d7e8f9a0b.");
      const receipt = await ask(getReceipt, { requestId });
      if (receipt.status === "refused") throw new InputError("The request was refused, so it has no receipt.");
      return show(receipt);
    },
  );
}

function show(receipt: Receipt): Output {
  const { recomputed: again, reportedUsage } = receipt;
  const isExact = again?.isExact ?? true;
  const lines = [facts(factsOf(receipt))];
  if (again?.hasPrices === false)
    lines.push("", "Its price version has no price for a part that it used: run bun run cli doctor.");
  else if (again !== null) lines.push("", calculation(again), "", ...comparison(again, receipt));
  if (reportedUsage) {
    const reported = Object.entries(reportedUsage).map(([name, value]) => [name, String(value)] as const);
    lines.push("", "Also reported by the provider:", facts(reported));
  }
  return { text: lines.join("\n"), json: { receipt, isExact }, exitCode: isExact ? 0 : 1 };
}

function factsOf(receipt: Receipt): [string, string][] {
  const { priceVersionId, pricesFrom, status, reason, estimated, heldNanoUsd, chargedNanoUsd, shortfallNanoUsd } =
    receipt;
  return [
    ["Request", receipt.requestId],
    ["Account", String(receipt.accountId)],
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
    ["Price version", priceVersionId === null ? "none" : `${priceVersionId}, in force since ${pricesFrom}`],
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

/** As the caller defines them. Source: MON-21, MON-22, MON-23. */
function moneyFacts({ money }: Receipt): [string, string][] {
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
  if (!again.isExact)
    return [`${whole}. It was charged ${formatUsd(chargedNanoUsd + shortfallNanoUsd)}: run bun run cli doctor --full.`];
  return [
    `${whole}, as charged.`,
    ...(markup === null ? [] : [`The reseller earned ${formatUsd(markup.earnedNanoUsd)}.`]),
  ];
}
