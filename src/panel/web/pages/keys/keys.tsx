import { Infinity as Endless, KeyRound, Plus } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { KEY_BUDGETS } from "../../../../limits.ts";
import { EMPTY, limitsText } from "../../copy.ts";
import { formatCount, formatMoney, formatOf } from "../../format.ts";
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
import { isLive, isUsedUp, KeyStatus, SPENT_IN, unusedDays } from "./key_states.tsx";
import type { RateLimits } from "./rate_limits.tsx";

/** The person's API keys: create, check their use, and retire them. */

export function KeysPage() {
  const { lock } = useViewer();
  const keys = useKeys();
  const acting = useActing();
  const create = (
    <Button variant="primary" icon={Plus} onClick={() => acting.open({ kind: "create" })} {...lock}>
      Create key
    </Button>
  );
  return (
    <Page title="Keys" lead="Create keys, see how they are used, and retire them safely." action={create}>
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
    <Banner tone="neutral" title="Limits of your account, for all keys together">
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
      title={count === 1 ? "1 key is unused and never expires" : `${count} keys are unused and never expire`}
    >
      Revoke the keys that are no longer needed: a forgotten key can still be stolen.
    </Banner>
  );
}

function KeyLists({ rows, onAct, empty }: { rows: readonly OwnKey[]; onAct: (act: KeyAct) => void; empty: ReactNode }) {
  const live = rows.filter(isLive);
  const ended = rows.filter((row) => !isLive(row));
  return (
    <Section flush>
      <DataTable
        caption="Keys"
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
  { head: "Key", cell: (row) => <NameCell row={row} /> },
  { head: "Billing", cell: ({ mode }) => (mode === "payg" ? "Balance" : "Package") },
  { head: "Models", cell: (row) => <ScopeCell row={row} />, hideBelow: "lg" },
  { head: "Left", cell: (row) => <LimitsCell row={row} />, hideBelow: "md" },
  { head: "Last used", cell: (row) => <LastUsedCell row={row} /> },
  { head: "State", cell: (row) => <StateCell row={row} /> },
];

function NameCell({ row: { name, masked, limits, madeBy } }: { row: OwnKey }) {
  const maker = useMadeBy()(madeBy);
  return (
    <TwoLines
      below={
        <>
          <span className="font-mono text-12">{masked}</span>
          {maker !== null && <span className="block text-12">Made by {maker}</span>}
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
        {modelIds === null ? "All" : modelIds.length === 1 ? modelIds[0] : formatOf(modelIds.length, "model")}
      </Hint>
      {hosts !== null && (
        <Hint says={hosts.length > 1 ? hosts.join(", ") : null} className="text-12 text-ink-3">
          {hosts.length === 1 ? hosts[0] : formatOf(hosts.length, "host")}
        </Hint>
      )}
    </span>
  );
}

/** The key's own limits, and what is used of them. */
function LimitsCell({ row }: { row: OwnKey }) {
  const { name, used, dailyUnitsMax } = row;
  if (used === null) return <span className="text-ink-3">No limit</span>;
  return (
    <span className="grid gap-1.5">
      {dailyUnitsMax !== null && (
        <Meter
          size="sm"
          label={`Requests today, key ${name}`}
          used={used.units}
          limit={dailyUnitsMax}
          unit="requests"
          resets={null}
          period={SPENT_IN.day}
        />
      )}
      {KEY_BUDGETS.map(({ field, period }) => {
        const limit = row[field];
        if (limit === null) return null;
        return (
          <Meter
            key={field}
            size="sm"
            label={`Spending ${SPENT_IN[period]}, key ${name}`}
            used={Number(used.spentNanoUsd[field])}
            limit={Number(limit)}
            format={(nanoUsd) => formatMoney(BigInt(Math.round(nanoUsd)))}
            period={SPENT_IN[period]}
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
        <span className="text-12 text-ink-3 tabular-nums">{formatCount(requestsLastDay)} in 24 h</span>
      )}
      {lastHost !== null && <span className="text-12 wrap-anywhere text-ink-3">on {lastHost}</span>}
    </span>
  );
}

function StateCell({ row }: { row: OwnKey }) {
  const days = unusedDays(row);
  return (
    <span className="inline-flex flex-wrap gap-1 max-sm:justify-end">
      <KeyStatus row={row} />
      {row.status === "enabled" && isUsedUp(row) && <Badge tone="bad">Limit reached</Badge>}
      {days !== null && <Badge tone="warn">{row.lastUsedAt === null ? "Never used" : `Unused for ${days} days`}</Badge>}
      {row.expiresAt === null && <Badge icon={Endless}>No expiry</Badge>}
    </span>
  );
}

function EndedKeys({ rows }: { rows: readonly OwnKey[] }) {
  return (
    <Collapsed look="rows" label={`Revoked and expired keys (${formatCount(rows.length)})`}>
      <DataTable
        caption="Ended keys"
        rows={rows}
        rowKey={({ keyId }) => String(keyId)}
        rowHref={({ keyId }) => `/keys/${keyId}`}
        columns={[
          { head: "Key", cell: (row) => <NameCell row={row} /> },
          { head: "Billing", cell: ({ mode }) => (mode === "payg" ? "Balance" : "Package") },
          { head: "Last used", cell: (row) => <LastUsedCell row={row} /> },
          { head: "State", cell: (row) => <KeyStatus row={row} /> },
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
