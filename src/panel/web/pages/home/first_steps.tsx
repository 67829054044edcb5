import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery } from "@tanstack/react-query";
import { Circle, CircleCheck } from "lucide-react";
import { api, ask } from "../../api.ts";
import { HOME_KEY } from "../../shared/account_queries.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { cx } from "../../ui/cx.ts";
import { Section } from "../../ui/page.tsx";

/**
 * The first steps on Home or the Overview, for each role. The server derives from stored data which ones are done; after the last one
 * the list disappears.
 */

type FirstStep = NonNullable<Awaited<ReturnType<(typeof api.home)["first-steps"]["get"]>>["data"]>["steps"][number];
type StepWords = { title: string; why: string; href: string; label: string };

const STEP_WORDS: Record<FirstStep["name"], StepWords> = {
  provider: {
    title: t`Connect a provider`,
    why: t`A service with an OpenAI-compatible API, and your key there.`,
    href: "/admin/providers",
    label: t`Open providers`,
  },
  model: {
    title: t`Add a model`,
    why: t`With a route to the provider and, for pay-as-you-go, with prices.`,
    href: "/admin/models",
    label: t`Open models`,
  },
  offering: {
    title: t`Put an offering on sale`,
    why: t`A number of requests a day, for a number of days. Resellers pay its wholesale price, your own customers its retail price.`,
    href: "/admin/offerings",
    label: t`Open offerings`,
  },
  ways_to_pay: {
    title: t`Choose how customers pay`,
    why: t`Your offerings have retail prices. By card with Stripe, by your instructions (such as a bank transfer), or in your own shop.`,
    href: "/admin/payments",
    label: t`Open payments`,
  },
  person: {
    title: t`Add a customer or a reseller`,
    why: t`You get a link to send to them. With it they choose a password and sign in.`,
    href: "/admin/people",
    label: t`Open customers`,
  },
  funds: {
    title: t`Get a balance`,
    why: t`Each package that you sell is paid from it, at the wholesale price. The operator tops it up, or grants you an allotment.`,
    href: "/billing?ask=top_up",
    label: t`Top up the balance`,
  },
  domain: {
    title: t`Add your domain`,
    why: t`Your customers sign in and call the API there. Their invitations work once it is active.`,
    href: "/domains",
    label: t`Open domains`,
  },
  brand: {
    title: t`Set your brand`,
    why: t`The name, logo and colour that your customers see.`,
    href: "/brand",
    label: t`Open brand`,
  },
  prices: {
    title: t`Set your prices`,
    why: t`What your customers pay for a package. For pay-as-you-go, set a markup.`,
    href: "/prices",
    label: t`Open prices`,
  },
  payments: {
    title: t`Choose how customers pay`,
    why: t`By card with Stripe, by your instructions (such as a bank transfer), or in your own shop.`,
    href: "/payments",
    label: t`Open payments`,
  },
  customer: {
    title: t`Invite a customer`,
    why: t`You get a link to send to them. With it they choose a password and sign in.`,
    href: "/customers",
    label: t`Open customers`,
  },
  entitlement: {
    title: t`Get a package`,
    why: t`Buy one, or redeem a voucher. Your balance can pay too, if pay-as-you-go is switched on for you.`,
    href: "/billing",
    label: t`Open billing`,
  },
  key: {
    title: t`Create a key`,
    why: t`With it your programs call the API. It is shown only once, with commands to try it.`,
    href: "/keys?create=1",
    label: t`Create key`,
  },
  request: {
    title: t`Send your first request`,
    why: t`From your program with the key, or in the playground. Usage then shows its receipt: what was charged, and why.`,
    href: "/playground",
    label: t`Open the playground`,
  },
};

/** The steps of the account whose panel this is. */
export function useFirstSteps() {
  return useQuery({ queryKey: [...HOME_KEY, "first-steps"], queryFn: () => ask(api.home["first-steps"].get()) });
}

/** Only the next step has a filled button, but each can be done first. */
export function FirstSteps({ steps }: { steps: readonly FirstStep[] }) {
  const { lock } = useViewer();
  const next = steps.find(({ isDone }) => !isDone);
  const total = steps.length;
  const done = steps.filter(({ isDone }) => isDone).length;
  return (
    <Section title={t`First steps`} description={t`${done} of ${total} done.`} flush>
      <ol className="grid">
        {steps.map(({ name, isDone }) => {
          const { title, why, href, label } = STEP_WORDS[name];
          const Mark = isDone ? CircleCheck : Circle;
          return (
            <li key={name} className="flex gap-3 border-b border-line px-4 py-3 last:border-0 sm:px-6">
              <Mark size={16} aria-hidden className={cx("mt-0.5 flex-none", isDone ? "text-ok" : "text-ink-3")} />
              <div className="flex min-w-0 flex-1 flex-wrap items-center gap-x-6 gap-y-2">
                <div className="min-w-0 flex-[1_1_16rem]">
                  <p className={cx("text-14", isDone ? "text-ink-2" : "font-medium")}>
                    {isDone ? (
                      <Trans>
                        {title}
                        <span className="sr-only">: done</span>
                      </Trans>
                    ) : (
                      title
                    )}
                  </p>
                  {!isDone && <p className="max-w-[42rem] text-13 text-ink-2">{why}</p>}
                </div>
                {!isDone && !lock.disabled && (
                  <ButtonLink href={href} size="sm" variant={name === next?.name ? "primary" : "secondary"}>
                    {label}
                  </ButtonLink>
                )}
              </div>
            </li>
          );
        })}
      </ol>
    </Section>
  );
}
