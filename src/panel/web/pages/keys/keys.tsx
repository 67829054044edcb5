import {
  Ban,
  ChartColumn,
  Infinity as Endless,
  KeyRound,
  MoreHorizontal,
  Pencil,
  Plus,
  Power,
  RefreshCw,
} from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent } from "react";
import { KEY_BUDGETS } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { CONFIRM, EMPTY, limitsText, READ_ONLY } from "../../copy.ts";
import { formatCount, formatDay, formatDuration, formatMoney, formatOf } from "../../format.ts";
import { type OwnKey, useKeys } from "../../shared/account_queries.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { useSwitching } from "../../shared/switching.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Collapsed } from "../../ui/collapsed.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Hint } from "../../ui/hint.tsx";
import { Menu } from "../../ui/menu.tsx";
import type { MenuItem } from "../../ui/menu_list.tsx";
import { Meter } from "../../ui/meter.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, SkeletonRows, Status } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Ago } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { CreateKeyDialog } from "./key_create.tsx";
import { EditKeyDialog, RotateKeyDialog } from "./key_dialogs.tsx";
import { KeySecret } from "./key_secret.tsx";
import type { RateLimits } from "./rate_limits.tsx";

/** The person's API keys: create, check their use, and retire them. */

const DAY_MS = 86_400_000;
/** After so many days without use, a key is marked as unused; a key that was never used, after a week. */
const UNUSED_DAYS = 30;
const NEVER_USED_DAYS = 7;
const ENDING_DAYS = 7;

type Act = { kind: "create" } | { kind: "edit" | "rotate" | "revoke"; row: OwnKey };

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
            <Acting acting={acting} most={accountLimits} />
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
  const acting = useOpened<Act>();
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

function Acting({ acting, most }: { acting: ReturnType<typeof useActing>; most: RateLimits | null }) {
  const { what, isOpen, times, close } = acting;
  if (what === null) return null;
  const state = { open: isOpen, onClose: close };
  if (what.kind === "create") return <CreateKeyDialog key={times} {...state} most={most} />;
  if (what.kind === "edit") return <EditKeyDialog key={times} {...state} row={what.row} most={most} />;
  if (what.kind === "rotate") return <RotateKeyDialog key={times} {...state} row={what.row} />;
  return <RevokeQuestion key={times} {...state} row={what.row} />;
}

function RevokeQuestion({
  open,
  onClose,
  row: { keyId, name, requestsLastDay },
}: {
  open: boolean;
  onClose: () => void;
  row: OwnKey;
}) {
  const refresh = useRefresh();
  const { title, body } = CONFIRM.revokeKey(name, requestsLastDay);
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      title={title}
      confirmLabel="Revoke key"
      cancelLabel="Keep key"
      onConfirm={async () => {
        await ask(api.keys({ id: keyId }).revoke.post());
        await refresh();
        toast.done(`Key ${name} is revoked.`);
      }}
    >
      {body} This cannot be undone.
    </Confirm>
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

function isLive({ status }: OwnKey): boolean {
  return status === "enabled" || status === "disabled";
}

/** The number of days without use; null if that is not long, or if the key is off or has ended. */
function unusedDays({ status, lastUsedAt, createdAt }: OwnKey): number | null {
  if (status !== "enabled") return null;
  const days = Math.floor((nowMs() - Date.parse(lastUsedAt ?? createdAt)) / DAY_MS);
  return days >= (lastUsedAt === null ? NEVER_USED_DAYS : UNUSED_DAYS) ? days : null;
}

function KeyLists({ rows, onAct, empty }: { rows: readonly OwnKey[]; onAct: (act: Act) => void; empty: ReactNode }) {
  const live = rows.filter(isLive);
  const ended = rows.filter((row) => !isLive(row));
  return (
    <Section flush>
      <DataTable
        caption="Keys"
        rows={live}
        rowKey={({ keyId }) => String(keyId)}
        rowHref={({ keyId }) => `/usage?key=${keyId}`}
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

function NameCell({ row: { name, masked, limits } }: { row: OwnKey }) {
  return (
    <TwoLines
      below={
        <>
          <span className="font-mono text-12">{masked}</span>
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

const SPENT_IN = { day: "today", week: "this week", month: "this month", total: "in total" } as const;

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

/** Whether the key has reached one of its own limits. */
function isUsedUp(row: OwnKey): boolean {
  const { used, dailyUnitsMax } = row;
  if (used === null) return false;
  if (dailyUnitsMax !== null && used.units >= dailyUnitsMax) return true;
  return KEY_BUDGETS.some(({ field }) => row[field] !== null && BigInt(used.spentNanoUsd[field]) >= BigInt(row[field]));
}

function KeyStatus({ row: { status, expiresAt } }: { row: OwnKey }) {
  if (status === "disabled") return <Status kind="disabled" />;
  if (status === "revoked" || status === "expired") return <Status kind={status} />;
  if (expiresAt === null) return <Status kind="active" />;
  const leftMs = Date.parse(expiresAt) - nowMs();
  if (leftMs < ENDING_DAYS * DAY_MS) return <Status kind="ending">Ends in {formatDuration(leftMs)}</Status>;
  return <Status kind="active">Active until {formatDay(expiresAt, VIEWER_ZONE, nowMs())}</Status>;
}

const VIEWER_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

function KeyMenu({ row, onAct }: { row: OwnKey; onAct: (act: Act) => void }) {
  const { lock } = useViewer();
  const power = usePower();
  const off = lock.disabled ? { disabled: true } : {};
  const isOn = row.status === "enabled";
  const items: MenuItem[] = [
    { label: "Usage", icon: ChartColumn, href: `/usage?key=${row.keyId}` },
    { label: "Name and limits", icon: Pencil, onSelect: () => onAct({ kind: "edit", row }), ...off },
    {
      label: "Rotate",
      icon: RefreshCw,
      onSelect: () => onAct({ kind: "rotate", row }),
      ...(isOn ? off : { disabled: true, hint: "Switch it on first." }),
    },
    {
      label: isOn ? "Switch off" : "Switch on",
      icon: Power,
      onSelect: () => power.mutate({ what: row, isOn: !isOn }),
      ...off,
    },
    "line",
    { label: "Revoke", icon: Ban, tone: "danger", onSelect: () => onAct({ kind: "revoke", row }), ...off },
  ];
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={`Actions for ${row.name}`} size="sm" />}
      header={lock.disabled && <p className="text-12 text-ink-3">{READ_ONLY}</p>}
      items={items}
    />
  );
}

function usePower() {
  return useSwitching<OwnKey>({
    send: ({ keyId }, isOn) => {
      const key = api.keys({ id: keyId });
      return isOn ? ask(key.enable.post()) : ask(key.disable.post());
    },
    done: ({ name }, isOn) => (isOn ? `Key ${name} is on.` : `Key ${name} is off. Requests with it get a 401 error.`),
    stays: ({ name }, isOn) => `Key ${name} stays ${isOn ? "off" : "on"}.`,
  });
}

function EndedKeys({ rows }: { rows: readonly OwnKey[] }) {
  return (
    <Collapsed look="rows" label={`Revoked and expired keys (${formatCount(rows.length)})`}>
      <DataTable
        caption="Ended keys"
        rows={rows}
        rowKey={({ keyId }) => String(keyId)}
        rowHref={({ keyId }) => `/usage?key=${keyId}`}
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
