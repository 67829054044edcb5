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
    title: "Connect a provider",
    why: "A service with an OpenAI-compatible API, and your key there.",
    href: "/admin/providers",
    label: "Open providers",
  },
  model: {
    title: "Add a model",
    why: "With a route to the provider and, for pay-as-you-go, with prices.",
    href: "/admin/models",
    label: "Open models",
  },
  offering: {
    title: "Put an offering on sale",
    why: "A number of requests a day, for a number of days. Resellers pay its wholesale price, your own customers its retail price.",
    href: "/admin/offerings",
    label: "Open offerings",
  },
  ways_to_pay: {
    title: "Choose how customers pay",
    why: "Your offerings have retail prices. By card with Stripe, by your instructions (such as a bank transfer), or in your own shop.",
    href: "/admin/payments",
    label: "Open payments",
  },
  person: {
    title: "Add a customer or a reseller",
    why: "You get a link to send to them. With it they choose a password and sign in.",
    href: "/admin/people",
    label: "Open customers",
  },
  funds: {
    title: "Get a balance",
    why: "Each package that you sell is paid from it, at the wholesale price. The operator tops it up, or grants you an allotment.",
    href: "/billing?ask=top_up",
    label: "Top up the balance",
  },
  domain: {
    title: "Add your domain",
    why: "Your customers sign in and call the API there. Their invitations work once it is active.",
    href: "/domains",
    label: "Open domains",
  },
  brand: {
    title: "Set your brand",
    why: "The name, logo and colour that your customers see.",
    href: "/brand",
    label: "Open brand",
  },
  prices: {
    title: "Set your prices",
    why: "What your customers pay for a package. For pay-as-you-go, set a markup.",
    href: "/prices",
    label: "Open prices",
  },
  payments: {
    title: "Choose how customers pay",
    why: "By card with Stripe, by your instructions (such as a bank transfer), or in your own shop.",
    href: "/payments",
    label: "Open payments",
  },
  customer: {
    title: "Invite a customer",
    why: "You get a link to send to them. With it they choose a password and sign in.",
    href: "/customers",
    label: "Open customers",
  },
  entitlement: {
    title: "Get a package",
    why: "Buy one, or redeem a voucher. Your balance can pay too, if pay-as-you-go is switched on for you.",
    href: "/billing",
    label: "Open billing",
  },
  key: {
    title: "Create a key",
    why: "With it your programs call the API. It is shown only once, with commands to try it.",
    href: "/keys?create=1",
    label: "Create key",
  },
  request: {
    title: "Send your first request",
    why: "From your program with the key, or in the playground. Usage then shows its receipt: what was charged, and why.",
    href: "/playground",
    label: "Open the playground",
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
  const done = steps.filter(({ isDone }) => isDone).length;
  return (
    <Section title="First steps" description={`${done} of ${steps.length} done.`} flush>
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
                    {title}
                    {isDone && <span className="sr-only">: done</span>}
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
