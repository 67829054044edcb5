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
const CHART_TITLE = `Last ${CHART_DAYS} days`;

const LEADS = {
  customer: "What you have left, and what needs your attention.",
  reseller: "What you sell and earn, and what needs your attention.",
  admin: "The state of the service, what it earns, and what needs your attention.",
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
      title={role === "customer" ? "Home" : "Overview"}
      lead={LEADS[role]}
      action={
        role === "customer" ? (
          !lock.disabled && (
            <ButtonLink href="/keys?create=1" variant={variant} icon={Plus}>
              Create key
            </ButtonLink>
          )
        ) : (
          <ButtonLink href={isAdmin ? "/admin/people" : "/customers"} variant={variant}>
            Open customers
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
            <Empty action={!isNew && <ButtonLink href="/playground">Open the playground</ButtonLink>}>
              No requests yet. They will be counted here, by model.
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
    <ul aria-label="Notices" className="grid gap-2">
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
      description={`${termsText({ ...active, modelIds: null })}, days in ${formatZoneTime(active.timeZone)}`}
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
function arithmetic({ carryover, dailyLimit, daysBegun, granted, used, availableNow, ...whole }: Package): string {
  const days = daysBegun === 1 ? "1 day" : `${formatCount(daysBegun)} days`;
  const sum = `${formatCount(dailyLimit)}${carryover ? ` × ${days}` : " today"} − ${formatCount(used)} used`;
  return granted - used > availableNow
    ? `${sum}, but the whole package has ${formatCount(whole.totalLimit - whole.totalUsed)} left`
    : `${sum} = ${formatCount(availableNow)}`;
}

/** The balance and the next package, below the active one. */
function BalanceAndNext({ home: { balance, next } }: { home: Home }) {
  const hasBalance = balance.paygEnabled || balance.balanceNanoUsd !== "0";
  return (
    <div className="flex flex-wrap items-baseline gap-x-8 gap-y-2 border-t border-line px-4 py-3 text-13 text-ink-2 sm:px-6">
      {hasBalance && (
        <p>
          Balance <strong className="font-semibold text-ink tabular-nums">{formatMoney(balance.freeNanoUsd)}</strong>{" "}
          available, <span className="tabular-nums">{formatMoney(balance.heldNanoUsd)}</span> reserved
          {!balance.paygEnabled && ". Requests are not charged to it."}
        </p>
      )}
      <p>
        {next ? (
          <>
            Next: <strong className="font-semibold text-ink">{next.name}</strong>, from{" "}
            {formatDay(next.startsAt, next.timeZone, nowMs())}
          </>
        ) : (
          "No package is queued after it."
        )}
      </p>
      <TextLink href="/billing" className="ml-auto">
        Billing
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
          title="No package is active"
          description={noPackageText(none, next)}
          action={<AskFor what="package" label="Get a package" />}
        />
      )}
      {(balance.paygEnabled || balance.balanceNanoUsd !== "0" || next) && (
        <Section title="Balance" action={<AskFor what="top_up" label="Top up the balance" />}>
          <BalanceFigures balance={balance} role={role} isOwn>
            {next && (
              <Figure label="Next package" note={`From ${formatDay(next.startsAt, next.timeZone, nowMs())}`}>
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
    `${endedName} ended on ${formatDay(endedAt, endedTimeZone ?? "UTC", nowMs())}.`;
  const coming = next && `${next.name} starts on ${formatDay(next.startsAt, next.timeZone, nowMs())}.`;
  return [ended, coming, ended ? "Your keys are kept and work again with a new one." : next ? "" : NEEDS_PACKAGE]
    .filter(Boolean)
    .join(" ");
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
