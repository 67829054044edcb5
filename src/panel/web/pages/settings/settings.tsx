import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { MONEY_USD_MAX, NOTICE_DAYS, NOTICE_PERCENT, PERSON_NAME_CHARS_MAX } from "../../../../limits.ts";
import { api, ask, ME_KEY } from "../../api.ts";
import { parseUsd, toUsdInput } from "../../format.ts";
import { HOME_KEY } from "../../shared/account_queries.ts";
import { OwnLanguage } from "../../shared/language_choice.tsx";
import { useViewer } from "../../shared/page_hooks.ts";
import { checkCount, checkUsd, readCount } from "../../shared/typed_numbers.ts";
import { chooseTheme, currentTheme, subscribeTheme } from "../../theme.ts";
import { THEMES } from "../../theme_options.ts";
import { ButtonLink } from "../../ui/buttons.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { CountField, DollarField, TextField } from "../../ui/fields.tsx";
import { isBlank, PageForm, useForm } from "../../ui/form.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Loaded, Skeleton } from "../../ui/states.tsx";
import { TabBar, useTab } from "../../ui/tab_bar.tsx";
import { toast } from "../../ui/toast.ts";
import { BuyerDetailsSection } from "../invoices/invoice_details.tsx";
import { Devices } from "./devices.tsx";
import { EmailAddress } from "./email_address.tsx";
import { Identities } from "./identities.tsx";
import { MailChoices } from "./mail_choices.tsx";
import { OwnData } from "./own_data.tsx";
import { Passkeys } from "./passkeys.tsx";
import { Password } from "./password.tsx";
import { SETTINGS_KEY, settingsQuery } from "./queries.ts";
import { SecondFactor } from "./second_factor.tsx";

/** The person's own settings: name, e-mail, password, second factor, passkeys, devices, notices, theme. */

type Settings = NonNullable<Awaited<ReturnType<typeof api.settings.get>>["data"]>;

const TABS = [
  { value: "you", label: t({ message: "You", context: "settings of oneself" }) },
  { value: "sign-in", label: t`Sign-in` },
  { value: "notices", label: t`Notices and mail` },
] as const;

export function SettingsPage() {
  const client = useQueryClient();
  const settings = useQuery(settingsQuery);
  const tab = useTab(TABS);
  const reread = () => client.invalidateQueries({ queryKey: SETTINGS_KEY });
  return (
    <Page
      title={t`Settings`}
      lead={t`Your name, how you sign in, what you are told about, and what your invoices say.`}
      size="sm"
    >
      <TabBar label={t`Settings`} tabs={TABS} value={tab} />
      <Loaded query={settings} skeleton={<SettingsSkeleton />}>
        {(data) => (
          <>
            {tab === "you" && (
              <>
                <Profile settings={data} />
                <Section title={t`Language`}>
                  <OwnLanguage />
                </Section>
                <MembersLink />
                <BuyerDetailsSection />
                <Appearance />
                <OwnData owner={data} />
              </>
            )}
            {tab === "sign-in" && (
              <>
                <EmailAddress settings={data} onChanged={reread} />
                <Password settings={data} onChanged={reread} />
                <SecondFactor
                  isOn={data.totpEnabled}
                  codesLeft={data.recoveryCodesLeft}
                  email={data.email}
                  onChanged={reread}
                />
                <Passkeys asksForCode={data.totpEnabled} />
                <Identities asksForCode={data.totpEnabled} />
                <Devices />
              </>
            )}
            {tab === "notices" && (
              <>
                <Notices settings={data} />
                <MailChoices />
              </>
            )}
          </>
        )}
      </Loaded>
    </Page>
  );
}

/** The members of the account have a page of their own. An admin's account has one. */
function MembersLink() {
  const { role } = useViewer();
  if (role === "admin") return null;
  return (
    <Section
      title={t`Members`}
      description={t`Who works in this account, and what each of them may do.`}
      action={
        <ButtonLink size="sm" href="/members">
          {t`See members`}
        </ButtonLink>
      }
    />
  );
}

function SettingsSkeleton() {
  return (
    <div className="grid gap-6">
      <Skeleton className="h-60 rounded-lg" />
      <Skeleton className="h-72 rounded-lg" />
      <Skeleton className="h-32 rounded-lg" />
    </div>
  );
}

function Profile({ settings: { name: saved } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const form = useForm({
    first: { name: saved },
    wrong: ({ name }) => ({ name: isBlank(name) ? t`Enter your name, as others see it.` : null }),
    send: async ({ name }) => {
      await ask(api.settings.profile.patch({ name: name.trim() }));
      await Promise.all([
        client.invalidateQueries({ queryKey: SETTINGS_KEY }),
        client.invalidateQueries({ queryKey: ME_KEY }),
      ]);
    },
    onSent: () => {
      form.reset({ name: form.values.name.trim() });
      toast.done(t`Name saved.`);
    },
  });
  return (
    <Section title={t({ message: "You", context: "settings of oneself" })}>
      <PageForm form={form} saveLabel={t`Save name`} lock={lock}>
        <TextField label={t`Name`} {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} autoComplete="name" />
      </PageForm>
    </Section>
  );
}

/** The thresholds of the notices on Home. 0 switches a notice off. */
function Notices({ settings: { notices } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer("balances");
  const form = useForm({
    first: typedNotices(notices),
    wrong: ({ unitsPercent, balanceNanoUsd, days }) => ({
      unitsPercent: checkCount(unitsPercent, NOTICE_PERCENT),
      balanceNanoUsd: checkUsd(balanceNanoUsd, { maxUsd: MONEY_USD_MAX, decimals: 9 }),
      days: checkCount(days, NOTICE_DAYS),
    }),
    send: async ({ unitsPercent, balanceNanoUsd, days }) => {
      const thresholds = {
        unitsPercent: readCount(unitsPercent) ?? 0,
        balanceNanoUsd: parseUsd(balanceNanoUsd) ?? "0",
        days: readCount(days) ?? 0,
      };
      await ask(api.settings.notices.patch(thresholds));
      await Promise.all([
        client.invalidateQueries({ queryKey: SETTINGS_KEY }),
        client.invalidateQueries({ queryKey: HOME_KEY }),
      ]);
      return thresholds;
    },
    onSent: (thresholds) => {
      form.reset(typedNotices(thresholds));
      toast.done(t`Notices saved.`);
    },
  });
  return (
    <Section
      title={t`Notices`}
      description={t`Your first page shows a notice when one of these is reached, before requests stop. 0 switches a notice off.`}
    >
      <PageForm form={form} saveLabel={t`Save notices`} lock={lock}>
        <div className="grid gap-4 sm:grid-cols-3">
          <CountField
            label={t`Package left`}
            hint={t`Percent of its requests.`}
            after={t`% or less`}
            {...form.field("unitsPercent")}
          />
          <DollarField label={t`Balance below`} hint={t`The available amount.`} {...form.field("balanceNanoUsd")} />
          <CountField
            label={t`Package ends in`}
            hint={t`Before its last day.`}
            after={t`days or less`}
            {...form.field("days")}
          />
        </div>
      </PageForm>
    </Section>
  );
}

function typedNotices({ unitsPercent, balanceNanoUsd, days }: Settings["notices"]) {
  return { unitsPercent: String(unitsPercent), balanceNanoUsd: toUsdInput(balanceNanoUsd), days: String(days) };
}

function Appearance() {
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  return (
    <Section title={t`Appearance`} description={t`On this device only.`}>
      <Segmented label={t`Theme`} value={theme} onValue={chooseTheme} options={THEMES} />
    </Section>
  );
}
