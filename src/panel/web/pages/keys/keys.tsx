import { plural, t } from "@lingui/core/macro";
import { Plural, Trans } from "@lingui/react/macro";
import { Infinity as Endless, KeyRound, Plus } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { KEY_BUDGETS } from "../../../../limits.ts";
import { EMPTY, limitsText } from "../../copy.ts";
import { formatCount, formatMoney } from "../../format.ts";
import { type OwnKey, useKeys } from "../../shared/account_queries.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Collapsed } from "../../ui/collapsed.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Meter } from "../../ui/meter.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { useMadeBy } from "../members/queries.ts";
import { type KeyAct, KeyActing, KeyMenu } from "./key_actions.tsx";
import { KeySecret } from "./key_secret.tsx";
import { isLive, isUsedUp, KeyStatus, PERIODS, unusedDays } from "./key_states.tsx";
import type { RateLimits } from "./rate_limits.tsx";

/** The person's API keys: create, check their use, and retire them. */

export function KeysPage() {
  const { lock } = useViewer();
  const keys = useKeys();
  const acting = useActing();
  const create = (
    <Button variant="primary" icon={Plus} onClick={() => acting.open({ kind: "create" })} {...lock}>
      <Trans>Create key</Trans>
    </Button>
  );
  return (
    <Page title={t`Keys`} lead={t`Create keys, see how they are used, and retire them safely.`} action={create}>
      <Loaded query={keys} skeleton={<KeysSkeleton />}>
        {({ rows, accountLimits }) => (
          <>
            <UnusedKeys rows={rows} />
            {accountLimits !== null && <AccountLimits limits={accountLimits} />}
            <KeyLists
              rows={rows}
              onAct={acting.open}
              empty={
                <Empty icon={KeyRound} action={create}>
                  {EMPTY.keys}
                </Empty>
              }
            />
            <KeyActing acting={acting} most={accountLimits} />
          </>
        )}
      </Loaded>
      <KeySecret />
    </Page>
  );
}

/** The page's dialogs. Other pages open the first one with /keys?create=1. */
function useActing() {
  const { lock } = useViewer();
  const [{ create }, setUrl] = useUrlState({ create: "" });
  const acting = useOpened<KeyAct>();
  const onUrl = useEffectEvent((wanted: string) => {
    if (wanted === "") return;
    // The URL is cleaned, so that a reload does not open the dialog again.
    setUrl({ create: "" });
    if (!lock.disabled) acting.open({ kind: "create" });
  });
  useEffect(() => onUrl(create), [create]);
  return acting;
}

/** The limits of the whole account, which all its keys share. */
function AccountLimits({ limits }: { limits: RateLimits }) {
  return (
    <Banner tone="neutral" title={t`Limits of your account, for all keys together`}>
      {limitsText(limits)}.
    </Banner>
  );
}

/** Warns about keys that are on, unused and never expire: a key that is off opens nothing. */
function UnusedKeys({ rows }: { rows: readonly OwnKey[] }) {
  const count = rows.filter((row) => row.expiresAt === null && unusedDays(row) !== null).length;
  if (count === 0) return null;
  return (
    <Banner
      tone="warn"
      title={plural(count, {
        one: "# key is unused and never expires",
        other: "# keys are unused and never expire",
      })}
    >
      <Trans>Revoke the keys that are no longer needed: a forgotten key can still be stolen.</Trans>
    </Banner>
  );
}

function KeyLists({ rows, onAct, empty }: { rows: readonly OwnKey[]; onAct: (act: KeyAct) => void; empty: ReactNode }) {
  const live = rows.filter(isLive);
  const ended = rows.filter((row) => !isLive(row));
  return (
    <Section flush>
      <DataTable
        caption={t`Keys`}
        rows={live}
        rowKey={({ keyId }) => String(keyId)}
        rowHref={({ keyId }) => `/keys/${keyId}`}
        columns={COLUMNS}
        actions={(row) => <KeyMenu row={row} onAct={onAct} />}
        empty={empty}
      />
      {ended.length > 0 && <EndedKeys rows={ended} />}
    </Section>
  );
}

const COLUMNS: readonly Column<OwnKey>[] = [
  { head: t`Key`, cell: (row) => <NameCell row={row} /> },
  { head: t`Billing`, cell: ({ mode }) => (mode === "payg" ? t`Balance` : t`Package`) },
  { head: t`Models`, cell: (row) => <ScopeCell row={row} />, hideBelow: "lg" },
  {
    head: t({ message: "Left", context: "of a key's limits" }),
    cell: (row) => <LimitsCell row={row} />,
    hideBelow: "md",
  },
  { head: t`Last used`, cell: (row) => <LastUsedCell row={row} /> },
  { head: t`State`, cell: (row) => <StateCell row={row} /> },
];

