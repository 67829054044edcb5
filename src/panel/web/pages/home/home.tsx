import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Plus } from "lucide-react";
import { useMe } from "../../api.ts";
import { NEEDS_PACKAGE, termsText } from "../../copy.ts";
import { formatCount, formatDay, formatMoney, formatZoneTime } from "../../format.ts";
import { type Home, useHome } from "../../shared/account_queries.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Figure, Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, Loaded, Loading, Skeleton, Status } from "../../ui/states.tsx";
import { BalanceFigures } from "../billing/balance_figures.tsx";
import { PackageMeters } from "../billing/package_meters.tsx";
import { Margins } from "../models/margins.tsx";
import { UsageChart } from "../usage/usage_chart.tsx";
import { FirstSteps, useFirstSteps } from "./first_steps.tsx";
import { noticeText } from "./notices.ts";
import { Overview } from "./overview.tsx";
import { HomeRefusals } from "./refusals.tsx";
import { Selling } from "./selling.tsx";
import { UsageFigures } from "./usage_figures.tsx";

/** Home: the active package, the balance, usage, notices and recent refusals. Sellers see an overview of their business first. */

const CHART_DAYS = 30;
const CHART_TITLE = plural({ days: CHART_DAYS }, { one: "Last # day", other: "Last # days" });

const LEADS = {
  customer: t`What you have left, and what needs your attention.`,
  reseller: t`What you sell and earn, and what needs your attention.`,
  admin: t`The state of the service, what it earns, and what needs your attention.`,
} as const;

type Package = NonNullable<Home["package"]>;

export function HomePage() {
  const { role, lock } = useViewer("keys");
  const home = useHome();
  const firstSteps = useFirstSteps();
  const isAdmin = role === "admin";
  const isNew = firstSteps.data?.steps.some(({ isDone }) => !isDone) === true;
  // While a first step is open, its button is the primary one.
  const variant = isNew ? "secondary" : "primary";
  return (
    <Page
      title={role === "customer" ? t`Home` : t`Overview`}
      lead={LEADS[role]}
      action={
        role === "customer" ? (
          !lock.disabled && (
            <ButtonLink href="/keys?create=1" variant={variant} icon={Plus}>
              <Trans>Create key</Trans>
            </ButtonLink>
          )
        ) : (
          <ButtonLink href={isAdmin ? "/admin/people" : "/customers"} variant={variant}>
            <Trans>Open customers</Trans>
          </ButtonLink>
        )
      }
    >
      <Loaded query={firstSteps} skeleton={null}>
        {({ steps }) => isNew && <FirstSteps steps={steps} />}
      </Loaded>
      {isAdmin && <Overview />}
      {isAdmin && <UsageFigures />}
      {isAdmin && <Margins />}
      {role === "reseller" && <Selling />}
      {role === "reseller" && <UsageFigures />}
      <Loaded query={home} skeleton={isAdmin ? null : <HomeSkeleton />}>
        {(data) =>
          isAdmin && hasNothing(data) ? null : <Own home={data} isNew={isNew} onTurn={() => void home.refetch()} />
        }
      </Loaded>
    </Page>
  );
}

/** True for most admins, who send no requests themselves. */
function hasNothing({ package: active, balance, refusals }: Home): boolean {
  return active === null && !balance.paygEnabled && balance.balanceNanoUsd === "0" && refusals.length === 0;
}

function Own({ home, isNew, onTurn }: { home: Home; isNew: boolean; onTurn: () => void }) {
  return (
    <>
      <Notices home={home} />
      {home.package ? (
        <ActivePackage active={home.package} home={home} onTurn={onTurn} />
      ) : (
        <NoPackage home={home} isNew={isNew} />
      )}
      <UsageChart
        title={CHART_TITLE}
        filter={{}}
        days={CHART_DAYS}
        empty={
          <Section title={CHART_TITLE}>
            <Empty
              action={
                !isNew && (
                  <ButtonLink href="/playground">
                    <Trans>Open the playground</Trans>
                  </ButtonLink>
                )
              }
            >
              <Trans>No requests yet. They will be counted here, by model.</Trans>
            </Empty>
          </Section>
        }
      />
      <HomeRefusals home={home} />
    </>
  );
}

function Notices({ home }: { home: Home }) {
  const { account, viewing } = useMe();
  const isCustomer = (viewing ?? account).role === "customer";
  const zone = home.package?.timeZone ?? "UTC";
  // The section of the package says that there is none.
  const notices = home.notices.filter(({ kind }) => kind !== "package_none");
  if (notices.length === 0) return null;
  return (
    <ul aria-label={t`Notices`} className="grid gap-2">
      {notices.map((notice) => {
        const { tone, title, body, step } = noticeText(notice, { zone, now: nowMs(), isCustomer });
        return (
          <li key={notice.kind}>
            <Banner
              tone={tone}
              title={title}
              action={
                step && (
                  <ButtonLink href={step.href} size="sm">
                    {step.label}
                  </ButtonLink>
                )
              }
            >
              {body}
            </Banner>
          </li>
        );
      })}
    </ul>
  );
}

