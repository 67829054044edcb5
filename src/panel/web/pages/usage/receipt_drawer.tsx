import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { ArrowDown, ArrowUp, Check, CircleSlash, SearchX } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { ApiError } from "../../api.ts";
import {
  formatCalendarDay,
  formatCount,
  formatMoney,
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
    <Drawer open={requestId !== null} onOpenChange={(isOpen) => isOpen || onClose()} title={t`Receipt`}>
      <div className="flex min-w-0 items-center justify-between gap-3">
        <span className="min-w-0">
          {requestId !== null && <CopyText value={plainId(requestId)} what={t`request id`} isWhole />}
        </span>
        <span className="flex flex-none gap-1">
          <IconButton
            icon={ArrowUp}
            label={t`Newer request`}
            size="sm"
            disabled={neighbours.newer === null}
            onClick={() => neighbours.newer?.()}
          />
          <IconButton
            icon={ArrowDown}
            label={t`Older request`}
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
  settled: ["ok", Check, t`Charged`],
  released: ["neutral", CircleSlash, t`Not charged`],
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
      <Part title={t`Request`}>
        <Facts facts={factsOf(receipt)} />
      </Part>
      {receipt.answeredBy && (
        <Part title={t`Provider`}>
          <Facts facts={providerFacts(receipt.answeredBy)} />
        </Part>
      )}
      {receipt.money && (
        <Part title={t`Margin`}>
          <Facts facts={moneyFacts(receipt.money)} />
        </Part>
      )}
      {receipt.tried && (
        <Part title={t`Routes that were tried`}>
          <TriedRoutes tried={receipt.tried} />
        </Part>
      )}
      {receipt.reportedUsage && (
        <Part title={t`Also reported by the model's provider`}>
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
    [t`Provider`, provider ?? t`Deleted route`],
    [t`Time to first event`, formatTook(firstMs)],
    [t`Provider cost`, providerCostNanoUsd === null ? t`Not known` : formatMoney(providerCostNanoUsd)],
  ];
}

/** What the request brought its reader: an admin for the operator, a reseller for itself. */
function moneyFacts({ usageRevenueNanoUsd, costNanoUsd, marginNanoUsd }: Money): [string, ReactNode][] {
  const known = (nanoUsd: string | null) => (nanoUsd === null ? t`Not known` : formatMoney(nanoUsd));
  return [
    [t`Usage revenue`, formatMoney(usageRevenueNanoUsd)],
    [t`Cost`, known(costNanoUsd)],
    [t`Usage revenue − cost`, known(marginNanoUsd)],
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
  if (status === "released") return `${why} ${t`Everything reserved for it was released.`}`;
  return estimated
    ? `${why} ${t`Its tokens were estimated here, because the model's provider did not report them.`}`
    : why;
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
    <Part title={paid ? t`Billing: ${{ name: paid.name }}` : t`Billing: package`}>
      <Sum>
        <Line label={t`Reserved`} value={plural({ count: 1 }, { one: "# request", other: "# requests" })} />
        {status === "settled" && (
          <Line label={t`Used`} value={plural({ count: units }, { one: "# request", other: "# requests" })} isStrong />
        )}
        <Line
          label={t`Released`}
          value={plural({ count: Math.max(0, 1 - units) }, { one: "# request", other: "# requests" })}
          isStrong={status === "released"}
        />
      </Sum>
      {paid && (
        <p className="text-13 text-ink-2 tabular-nums">
          {t`Counted on ${{ day: formatCalendarDay(paid.day) }} in ${{ zone: formatZoneTime(paid.timeZone) }}.`}{" "}
          {usedText(paid)}
        </p>
      )}
    </Part>
  );
}

function usedText(paid: NonNullable<Receipt["package"]>): string {
  const [day, dayLimit] = [formatCount(paid.dayUnits), formatCount(paid.dailyLimit)];
  const [total, totalLimit] = [formatCount(paid.totalUnits), formatCount(paid.totalLimit)];
  return paid.carryover
    ? t`That day has used ${day}, the whole package ${total} of ${totalLimit}.`
    : t`That day has used ${day} of ${dayLimit}, the whole package ${total} of ${totalLimit}.`;
}

function BalanceCharge({ receipt }: { receipt: Receipt }) {
  const { status, heldNanoUsd, chargedNanoUsd, givenBackNanoUsd, shortfallNanoUsd } = receipt;
  const extra = BigInt(chargedNanoUsd) - BigInt(heldNanoUsd);
  return (
    <Part title={t`Billing: balance`}>
      <Sum>
        <Line label={t`Reserved`} value={formatMoney(heldNanoUsd)} />
        {status === "settled" && <Line label={t`Charged`} value={formatMoney(chargedNanoUsd)} isStrong />}
        {extra > 0n ? (
          <Line label={t`Charged beyond the reserved amount`} value={formatMoney(extra)} />
        ) : (
          <Line label={t`Released`} value={formatMoney(givenBackNanoUsd)} isStrong={status === "released"} />
        )}
      </Sum>
      {shortfallNanoUsd !== "0" && (
        <p className="text-13 text-ink-2">
          {t`It cost ${{ amount: formatMoney(shortfallNanoUsd) }} more than could be charged. You do not have to pay that.`}
        </p>
      )}
    </Part>
  );
}

type ChargedPart = NonNullable<Receipt["lines"]>[number];

const CHARGED_PARTS: Column<ChargedPart>[] = [
  { head: t({ message: "Charged", context: "column: what was charged" }), cell: ({ part }) => PART_NAMES[part] },
  {
    head: t({ message: "Count", context: "column: how many" }),
    align: "right",
    cell: ({ count }) => formatCount(count),
  },
  {
    head: t({ message: "Price", context: "of one unit" }),
    align: "right",
    cell: ({ part, pricePicoUsd }) => {
      const price = formatPicoUsd(pricePicoUsd);
      return part === "image" || part === "request" ? price : t`${price}/M`;
    },
  },
  { head: t`Amount`, align: "right", cell: ({ amountAttoUsd }) => formatMoney(BigInt(amountAttoUsd) / ATTO_PER_NANO) },
];

/** The calculation: count × price = amount, and their sum. */
function Calculation({
  receipt: { lines, markup, pricesFrom, priceVersionId, chargedNanoUsd, shortfallNanoUsd },
}: {
  receipt: Receipt;
}) {
  if (lines === null) return null;
  const cost = BigInt(chargedNanoUsd) + BigInt(shortfallNanoUsd);
  const unpriced = lines.filter(({ hasOwnPrice }) => !hasOwnPrice).map(({ part }) => PART_NAMES[part]);
  return (
    <Part title={t`Calculation`}>
      <DataTable
        caption={t`What was charged: count times price`}
        rows={lines}
        rowKey={({ part }) => part}
        columns={CHARGED_PARTS}
        isInset
        footer={[t`Sum, rounded up`, "", "", formatMoney(markup?.costNanoUsd ?? cost)]}
      />
      {markup !== null && (
        <Sum>
          <Line label={t`Cost: the operator’s price`} value={formatMoney(markup.costNanoUsd)} />
          <Line
            label={t`Retail: with a markup of ${{ markup: formatMarkup(markup.basisPoints) }}`}
            value={formatMoney(cost)}
          />
          <Line label={t`Earned`} value={formatMoney(markup.earnedNanoUsd)} isStrong />
        </Sum>
      )}
      {pricesFrom !== null && (
        <p className="text-13 text-ink-2">
          <Trans>
            Price version {priceVersionId}, in force since <Instant iso={pricesFrom} />.
          </Trans>
        </p>
      )}
      {unpriced.length > 0 && (
        <p className="text-13 text-ink-2">
          {t`${{ parts: unpriced.join(", ") }}: without a price of its own, charged at the highest price of its kind.`}
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
  const tokensIn = formatCount(promptTokens);
  const facts: [string, ReactNode][] = [
    [t`Model`, modelId],
    [t`Key`, <KeyWords key="key" name={keyName} masked={keyMasked} />],
    [t`Host`, host],
    [t({ message: "Received", context: "when a request came" }), <Instant key="received" iso={createdAt} seconds />],
  ];
  if (durationMs !== null) facts.push([t`Duration`, formatTook(durationMs)]);
  if (promptTokens + completionTokens > 0) {
    facts.push(
      [
        t`Tokens in`,
        cachedTokens > 0 ? t`${tokensIn}, ${{ cached: formatCount(cachedTokens) }} of them cached` : tokensIn,
      ],
      [t`Tokens out`, formatCount(completionTokens)],
    );
  }
  return facts;
}

function KeyWords({ name, masked }: { name: string | null; masked: string | null }) {
  return (
    <>
      {name ?? t`Deleted key`} {masked && <span className="font-mono text-12 text-ink-3">{masked}</span>}
    </>
  );
}

/** A refused request has no receipt of its own: refusals are counted per minute. */
function RefusalBody({ receipt, isOwn }: { receipt: RefusalReceipt; isOwn: boolean }) {
  const { lock } = useViewer();
  const step = isOwn && !lock.disabled ? nextStep(receipt.code) : null;
  const { code, count, minute, modelId, keyName, host } = receipt;
  const facts: [string, ReactNode][] = [
    [t`Reason`, refusalName(code)],
    [t`In this minute`, plural(count, { one: "# request", other: "# requests" })],
    [t`Model`, modelId ?? t({ message: "unknown", context: "model" })],
    [t`Key`, keyName ?? t({ message: "none", context: "key" })],
    [t`Host`, host],
    [t({ message: "Received", context: "when a request came" }), <Instant key="received" iso={minute} />],
  ];
  return (
    <>
      <div className="grid gap-2">
        <p>
          <Badge tone="warn" icon={CircleSlash}>
            {t`Refused`}
          </Badge>
        </p>
        <p className="text-14 text-ink-2">
          {whatNowText({ code, now: nowMs(), ...(modelId !== null && { model: modelId }) })}{" "}
          {t`Nothing was reserved or charged.`}
        </p>
        {count > 1 && (
          <p className="text-13 text-ink-3">
            {plural(count, {
              one: "# request of this minute was refused for the same reason. This is the last one.",
              other: "# requests of this minute were refused for the same reason. This is the last one.",
            })}
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
      <Part title={t`Request`}>
        <Facts facts={facts} />
      </Part>
    </>
  );
}
