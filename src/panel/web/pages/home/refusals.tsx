import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { ChevronDown } from "lucide-react";
import { useId, useState } from "react";
import { useMe } from "../../api.ts";
import type { RefusalFacts } from "../../failures.ts";
import { formatCount, formatMoney } from "../../format.ts";
import type { Home } from "../../shared/account_queries.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { cx } from "../../ui/cx.ts";
import { Section } from "../../ui/page.tsx";
import { Ago } from "../../ui/time.tsx";
import { nextStep, refusalName, whatNowText } from "../usage/request_text.ts";

/** Recently refused requests, how often, and what to do about them. */

type Recent = Home["refusals"][number];

const NANO_PER_USD = 1e9;

export function HomeRefusals({ home }: { home: Home }) {
  return (
    <Section
      title={t`Refused requests`}
      description={t`In the last 7 days. Nothing was charged for them.`}
      flush={home.refusals.length > 0}
    >
      {home.refusals.length === 0 ? (
        <p className="text-14 text-ink-2">
          <Trans>No request was refused.</Trans>
        </p>
      ) : (
        <ul>
          {home.refusals.map((refusal) => (
            <RefusalRow key={`${refusal.code} ${refusal.key?.keyId}`} refusal={refusal} home={home} />
          ))}
        </ul>
      )}
    </Section>
  );
}

function RefusalRow({ refusal, home }: { refusal: Recent; home: Home }) {
  const id = useId();
  const [isOpen, setOpen] = useState(false);
  const { brand } = useMe();
  const { code, count, key, modelId, at } = refusal;
  const name = refusalName(code);
  const keyName = key?.name;
  const ofKey = key ? t`key “${{ name: key.name }}”` : t`no key chosen`;
  return (
    <li className="border-b border-line px-4 py-2 text-14 last:border-0 sm:px-6">
      <div className="flex flex-wrap items-center gap-x-4 gap-y-1">
        <p className="min-w-0 flex-[1_1_12rem]">
          <span className="font-semibold tabular-nums">{formatCount(count)} ×</span> {name}
          <span className="block text-13 text-ink-2">
            {modelId ? (
              <Trans>
                {ofKey}, {modelId}, <Ago iso={at} />
              </Trans>
            ) : (
              <Trans>
                {ofKey}, <Ago iso={at} />
              </Trans>
            )}
          </span>
        </p>
        <Button size="sm" aria-expanded={isOpen} aria-controls={id} onClick={() => setOpen(!isOpen)}>
          {key ? (
            <Trans>
              What to do
              <span className="sr-only">
                {" "}
                {name}, key {keyName}
              </span>
            </Trans>
          ) : (
            <Trans>
              What to do<span className="sr-only"> {name}</span>
            </Trans>
          )}
          <ChevronDown size={16} aria-hidden className={cx("transition-transform", isOpen && "rotate-180")} />
        </Button>
      </div>
      <div id={id} hidden={!isOpen} className="mt-2 mb-2 rounded-md bg-warn-soft p-4">
        {isOpen && <Advice refusal={refusal} home={home} brand={brand.name} />}
      </div>
    </li>
  );
}

function Advice({ refusal, home, brand }: { refusal: Recent; home: Home; brand: string }) {
  const { code, key, lastRequestId } = refusal;
  const step = nextStep(code);
  const since = sinceText(code, home);
  const usage = `/usage?kind=not_charged${key ? `&key=${key.keyId}` : ""}`;
  return (
    <div className="grid gap-3">
      <p>
        {since ?? whatNowText(factsOf(refusal, home, brand))}
        {code === "insufficient_balance" &&
          ` ${t`${{ free: formatMoney(home.balance.freeNanoUsd) }} is available now.`}`}
      </p>
      <p className="flex flex-wrap items-center gap-x-4 gap-y-2 text-13">
        {step && since === null && (
          <ButtonLink href={step.href} size="sm">
            {step.label}
          </ButtonLink>
        )}
        <TextLink href={usage}>
          <Trans>Show these requests</Trans>
        </TextLink>
        <TextLink href={`${usage}&receipt=${lastRequestId}`}>
          <Trans>Latest receipt</Trans>
        </TextLink>
      </p>
    </div>
  );
}

/** The limit that a used-up package has reached: requests or tokens. */
function usedUp({ totalLimit, totalUsed, tokenLimit }: NonNullable<Home["package"]>) {
  return totalUsed < totalLimit && tokenLimit !== null
    ? { limit: tokenLimit, unit: "token" as const }
    : { limit: totalLimit };
}

const QUOTAS = ["daily_quota_exceeded", "carryover_quota_exceeded", "package_quota_exceeded"];

/** What has changed, if the request would not be refused for the same reason now. */
function sinceText(code: string, { package: active }: Home): string | null {
  if (active === null) return null;
  const { availableNow, name, tokenLimit, tokensUsed } = active;
  const hasTokens = tokenLimit === null || tokensUsed < tokenLimit;
  if (QUOTAS.includes(code) && availableNow > 0 && hasTokens)
    return plural(availableNow, {
      one: `# request of ${name} is available again.`,
      other: `# requests of ${name} are available again.`,
    });
  if (code === "package_required" || code === "package_expired") return t`${name} is active now.`;
  return null;
}

function factsOf({ code, key, modelId }: Recent, { package: active, notices }: Home, brand: string): RefusalFacts {
  const none = notices.find((notice) => notice.kind === "package_none");
  const common = { code, now: nowMs(), brand, ...(modelId !== null && { model: modelId }) };
  const ofPackage = active
    ? { zone: active.timeZone, packageName: active.name }
    : none?.endedName && none.endedAt
      ? { packageName: none.endedName, packageEndedAt: none.endedAt, zone: none.endedTimeZone ?? "UTC" }
      : {};
  switch (code) {
    case "daily_quota_exceeded":
    case "carryover_quota_exceeded": {
      const { dailyLimit, resetsAt } = active ?? {};
      return { ...common, ...ofPackage, ...(active && { limit: dailyLimit, dailyLimit, resetsAt }) };
    }
    case "package_quota_exceeded":
      return { ...common, ...ofPackage, ...(active && usedUp(active)) };
    case "key_request_limit_exceeded":
      return { ...common, ...(key?.dailyUnitsMax && { limit: key.dailyUnitsMax, resetsAt: key.resetsAt }) };
    case "key_spend_limit_exceeded":
      return {
        ...common,
        ...(key?.dailySpendMaxNanoUsd && {
          limit: Number(key.dailySpendMaxNanoUsd) / NANO_PER_USD,
          resetsAt: key.resetsAt,
        }),
      };
    default:
      return { ...common, ...ofPackage };
  }
}
