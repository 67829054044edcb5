import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { type QueryKey, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { ExternalLink, RotateCw } from "lucide-react";
import { type ReactNode, useEffect, useEffectEvent, useRef, useState } from "react";
import { ApiError } from "../../api.ts";
import { DNS } from "../../copy.ts";
import { formatDuration } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { announce } from "../../ui/announce.ts";
import { Button, ButtonLink } from "../../ui/buttons.tsx";
import { nowMs, useNow } from "../../ui/clock.ts";
import { Page, Section } from "../../ui/page.tsx";
import { Banner, Problem, Status } from "../../ui/states.tsx";
import { Stepper } from "../../ui/stepper.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { type Domain, Records, Stuck } from "./domain_records.tsx";
import { type DomainFacts, leadOf, statusWords, stepStates } from "./domain_text.ts";

/**
 * The DNS doctor: the page of one domain, for its reseller and for admins. It shows the steps to going live, what each resolver sees,
 * and what to do. It checks again while the page is visible.
 *
 *   const doctor = useDoctor({ queryKey, listKey, get, check });
 *   <Loaded query={doctor.query}>{(domain) => <DoctorPage domain={domain} doctor={doctor} actions={…} />}</Loaded>
 */

const RECHECK_MS = 20_000;
/** Ten minutes of visible time. */
const RECHECKS_MAX = 30;
/** After that, the page only loads what the replicas' own checks found. */
const REFETCH_MS = 60_000;

export type Doctor = ReturnType<typeof useDoctor>;

/** The state of a domain, checking it now, and the automatic checks. */
export function useDoctor({
  queryKey,
  listKey,
  get,
  check,
}: {
  queryKey: QueryKey;
  /** The list that contains the domain; it is loaded again after a check. */
  listKey: QueryKey;
  get: () => Promise<Domain>;
  check: () => Promise<Domain>;
}) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const query = useQuery({
    queryKey,
    queryFn: get,
    refetchInterval: ({ state }) => (state.data && isAboutToChange(state.data) ? REFETCH_MS : false),
  });
  const { mutate, ...checking } = useMutation({
    mutationFn: async (_: { byHand: boolean }) => {
      try {
        return await check();
      } catch (error) {
        // Checked a moment ago by someone else: that result will do.
        if (error instanceof ApiError && error.code === "too_many_requests") return await get();
        throw error;
      }
    },
    onSuccess: async (domain, { byHand }) => {
      client.setQueryData(queryKey, domain);
      void client.invalidateQueries({ queryKey: listKey });
      if (byHand) announce(`${t`Checked.`} ${statusWords(domain).words}.`);
    },
  });
  const isWaiting = query.data !== undefined && isAboutToChange(query.data);
  const rounds = useRounds(isWaiting, () => {
    // While viewing another's panel no check is started; the replicas check by themselves, less often.
    if (lock.disabled) void query.refetch();
    else if (!checking.isPending) mutate({ byHand: false });
  });
  return {
    query,
    isChecking: checking.isPending,
    isCheckingByHand: checking.isPending && checking.variables.byHand,
    error: checking.error,
    checkNow() {
      rounds.restart();
      mutate({ byHand: true });
    },
    isWatching: isWaiting && !rounds.isOver,
  };
}

/** Whether a check may change the state: the domain waits for its records, or is off because of them. */
function isAboutToChange({ status, byHand }: DomainFacts): boolean {
  return status === "verifying" || (status === "suspended" && !byHand);
}

/** Calls `onRound` every RECHECK_MS while `isOn` and the page is visible, at most RECHECKS_MAX times; `restart` starts over. */
function useRounds(isOn: boolean, onRound: () => void): { isOver: boolean; restart: () => void } {
  const [{ series, isOver }, setState] = useState({ series: 0, isOver: false });
  const round = useEffectEvent(onRound);
  useEffect(() => {
    if (!isOn) return;
    let count = 0;
    const timer = setInterval(() => {
      if (document.hidden) return;
      count++;
      round();
      if (count < RECHECKS_MAX) return;
      clearInterval(timer);
      setState({ series, isOver: true });
    }, RECHECK_MS);
    return () => clearInterval(timer);
  }, [isOn, series]);
  return { isOver, restart: () => setState({ series: series + 1, isOver: false }) };
}

export function DomainStatus({ domain }: { domain: DomainFacts }) {
  const { kind, words } = statusWords(domain);
  return <Status kind={kind}>{words}</Status>;
}

