import { ArrowDown, ArrowUp, Check, CircleSlash, SearchX } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { ApiError } from "../../api.ts";
import {
  formatCalendarDay,
  formatCount,
  formatMoney,
  formatOf,
  formatPicoUsd,
  formatTook,
  formatZoneTime,
} from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { ButtonLink, IconButton } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { CopyText } from "../../ui/copy_text.tsx";
import { Drawer } from "../../ui/dialog.tsx";
import { Facts } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { PART_NAMES } from "../models/price_parts.ts";
import { formatMarkup } from "../offerings/markup_text.ts";
import { TriedRoutes } from "./receipt_tried.tsx";
import { type AnyReceipt, plainId, type Receipt, type RefusalReceipt, useReceipt } from "./receipts.ts";
import { nextStep, reasonText, refusalName, whatNowText } from "./request_text.ts";

/**
 * A receipt beside its list: what was reserved, charged and released, the calculation, and the reason. ↑ and ↓ open the neighbouring
 * rows.
 */

const ATTO_PER_NANO = 1_000_000_000n;

export type Neighbours = { newer: (() => void) | null; older: (() => void) | null };

export function ReceiptDrawer({
  requestId,
  accountId,
  neighbours,
  onClose,
}: {
  /** null: closed. */
  requestId: string | null;
  accountId: number | null;
  neighbours: Neighbours;
  onClose: () => void;
}) {
  const receipt = useReceipt(requestId, accountId);
  useArrows(requestId !== null, neighbours);
  return (
    <Drawer open={requestId !== null} onOpenChange={(isOpen) => isOpen || onClose()} title="Receipt">
      <div className="flex min-w-0 items-center justify-between gap-3">
        <span className="min-w-0">
          {requestId !== null && <CopyText value={plainId(requestId)} what="request id" isWhole />}
        </span>
        <span className="flex flex-none gap-1">
          <IconButton
            icon={ArrowUp}
            label="Newer request"
            size="sm"
            disabled={neighbours.newer === null}
            onClick={() => neighbours.newer?.()}
          />
          <IconButton
            icon={ArrowDown}
            label="Older request"
            size="sm"
            disabled={neighbours.older === null}
            onClick={() => neighbours.older?.()}
          />
        </span>
      </div>
      {isUnknown(receipt.error) ? (
        <Empty icon={SearchX}>{receipt.error.message}</Empty>
      ) : (
        <Loaded query={receipt} skeleton={<SkeletonRows rows={8} className="-mx-4" />}>
          {(data) => <ReceiptBody receipt={data} isOwn={accountId === null} />}
        </Loaded>
      )}
    </Drawer>
  );
}

/** Refusals can be found by id only some seconds after they happened. */
function isUnknown(error: unknown): error is ApiError {
  return error instanceof ApiError && error.code === "not_found";
}

