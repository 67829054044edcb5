import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { TERMS_URL_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { formatOf, parseUsd, toUsdInput } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { PAY_WITH } from "../../shared/pay_with.ts";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Checkbox, Segmented } from "../../ui/choices.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { DollarField, Field, TextArea, TextField } from "../../ui/fields.tsx";
import { type Form, isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, Skeleton, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.tsx";
import { TwoLines } from "../../ui/two_lines.tsx";
import { OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { type SignUpSettings, signUpQuery } from "./queries.ts";

/** How people can sign up with a seller: whether, what they accept, what they get, and with which addresses; and who did. */

const TRIALS = [
  { value: "none", label: "None" },
  { value: "package", label: "Package" },
  { value: "amount", label: "Amount" },
] as const;

export function SignUpSettingsPage() {
  const settings = useQuery(signUpQuery);
  return (
    <Page
      title="Sign-up"
      lead="People make their own account, on your sign-in page. They confirm their e-mail address with a link."
    >
      <Loaded query={settings} skeleton={<Skeleton className="h-96 rounded-lg" />}>
        {(saved) => (
          <>
            <TrialsWait saved={saved} />
            <SettingsForm saved={saved} />
          </>
        )}
      </Loaded>
      <SignedUpSection />
    </Page>
  );
}

function TrialsWait({ saved: { trialsWaiting } }: { saved: SignUpSettings }) {
  const { role } = useViewer();
  if (trialsWaiting === 0) return null;
  return (
    <Banner tone="warn" title={`${formatOf(trialsWaiting, "trial")} cannot be given yet`}>
      The list below has the reasons.{" "}
      {role === "reseller" && "Trials are given as soon as your balance or allotment covers them."}
    </Banner>
  );
}

type Typed = ReturnType<typeof typedSettings>;

function typedSettings(saved: SignUpSettings) {
  const kind = saved.trialOffering ? "package" : saved.trialAmountNanoUsd === null ? "none" : "amount";
  return {
    isOpen: saved.isOpen,
    termsUrl: saved.termsUrl ?? "",
    privacyUrl: saved.privacyUrl ?? "",
    trial: kind as (typeof TRIALS)[number]["value"],
    trialOfferingId: saved.trialOffering?.offeringId ?? null,
    trialAmountNanoUsd: saved.trialAmountNanoUsd === null ? "" : toUsdInput(saved.trialAmountNanoUsd),
    trialPayWith: saved.trialPayWith,
    allowedDomains: saved.allowedDomains.join("\n"),
    forbiddenDomains: saved.forbiddenDomains.join("\n"),
    disposableAllowed: saved.disposableAllowed,
  };
}

/** One domain a line, or separated by commas or spaces. */
function domainsIn(typed: string): string[] {
  return typed.split(/[\s,;]+/).filter((one) => one !== "");
}

/** The trial is sent only if it was changed: one whose offering is not for sale any more may stay. */
function changesOf(typed: Typed, saved: Typed) {
  const { trial, trialOfferingId, trialAmountNanoUsd, trialPayWith, allowedDomains, forbiddenDomains, ...rest } = typed;
  const isTrialNew =
    trial !== saved.trial ||
    trialOfferingId !== saved.trialOfferingId ||
    trialAmountNanoUsd !== saved.trialAmountNanoUsd ||
    trialPayWith !== saved.trialPayWith;
  return {
    ...rest,
    allowedDomains: domainsIn(allowedDomains),
    forbiddenDomains: domainsIn(forbiddenDomains),
    ...(isTrialNew && {
      trialOfferingId: trial === "package" ? trialOfferingId : null,
      trialAmountNanoUsd: trial === "amount" ? parseUsd(trialAmountNanoUsd) : null,
      trialPayWith,
    }),
  };
}

function SettingsForm({ saved }: { saved: SignUpSettings }) {
  const { role, lock } = useViewer();
  const client = useQueryClient();
  const form = useForm({
    first: typedSettings(saved),
    wrong: ({ isOpen, termsUrl, privacyUrl, trial, trialOfferingId, trialAmountNanoUsd }) => ({
      isOpen: null,
      termsUrl: isOpen && isBlank(termsUrl) ? "Enter the address of your terms." : null,
      privacyUrl: isOpen && isBlank(privacyUrl) ? "Enter the address of your privacy policy." : null,
      trialOfferingId: trial === "package" && trialOfferingId === null ? "Choose an offering." : null,
      trialAmountNanoUsd: trial === "amount" ? checkPrice(trialAmountNanoUsd) : null,
      allowedDomains: null,
      forbiddenDomains: null,
    }),
    send: (typed) => ask(api["sign-up"].settings.patch(changesOf(typed, typedSettings(saved)))),
    onSent: (next) => {
      client.setQueryData(signUpQuery.queryKey, next);
      form.reset(typedSettings(next));
      toast.done(next.isOpen ? "Saved. People can sign up." : "Saved. No one can sign up.");
    },
  });
  return (
    <Section
      title={
        <>
          Who can sign up <Badge tone={saved.isOpen ? "ok" : "neutral"}>{saved.isOpen ? "On" : "Off"}</Badge>
        </>
      }
      description={
        role === "admin"
          ? "For your own customers. Each reseller has its own sign-up."
          : "Your sign-in page then has a link to the form. It needs your mail server and a live domain."
      }
    >
      <PageForm form={form} saveLabel="Save sign-up" lock={lock}>
        <Checkbox
          label="People can sign up"
          hint="Links that were mailed before do not work while this is off."
          checked={form.values.isOpen}
          onValue={(isOpen) => form.set({ isOpen })}
          error={form.errorOf("isOpen")}
        />
        {saved.isOpen && role === "admin" && (
          <CopyField label="Address of the form" value={`${location.origin}/sign-up`} />
        )}
        <TextField
          label="Terms"
          hint="An https:// page. People accept both pages; the list below has which, and when."
          type="url"
          {...form.field("termsUrl")}
          maxLength={TERMS_URL_CHARS_MAX}
          placeholder="https://example.com/terms"
        />
        <TextField
          label="Privacy policy"
          type="url"
          {...form.field("privacyUrl")}
          maxLength={TERMS_URL_CHARS_MAX}
          placeholder="https://example.com/privacy"
        />
        <TrialFields form={form} isReseller={role === "reseller"} />
        <DomainFields form={form} />
      </PageForm>
    </Section>
  );
}

type SettingsOfForm = Form<
  Typed,
  | "isOpen"
  | "termsUrl"
  | "privacyUrl"
  | "trialOfferingId"
  | "trialAmountNanoUsd"
  | "allowedDomains"
  | "forbiddenDomains"
>;

function TrialFields({ form, isReseller }: { form: SettingsOfForm; isReseller: boolean }) {
  const { trial, trialOfferingId, trialPayWith } = form.values;
  const offerings = useOfferings();
  const chosen = offerings.data?.offerings.find(({ offeringId }) => offeringId === trialOfferingId) ?? null;
  return (
    <>
      <div className="grid gap-1">
        <span className="text-13 font-medium">Trial</span>
        <Segmented
          label="Trial"
          value={trial}
          onValue={(next) => form.set({ trial: next })}
          options={TRIALS}
          className="justify-self-start"
        />
        <p className="text-13 text-ink-3">
          Once per person. Addresses that differ only in capitals, in what follows a plus sign, or in dots at Gmail are
          one person.
        </p>
      </div>
      {trial === "package" && (
        <>
          <OfferingField
            offerings={offerings}
            value={chosen}
            onValue={({ offeringId }) => form.set({ trialOfferingId: offeringId })}
            error={form.errorOf("trialOfferingId")}
          />
          {isReseller && (
            <div className="grid gap-1">
              <span className="text-13 font-medium">Paid from</span>
              <Segmented
                label="Paid from"
                value={trialPayWith}
                onValue={(next) => form.set({ trialPayWith: next })}
                options={PAY_WITH}
                className="justify-self-start"
              />
            </div>
          )}
        </>
      )}
      {trial === "amount" && (
        <DollarField
          label="Amount"
          hint={
            isReseller
              ? "Moved from your balance. Pay-as-you-go is enabled for the account."
              : "Pay-as-you-go is enabled for the account."
          }
          {...form.field("trialAmountNanoUsd")}
        />
      )}
    </>
  );
}

function DomainFields({ form }: { form: SettingsOfForm }) {
  const { error: allowedError, ...allowed } = form.field("allowedDomains");
  const { error: forbiddenError, ...forbidden } = form.field("forbiddenDomains");
  return (
    <>
      <Field
        label="Allowed mail domains"
        optional
        hint="One a line. Each includes the domains below it. Empty: all."
        error={allowedError}
      >
        <TextArea {...allowed} rows={3} placeholder="example.com" autoCapitalize="none" spellCheck={false} />
      </Field>
      <Field label="Forbidden mail domains" optional error={forbiddenError}>
        <TextArea {...forbidden} rows={3} placeholder="example.net" autoCapitalize="none" spellCheck={false} />
      </Field>
      <Checkbox
        label="Allow disposable addresses"
        hint="Of services whose mailboxes anyone can open for a few minutes. A list of them comes with each release."
        checked={form.values.disposableAllowed}
        onValue={(disposableAllowed) => form.set({ disposableAllowed })}
      />
    </>
  );
}

type SignedUp = NonNullable<Awaited<ReturnType<(typeof api)["sign-up"]["accounts"]["get"]>>["data"]>["rows"][number];

const WHY = {
  balance: "Waits for your balance",
  allotment: "Waits for your allotment",
  offering: "The offering is off sale",
  payg: "Waits for pay-as-you-go",
} as const;

function trialWords({ trial, trialWhy }: SignedUp): string {
  if (trial === "waits") return trialWhy === null ? "Waits" : WHY[trialWhy];
  return { none: "None", taken: "Had one before", domain: "Too many of its domain", given: "Given" }[trial];
}

const COLUMNS: readonly Column<SignedUp>[] = [
  { head: "Account", cell: ({ name, email }) => <TwoLines below={email}>{name}</TwoLines> },
  { head: "Signed up", cell: ({ confirmedAt }) => <Instant iso={confirmedAt} /> },
  { head: "Trial", cell: (row) => trialWords(row) },
  {
    head: "Accepted",
    cell: ({ acceptedAt, termsUrl, privacyUrl }) => (
      <TwoLines below={`${termsUrl}, ${privacyUrl}`}>
        <Instant iso={acceptedAt} />
      </TwoLines>
    ),
  },
];

function SignedUpSection() {
  const { role } = useViewer();
  const found = useInfiniteQuery({
    queryKey: ["sign-up", "accounts"],
    queryFn: ({ pageParam }) =>
      ask(api["sign-up"].accounts.get({ query: { ...(pageParam > 0 && { before: pageParam }) } })),
    initialPageParam: 0,
    getNextPageParam: ({ rows, hasMore }) => (hasMore ? rows[rows.length - 1]?.accountId : undefined),
  });
  return (
    <Section title="Who signed up" flush>
      <Loaded query={found} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => (
          <DataTable
            caption="Accounts that people made by signing up"
            rows={pages.flatMap((page) => page.rows)}
            rowKey={({ accountId }) => String(accountId)}
            rowHref={({ accountId }) => `${role === "admin" ? "/admin/people" : "/customers"}/${accountId}`}
            columns={COLUMNS}
            empty={<Empty icon={UserPlus}>No one has signed up yet.</Empty>}
            older={toOlder(found)}
          />
        )}
      </Loaded>
    </Section>
  );
}
