import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import {
  Ban,
  Check,
  CircleAlert,
  CircleCheck,
  CircleDashed,
  CirclePause,
  Clock,
  Info,
  type LucideIcon,
  RotateCw,
  TriangleAlert,
  X,
} from "lucide-react";
import type { ReactNode } from "react";
import { ApiError } from "../api.ts";
import { FAILURES, isRefusal, NOTHING_CHARGED, type RefusalFacts, refusalText } from "../failures.ts";
import { Button, IconButton } from "./buttons.tsx";
import { nowMs } from "./clock.ts";
import { CopyText } from "./copy_text.tsx";
import { cx } from "./cx.ts";
import { inPlace } from "./in_place.tsx";

/**
 * What a page shows while it loads, when it is empty, and when something failed or was refused.
 *
 *   <Loaded query={keys} skeleton={<SkeletonRows rows={4} />}>{(data) => <Table …/>}</Loaded>
 *   <Empty action={<Button variant="primary">Create key</Button>}>{EMPTY.keys}</Empty>
 *   <ErrorState error={error} onRetry={refetch} />           // a failure: text, request id, Retry
 *   <Refused error={error} facts={{ zone, packageName }} />  // a refusal: amber, text by code, "Nothing was charged."
 *   <Problem error={error} facts={…} onRetry={…} />          // either of the two
 *   <Banner tone="warn" title="Starter ends in 2 days">…</Banner>
 *   <Badge tone="ok" icon={Check}>Active</Badge>   <Status kind="active" />
 */

export type Tone = "neutral" | "accent" | "ok" | "warn" | "bad";

const TONES: Record<Tone, string> = {
  neutral: "bg-sunken text-ink-2",
  accent: "bg-accent-soft text-accent-text",
  ok: "bg-ok-soft text-ok",
  warn: "bg-warn-soft text-warn",
  bad: "bg-bad-soft text-bad",
};
const TONE_ICONS: Record<Tone, LucideIcon> = {
  neutral: Info,
  accent: Info,
  ok: CircleCheck,
  warn: TriangleAlert,
  bad: CircleAlert,
};

/** The part of a react-query result that Loaded needs. */
type QueryLike<Data> = { data: Data | undefined; error: unknown; isPending: boolean; refetch: () => unknown };

/** Skeleton, error or content. Old content stays while new content loads, and if that fails. */
export function Loaded<Data>({
  query,
  skeleton = <SkeletonRows rows={4} />,
  children,
}: {
  query: QueryLike<Data>;
  skeleton?: ReactNode;
  children: (data: Data) => ReactNode;
}) {
  if (query.data !== undefined) return children(query.data);
  if (query.error) return <ErrorState error={query.error} onRetry={() => void query.refetch()} />;
  return <Loading>{skeleton}</Loading>;
}

/** Tells screen readers "Loading"; its content appears after 150 ms. */
export function Loading({ children, className }: { children: ReactNode; className?: string }) {
  return (
    <div role="status" className={cx("animate-late", className)}>
      <span className="sr-only">
        <Trans>Loading</Trans>
      </span>
      {children}
    </div>
  );
}

/** A grey shape of the size of the content to come: `<Skeleton className="h-8 w-32" />`. */
export function Skeleton({ className }: { className?: string }) {
  return <span aria-hidden className={cx("block animate-pulse rounded-sm bg-line", className ?? "h-4 w-full")} />;
}

/** The rows of a table that is loading. */
export function SkeletonRows({ rows, className }: { rows: number; className?: string }) {
  return (
    <div aria-hidden className={className}>
      {inPlace(Array.from({ length: rows }), (_, row) => (
        <div className="flex h-(--row) items-center gap-4 border-b border-line px-4 last:border-0">
          <Skeleton className={cx("h-3", WIDTHS[row % WIDTHS.length])} />
          <Skeleton className="ms-auto h-3 w-20" />
          <Skeleton className="h-3 w-12" />
        </div>
      ))}
    </div>
  );
}
const WIDTHS = ["w-40", "w-56", "w-32", "w-48"];

