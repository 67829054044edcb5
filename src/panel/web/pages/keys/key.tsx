import { ArrowLeft, ChartColumn, KeyRound, RefreshCw } from "lucide-react";
import { useParams } from "wouter";
import { KEY_BUDGETS } from "../../../../limits.ts";
import { limitsText } from "../../copy.ts";
import { formatMoney } from "../../format.ts";
import { type OwnKey, useKeys } from "../../shared/account_queries.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink, TextLink } from "../../ui/buttons.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { Countdown, Meter } from "../../ui/meter.tsx";
import { Facts, Page, Section } from "../../ui/page.tsx";
import { Empty, Loaded, Skeleton } from "../../ui/states.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { useMadeBy } from "../members/queries.ts";
import { UsageChart } from "../usage/usage_chart.tsx";
import { type KeyAct, KeyActing, KeyMenu } from "./key_actions.tsx";
import { KeySecret, useBaseUrl } from "./key_secret.tsx";
import { isLive, KeyStatus, SPENT_IN } from "./key_states.tsx";

/** One API key: what it used, what is left of its limits, where it may be used. */

const CHART_DAYS = 30;

export function KeyPage() {
  const { id } = useParams<{ id: string }>();
  const { lock } = useViewer();
  const keys = useKeys();
  const acting = useOpened<KeyAct>();
  const row = keys.data?.rows.find(({ keyId }) => String(keyId) === id);
  const rotate = row?.status === "enabled" && (
    <Button variant="primary" icon={RefreshCw} onClick={() => acting.open({ kind: "rotate", row })} {...lock}>
      Rotate
    </Button>
  );
  return (
    <Page
      title={row ? `Key ${row.name}` : "Key"}
      lead={
        <span className="flex flex-wrap items-center gap-x-4 gap-y-1">
          <TextLink href="/keys">
            <ArrowLeft size={14} aria-hidden className="mr-1 inline align-[-2px]" />
            All keys
          </TextLink>
          {row && <KeyStatus row={row} />}
        </span>
      }
      action={
        row && (
          <>
            <ButtonLink href={`/usage?key=${row.keyId}`} icon={ChartColumn}>
              Requests
            </ButtonLink>
            {rotate}
            {isLive(row) && <KeyMenu row={row} onAct={acting.open} />}
          </>
        )
      }
    >
      <Loaded query={keys} skeleton={<Skeleton className="h-72 rounded-lg" />}>
        {({ accountLimits }) =>
          row === undefined ? (
            <Empty icon={KeyRound} action={<ButtonLink href="/keys">All keys</ButtonLink>}>
              There is no such key, or it was revoked long ago.
            </Empty>
          ) : (
            <>
              <KeySections row={row} onAct={acting.open} />
              <KeyActing acting={acting} most={accountLimits} />
            </>
          )
        }
      </Loaded>
      <KeySecret />
    </Page>
  );
}

function KeySections({ row, onAct }: { row: OwnKey; onAct: (act: KeyAct) => void }) {
  return (
    <>
      <UsageChart
        title={`Last ${CHART_DAYS} days`}
        filter={{ keyId: row.keyId }}
        days={CHART_DAYS}
        empty={
          <Section title={`Last ${CHART_DAYS} days`}>
            <p className="text-14 text-ink-2">No requests were charged.</p>
          </Section>
        }
      />
      <LimitsSection row={row} onAct={onAct} />
      <UseSection row={row} onAct={onAct} />
    </>
  );
}

function LimitsSection({ row, onAct }: { row: OwnKey; onAct: (act: KeyAct) => void }) {
  const { lock } = useViewer();
  const { used, limits } = row;
  return (
    <Section
      title="Limits"
      description="What this key may use of the package and spend from the balance."
      action={
        isLive(row) && (
          <Button size="sm" onClick={() => onAct({ kind: "edit", row })} {...lock}>
            {used === null ? "Set limits" : "Change limits"}
          </Button>
        )
      }
    >
      {used === null ? (
        <p className="text-14 text-ink-2">It has no limits of its own.</p>
      ) : (
        <div className="grid gap-6 sm:grid-cols-2 xl:grid-cols-4">
          <KeyMeters row={row} used={used} />
        </div>
      )}
      {limits !== null && <p className="mt-4 text-14 text-ink-2">A minute: {limitsText(limits)}.</p>}
    </Section>
  );
}

function KeyMeters({ row, used }: { row: OwnKey; used: NonNullable<OwnKey["used"]> }) {
  const refresh = useRefresh();
  const { dailyUnitsMax, totalSpendFrom, timeZone } = row;
  const resets = (at: string) => (
    <>
      Resets in <Countdown to={at} onZero={() => void refresh()} />
    </>
  );
  return (
    <>
      {dailyUnitsMax !== null && (
        <Meter
          label="Requests today"
          used={used.units}
          limit={dailyUnitsMax}
          unit="requests"
          resets={resets(used.resetsAt.day)}
        />
      )}
      {KEY_BUDGETS.map(({ field, period }) => {
        const limit = row[field];
        if (limit === null) return null;
        const since = period === "total" && totalSpendFrom !== null ? ` since ${totalSpendFrom}` : "";
        return (
          <Meter
            key={field}
            label={`Spending ${SPENT_IN[period]}${since}`}
            used={Number(used.spentNanoUsd[field])}
            limit={Number(limit)}
            format={(nanoUsd) => formatMoney(BigInt(Math.round(nanoUsd)))}
            {...(period !== "total" && { resets: resets(used.resetsAt[period]) })}
          />
        );
      })}
      <p className="col-span-full text-12 text-ink-3">
        Days begin at midnight in {timeZone}, weeks on Monday. Requests in flight count.
      </p>
    </>
  );
}

function UseSection({ row, onAct }: { row: OwnKey; onAct: (act: KeyAct) => void }) {
  const { lock } = useViewer();
  const { masked, mode, modelIds, hosts, createdAt, expiresAt, lastUsedAt, lastHost, madeBy } = row;
  const maker = useMadeBy()(madeBy);
  const baseUrl = useBaseUrl(row);
  const created = <Instant iso={createdAt} />;
  const expires = expiresAt === null ? "Never" : <Instant iso={expiresAt} />;
  const lastUsed = (
    <>
      <Ago iso={lastUsedAt} />
      {lastHost !== null && ` on ${lastHost}`}
    </>
  );
  return (
    <Section
      title="Where it may be used"
      action={
        isLive(row) && (
          <Button size="sm" onClick={() => onAct({ kind: "scope", row })} {...lock}>
            Change models and hosts
          </Button>
        )
      }
    >
      <div className="grid gap-6">
        <CopyField label="Base URL" value={baseUrl} />
        <Facts
          facts={[
            ["Key", masked],
            ["Billing", mode === "payg" ? "Balance" : "Package"],
            ["Models", modelIds === null ? "All, new ones too" : modelIds.join(", ")],
            ["Hosts", hosts === null ? "All, new ones too" : hosts.join(", ")],
            ["Last used", lastUsed],
            ["Created", created],
            ...(maker === null ? [] : [["Made by", maker] as const]),
            ["Expires", expires],
          ]}
        />
      </div>
    </Section>
  );
}
