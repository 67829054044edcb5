import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useInfiniteQuery, useQuery, useQueryClient } from "@tanstack/react-query";
import { UserPlus } from "lucide-react";
import { TERMS_URL_CHARS_MAX } from "../../../../limits.ts";
import { api, ask } from "../../api.ts";
import { parseUsd, toUsdInput } from "../../format.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { PAY_WITH } from "../../shared/pay_with.ts";
import { domainsIn } from "../../shared/typed_domains.ts";
import { checkPrice } from "../../shared/typed_numbers.ts";
import { Checkbox, SegmentedField } from "../../ui/choices.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { DollarField, LinesField, TextField } from "../../ui/fields.tsx";
import { type Form, isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Banner, Empty, Loaded, Skeleton, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable, toOlder } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { OfferingField, useOfferings } from "../billing/on_sale.tsx";
import { type SignUpSettings, signUpQuery } from "./queries.ts";

/** How people can sign up with a seller: whether, what they accept, what they get, and with which addresses; and who did. */

const TRIALS = [
  { value: "none", label: t({ message: "None", context: "trial" }) },
  { value: "package", label: t`Package` },
  { value: "amount", label: t`Amount` },
] as const;

export function SignUpSettingsPage() {
  const settings = useQuery(signUpQuery);
  return (
    <Page
      title={t`Sign-up`}
      lead={t`People make their own account, on your sign-in page. They confirm their e-mail address with a link.`}
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
    <Banner
      tone="warn"
      title={plural(trialsWaiting, { one: "# trial cannot be given yet", other: "# trials cannot be given yet" })}
    >
      {t`The list below has the reasons.`}{" "}
      {role === "reseller" && t`Trials are given as soon as your balance or allotment covers them.`}
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
      termsUrl: isOpen && isBlank(termsUrl) ? t`Enter the address of your terms.` : null,
      privacyUrl: isOpen && isBlank(privacyUrl) ? t`Enter the address of your privacy policy.` : null,
      trialOfferingId: trial === "package" && trialOfferingId === null ? t`Choose an offering.` : null,
      trialAmountNanoUsd: trial === "amount" ? checkPrice(trialAmountNanoUsd) : null,
      allowedDomains: null,
      forbiddenDomains: null,
    }),
    send: (typed) => ask(api["sign-up"].settings.patch(changesOf(typed, typedSettings(saved)))),
    onSent: (next) => {
      client.setQueryData(signUpQuery.queryKey, next);
      form.reset(typedSettings(next));
      toast.done(next.isOpen ? t`Saved. People can sign up.` : t`Saved. No one can sign up.`);
    },
  });
  return (
    <Section
      title={
        <>
          {t`Who can sign up`}{" "}
          <Badge tone={saved.isOpen ? "ok" : "neutral"}>
            {saved.isOpen ? t({ message: "On", context: "sign-up" }) : t({ message: "Off", context: "sign-up" })}
          </Badge>
        </>
      }
      description={
        role === "admin"
          ? t`For your own customers. Each reseller has its own sign-up.`
          : t`Your sign-in page then has a link to the form. It needs your mail server and a live domain.`
      }
    >
      <PageForm form={form} saveLabel={t`Save sign-up`} lock={lock}>
        <Checkbox
          label={t`People can sign up`}
          hint={t`Links that were mailed before do not work while this is off.`}
          checked={form.values.isOpen}
          onValue={(isOpen) => form.set({ isOpen })}
          error={form.errorOf("isOpen")}
        />
        {saved.isOpen && role === "admin" && (
          <CopyField label={t`Address of the form`} value={`${location.origin}/sign-up`} />
        )}
        <TextField
          label={t`Terms`}
          hint={t`An https:// page. People accept both pages; the list below has which, and when.`}
          type="url"
          {...form.field("termsUrl")}
          maxLength={TERMS_URL_CHARS_MAX}
          placeholder="https://example.com/terms"
        />
        <TextField
          label={t`Privacy policy`}
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
      <SegmentedField label={t`Trial`} value={trial} onValue={(next) => form.set({ trial: next })} options={TRIALS}>
        <p className="text-13 text-ink-3">
          <Trans>
            Once per person. Addresses that differ only in capitals, in what follows a plus sign, or in dots at Gmail
            are one person.
          </Trans>
        </p>
      </SegmentedField>
      {trial === "package" && (
        <>
          <OfferingField
            offerings={offerings}
            value={chosen}
            onValue={({ offeringId }) => form.set({ trialOfferingId: offeringId })}
            error={form.errorOf("trialOfferingId")}
          />
          {isReseller && (
            <SegmentedField
              label={t`Paid from`}
              value={trialPayWith}
              onValue={(next) => form.set({ trialPayWith: next })}
              options={PAY_WITH}
            />
          )}
        </>
      )}
      {trial === "amount" && (
        <DollarField
          label={t`Amount`}
          hint={
            isReseller
              ? t`Moved from your balance. Pay-as-you-go is enabled for the account.`
              : t`Pay-as-you-go is enabled for the account.`
          }
          {...form.field("trialAmountNanoUsd")}
        />
      )}
    </>
  );
}

