import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { CreditCard } from "lucide-react";
import { useEffect, useEffectEvent, useState } from "react";
import { api, ask } from "../../api.ts";
import { useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { useUrlState } from "../../ui/filter_bar.tsx";
import { Section } from "../../ui/page.tsx";
import { toast } from "../../ui/toast.ts";

/** The card on file: saved on Stripe's page, shown by its last digits, removed. */

export type Card = NonNullable<NonNullable<Awaited<ReturnType<typeof api.card.get>>["data"]>["card"]>;
const CARD = ["card"];

export function useCard() {
  return useQuery({ queryKey: CARD, queryFn: () => ask(api.card.get()) });
}

export function CardSection() {
  const { lock } = useViewer();
  const refresh = useRefresh();
  const { data } = useCard();
  const [isRemoving, setRemoving] = useState(false);
  const looking = useReturnFromStripe();
  const save = useMutation({
    mutationFn: () => ask(api.card.post()),
    onSuccess: ({ url }) => location.assign(url),
    onError: (error) => toast.failed(error),
  });
  // Sellers without Stripe charge no cards: nothing is shown until it is known.
  if (!data || (!data.isOffered && data.card === null)) return null;
  const { card } = data;
  return (
    <Section
      title={t`Card on file`}
      description={t`Pays for what you let renew or top up automatically. Its number is at Stripe, not here.`}
      action={
        data.isOffered && (
          <Button
            size="sm"
            icon={CreditCard}
            // The browser is leaving the page, so the button stays pending.
            pending={save.isPending || save.isSuccess || looking}
            onClick={() => save.mutate()}
            {...lock}
          >
            {card ? t`Use another card` : t`Save a card`}
          </Button>
        )
      }
    >
      {card ? (
        <div className="flex flex-wrap items-center gap-x-4 gap-y-2">
          <p className="min-w-0 flex-1 text-14">
            <CardLine card={card} />
          </p>
          <Button size="sm" onClick={() => setRemoving(true)} {...lock}>
            <Trans>
              Remove<span className="sr-only"> the card</span>
            </Trans>
          </Button>
        </div>
      ) : (
        <p className="text-14 text-ink-2">{t`No card is saved.`}</p>
      )}
      <Confirm
        open={isRemoving}
        onOpenChange={setRemoving}
        title={t`Remove the card?`}
        confirmLabel={t`Remove card`}
        cancelLabel={t`Keep card`}
        onConfirm={async () => {
          await ask(api.card.delete());
          await refresh();
          toast.done(t`The card was removed.`);
        }}
      >
        {t`Nothing is charged to it from now on. What was to be paid from it is not renewed or topped up.`}
      </Confirm>
    </Section>
  );
}

/** "Visa ending in 4242". */
export function cardName({ brand, lastFour }: Pick<Card, "brand" | "lastFour">): string {
  return t`${{ brand: brand.charAt(0).toUpperCase() + brand.slice(1) }} ending in ${lastFour}`;
}

function CardLine({ card }: { card: Card }) {
  const { expiresMonth, expiresYear } = card;
  const name = cardName(card);
  if (expiresMonth === null || expiresYear === null) return name;
  const expiry = expiryOf(expiresMonth, expiresYear);
  return (
    <Trans>
      {name}
      <span className="text-ink-2">, expires {expiry}</span>
    </Trans>
  );
}

function expiryOf(month: number, year: number): string {
  return `${String(month).padStart(2, "0")}/${year}`;
}

/** Stripe's page returns to /billing?card=saved: the card is asked for once, in case its webhook is late. */
function useReturnFromStripe(): boolean {
  const { lock } = useViewer();
  const client = useQueryClient();
  const [{ card }, setUrl] = useUrlState({ card: "" });
  const look = useMutation({
    mutationFn: () => ask(api.card.look.post()),
    onSuccess: (data) => {
      client.setQueryData(CARD, data);
      if (data.card) toast.done(t`${{ card: cardName(data.card) }} is saved.`);
    },
    onError: (error) => toast.failed(error),
  });
  const onUrl = useEffectEvent((state: string) => {
    if (state === "") return;
    setUrl({ card: "" });
    if (!lock.disabled) look.mutate();
  });
  useEffect(() => onUrl(card), [card]);
  return look.isPending;
}
