import { ArrowDown, ArrowUp, Check, CircleSlash, Clock, SearchX } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { ApiError } from "../api.ts";
import {
  formatCalendarDay,
  formatCount,
  formatMicroUsd,
  formatMoney,
  formatOf,
  formatPrice,
  formatTook,
  formatZone,
} from "../format.ts";
import { ButtonLink, IconButton } from "../ui/buttons.tsx";
import { nowMs } from "../ui/clock.ts";
import { CopyText } from "../ui/copy_text.tsx";
import { Drawer } from "../ui/dialog.tsx";
import { Facts } from "../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../ui/states.tsx";
import { Instant } from "../ui/time.tsx";
import { useViewer } from "./page_hooks.ts";
import { type AnyReceipt, plainId, type Receipt, type RefusalReceipt, useReceipt } from "./receipts.ts";
import { nextStep, reasonText, refusalName, UNKNOWN_REQUEST, whatNowText } from "./request_text.ts";

/**
 * A receipt over the list it stands in: what was held, charged and given back, with the arithmetic and why. ↑ and ↓ go to
 * the rows beside it.
 */

const PICO_PER_NANO = 1_000n;

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
        <Empty icon={SearchX}>{UNKNOWN_REQUEST}</Empty>
      ) : (
        <Loaded query={receipt} skeleton={<SkeletonRows rows={8} className="-mx-4" />}>
          {(data) => <ReceiptBody receipt={data} isOwn={accountId === null} />}
        </Loaded>
      )}
    </Drawer>
  );
}

/** A refusal gets its id written some seconds after it happened. */
function isUnknown(error: unknown): boolean {
  return error instanceof ApiError && error.code === "not_found";
}

/** The arrow keys, wherever the focus is in the drawer. */
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
  running: ["warn", Clock, "Running"],
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
      {receipt.mode === "package" ? <PackageSum receipt={receipt} /> : <BalanceSum receipt={receipt} />}
      <Part title="Request">
        <Facts facts={factsOf(receipt)} />
      </Part>
      {receipt.reportedUsage && (
        <Part title="Also counted by the model's service">
          <Facts facts={Object.entries(receipt.reportedUsage).map(reportedFact)} />
        </Part>
      )}
    </>
  );
}

/** The service's own name for it. An amount with a fraction stays as it came. */
function reportedFact([name, value]: [string, number | string]): [ReactNode, ReactNode] {
  return [
    <span key={name} className="font-mono text-12 break-all">
      {name}
    </span>,
    typeof value === "number" ? formatCount(value) : value,
  ];
}

function whyText({ status, reason, estimated }: Receipt): string {
  if (status === "running") return "The request is under way. What it does not cost comes back.";
  const why = reasonText(reason ?? "");
  if (status === "released") return `${why} All that was held for it was given back.`;
  return estimated ? `${why} Its tokens were counted here, since the model's service did not tell them.` : why;
}

function Part({ title, children }: { title: string; children: ReactNode }) {
  return (
    <section className="grid gap-3 border-t border-line pt-4">
      <h3 className="text-13">{title}</h3>
      {children}
    </section>
  );
}

/** A package counts requests: held one, used one or none. */
function PackageSum({ receipt }: { receipt: Receipt }) {
  const { status, units, package: paid } = receipt;
  return (
    <Part title={paid ? `Paid by ${paid.name}` : "Paid by the package"}>
      <Sum>
        <Line label="Held" value="1 request" />
        {status === "settled" && <Line label="Used" value={formatOf(units, "request")} isStrong />}
        {status !== "running" && (
          <Line label="Back" value={formatOf(Math.max(0, 1 - units), "request")} isStrong={status === "released"} />
        )}
      </Sum>
      {paid && (
        <p className="text-13 text-ink-2 tabular-nums">
          It counts on {formatCalendarDay(paid.day)}, {formatZone(paid.timeZone)} time. By now that day has used{" "}
          {formatCount(paid.dayUnits)}
          {!paid.carryover && ` of ${formatCount(paid.dailyLimit)}`}, and the whole package{" "}
          {formatCount(paid.totalUnits)} of {formatCount(paid.totalLimit)}.
        </p>
      )}
    </Part>
  );
}

