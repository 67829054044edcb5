import { t } from "@lingui/core/macro";
import { Plural, Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { Check, CircleAlert, Clock, Mail, MailX } from "lucide-react";
import { api, ask, inLanguage } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { oneOf } from "../../shared/url_values.ts";
import { Button } from "../../ui/buttons.tsx";
import { NativeSelect } from "../../ui/fields.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { MailServerSection } from "./mail_server.tsx";
import { MessageFigures } from "./message_figures.tsx";
import { kindWords } from "./message_words.ts";
import { MESSAGES_KEY } from "./queries.ts";

/** Mail: waiting and failed deliveries, and the mail server. */

type Listed = NonNullable<Awaited<ReturnType<typeof api.messages.get>>["data"]>;
export type Delivery = Listed["messages"][number];
type Status = Delivery["status"];

const FILTERS = [
  { value: "all", label: t`All` },
  { value: "waiting", label: t`Waiting` },
  { value: "failed", label: t`Failed` },
  { value: "sent", label: t`Sent` },
] as const satisfies readonly { value: Status | "all"; label: string }[];

export function MessagesPage() {
  const { role } = useViewer();
  const isAdmin = role === "admin";
  const [{ status }, setFilter] = useUrlState({ status: "all" });
  const chosen = oneOf(FILTERS, status, "all");
  const messages = useInfiniteQuery({
    queryKey: [...MESSAGES_KEY, chosen],
    queryFn: ({ pageParam }) =>
      ask(
        api.messages.get({
          query: { ...(chosen !== "all" && { status: chosen }), ...(pageParam > 0 && { before: pageParam }) },
        }),
      ),
    initialPageParam: 0,
    getNextPageParam: ({ messages: rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.deliveryId : undefined),
  });
  const first = messages.data?.pages[0];
  // Without a server, setting one comes first.
  const isUnset = first?.canMail === false;
  return (
    <Page
      title={t`Mail`}
      lead={
        isAdmin
          ? t`Mails and webhook calls: those that wait, and those that failed, with the reason.`
          : t`The mails to your customers, and the mail server that sends them.`
      }
    >
      {isUnset && <NoServer isAdmin={isAdmin} />}
      {first?.downServers.map((server) => (
        <DownServer key={server.tenantId} server={server} isAdmin={isAdmin} />
      ))}
      {isUnset && <MailServerSection isAdmin={isAdmin} />}
      {first && <MessageFigures state={first.state} />}
      <Section
        title={t`Messages`}
        description={t`Kept for 30 days. A failed attempt is retried for two days, at increasing intervals.`}
        action={
          <NativeSelect
            label={t`Messages to show`}
            value={chosen}
            options={FILTERS}
            onValue={(value) => setFilter({ status: value })}
          />
        }
        flush
      >
        <Loaded query={messages} skeleton={<SkeletonRows rows={4} />}>
          {({ pages }) => (
            <DataTable
              caption={t`Messages`}
              rows={pages.flatMap((page) => page.messages)}
              rowKey={({ deliveryId }) => String(deliveryId)}
              columns={COLUMNS}
              empty={
                <Empty icon={Mail}>
                  {chosen === "all"
                    ? t`No messages yet. A message is sent after an event such as a paid order.`
                    : t`No message in this state.`}
                </Empty>
              }
              older={toOlder(messages)}
            />
          )}
        </Loaded>
      </Section>
      {first && !isUnset && <MailServerSection isAdmin={isAdmin} />}
    </Page>
  );
}

function NoServer({ isAdmin }: { isAdmin: boolean }) {
  return (
    <Banner tone="warn" icon={MailX} title={t`No mail is sent`}>
      {isAdmin
        ? t`SMTP_URL is not set. Links for invitations and passwords are shown to the person who makes them, who must pass them on.`
        : t`You have set no mail server. Links for invitations and passwords are shown to you, and you must pass them on. Set a server below, so that your customers get mail in your name.`}
    </Banner>
  );
}

/** A mail server that does not answer. Its mails wait without an attempt. */
function DownServer({
  server: { name, since, why, nextAt },
  isAdmin,
}: {
  server: Listed["downServers"][number];
  isAdmin: boolean;
}) {
  const title =
    name !== null && isAdmin ? t`The mail server of ${name} does not answer` : t`The mail server does not answer`;
  return (
    <Banner tone="bad" icon={MailX} title={title}>
      <Trans>
        It has not answered since <Instant iso={since} />: {why}. Mails wait until it does. One is tried at{" "}
        <Instant iso={nextAt} />; when it is accepted, the others follow.
      </Trans>
    </Banner>
  );
}

const COLUMNS: Column<Delivery>[] = [
  {
    head: t`Message`,
    cell: ({ kind, channel }) => (
      <span className="grid text-start">
        <span className="font-medium">{kindWords(kind)}</span>
        <span className="text-12 text-ink-3">{channel === "mail" ? t`Mail` : t`Webhook`}</span>
      </span>
    ),
  },
  {
    head: t({ message: "To", context: "recipient" }),
    cell: ({ address, accountName }) => <TwoLines below={accountName}>{address}</TwoLines>,
  },
  { head: t`Created`, cell: ({ createdAt }) => <Ago iso={createdAt} />, hideBelow: "lg" },
  { head: t`State`, cell: (delivery) => <DeliveryState delivery={delivery} /> },
  {
    head: t`Action`,
    align: "right",
    cell: (delivery) => delivery.status !== "sent" && <SendAgain delivery={delivery} />,
  },
];

/** The state of a delivery; if it did not arrive, also the reason and the time of the next attempt. */
export function DeliveryState({ delivery: { status, error, attempts, nextAt, endedAt } }: { delivery: Delivery }) {
  return (
    <span className="grid justify-items-start gap-1">
      <DeliveryBadge status={status} />
      {status === "sent" && endedAt && (
        <span className="text-12 text-ink-3">
          <Ago iso={endedAt} />
        </span>
      )}
      {status !== "sent" && attempts > 0 && (
        <span className="grid max-w-[24rem] text-12 text-ink-2">
          <span className="wrap-anywhere">{error && inLanguage(error)}</span>
          <span className="text-ink-3">
            {nextAt ? (
              <Trans>
                <Plural value={attempts} one="# attempt" other="# attempts" />, next <Instant iso={nextAt} />
              </Trans>
            ) : (
              <Plural value={attempts} one="# attempt" other="# attempts" />
            )}
          </span>
        </span>
      )}
      {status === "failed" && attempts === 0 && error && (
        <span className="text-12 text-ink-2">{inLanguage(error)}</span>
      )}
    </span>
  );
}

function DeliveryBadge({ status }: { status: Status }) {
  if (status === "sent")
    return (
      <Badge tone="ok" icon={Check}>
        <Trans>Sent</Trans>
      </Badge>
    );
  if (status === "failed")
    return (
      <Badge tone="bad" icon={CircleAlert}>
        <Trans>Failed</Trans>
      </Badge>
    );
  return (
    <Badge tone="warn" icon={Clock}>
      <Trans>Waiting</Trans>
    </Badge>
  );
}

function SendAgain({ delivery: { deliveryId, status, kind } }: { delivery: Delivery }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const again = useMutation({
    mutationFn: async () => {
      await ask(api.messages({ id: deliveryId })["send-again"].post());
      await client.invalidateQueries({ queryKey: MESSAGES_KEY });
    },
    onSuccess: () => toast.done(t`It will be sent within seconds.`),
    onError: (error) => toast.failed(error),
  });
  return (
    <Button size="sm" pending={again.isPending} onClick={() => again.mutate()} {...lock}>
      {status === "failed" ? t`Send again` : t`Send now`}
      <span className="sr-only">: {kindWords(kind)}</span>
    </Button>
  );
}
