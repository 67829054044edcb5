import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatMoney, parseUsd, toUsdInput } from "../../format.ts";
import { useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Button, TextLink } from "../../ui/buttons.tsx";
import { DollarField } from "../../ui/fields.tsx";
import { type DialogState, FormDialog, useForm } from "../../ui/form.tsx";
import { Section } from "../../ui/page.tsx";
import { toast } from "../../ui/toast.ts";
import { TopUpPrice } from "../orders/order_dialog.tsx";
import { useCard } from "./card_section.tsx";
import { problemWords } from "./renewal.tsx";

/** Automatic top-ups of the person's own balance, from the card on file. */

type AutoTopUp = NonNullable<NonNullable<Awaited<ReturnType<(typeof api)["auto-top-up"]["get"]>>["data"]>["autoTopUp"]>;

export function AutoTopUpSection() {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const card = useCard().data?.card ?? null;
  const { data } = useQuery({ queryKey: ["auto_top_up"], queryFn: () => ask(api["auto-top-up"].get()) });
  const dialog = useOpened<true>();
  const remove = useMutation({
    mutationFn: () => ask(api["auto-top-up"].delete()),
    onSuccess: async () => {
      await refresh();
      toast.done(t`Automatic top-ups are off.`);
    },
    onError: (error) => toast.failed(error),
  });
  const current = data?.autoTopUp ?? null;
  // Without a card there is nothing to set up: the section above says how to save one.
  if (data === undefined || (current === null && card === null)) return null;
  return (
    <Section
      title={t`Automatic top-ups`}
      description={t`Your card on file is charged when your balance is low, up to a limit a month.`}
      action={
        card && (
          <Button size="sm" onClick={() => dialog.open(true)} {...lock}>
            {current === null ? (
              <Trans>
                Set up<span className="sr-only"> automatic top-ups</span>
              </Trans>
            ) : current.status === "paused" ? (
              <Trans>
                Switch on again<span className="sr-only"> automatic top-ups</span>
              </Trans>
            ) : (
              <Trans>
                Change<span className="sr-only"> automatic top-ups</span>
              </Trans>
            )}
          </Button>
        )
      }
    >
      {current === null ? (
        <p className="text-14 text-ink-2">{t({ message: "Off.", context: "automatic top-ups" })}</p>
      ) : (
        <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <div className="grid min-w-0 flex-1 gap-1 text-14">
            <p>
              {t`${{ amount: formatMoney(current.amountNanoUsd) }} whenever less than ${{ below: formatMoney(current.belowNanoUsd) }} is available.`}
            </p>
            <p className="text-13 text-ink-2">
              {t`${{ charged: formatMoney(current.monthNanoUsd) }} of at most ${{ max: formatMoney(current.monthMaxNanoUsd) }} charged this month.`}
            </p>
            <Now current={current} />
          </div>
          <Button size="sm" pending={remove.isPending} onClick={() => remove.mutate()} {...lock}>
            <Trans>
              Switch off<span className="sr-only"> automatic top-ups</span>
            </Trans>
          </Button>
        </div>
      )}
      {dialog.what && <TopUpDialog key={dialog.times} open={dialog.isOpen} onClose={dialog.close} current={current} />}
    </Section>
  );
}

function Now({ current: { status, problem, orderId } }: { current: AutoTopUp }) {
  if (status === "paused")
    return (
      <p className="text-13 text-warn">
        {problem === null ? t`Paused.` : t`Paused: ${{ problem: problemWords(problem) }}.`}
      </p>
    );
  if (orderId === null) return null;
  return (
    <p className="text-13 text-ink-2">
      {t`One is being paid.`} <TextLink href={`/billing/orders/${orderId}`}>{t`Open the order`}</TextLink>
    </p>
  );
}

const FIRST = { belowNanoUsd: "5", amountNanoUsd: "20", monthMaxNanoUsd: "100" };

function TopUpDialog({ open, onClose, current }: DialogState & { current: AutoTopUp | null }) {
  const refresh = useRefresh();
  const form = useForm({
    first:
      current === null
        ? FIRST
        : {
            belowNanoUsd: toUsdInput(current.belowNanoUsd),
            amountNanoUsd: toUsdInput(current.amountNanoUsd),
            monthMaxNanoUsd: toUsdInput(current.monthMaxNanoUsd),
          },
    wrong: ({ belowNanoUsd, amountNanoUsd, monthMaxNanoUsd }) => ({
      belowNanoUsd: checkPrice(belowNanoUsd),
      amountNanoUsd: checkPrice(amountNanoUsd),
      monthMaxNanoUsd: checkPrice(monthMaxNanoUsd),
    }),
    send: ({ belowNanoUsd, amountNanoUsd, monthMaxNanoUsd }) =>
      ask(
        api["auto-top-up"].put({
          belowNanoUsd: parseUsd(belowNanoUsd) ?? "",
          amountNanoUsd: parseUsd(amountNanoUsd) ?? "",
          monthMaxNanoUsd: parseUsd(monthMaxNanoUsd) ?? "",
        }),
      ),
    onSent: async () => {
      await refresh();
      toast.done(t`Automatic top-ups are on.`);
      onClose();
    },
  });
  return (
    <FormDialog
      form={form}
      open={open}
      onClose={onClose}
      title={t`Automatic top-ups`}
      description={t`Your card is charged without you. If your bank wants you to confirm, you get a mail with a link.`}
      submitLabel={t`Switch on`}
      size="sm"
    >
      <DollarField label={t`When less than this is available`} {...form.field("belowNanoUsd")} />
      <DollarField label={t`Top up by`} {...form.field("amountNanoUsd")} />
      <TopUpPrice typed={form.values.amountNanoUsd} />
      <DollarField
        label={t`At most in a calendar month`}
        hint={t`Of all automatic top-ups together, before tax.`}
        {...form.field("monthMaxNanoUsd")}
      />
    </FormDialog>
  );
}