function BalanceSum({ receipt }: { receipt: Receipt }) {
  const { status, heldNanoUsd, chargedNanoUsd, givenBackNanoUsd, shortfallNanoUsd, lines, pricesFrom, capTokens } =
    receipt;
  const extra = BigInt(chargedNanoUsd) - BigInt(heldNanoUsd);
  return (
    <Part title="Paid by the balance">
      <Sum>
        <Line label="Held" value={formatMoney(heldNanoUsd)} />
        {status === "settled" && (
          <>
            <Line label="Charged" value={formatMoney(chargedNanoUsd)} isStrong />
            {lines?.map((line) => (
              <Line
                key={line.part}
                label={<span className="pl-4">{partText(line)}</span>}
                value={formatMoney(BigInt(line.picoUsd) / PICO_PER_NANO)}
                isQuiet
              />
            ))}
          </>
        )}
        {status !== "running" &&
          (extra > 0n ? (
            <Line label="Taken beyond what was held" value={formatMoney(extra)} />
          ) : (
            <Line label="Back" value={formatMoney(givenBackNanoUsd)} isStrong={status === "released"} />
          ))}
      </Sum>
      <p className="grid gap-1 text-13 text-ink-2">
        {status === "running" && capTokens !== null && (
          <span>The hold pays for an answer of up to {formatOf(capTokens, "token")}.</span>
        )}
        {pricesFrom !== null && (
          <span>
            Its prices counted from <Instant iso={pricesFrom} /> on.
          </span>
        )}
        {shortfallNanoUsd !== "0" && (
          <span>It cost {formatMoney(shortfallNanoUsd)} more than could be charged. That is not asked of you.</span>
        )}
      </p>
    </Part>
  );
}

type Part = NonNullable<Receipt["lines"]>[number];

/** "812 in × $3.00/M" */
function partText({ part, count, microUsd }: Part): string {
  if (part === "image") return `${formatOf(count, "image")} × ${formatMicroUsd(microUsd)}`;
  const words = { prompt: "in", cached: "cached", completion: "out" }[part];
  return `${formatCount(count)} ${words} × ${formatPrice(microUsd)}`;
}

function Sum({ children }: { children: ReactNode }) {
  return <dl className="grid gap-1.5 text-14 tabular-nums">{children}</dl>;
}

function Line({
  label,
  value,
  isStrong = false,
  isQuiet = false,
}: {
  label: ReactNode;
  value: string;
  isStrong?: boolean;
  isQuiet?: boolean;
}) {
  const look = isQuiet ? "text-13 text-ink-2" : isStrong ? "font-semibold" : "";
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
  const took = finishedAt === null ? null : Date.parse(finishedAt) - Date.parse(createdAt);
  const cached = cachedTokens > 0 ? `, ${formatCount(cachedTokens)} of them cached` : "";
  const facts: [string, ReactNode][] = [
    ["Model", modelId],
    ["Key", <KeyWords key="key" name={keyName} masked={keyMasked} />],
    ["Host", host],
    ["Came", <Instant key="came" iso={createdAt} seconds />],
  ];
  if (took !== null) facts.push(["Took", formatTook(took)]);
  if (promptTokens + completionTokens > 0) {
    facts.push(["Tokens in", `${formatCount(promptTokens)}${cached}`], ["Tokens out", formatCount(completionTokens)]);
  }
  return facts;
}

function KeyWords({ name, masked }: { name: string | null; masked: string | null }) {
  return (
    <>
      {name ?? "A key that is gone"} {masked && <span className="font-mono text-12 text-ink-3">{masked}</span>}
    </>
  );
}

/** A refusal has no receipt of its own: it is counted with those of its minute. */
function RefusalBody({ receipt, isOwn }: { receipt: RefusalReceipt; isOwn: boolean }) {
  const { lock } = useViewer();
  const step = isOwn && !lock.disabled ? nextStep(receipt.code) : null;
  const { code, count, minute, modelId, keyName, host } = receipt;
  const facts: [string, ReactNode][] = [
    ["Why", refusalName(code)],
    ["In this minute", formatOf(count, "request")],
    ["Model", modelId ?? "none that exists"],
    ["Key", keyName ?? "none was chosen yet"],
    ["Host", host],
    ["Came", <Instant key="came" iso={minute} />],
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
          {whatNowText({ code, now: nowMs(), ...(modelId !== null && { model: modelId }) })} Nothing was held or
          charged.
        </p>
        {count > 1 && (
          <p className="text-13 text-ink-3">
            {formatCount(count)} requests of this minute were refused alike. This is the last of them.
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