function ActivePackage({ active, home, onTurn }: { active: Package; home: Home; onTurn: () => void }) {
  return (
    <Section
      title={
        <>
          {active.name} <Status kind="active" />
        </>
      }
      description={t`${{ terms: termsText({ ...active, modelIds: null }) }}, days in ${{ zone: formatZoneTime(active.timeZone) }}`}
      flush
    >
      <div className="p-4 sm:p-6">
        <PackageMeters
          row={active}
          onTurn={onTurn}
          note={<p className="text-13 text-ink-3 tabular-nums">{arithmetic(active)}</p>}
        />
      </div>
      <BalanceAndNext home={home} />
    </Section>
  );
}

/** How the server calculated the available requests: "500 × 7 days − 3,188 used = 312". All figures are the server's. */
function arithmetic({ carryover, daysBegun, granted, availableNow, ...active }: Package): string {
  const limit = formatCount(active.dailyLimit);
  const used = formatCount(active.used);
  const available = formatCount(availableNow);
  const left = formatCount(active.totalLimit - active.totalUsed);
  const isWholeLess = granted - active.used > availableNow;
  if (!carryover)
    return isWholeLess
      ? t`${limit} today − ${used} used, but the whole package has ${left} left`
      : t`${limit} today − ${used} used = ${available}`;
  return isWholeLess
    ? t`${limit} × ${plural(daysBegun, { one: "# day", other: "# days" })} − ${used} used, but the whole package has ${left} left`
    : t`${limit} × ${plural(daysBegun, { one: "# day", other: "# days" })} − ${used} used = ${available}`;
}

/** The balance and the next package, below the active one. */
function BalanceAndNext({ home: { balance, next } }: { home: Home }) {
  const name = next && <strong className="font-semibold text-ink">{next.name}</strong>;
  const day = next && formatDay(next.startsAt, next.timeZone, nowMs());
  const hasBalance = balance.paygEnabled || balance.balanceNanoUsd !== "0";
  const free = <strong className="font-semibold text-ink tabular-nums">{formatMoney(balance.freeNanoUsd)}</strong>;
  const held = <span className="tabular-nums">{formatMoney(balance.heldNanoUsd)}</span>;
  return (
    <div className="flex flex-wrap items-baseline gap-x-8 gap-y-2 border-t border-line px-4 py-3 text-13 text-ink-2 sm:px-6">
      {hasBalance && (
        <p>
          {balance.paygEnabled ? (
            <Trans>
              Balance {free} available, {held} reserved
            </Trans>
          ) : (
            <Trans>
              Balance {free} available, {held} reserved. Requests are not charged to it.
            </Trans>
          )}
        </p>
      )}
      <p>
        {next ? (
          <Trans>
            Next: {name}, from {day}
          </Trans>
        ) : (
          t`No package is queued after it.`
        )}
      </p>
      <TextLink href="/billing" className="ms-auto">
        <Trans>Billing</Trans>
      </TextLink>
    </div>
  );
}

/** Without an active package: why, what comes next, and the balance. The first steps say it to who never had one. */
function NoPackage({ home, isNew }: { home: Home; isNew: boolean }) {
  const { role } = useViewer();
  const { balance, next } = home;
  const none = home.notices.find((notice) => notice.kind === "package_none");
  const isSaid = isNew && none?.endedName === null && next === null;
  return (
    <>
      {none && !isSaid && (
        <Section
          title={t`No package is active`}
          description={noPackageText(none, next)}
          action={<AskFor what="package" label={t`Get a package`} />}
        />
      )}
      {(balance.paygEnabled || balance.balanceNanoUsd !== "0" || next) && (
        <Section title={t`Balance`} action={<AskFor what="top_up" label={t`Top up the balance`} />}>
          <BalanceFigures balance={balance} role={role} isOwn>
            {next && (
              <Figure
                label={t`Next package`}
                note={t`From ${{ day: formatDay(next.startsAt, next.timeZone, nowMs()) }}`}
              >
                <span className="text-20">{next.name}</span>
              </Figure>
            )}
          </BalanceFigures>
        </Section>
      )}
    </>
  );
}

/** Not for admins, who would ask themselves. */
function AskFor({ what, label }: { what: "package" | "top_up"; label: string }) {
  const { lock, role } = useViewer("orders");
  if (lock.disabled || role === "admin") return null;
  return (
    <ButtonLink href={`/billing?ask=${what}`} size="sm">
      {label}
    </ButtonLink>
  );
}

type None = Extract<Home["notices"][number], { kind: "package_none" }>;

function noPackageText({ endedName, endedAt, endedTimeZone }: None, next: Home["next"]): string {
  const ended =
    endedName !== null &&
    endedAt !== null &&
    t`${endedName} ended on ${{ day: formatDay(endedAt, endedTimeZone ?? "UTC", nowMs()) }}.`;
  const coming =
    next && t`${{ name: next.name }} starts on ${{ day: formatDay(next.startsAt, next.timeZone, nowMs()) }}.`;
  const kept = t({ message: "Your keys are kept and work again with a new one.", context: "with a new package" });
  return [ended, coming, ended ? kept : next ? "" : NEEDS_PACKAGE].filter(Boolean).join(" ");
}

function HomeSkeleton() {
  return (
    <Loading className="grid gap-6">
      <Section title={<Skeleton className="h-5 w-56" />}>
        <div className="grid gap-8 sm:grid-cols-2 lg:grid-cols-3">
          <Skeleton className="h-28" />
          <Skeleton className="h-28" />
          <Skeleton className="h-28" />
        </div>
      </Section>
      <Section title={CHART_TITLE}>
        <Skeleton className="h-72 rounded-md" />
      </Section>
    </Loading>
  );
}
