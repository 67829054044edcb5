import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
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
import { isLive, KeyStatus, PERIODS } from "./key_states.tsx";

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
      <Trans>Rotate</Trans>
    </Button>
  );
  return (
    <Page
      title={row ? t`Key ${{ name: row.name }}` : t`Key`}
      lead={
        <span className="flex flex-wrap items-center gap-x-4 gap-y-1">
          <TextLink href="/keys">
            <ArrowLeft size={14} aria-hidden className="me-1 inline align-[-2px]" />
            <Trans>All keys</Trans>
          </TextLink>
          {row && <KeyStatus row={row} />}
        </span>
      }
      action={
        row && (
          <>
            <ButtonLink href={`/usage?key=${row.keyId}`} icon={ChartColumn}>
              <Trans>Requests</Trans>
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
            <Empty icon={KeyRound} action={<ButtonLink href="/keys">{t`All keys`}</ButtonLink>}>
              <Trans>There is no such key, or it was revoked long ago.</Trans>
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
  const title = plural({ days: CHART_DAYS }, { one: "Last # day", other: "Last # days" });
  return (
    <>
      <UsageChart
        title={title}
        filter={{ keyId: row.keyId }}
        days={CHART_DAYS}
        empty={
          <Section title={title}>
            <p className="text-14 text-ink-2">
              <Trans>No requests were charged.</Trans>
            </p>
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
      title={t`Limits`}
      description={t`What this key may use of the package and spend from the balance.`}
      action={
        isLive(row) && (
          <Button size="sm" onClick={() => onAct({ kind: "edit", row })} {...lock}>
            {used === null ? t`Set limits` : t`Change limits`}
          </Button>
        )
      }
    >
      {used === null ? (
        <p className="text-14 text-ink-2">
          <Trans>It has no limits of its own.</Trans>
        </p>
      ) : (
        <div className="grid gap-6 sm:grid-cols-2 xl:grid-cols-4">
          <KeyMeters row={row} used={used} />
        </div>
      )}
      {limits !== null && <p className="mt-4 text-14 text-ink-2">{t`A minute: ${{ limits: limitsText(limits) }}.`}</p>}
    </Section>
  );
}

function KeyMeters({ row, used }: { row: OwnKey; used: NonNullable<OwnKey["used"]> }) {
  const refresh = useRefresh();
  const { dailyUnitsMax, totalSpendFrom, timeZone } = row;
  const resets = (at: string) => (
    <Trans>
      Resets in <Countdown to={at} onZero={() => void refresh()} />
    </Trans>
  );
  return (
    <>
      {dailyUnitsMax !== null && (
        <Meter
          label={t`Requests today`}
          used={used.units}
          limit={dailyUnitsMax}
          unit={t`requests`}
          resets={resets(used.resetsAt.day)}
        />
      )}
      {KEY_BUDGETS.map(({ field, period }) => {
        const limit = row[field];
        if (limit === null) return null;
        return (
          <Meter
            key={field}
            label={
              period === "total" && totalSpendFrom !== null
                ? t`Spending in total since ${totalSpendFrom}`
                : PERIODS[period].label
            }
            used={Number(used.spentNanoUsd[field])}
            limit={Number(limit)}
            format={(nanoUsd) => formatMoney(BigInt(Math.round(nanoUsd)))}
            {...(period !== "total" && { resets: resets(used.resetsAt[period]) })}
          />
        );
      })}
      <p className="col-span-full text-12 text-ink-3">
        <Trans>Days begin at midnight in {timeZone}, weeks on Monday. Requests in flight count.</Trans>
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
  const expires = expiresAt === null ? t({ message: "Never", context: "expires" }) : <Instant iso={expiresAt} />;
  const lastUsed =
    lastHost === null ? (
      <Ago iso={lastUsedAt} />
    ) : (
      <Trans>
        <Ago iso={lastUsedAt} /> on {lastHost}
      </Trans>
    );
  return (
    <Section
      title={t`Where it may be used`}
      action={
        isLive(row) && (
          <Button size="sm" onClick={() => onAct({ kind: "scope", row })} {...lock}>
            <Trans>Change models and hosts</Trans>
          </Button>
        )
      }
    >
      <div className="grid gap-6">
        <CopyField label={t`Base URL`} value={baseUrl} />
        <Facts
          facts={[
            [t`Key`, masked],
            [t`Billing`, mode === "payg" ? t`Balance` : t`Package`],
            [
              t`Models`,
              modelIds === null ? t({ message: "All, new ones too", context: "models" }) : modelIds.join(", "),
            ],
            [t`Hosts`, hosts === null ? t({ message: "All, new ones too", context: "hosts" }) : hosts.join(", ")],
            [t`Last used`, lastUsed],
            [t`Created`, created],
            ...(maker === null ? [] : [[t`Made by`, maker] as const]),
            [t`Expires`, expires],
          ]}
        />
      </div>
    </Section>
  );
}
