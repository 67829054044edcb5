import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ask } from "../../api.ts";
import { formatCount } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Drawer } from "../../ui/dialog.tsx";
import type { DialogState } from "../../ui/form.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { LoadOlder, toOlder } from "../../ui/table.tsx";
import { Ago, Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { kindWords } from "../messages/message_words.ts";
import { type Delivery, DeliveryState } from "../messages/messages.tsx";
import { type Endpoint, WEBHOOKS_KEY } from "./webhook_types.ts";

/** The deliveries to an endpoint: each event with its attempts, and a button to send it again. */

export function WebhookDeliveries({ open, onClose, endpoint }: DialogState & { endpoint: Endpoint }) {
  const { endpointId: id, url } = endpoint;
  const sent = useInfiniteQuery({
    queryKey: [...WEBHOOKS_KEY, id, "deliveries"],
    queryFn: ({ pageParam }) =>
      ask(api.webhooks({ id }).deliveries.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ deliveries, hasMore }) =>
      hasMore ? deliveries[deliveries.length - 1]?.deliveryId : undefined,
  });
  return (
    <Drawer
      open={open}
      onOpenChange={onClose}
      title={t({ message: "Calls", context: "of a webhook" })}
      description={<span className="wrap-anywhere">{url}</span>}
    >
      <Loaded query={sent} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => {
          const rows = pages.flatMap((page) => page.deliveries);
          if (rows.length === 0)
            return (
              <Empty>
                <Trans>Nothing has been sent to this endpoint yet.</Trans>
              </Empty>
            );
          return (
            <>
              <ul className="grid">
                {rows.map((delivery) => (
                  <Line key={delivery.deliveryId} endpoint={endpoint} delivery={delivery} />
                ))}
              </ul>
              <LoadOlder older={toOlder(sent)} />
            </>
          );
        }}
      </Loaded>
    </Drawer>
  );
}

function Line({ endpoint: { endpointId: id, enabled }, delivery }: { endpoint: Endpoint; delivery: Delivery }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const [isOpen, setOpen] = useState(false);
  const { deliveryId, createdAt, attempts } = delivery;
  const event = kindWords(delivery.kind);
  const again = useMutation({
    mutationFn: async () => {
      await ask(api.webhooks({ id }).deliveries({ deliveryId })["send-again"].post());
      await client.invalidateQueries({ queryKey: [...WEBHOOKS_KEY, id] });
    },
    onSuccess: () => toast.done(t`It will be sent within seconds.`),
    onError: (error) => toast.failed(error),
  });
  return (
    <li className="grid gap-2 border-b border-line py-3 last:border-0">
      <div className="flex items-start justify-between gap-3">
        <span className="grid">
          <span className="text-14 font-medium">{event}</span>
          <span className="text-12 text-ink-3">
            <Instant iso={createdAt} seconds />
          </span>
        </span>
        {enabled && (
          <Button size="sm" pending={again.isPending} onClick={() => again.mutate()} {...lock}>
            <Trans>
              Send again<span className="sr-only">: {event}</span>
            </Trans>
          </Button>
        )}
      </div>
      <DeliveryState delivery={delivery} />
      {attempts > 0 && (
        <Button size="sm" variant="quiet" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
          {isOpen ? t`Hide attempts` : plural(attempts, { one: "Show # attempt", other: "Show # attempts" })}
        </Button>
      )}
      {isOpen && <Attempts id={id} deliveryId={deliveryId} />}
    </li>
  );
}

function Attempts({ id, deliveryId }: { id: number; deliveryId: number }) {
  const attempts = useQuery({
    queryKey: [...WEBHOOKS_KEY, id, "attempts", deliveryId],
    queryFn: () => ask(api.webhooks({ id }).deliveries({ deliveryId }).get()),
  });
  return (
    <Loaded query={attempts} skeleton={<SkeletonRows rows={1} />}>
      {({ attempts: rows }) => (
        <ol className="grid gap-2 rounded-md bg-sunken p-3 text-12">
          {rows.map(({ at, tookMs, ok, status, answer }) => (
            <li key={at} className="grid gap-1">
              <span className="flex items-center gap-2">
                <Badge tone={ok ? "ok" : "bad"}>{status === null ? t`No answer` : `HTTP ${status}`}</Badge>
                <span className="text-ink-2">
                  <Ago iso={at} />, {t`${{ count: formatCount(tookMs) }} ms`}
                </span>
              </span>
              {answer !== "" && <span className="font-mono wrap-anywhere text-ink-2">{answer}</span>}
            </li>
          ))}
        </ol>
      )}
    </Loaded>
  );
}