function NameCell({ row: { name, masked, limits, madeBy } }: { row: OwnKey }) {
  const maker = useMadeBy()(madeBy);
  return (
    <TwoLines
      below={
        <>
          <span className="font-mono text-12">{masked}</span>
          {maker !== null && <span className="block text-12">{t`Made by ${maker}`}</span>}
          {limits !== null && <span className="block text-12">{limitsText(limits)}</span>}
        </>
      }
    >
      {name}
    </TwoLines>
  );
}

function ScopeCell({ row: { modelIds, hosts } }: { row: OwnKey }) {
  return (
    <span className="grid">
      <Hint says={modelIds !== null && modelIds.length > 1 ? modelIds.join(", ") : null} className="whitespace-nowrap">
        {modelIds === null ? (
          t({ message: "All", context: "models" })
        ) : modelIds.length === 1 ? (
          modelIds[0]
        ) : (
          <Plural value={{ count: modelIds.length }} one="# model" other="# models" />
        )}
      </Hint>
      {hosts !== null && (
        <Hint says={hosts.length > 1 ? hosts.join(", ") : null} className="text-12 text-ink-3">
          {hosts.length === 1 ? hosts[0] : <Plural value={{ count: hosts.length }} one="# host" other="# hosts" />}
        </Hint>
      )}
    </span>
  );
}

/** The key's own limits, and what is used of them. */
function LimitsCell({ row }: { row: OwnKey }) {
  const { name, used, dailyUnitsMax } = row;
  if (used === null)
    return (
      <span className="text-ink-3">
        <Trans>No limit</Trans>
      </span>
    );
  return (
    <span className="grid gap-1.5">
      {dailyUnitsMax !== null && (
        <Meter
          size="sm"
          label={t`Requests today, key ${name}`}
          used={used.units}
          limit={dailyUnitsMax}
          unit={t`requests`}
          resets={null}
          period={PERIODS.day.name}
        />
      )}
      {KEY_BUDGETS.map(({ field, period }) => {
        const limit = row[field];
        if (limit === null) return null;
        return (
          <Meter
            key={field}
            size="sm"
            label={t`${{ spending: PERIODS[period].label }}, key ${name}`}
            used={Number(used.spentNanoUsd[field])}
            limit={Number(limit)}
            format={(nanoUsd) => formatMoney(BigInt(Math.round(nanoUsd)))}
            period={PERIODS[period].name}
            {...(period !== "total" && { resets: null })}
          />
        );
      })}
    </span>
  );
}

function LastUsedCell({ row: { lastUsedAt, lastHost, requestsLastDay } }: { row: OwnKey }) {
  return (
    <span className="grid">
      <Ago iso={lastUsedAt} />
      {requestsLastDay !== null && requestsLastDay > 0 && (
        <span className="text-12 text-ink-3 tabular-nums">{t`${{ count: formatCount(requestsLastDay) }} in 24 h`}</span>
      )}
      {lastHost !== null && <span className="text-12 wrap-anywhere text-ink-3">{t`on ${lastHost}`}</span>}
    </span>
  );
}

function StateCell({ row }: { row: OwnKey }) {
  const days = unusedDays(row);
  return (
    <span className="inline-flex flex-wrap gap-1 max-sm:justify-end">
      <KeyStatus row={row} />
      {row.status === "enabled" && isUsedUp(row) && (
        <Badge tone="bad">
          <Trans>Limit reached</Trans>
        </Badge>
      )}
      {days !== null && (
        <Badge tone="warn">
          {row.lastUsedAt === null
            ? t`Never used`
            : plural(days, { one: "Unused for # day", other: "Unused for # days" })}
        </Badge>
      )}
      {row.expiresAt === null && (
        <Badge icon={Endless}>
          <Trans>No expiry</Trans>
        </Badge>
      )}
    </span>
  );
}

function EndedKeys({ rows }: { rows: readonly OwnKey[] }) {
  return (
    <Collapsed look="rows" label={t`Revoked and expired keys (${{ count: formatCount(rows.length) }})`}>
      <DataTable
        caption={t`Ended keys`}
        rows={rows}
        rowKey={({ keyId }) => String(keyId)}
        rowHref={({ keyId }) => `/keys/${keyId}`}
        columns={[
          { head: t`Key`, cell: (row) => <NameCell row={row} /> },
          { head: t`Billing`, cell: ({ mode }) => (mode === "payg" ? t`Balance` : t`Package`) },
          { head: t`Last used`, cell: (row) => <LastUsedCell row={row} /> },
          { head: t`State`, cell: (row) => <KeyStatus row={row} /> },
        ]}
      />
    </Collapsed>
  );
}

function KeysSkeleton() {
  return (
    <Section flush>
      <SkeletonRows rows={4} />
    </Section>
  );
}