function DomainFields({ form }: { form: SettingsOfForm }) {
  return (
    <>
      <LinesField
        label={t`Allowed mail domains`}
        optional
        hint={t`One a line. Each includes the domains below it. Empty: all.`}
        {...form.field("allowedDomains")}
        rows={3}
        placeholder="example.com"
      />
      <LinesField
        label={t`Forbidden mail domains`}
        optional
        {...form.field("forbiddenDomains")}
        rows={3}
        placeholder="example.net"
      />
      <Checkbox
        label={t`Allow disposable addresses`}
        hint={t`Of services whose mailboxes anyone can open for a few minutes. A list of them comes with each release.`}
        checked={form.values.disposableAllowed}
        onValue={(disposableAllowed) => form.set({ disposableAllowed })}
      />
    </>
  );
}

type SignedUp = NonNullable<Awaited<ReturnType<(typeof api)["sign-up"]["accounts"]["get"]>>["data"]>["rows"][number];

const WHY = {
  balance: t`Waits for your balance`,
  allotment: t`Waits for your allotment`,
  offering: t`The offering is off sale`,
  payg: t`Waits for pay-as-you-go`,
} as const;

function trialWords({ trial, trialWhy }: SignedUp): string {
  if (trial === "waits") return trialWhy === null ? t`Waits` : WHY[trialWhy];
  return {
    none: t({ message: "None", context: "trial" }),
    taken: t`Had one before`,
    domain: t`Too many of its domain`,
    given: t({ message: "Given", context: "trial" }),
  }[trial];
}

const COLUMNS: readonly Column<SignedUp>[] = [
  { head: t`Account`, cell: ({ name, email }) => <TwoLines below={email}>{name}</TwoLines> },
  { head: t`Signed up`, cell: ({ confirmedAt }) => <Instant iso={confirmedAt} /> },
  { head: t`Trial`, cell: (row) => trialWords(row) },
  {
    head: t`Accepted`,
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
    <Section title={t`Who signed up`} flush>
      <Loaded query={found} skeleton={<SkeletonRows rows={3} />}>
        {({ pages }) => (
          <DataTable
            caption={t`Accounts that people made by signing up`}
            rows={pages.flatMap((page) => page.rows)}
            rowKey={({ accountId }) => String(accountId)}
            rowHref={({ accountId }) => `${role === "admin" ? "/admin/people" : "/customers"}/${accountId}`}
            columns={COLUMNS}
            empty={
              <Empty icon={UserPlus}>
                <Trans>No one has signed up yet.</Trans>
              </Empty>
            }
            older={toOlder(found)}
          />
        )}
      </Loaded>
    </Section>
  );
}
