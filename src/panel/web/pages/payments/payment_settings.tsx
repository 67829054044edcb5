import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { PAY_INSTRUCTIONS_CHARS_MAX, SHOP_URL_CHARS_MAX, TYPED_STRIPE_SECRET_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { CopyField, SecretOnce } from "../../ui/copy_field.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Field, PasswordField, TextArea, TextField } from "../../ui/fields.tsx";
import { isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { Section } from "../../ui/page.tsx";
import { Badge, Loaded, Skeleton } from "../../ui/states.tsx";
import { toast } from "../../ui/toast.ts";

/** How a seller is paid: Stripe, instructions, a shop of its own. */

const SETTINGS_KEY = ["payment-settings"] as const;
type Saved = NonNullable<Awaited<ReturnType<(typeof api)["payment-settings"]["get"]>>["data"]>;

function useSaved(): (saved: Saved) => void {
  const client = useQueryClient();
  return ({ settings, hooks, origin }) => client.setQueryData(SETTINGS_KEY, { settings, hooks, origin });
}

export function PaymentSettings() {
  const saved = useQuery({ queryKey: SETTINGS_KEY, queryFn: () => ask(api["payment-settings"].get()) });
  return (
    <Loaded query={saved} skeleton={<Skeleton className="h-80 rounded-lg" />}>
      {(data) => (
        <>
          <StripeSection saved={data} />
          <InstructionsSection saved={data} />
          <ShopSection saved={data} />
        </>
      )}
    </Loaded>
  );
}

/** A reseller's customers and payment providers use the reseller's own domain, which is the open one. */
const hookOf = ({ origin }: Saved, path: string) => `${origin ?? location.origin}${path}`;

const STATES = {
  off: ["neutral", t`Not offered`],
  on: ["ok", t`Offered`],
  test: ["warn", t`Test mode`],
  live: ["ok", t({ message: "Live", context: "not in test mode" })],
} as const;

/** A way to be paid, and whether it is offered. */
function WaySection({
  title,
  description,
  state,
  children,
}: {
  title: string;
  description: string;
  state: keyof typeof STATES;
  children: ReactNode;
}) {
  const [tone, words] = STATES[state];
  return (
    <Section
      title={
        <>
          {title} <Badge tone={tone}>{words}</Badge>
        </>
      }
      description={description}
    >
      <div className="grid max-w-[42rem] gap-4">{children}</div>
    </Section>
  );
}

function StripeSection({ saved }: { saved: Saved }) {
  const put = useSaved();
  const [isRemoving, setRemoving] = useState(false);
  const { stripe } = saved.settings;
  return (
    <WaySection
      title={/* not a text */ "Stripe"}
      description={t`Customers pay by card on Stripe's page, and get what they bought immediately.`}
      state={stripe}
    >
      <ol className="grid list-decimal gap-2 ps-5 text-14 wrap-anywhere text-ink-2">
        <li>
          <Trans>
            In Stripe, under Developers → Webhooks, add the address below with all events of Checkout
            (checkout.session.*) and Refunds (refund.*), those of Charge that begin with charge.dispute, and
            payment_intent.succeeded.
          </Trans>
        </li>
        <li>
          <Trans>Copy the signing secret of that webhook, and a secret key, into the fields.</Trans>
        </li>
      </ol>
      <CopyField label={t`Address for Stripe's webhooks`} value={hookOf(saved, saved.hooks.stripe)} />
      <StripeForm isOffered={stripe !== "off"} onSaved={put} onRemove={() => setRemoving(true)} />
      <Confirm
        open={isRemoving}
        onOpenChange={setRemoving}
        title={t`Stop offering Stripe?`}
        confirmLabel={t`Stop offering`}
        onConfirm={async () => put(await ask(api["payment-settings"].stripe.put({ stripe: null })))}
      >
        <Trans>
          The key is deleted. A customer who is on a Stripe page right now may pay without getting anything: the payment
          is then shown only in Stripe. Refunds through Stripe wait until a key is set again.
        </Trans>
      </Confirm>
    </WaySection>
  );
}

type StripeFormProps = { isOffered: boolean; onSaved: (saved: Saved) => void; onRemove: () => void };

function StripeForm({ isOffered, onSaved, onRemove }: StripeFormProps) {
  const { lock } = useViewer("settings");
  const form = useForm({
    first: { apiKey: "", webhookSecret: "" },
    wrong: ({ apiKey, webhookSecret }) => ({
      apiKey: isBlank(apiKey) ? t`Enter the secret key.` : null,
      webhookSecret: isBlank(webhookSecret) ? t`Enter the signing secret of the webhook.` : null,
    }),
    send: (secrets) => ask(api["payment-settings"].stripe.put({ stripe: secrets })),
    onSent: (data) => {
      onSaved(data);
      form.reset({ apiKey: "", webhookSecret: "" });
      toast.done(t`Stripe accepts the key. Customers can pay by card now.`);
    },
  });
  return (
    <PageForm
      form={form}
      saveLabel={isOffered ? t`Replace both` : t`Offer Stripe`}
      lock={lock}
      actions={
        isOffered && (
          <Button variant="quiet" onClick={onRemove} {...lock}>
            <Trans>Stop offering Stripe</Trans>
          </Button>
        )
      }
    >
      <PasswordField
        label={t`Secret key`}
        hint={t`Begins with sk_ or rk_. A restricted key needs to write Checkout Sessions, Refunds, Customers, PaymentIntents, PaymentMethods and SetupIntents, and to read Disputes and Events. It is stored encrypted, and not shown again.`}
        {...form.field("apiKey")}
        maxLength={TYPED_STRIPE_SECRET_CHARS_MAX}
      />
      <PasswordField
        label={t`Signing secret of the webhook`}
        hint={t`Begins with whsec_.`}
        {...form.field("webhookSecret")}
        maxLength={TYPED_STRIPE_SECRET_CHARS_MAX}
      />
    </PageForm>
  );
}

function InstructionsSection({ saved }: { saved: Saved }) {
  const { lock } = useViewer("settings");
  const put = useSaved();
  const { instructions: before } = saved.settings;
  const form = useForm({
    first: { instructions: before ?? "" },
    wrong: ({ instructions }) => ({
      instructions: before === null && isBlank(instructions) ? t`Enter how customers pay you.` : null,
    }),
    send: ({ instructions }) =>
      ask(api["payment-settings"].instructions.put({ instructions: isBlank(instructions) ? null : instructions })),
    onSent: (data) => {
      put(data);
      form.reset({ instructions: data.settings.instructions ?? "" });
      toast.done(data.settings.instructions === null ? NOT_OFFERED : t`Instructions saved.`);
    },
  });
  const { error, ...instructions } = form.field("instructions");
  return (
    <WaySection
      title={t`Bank transfer, or another way`}
      description={t`Customers read your instructions and pay. You fulfil the order, under Orders, when you have the money.`}
      state={before === null ? "off" : "on"}
    >
      <PageForm form={form} saveLabel={t`Save instructions`} lock={lock}>
        <Field
          label={t`Instructions`}
          hint={t`Shown with the amount and the order's reference. Empty: not offered.`}
          error={error}
        >
          <TextArea {...instructions} rows={5} maxLength={PAY_INSTRUCTIONS_CHARS_MAX} />
        </Field>
      </PageForm>
    </WaySection>
  );
}

const NOT_OFFERED = t`No longer offered.`;

const shopSecret = keptOnce<string>();

function ShopSection({ saved }: { saved: Saved }) {
  const put = useSaved();
  const secret = shopSecret.useShown();
  return (
    <WaySection
      title={t`Your own shop`}
      description={t`Customers are sent to your shop with the order's reference and amount. The shop reports the payment by a webhook that it signs.`}
      state={saved.settings.shopUrl === null ? "off" : "on"}
    >
      <CopyField label={t`Address for the shop's webhooks`} value={hookOf(saved, saved.hooks.shop)} />
      <ShopForm
        shopUrl={saved.settings.shopUrl}
        onSaved={(data, made) => {
          put(data);
          shopSecret.show(made);
        }}
      />
      <SecretOnce
        open={secret !== null}
        title={t`Your shop signs with this secret`}
        label={t`Signing secret`}
        value={secret ?? ""}
        onDone={() => shopSecret.show(null)}
      />
    </WaySection>
  );
}

/** `secret`: of an address that was saved. */
type ShopFormProps = { shopUrl: string | null; onSaved: (saved: Saved, secret: string | null) => void };

function ShopForm({ shopUrl, onSaved }: ShopFormProps) {
  const { lock } = useViewer("settings");
  const form = useForm({
    first: { shopUrl: shopUrl ?? "" },
    wrong: ({ shopUrl: typed }) => ({
      shopUrl: shopUrl === null && isBlank(typed) ? t`Enter the address of your shop.` : null,
    }),
    send: ({ shopUrl: typed }) =>
      ask(api["payment-settings"].shop.put({ shopUrl: isBlank(typed) ? null : typed.trim() })),
    onSent: (data) => {
      onSaved(data, data.secret);
      form.reset({ shopUrl: data.settings.shopUrl ?? "" });
      if (data.secret === null) toast.done(NOT_OFFERED);
    },
  });
  const isEnding = isBlank(form.values.shopUrl);
  return (
    <PageForm
      form={form}
      saveLabel={
        shopUrl === null ? t`Offer the shop` : isEnding ? t`Stop offering the shop` : t`Save, with a new secret`
      }
      lock={lock}
    >
      <TextField
        label={t`Address of the shop`}
        hint={t`Saving makes a new signing secret, which is shown once; the one before ends. Empty: not offered.`}
        {...form.field("shopUrl")}
        maxLength={SHOP_URL_CHARS_MAX}
        placeholder="https://shop.example.com/pay"
        autoCapitalize="none"
      />
    </PageForm>
  );
}