/** Nothing here yet: one sentence and the first step. */
export function Empty({
  children,
  action,
  icon: Icon,
}: {
  children: ReactNode;
  action?: ReactNode;
  icon?: LucideIcon;
}) {
  return (
    <div className="grid justify-items-center gap-4 px-4 py-12 text-center">
      {Icon && (
        <span className="grid size-12 place-content-center rounded-full bg-sunken text-ink-3">
          <Icon size={20} aria-hidden />
        </span>
      )}
      <p className="max-w-[26rem] text-14 text-ink-2">{children}</p>
      {action}
    </div>
  );
}

/** A failure: text, request id, and Retry. */
export function ErrorState({
  error,
  onRetry,
  title = t`This did not load`,
}: {
  error: unknown;
  onRetry?: () => void;
  title?: string;
}) {
  return (
    <div role="alert" className="grid justify-items-center gap-3 px-4 py-12 text-center">
      <span className="grid size-12 place-content-center rounded-full bg-bad-soft text-bad">
        <CircleAlert size={20} aria-hidden />
      </span>
      <p className="text-14 font-semibold">{title}</p>
      <p className="max-w-[26rem] text-14 text-ink-2">{failureText(error)}</p>
      <RequestId error={error} />
      {onRetry && (
        <Button icon={RotateCw} onClick={onRetry}>
          <Trans>Retry</Trans>
        </Button>
      )}
    </div>
  );
}

/** The same in one line, for forms and dialogs. */
export function ErrorLine({ error }: { error: unknown }) {
  return (
    <div role="alert" className="flex items-start gap-2 rounded-md bg-bad-soft p-3 text-13 text-bad">
      <CircleAlert size={16} aria-hidden className="mt-0.5 flex-none" />
      <div className="min-w-0">
        <p>{failureText(error)}</p>
        <RequestId error={error} />
      </div>
    </div>
  );
}

/** A refused request, with the text of its code. In amber, because nothing is broken. */
export function Refused({
  error,
  facts = {},
  action,
}: {
  error: ApiError;
  /** Facts that the page knows: zone, packageName, model, alternatives, brand. */
  facts?: Partial<Omit<RefusalFacts, "code" | "now">>;
  action?: ReactNode;
}) {
  return (
    <div role="alert" className="flex items-start gap-3 rounded-md bg-warn-soft p-4 text-14">
      <TriangleAlert size={16} aria-hidden className="mt-0.5 flex-none text-warn" />
      <div className="grid min-w-0 gap-1">
        <p className="font-medium text-ink">{refusalText({ ...errorFacts(error), ...facts, now: nowMs() })}</p>
        <p className="flex flex-wrap items-center gap-x-2 text-13 text-ink-2">
          {NOTHING_CHARGED} <RequestId error={error} />
        </p>
        {action && <div className="mt-2">{action}</div>}
      </div>
    </div>
  );
}

/** A refusal in amber, any other error as a failure. */
export function Problem({
  error,
  facts,
  onRetry,
}: {
  error: unknown;
  facts?: Partial<Omit<RefusalFacts, "code" | "now">>;
  onRetry?: () => void;
}) {
  if (error instanceof ApiError && isRefusal(error.code)) return <Refused error={error} {...(facts && { facts })} />;
  return onRetry ? (
    <ErrorState error={error} onRetry={onRetry} title={t`This did not work`} />
  ) : (
    <ErrorLine error={error} />
  );
}

/** The text of any thrown error. A refusal of the API has its own sentence. */
export function failureText(error: unknown): string {
  if (!(error instanceof ApiError)) return FAILURES.internal;
  if (error.code === "offline") return FAILURES.offline;
  if (error.code === "csrf_failed") return FAILURES.csrf;
  if (error.code === "internal_error") return FAILURES.internal;
  return isRefusal(error.code) ? refusalText({ ...errorFacts(error), now: nowMs() }) : error.message;
}

/** The error of a field whose choices did not load, or null. */
export function choicesError({ data, error }: Pick<QueryLike<unknown>, "data" | "error">): string | null {
  return data === undefined && error ? `${t`The options did not load.`} ${failureText(error)}` : null;
}