/** `actions` are shown beside "Check now", `facts` below the steps. */
export function DoctorPage({
  domain,
  doctor,
  actions,
  facts,
}: {
  domain: Domain;
  doctor: Doctor;
  actions: ReactNode;
  facts?: ReactNode;
}) {
  const { lock } = useViewer();
  const now = useNow(60_000);
  useLiveAnnouncement(domain);
  return (
    <Page
      title={domain.host}
      lead={leadOf(domain, { now, zone: VIEWERS_ZONE })}
      action={
        <>
          {actions}
          <Button
            variant="primary"
            icon={RotateCw}
            pending={doctor.isCheckingByHand}
            onClick={doctor.checkNow}
            {...lock}
          >
            <Trans>Check now</Trans>
          </Button>
        </>
      }
    >
      {doctor.error && <Problem error={doctor.error} />}
      {domain.status === "active" && domain.failures === 0 && <LiveBanner url={domain.url} />}
      <Section>
        <div className="grid gap-6">
          <Stepper
            label={t`Going live`}
            steps={STEPS.map((label, at) => ({ label, state: stepStates(domain)[at] ?? "todo" }))}
          />
          <p className="flex flex-wrap items-center gap-x-3 gap-y-1 text-13 text-ink-2">
            <DomainStatus domain={domain} />
            <LastCheck domain={domain} isChecking={doctor.isChecking} />
            <NextCheck domain={domain} isWatching={doctor.isWatching} />
            <span>
              <Trans>
                Added <Instant iso={domain.createdAt} />.
              </Trans>
            </span>
            {facts}
          </p>
        </div>
      </Section>
      <Records domain={domain} />
      <Stuck label={domain.records[0]?.label ?? domain.host} host={domain.host} />
    </Page>
  );
}

const STEPS = [
  t`Records`,
  t({ message: "Check", context: "a step before a domain is live" }),
  t`Certificate`,
  t({ message: "Live", context: "state of a domain" }),
];
const VIEWERS_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;

/** Announces that the domain has gone live while the page is open. */
function useLiveAnnouncement({ host, url, status }: Domain): void {
  const before = useRef(status);
  useEffect(() => {
    if (before.current !== status && status === "active") {
      announce(DNS.live(url));
      toast.done(t`${host} is live.`);
    }
    before.current = status;
  }, [host, url, status]);
}

function LiveBanner({ url }: { url: string }) {
  return (
    <Banner
      tone="ok"
      title={DNS.live(url)}
      action={
        <ButtonLink href={url} target="_blank" size="sm" icon={ExternalLink}>
          {t({ message: "Open", context: "link to a domain" })}
        </ButtonLink>
      }
    >
      <Trans>Customers sign in there. The API is at {url}/v1.</Trans>
      {url.startsWith("https:") && ` ${t`The first visit takes a few seconds, because the certificate is created.`}`}
    </Banner>
  );
}

/** "Checked 12 s ago", updated every second during the first minute. */
function LastCheck({ domain: { checkedAt }, isChecking }: { domain: Domain; isChecking: boolean }) {
  const now = useNow(1_000);
  if (isChecking)
    return (
      <span>
        <Trans>Checking…</Trans>
      </span>
    );
  if (checkedAt === null)
    return (
      <span>
        <Trans>Never checked.</Trans>
      </span>
    );
  const ageMs = Math.max(0, now - Date.parse(checkedAt));
  return (
    <span className="figures">
      {ageMs < 60_000 ? (
        <Trans>Checked {{ time: formatDuration(ageMs) }} ago.</Trans>
      ) : (
        <Trans>
          Checked <Ago iso={checkedAt} />.
        </Trans>
      )}
    </span>
  );
}

function NextCheck({ domain: { nextCheckAt, status }, isWatching }: { domain: Domain; isWatching: boolean }) {
  if (isWatching) return <span>{t`Checks again every 20 s while this page is open.`}</span>;
  if (nextCheckAt === null) return null;
  const isAwaited = status === "verifying";
  // A check that is due may be a moment late.
  if (Date.parse(nextCheckAt) <= nowMs())
    return (
      <span>
        {isAwaited
          ? t`Next automatic check in a moment, or now with the button.`
          : t`Next automatic check in a moment.`}
      </span>
    );
  return (
    <span>
      {isAwaited ? (
        <Trans>
          Next automatic check <Ago iso={nextCheckAt} />, or now with the button.
        </Trans>
      ) : (
        <Trans>
          Next automatic check <Ago iso={nextCheckAt} />.
        </Trans>
      )}
    </span>
  );
}