/** Arrow keys work wherever the focus is in the drawer. */
function useArrows(isOpen: boolean, neighbours: Neighbours): void {
  const onKey = useEffectEvent((event: KeyboardEvent) => {
    const go = { ArrowUp: neighbours.newer, ArrowDown: neighbours.older }[event.key];
    if (!go || event.altKey || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    go();
  });
  useEffect(() => {
    if (!isOpen) return;
    const listen = (event: KeyboardEvent) => onKey(event);
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [isOpen]);
}

function ReceiptBody({ receipt, isOwn }: { receipt: AnyReceipt; isOwn: boolean }) {
  return receipt.status === "refused" ? (
    <RefusalBody receipt={receipt} isOwn={isOwn} />
  ) : (
    <RequestBody receipt={receipt} />
  );
}

const STATES = {
  settled: ["ok", Check, "Charged"],
  released: ["neutral", CircleSlash, "Not charged"],
} as const;

function RequestBody({ receipt }: { receipt: Receipt }) {
  const [tone, icon, words] = STATES[receipt.status];
  return (
    <>
      <div className="grid gap-2">
        <p>
          <Badge tone={tone} icon={icon}>
            {words}
          </Badge>
        </p>
        <p className="text-14 text-ink-2">{whyText(receipt)}</p>
      </div>
      {receipt.mode === "package" ? <PackageCharge receipt={receipt} /> : <BalanceCharge receipt={receipt} />}
      <Calculation receipt={receipt} />
      <Part title="Request">
        <Facts facts={factsOf(receipt)} />
      </Part>
      {receipt.answeredBy && (
        <Part title="Provider">
          <Facts facts={providerFacts(receipt.answeredBy)} />
        </Part>
      )}
      {receipt.money && (
        <Part title="Margin">
          <Facts facts={moneyFacts(receipt.money)} />
        </Part>
      )}
      {receipt.tried && (
        <Part title="Routes that were tried">
          <TriedRoutes tried={receipt.tried} />
        </Part>
      )}
      {receipt.reportedUsage && (
        <Part title="Also reported by the model's provider">
          <Facts facts={Object.entries(receipt.reportedUsage).map(reportedFact)} />
        </Part>
      )}
    </>
  );
}

/** The route that answered, and what that costs the operator: for admins. */
function providerFacts({
  provider,
  firstMs,
  providerCostNanoUsd,
}: NonNullable<Receipt["answeredBy"]>): [string, ReactNode][] {
  return [
    ["Provider", provider ?? "Deleted route"],
    ["Time to first event", formatTook(firstMs)],
    ["Provider cost", providerCostNanoUsd === null ? "Not known" : formatMoney(providerCostNanoUsd)],
  ];
}

/** What the request brought its reader: an admin for the operator, a reseller for itself. */
function moneyFacts({ usageRevenueNanoUsd, costNanoUsd, marginNanoUsd }: Money): [string, ReactNode][] {
  const known = (nanoUsd: string | null) => (nanoUsd === null ? "Not known" : formatMoney(nanoUsd));
  return [
    ["Usage revenue", formatMoney(usageRevenueNanoUsd)],
    ["Cost", known(costNanoUsd)],
    ["Usage revenue − cost", known(marginNanoUsd)],
  ];
}

type Money = NonNullable<Receipt["money"]>;

/** The provider's own name. Text values stay as they are. */
function reportedFact([name, value]: [string, number | string]): [ReactNode, ReactNode] {
  return [
    <span key={name} className="font-mono text-12 break-all">
      {name}
    </span>,
    typeof value === "number" ? formatCount(value) : value,
  ];
}

function whyText({ status, reason, estimated }: Receipt): string {
  const why = reasonText(reason ?? "");
  if (status === "released") return `${why} Everything reserved for it was released.`;
  return estimated ? `${why} Its tokens were estimated here, because the model's provider did not report them.` : why;
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="grid gap-3 border-t border-line pt-4">
      <h3 className="text-13">{title}</h3>
      {children}
    </section>
  );
}

/** A package counts requests: one reserved, one or none used. */
function PackageCharge({ receipt }: { receipt: Receipt }) {
  const { status, units, package: paid } = receipt;
  return (
    <Part title={paid ? `Billing: ${paid.name}` : "Billing: package"}>
      <Sum>
        <Line label="Reserved" value="1 request" />
        {status === "settled" && <Line label="Used" value={formatOf(units, "request")} isStrong />}
        <Line label="Released" value={formatOf(Math.max(0, 1 - units), "request")} isStrong={status === "released"} />
      </Sum>
      {paid && (
        <p className="text-13 text-ink-2 tabular-nums">
          Counted on {formatCalendarDay(paid.day)} in {formatZoneTime(paid.timeZone)}. That day has used{" "}
          {formatCount(paid.dayUnits)}
          {!paid.carryover && ` of ${formatCount(paid.dailyLimit)}`}, the whole package {formatCount(paid.totalUnits)}{" "}
          of {formatCount(paid.totalLimit)}.
        </p>
      )}
    </Part>
  );
}

function BalanceCharge({ receipt }: { receipt: Receipt }) {
  const { status, heldNanoUsd, chargedNanoUsd, givenBackNanoUsd, shortfallNanoUsd } = receipt;
  const extra = BigInt(chargedNanoUsd) - BigInt(heldNanoUsd);
  return (
    <Part title="Billing: balance">
      <Sum>
        <Line label="Reserved" value={formatMoney(heldNanoUsd)} />
        {status === "settled" && <Line label="Charged" value={formatMoney(chargedNanoUsd)} isStrong />}
        {extra > 0n ? (
          <Line label="Charged beyond the reserved amount" value={formatMoney(extra)} />
        ) : (
          <Line label="Released" value={formatMoney(givenBackNanoUsd)} isStrong={status === "released"} />
        )}
      </Sum>
      {shortfallNanoUsd !== "0" && (
        <p className="text-13 text-ink-2">
          It cost {formatMoney(shortfallNanoUsd)} more than could be charged. You do not have to pay that.
        </p>
      )}
    </Part>
  );
}

type ChargedPart = NonNullable<Receipt["lines"]>[number];

const CHARGED_PARTS: Column<ChargedPart>[] = [
  { head: "Charged", cell: ({ part }) => PART_NAMES[part] },
  { head: "Count", align: "right", cell: ({ count }) => formatCount(count) },
  {
    head: "Price",
    align: "right",
    cell: ({ part, pricePicoUsd }) =>
      `${formatPicoUsd(pricePicoUsd)}${part === "image" || part === "request" ? "" : "/M"}`,
  },
  { head: "Amount", align: "right", cell: ({ amountAttoUsd }) => formatMoney(BigInt(amountAttoUsd) / ATTO_PER_NANO) },
];

/** The calculation: count × price = amount, and their sum. */
function Calculation({
  receipt: { lines, markup, pricesFrom, priceVersionId, chargedNanoUsd, shortfallNanoUsd },
}: {
  receipt: Receipt;
}) {
  if (lines === null) return null;
  const cost = BigInt(chargedNanoUsd) + BigInt(shortfallNanoUsd);
  return (
    <Part title="Calculation">
      <DataTable
        caption="What was charged: count times price"
        rows={lines}
        rowKey={({ part }) => part}
        columns={CHARGED_PARTS}
        isInset
        footer={["Sum, rounded up", "", "", formatMoney(markup?.costNanoUsd ?? cost)]}
      />
      {markup !== null && (
        <Sum>
          <Line label="Cost: the operator’s price" value={formatMoney(markup.costNanoUsd)} />
          <Line label={`Retail: with a markup of ${formatMarkup(markup.basisPoints)}`} value={formatMoney(cost)} />
          <Line label="Earned" value={formatMoney(markup.earnedNanoUsd)} isStrong />
        </Sum>
      )}
      {pricesFrom !== null && (
        <p className="text-13 text-ink-2">
          Price version {priceVersionId}, in force since <Instant iso={pricesFrom} />.
        </p>
      )}
      {lines.some(({ hasOwnPrice }) => !hasOwnPrice) && (
        <p className="text-13 text-ink-2">
          {lines
            .filter(({ hasOwnPrice }) => !hasOwnPrice)
            .map(({ part }) => PART_NAMES[part])
            .join(", ")}
          : without a price of its own, charged at the highest price of its kind.
        </p>
      )}
    </Part>
  );
}

function Sum({ children }: { children: ReactNode }) {
  return <dl className="grid gap-1.5 text-14 tabular-nums">{children}</dl>;
}

function Line({ label, value, isStrong = false }: { label: ReactNode; value: string; isStrong?: boolean }) {
  const look = isStrong ? "font-semibold" : "";
  return (
    <div className={`flex items-baseline justify-between gap-4 ${look}`}>
      <dt className="min-w-0">{label}</dt>
      <dd className="flex-none">{value}</dd>
    </div>
  );
}

function factsOf(receipt: Receipt): [string, ReactNode][] {
  const { modelId, keyName, keyMasked, host, createdAt, finishedAt, promptTokens, cachedTokens, completionTokens } =
    receipt;
  const durationMs = finishedAt === null ? null : Date.parse(finishedAt) - Date.parse(createdAt);
  const cached = cachedTokens > 0 ? `, ${formatCount(cachedTokens)} of them cached` : "";
  const facts: [string, ReactNode][] = [
    ["Model", modelId],
    ["Key", <KeyWords key="key" name={keyName} masked={keyMasked} />],
    ["Host", host],
    ["Received", <Instant key="received" iso={createdAt} seconds />],
  ];
  if (durationMs !== null) facts.push(["Duration", formatTook(durationMs)]);
  if (promptTokens + completionTokens > 0) {
    facts.push(["Tokens in", `${formatCount(promptTokens)}${cached}`], ["Tokens out", formatCount(completionTokens)]);
  }
  return facts;
}

function KeyWords({ name, masked }: { name: string | null; masked: string | null }) {
  return (
    <>
      {name ?? "Deleted key"} {masked && <span className="font-mono text-12 text-ink-3">{masked}</span>}
    </>
  );
}

/** A refused request has no receipt of its own: refusals are counted per minute. */
function RefusalBody({ receipt, isOwn }: { receipt: RefusalReceipt; isOwn: boolean }) {
  const { lock } = useViewer();
  const step = isOwn && !lock.disabled ? nextStep(receipt.code) : null;
  const { code, count, minute, modelId, keyName, host } = receipt;
  const facts: [string, ReactNode][] = [
    ["Reason", refusalName(code)],
    ["In this minute", formatOf(count, "request")],
    ["Model", modelId ?? "unknown"],
    ["Key", keyName ?? "none"],
    ["Host", host],
    ["Received", <Instant key="received" iso={minute} />],
  ];
  return (
    <>
      <div className="grid gap-2">
        <p>
          <Badge tone="warn" icon={CircleSlash}>
            Refused
          </Badge>
        </p>
        <p className="text-14 text-ink-2">
          {whatNowText({ code, now: nowMs(), ...(modelId !== null && { model: modelId }) })} Nothing was reserved or
          charged.
        </p>
        {count > 1 && (
          <p className="text-13 text-ink-3">
            {formatCount(count)} requests of this minute were refused for the same reason. This is the last one.
          </p>
        )}
        {step && (
          <p>
            <ButtonLink href={step.href} size="sm">
              {step.label}
            </ButtonLink>
          </p>
        )}
      </div>
      <Part title="Request">
        <Facts facts={facts} />
      </Part>
    </>
  );
}