function errorFacts(error: ApiError): Omit<RefusalFacts, "now"> {
  const { code, message, limit, used, remaining, resetsAt, retryAfterSeconds } = error;
  return {
    code,
    message,
    ...(limit !== undefined && { limit }),
    ...(used !== undefined && { used }),
    ...(remaining !== undefined && { remaining }),
    ...(resetsAt !== undefined && { resetsAt }),
    ...(retryAfterSeconds !== undefined && { retryAfterSeconds }),
  };
}

/** "Request 0197…  [copy]" of an error that has one. */
function RequestId({ error }: { error: unknown }) {
  if (!(error instanceof ApiError) || error.requestId === null) return null;
  return (
    <span className="inline-flex items-center gap-1 text-12 text-ink-2">
      <Trans context="noun">Request</Trans> <CopyText value={error.requestId} what={t`request id`} />
    </span>
  );
}

/** A message above the page or a section. */
export function Banner({
  tone = "neutral",
  title,
  children,
  action,
  onDismiss,
  icon,
}: {
  tone?: Tone;
  title?: ReactNode;
  children?: ReactNode;
  action?: ReactNode;
  onDismiss?: () => void;
  icon?: LucideIcon;
}) {
  const Icon = icon ?? TONE_ICONS[tone];
  return (
    <div className={cx("flex items-start gap-3 rounded-md p-4 text-14", TONES[tone])}>
      <Icon size={16} aria-hidden className="mt-0.5 flex-none" />
      <div className="flex min-w-0 flex-1 flex-wrap items-center justify-between gap-x-4 gap-y-2">
        <div className="min-w-0 flex-[1_1_14rem]">
          {title && <p className="font-semibold">{title}</p>}
          {children && <div className="text-ink-2">{children}</div>}
        </div>
        {action && <div className="-my-1 flex-none">{action}</div>}
      </div>
      {onDismiss && <IconButton icon={X} label={t`Dismiss`} size="sm" onClick={onDismiss} className="-my-1.5 -me-2" />}
    </div>
  );
}

/** One or two words about a thing. */
export function Badge({
  tone = "neutral",
  icon: Icon,
  children,
}: {
  tone?: Tone;
  icon?: LucideIcon;
  children: ReactNode;
}) {
  return (
    <span
      className={cx(
        "inline-flex items-center gap-1 rounded-sm px-1.5 py-0.5 text-12 font-medium whitespace-nowrap",
        TONES[tone],
      )}
    >
      {Icon && <Icon size={12} strokeWidth={2.5} aria-hidden />}
      {children}
    </span>
  );
}

const STATUSES = {
  active: ["ok", Check, t`Active`],
  live: ["ok", Check, t({ message: "Live", context: "state of a domain" })],
  paid: ["ok", Check, t`Paid`],
  pending: ["warn", Clock, t`Waiting`],
  ending: ["warn", Clock, t`Ending`],
  disabled: ["neutral", CirclePause, t({ message: "Off", context: "state" })],
  suspended: ["bad", CirclePause, t`Suspended`],
  revoked: ["bad", Ban, t`Revoked`],
  expired: ["neutral", Clock, t`Expired`],
  ended: ["neutral", Clock, t`Ended`],
  unused: ["neutral", CircleDashed, t`Never used`],
  untested: ["neutral", CircleDashed, t`Untested`],
  degraded: ["warn", TriangleAlert, t`Degraded`],
  failed: ["bad", CircleAlert, t`Failed`],
} as const satisfies Record<string, readonly [Tone, LucideIcon, string]>;

export type StatusKind = keyof typeof STATUSES;

/** The states that keys, packages, domains and people share. `children` replaces the text. */
export function Status({ kind, children }: { kind: StatusKind; children?: ReactNode }) {
  const [tone, icon, words] = STATUSES[kind];
  return (
    <Badge tone={tone} icon={icon}>
      {children ?? words}
    </Badge>
  );
}
