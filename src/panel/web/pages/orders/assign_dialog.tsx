import { plural, select, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { TriangleAlert } from "lucide-react";
import { type ReactNode, useState } from "react";
import { api, ask, type Role, sentOnce, useIdempotencyKey } from "../../api.ts";
import { formatApart, formatCount, formatDay, formatList, formatMoney, formatZoneTime } from "../../format.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { TextLink } from "../../ui/buttons.tsx";
import { RadioList } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import type { Option } from "../../ui/fields.tsx";
import { FormDialog, useForm } from "../../ui/form.tsx";
import { Loading, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";
import { type Offering, OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { type Billing, useBilling } from "../billing/queries.ts";
import { PAID_FULFIL } from "./order_parts.tsx";

/**
 * Assigns a package: which offering, when it starts, who pays. A preview shows what it costs, which requests are dropped, and what
 * changes for each key. With `order` it fulfils that order, whose offering is fixed.
 */

/** The account that gets the package. */
export type Holder = {
  accountId: number;
  name: string;
  role: Role;
  resellerId: number | null;
  resellerName?: string | null;
};
type When = "now" | "after";
type PayWith = "balance" | "allotment" | "operator";
type Preview = NonNullable<Awaited<ReturnType<ReturnType<typeof api.people>["packages"]["preview"]["post"]>>["data"]>;
type Terms = Preview["limits"]["after"];

/** Keys and models that are listed by name; the rest are counted. */
const KEYS_NAMED_MAX = 6;
const MODELS_NAMED_MAX = 4;

export function AssignDialog({
  open,
  onClose,
  holder,
  order,
  first = null,
}: {
  open: boolean;
  onClose: () => void;
  holder: Holder;
  /** `records`: what fulfilling it records besides. */
  order?: { orderId: number; offeringId: number; offeringName: string; records: string | null };
  /** Chosen initially. */
  first?: Offering | null;
}) {
  const formKey = useIdempotencyKey();
  const refresh = useRefresh();
  const offerings = useOfferings({ enabled: open });
  const [chosen, setChosen] = useState<Offering | null>(first);
  const offering = order
    ? (offerings.data?.offerings.find((each) => each.offeringId === order.offeringId) ?? null)
    : chosen;
  const { billing, when, whenOptions, setWhen } = useWhen(holder.accountId, { isOrder: !!order, enabled: open });
  const pay = usePay(holder, offering, open);
  const offeringId = order?.offeringId ?? offering?.offeringId ?? null;
  const asked = offeringId === null ? null : { offeringId, when, ...(pay.payWith && { payWith: pay.payWith }) };
  const preview = usePreview(holder.accountId, asked, { enabled: open && billing.data !== undefined && pay.isReady });

  const form = useForm({
    wrong: { offeringId: null },
    send: async () => {
      if (asked === null) throw new Error("No offering is chosen.");
      if (!order)
        return (await ask(api.people({ id: holder.accountId }).packages.post(asked, sentOnce(formKey)))).package;
      const { when, payWith } = asked;
      return (await ask(api.orders({ id: order.orderId }).fulfil.post({ when, payWith }))).package;
    },
    onSent: async (assigned) => {
      await refresh();
      toast.done(assigned ? doneText(assigned, holder) : t`Done.`);
      onClose();
    },
    otherError: preview.error,
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={order ? t`Fulfil order: ${{ package: order.offeringName }}` : t`Assign a package`}
      description={t`For ${{ name: holder.name }}`}
      submitLabel={order?.records ? PAID_FULFIL : submitLabel(preview.data, pay.payWith)}
      canSubmit={asked !== null && preview.data?.enough === true && !preview.isPlaceholderData}
    >
      {!order && (
        <OfferingField offerings={offerings} value={offering} onValue={setChosen} error={form.errorOf("offeringId")} />
      )}
      {whenOptions && <RadioList label={t`When`} value={when} onValue={setWhen} options={whenOptions} />}
      {pay.options.length > 1 && offeringId !== null && (
        <RadioList label={t`Who pays`} value={pay.payWith ?? null} onValue={pay.setPayWith} options={pay.options} />
      )}
      {offeringId !== null && preview.data === undefined && !preview.error && <PreviewSkeleton />}
      {preview.data && asked && (
        <PreviewBox preview={preview.data} {...{ holder, payWith: pay.payWith, payer: pay.payer, onClose }} />
      )}
      {order?.records && <p className="text-14 text-ink-2">{order.records}</p>}
      {order && form.errorOf("offeringId") && <p className="text-13 text-bad">{form.errorOf("offeringId")}</p>}
    </FormDialog>
  );
}

function doneText(
  { name, state, startsAt, timeZone }: NonNullable<Billing["packages"][number]>,
  holder: Holder,
): string {
  if (state !== "queued") return t`${name} is active for ${{ holder: holder.name }}.`;
  return t`${name} starts on ${{ day: formatDay(startsAt, timeZone, nowMs()) }} for ${{ holder: holder.name }}.`;
}

function submitLabel(preview: Preview | undefined, payWith: PayWith | undefined): string {
  if (preview === undefined || !preview.enough) return t`Assign`;
  if (payWith === "allotment") return t`Assign one piece`;
  return BigInt(preview.costNanoUsd) > 0n ? t`Assign for ${{ price: formatMoney(preview.costNanoUsd) }}` : t`Assign`;
}

/**
 * When it starts. No options if nothing is active or queued. The buyer of an order was told that it starts after the
 * others.
 */
function useWhen(accountId: number, { isOrder, enabled }: { isOrder: boolean; enabled: boolean }) {
  const billing = useBilling(accountId, { enabled });
  const [chosen, setWhen] = useState<When | null>(null);
  const live = billing.data?.packages.filter(({ state }) => state !== "ended") ?? [];
  const active = live.find(({ state }) => state === "active");
  // The list begins with the one that ends last.
  const last = live[0];
  const dropped = active?.allowance?.totalLeft ?? 0;
  const whenOptions: Option<When>[] | null = last
    ? [
        {
          value: "after",
          label: live.length > 1 ? t`After the packages they have` : t`After ${{ package: last.name }}`,
          hint: t`From ${{ day: formatDay(last.endsAt, last.timeZone, nowMs()) }}. Nothing is dropped.`,
        },
        {
          value: "now",
          label: t`Now`,
          hint: active
            ? plural(dropped, {
                one: `# request of ${{ package: active.name }} is dropped.`,
                other: `# requests of ${{ package: active.name }} are dropped.`,
              })
            : t`It starts immediately. Queued packages come after it.`,
        },
      ]
    : null;
  // The default drops nothing.
  return {
    billing,
    when: whenOptions ? (chosen ?? (isOrder || dropped > 0 || !active ? "after" : "now")) : ("now" as const),
    whenOptions,
    setWhen,
  };
}

/** Whose balance or allotment pays: the viewer's own, that of somebody with a name, or of a reseller whose name is not known. */
type Payer = { whose: "mine" | "named" | "reseller"; name: string };
const MINE: Payer = { whose: "mine", name: "" };

/** Who can pay: the reseller's balance or allotment, or, if an admin assigns it, the operator. */
function usePay(holder: Holder, offering: Offering | null, enabled: boolean) {
  const viewer = useViewer();
  const [chosen, setPayWith] = useState<PayWith | null>(null);
  const payerId = holder.role === "reseller" ? holder.accountId : holder.resellerId;
  const isMine = payerId === viewer.accountId;
  const billing = useBilling(isMine ? null : payerId, { enabled: enabled && payerId !== null });
  if (payerId === null) return { isReady: true, payWith: undefined, options: [], setPayWith, payer: MINE };

  const name = (holder.role === "reseller" ? holder.name : holder.resellerName) ?? null;
  const payer: Payer = isMine ? MINE : { whose: name === null ? "reseller" : "named", name: name ?? "" };
  const { whose } = payer;
  const pieces = billing.data?.allotments.find(({ offeringId }) => offeringId === offering?.offeringId)?.left ?? 0;
  const available = billing.data && t`${{ amount: formatMoney(billing.data.balance.freeNanoUsd) }} available.`;
  const options: Option<PayWith>[] = [
    {
      value: "balance",
      label: select(whose, {
        mine: "From your balance",
        reseller: "From the reseller's balance",
        other: `From ${{ payer: payer.name }}'s balance`,
      }),
      hint: available,
    },
  ];
  if (pieces > 0)
    options.unshift({
      value: "allotment",
      label: select(whose, {
        mine: "From your allotment",
        reseller: "From the reseller's allotment",
        other: `From ${{ payer: payer.name }}'s allotment`,
      }),
      hint: plural(pieces, { one: "# piece left.", other: "# pieces left." }),
    });
  if (viewer.role === "admin")
    options.push({
      value: "operator",
      label: t`From the operator`,
      hint: t`No balance is charged and no allotment is used.`,
    });
  const payWith = options.find(({ value }) => value === chosen)?.value ?? options[0]?.value ?? "balance";
  return { isReady: billing.data !== undefined, payWith, options, setPayWith, payer };
}

/** A POST that changes nothing. */
function usePreview(
  accountId: number,
  asked: { offeringId: number; when: When; payWith?: PayWith } | null,
  { enabled }: { enabled: boolean },
) {
  return useQuery({
    queryKey: ["preview", accountId, asked],
    queryFn: () => {
      if (asked === null) throw new Error("No offering is chosen.");
      return ask(api.people({ id: accountId }).packages.preview.post(asked));
    },
    enabled: enabled && asked !== null,
    placeholderData: keepPreviousData,
    gcTime: 0,
  });
}

function PreviewSkeleton() {
  return (
    <Loading className="grid gap-3 rounded-md bg-sunken p-4">
      <Skeleton className="h-5 w-64" />
      <Skeleton className="h-4 w-48" />
      <Skeleton className="h-4 w-full" />
    </Loading>
  );
}

function PreviewBox({ preview, holder, payWith, payer, onClose }: CostProps & { holder: Holder }) {
  const { startsAt, endsAt, dropped, limits } = preview;
  const { timeZone, days } = limits.after;
  const day = (iso: string) => formatDay(iso, timeZone, nowMs());
  return (
    <section aria-label={t`What this does`} className="grid gap-3 rounded-md bg-sunken p-4 text-13">
      <Cost {...{ preview, payWith, payer, onClose }} />
      {dropped && dropped.unitsLeft > 0 && (
        <Warning>
          {plural(
            { count: dropped.unitsLeft },
            {
              one: `# request of ${{ package: dropped.name }} is dropped now.`,
              other: `# requests of ${{ package: dropped.name }} are dropped now.`,
            },
          )}
        </Warning>
      )}
      <p className="text-ink-2">
        {t`Runs from ${{ start: day(startsAt) }} to ${{ end: day(endsAt) }}, ${plural(days, { one: "# day", other: "# days" })} in ${{ zone: formatZoneTime(timeZone) }}.`}
      </p>
      <Changes limits={limits} />
      <KeyChanges keys={preview.keys} name={holder.name} />
    </section>
  );
}

type CostProps = {
  preview: Preview;
  payWith: PayWith | undefined;
  payer: Payer;
  onClose: () => void;
};

function Cost({ preview, payWith, payer: { whose, name }, onClose }: CostProps) {
  const { costNanoUsd, payer: paying, enough } = preview;
  const left = preview.allotmentLeftAfter ?? 0;
  const viewer = useViewer();
  if (payWith === "allotment")
    return enough ? (
      <Headline>
        {select(whose, {
          mine: `One piece of your allotment; ${plural(left, { one: "# piece", other: "# pieces" })} left after it.`,
          reseller: `One piece of the reseller's allotment; ${plural(left, { one: "# piece", other: "# pieces" })} left after it.`,
          other: `One piece of ${name}'s allotment; ${plural(left, { one: "# piece", other: "# pieces" })} left after it.`,
        })}
      </Headline>
    ) : (
      <Warning>
        {select(whose, {
          mine: "your allotment has no piece of this left.",
          reseller: "the reseller's allotment has no piece of this left.",
          other: `${name}'s allotment has no piece of this left.`,
        })}
      </Warning>
    );
  if (paying === null || BigInt(costNanoUsd) === 0n)
    return (
      <Headline>
        <Trans>No balance is charged.</Trans>
      </Headline>
    );
  if (enough) {
    const [price, after] = [formatMoney(costNanoUsd), formatMoney(paying.balanceAfterNanoUsd)];
    return (
      <Headline>
        {select(whose, {
          mine: `${price}; your balance becomes ${after}.`,
          reseller: `${price}; the reseller's balance becomes ${after}.`,
          other: `${price}; ${name}'s balance becomes ${after}.`,
        })}
      </Headline>
    );
  }
  const [cost, available] = formatApart(costNanoUsd, paying.freeNanoUsd);
  return (
    <Warning>
      {select(whose, {
        mine: `It costs ${cost}, but your balance has only ${available} available.`,
        reseller: `It costs ${cost}, but the reseller's balance has only ${available} available.`,
        other: `It costs ${cost}, but ${name}'s balance has only ${available} available.`,
      })}{" "}
      {viewer.role === "reseller" && (
        <TextLink href="/billing?ask=top_up" onClick={onClose}>
          <Trans>Top up the balance</Trans>
        </TextLink>
      )}
    </Warning>
  );
}

function Headline({ children }: { children: ReactNode }) {
  return <p className="text-14 font-semibold text-ink">{children}</p>;
}

function Warning({ children }: { children: ReactNode }) {
  return (
    <p className="flex items-start gap-2 font-medium text-warn">
      <TriangleAlert size={16} aria-hidden className="mt-0.5 flex-none" />
      <span>{children}</span>
    </p>
  );
}

/** The limits that change; without a package before, all limits of the new one. */
function Changes({ limits: { before, after } }: { limits: Preview["limits"] }) {
  const rows = LIMITS.flatMap(([label, say, unless]) => {
    const [was, is] = [before && say(before), say(after)];
    return (before ? was === is : unless?.(after)) ? [] : [[label, was, is] as const];
  });
  if (rows.length === 0)
    return <p className="text-ink-2">{t`The limits stay as in ${{ package: before?.name ?? "" }}.`}</p>;
  return (
    <table className="w-full border-collapse [&_td]:border-t [&_td]:border-line [&_td]:py-1.5 [&_th]:py-1 [&_th]:text-start [&_th]:text-12 [&_th]:font-medium [&_th]:text-ink-3">
      <caption className="sr-only">
        <Trans>Limits before and after</Trans>
      </caption>
      <thead>
        <tr>
          <th scope="col">
            <Trans>Limit</Trans>
          </th>
          {before && <th scope="col">{before.name}</th>}
          <th scope="col">
            {before && before.name === after.name
              ? t({ message: "After", context: "limits after the change" })
              : after.name}
          </th>
        </tr>
      </thead>
      <tbody>
        {rows.map(([label, was, is]) => (
          <tr key={label}>
            <td className="pe-3 text-ink-2">{label}</td>
            {before && <td className="pe-3 text-ink-2">{was}</td>}
            <td className="font-medium text-ink">{is}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}

/** `unless`: cases that need no row if there is no package before to compare with. */
const LIMITS: readonly (readonly [label: string, say: (terms: Terms) => string, unless?: (terms: Terms) => boolean])[] =
  [
    [t`Requests a day`, ({ dailyLimit }) => formatCount(dailyLimit)],
    [t`Unused requests`, ({ carryover }) => (carryover ? t`stay usable` : t`expire at midnight`)],
    [t`Requests in total`, ({ totalLimit }) => formatCount(totalLimit)],
    [
      t`Tokens in total`,
      ({ tokenLimit }) => (tokenLimit === null ? t`no limit` : formatCount(tokenLimit)),
      ({ tokenLimit }) => tokenLimit === null,
    ],
    [
      t`Models`,
      ({ modelIds }) => (modelIds === null ? t({ message: "all", context: "models" }) : named(modelIds)),
      ({ modelIds }) => modelIds === null,
    ],
    [t`Days in`, ({ timeZone }) => formatZoneTime(timeZone), () => true],
  ];

function KeyChanges({ keys, name }: { keys: Preview["keys"]; name: string }) {
  const changed = keys.filter(({ added, removed }) => added.length + removed.length > 0);
  if (keys.length === 0)
    return (
      <p className="text-ink-2">
        <Trans>{name} has no enabled key.</Trans>
      </p>
    );
  if (changed.length === 0)
    return (
      <p className="text-ink-2">
        <Trans>No key gains or loses access to a model.</Trans>
      </p>
    );
  return (
    <ul aria-label={t`What changes for keys`} className="grid gap-1">
      {changed.slice(0, KEYS_NAMED_MAX).map(({ keyId, name: keyName, masked, added, removed }) => (
        <li key={keyId} className="text-ink-2">
          <KeyChange name={keyName} {...{ masked, added, removed }} />
        </li>
      ))}
      {changed.length > KEYS_NAMED_MAX && (
        <li className="text-ink-3">
          {plural({ count: changed.length - KEYS_NAMED_MAX }, { one: "and # more key", other: "and # more keys" })}
        </li>
      )}
    </ul>
  );
}

function KeyChange({
  name,
  masked,
  added,
  removed,
}: Pick<Preview["keys"][number], "name" | "masked" | "added" | "removed">) {
  const key = (
    <>
      <span className="font-medium text-ink">{name}</span>{" "}
      <span className="font-mono text-12 text-ink-3">{masked}</span>
    </>
  );
  const [gained, lost] = [named(added), named(removed)];
  if (lost === "")
    return (
      <Trans>
        {key} gains {gained}
      </Trans>
    );
  if (gained === "")
    return (
      <Trans>
        {key} loses {lost}
      </Trans>
    );
  return (
    <Trans>
      {key} gains {gained} and loses {lost}
    </Trans>
  );
}

function named(modelIds: readonly string[]): string {
  if (modelIds.length <= MODELS_NAMED_MAX) return formatList(modelIds);
  return formatList([
    ...modelIds.slice(0, MODELS_NAMED_MAX),
    plural({ count: modelIds.length - MODELS_NAMED_MAX }, { one: "# other", other: "# others" }),
  ]);
}
