import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState, useSyncExternalStore } from "react";
import { MONEY_USD_MAX, NOTICE_DAYS, NOTICE_PERCENT, PERSON_NAME_CHARS_MAX } from "../../../limits.ts";
import { api, ask, ME_KEY, useMe } from "../api.ts";
import { parseUsd, toUsdInput } from "../format.ts";
import { chooseTheme, currentTheme, subscribeTheme } from "../theme.ts";
import { THEMES } from "../theme_options.ts";
import { Button } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { CountField, DollarField, PasswordField, TextField } from "../ui/fields.tsx";
import { type Form, isBlank, useForm } from "../ui/form.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { Devices } from "./devices.tsx";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { useViewer } from "./page_hooks.ts";
import { CodeField, checkCode, SecondFactor } from "./second_factor.tsx";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** The person's own settings: name, password, second factor, devices, notices, theme. */

const SETTINGS_KEY = ["settings"] as const;

type Settings = NonNullable<Awaited<ReturnType<typeof api.settings.get>>["data"]>;

export function SettingsPage() {
  const client = useQueryClient();
  const settings = useQuery({ queryKey: SETTINGS_KEY, queryFn: () => ask(api.settings.get()) });
  return (
    <Page title="Settings" lead="Your name, how you sign in, and when you get notices." size="sm">
      <Loaded query={settings} skeleton={<SettingsSkeleton />}>
        {(data) => (
          <>
            <Profile settings={data} />
            <Password settings={data} />
            <SecondFactor
              isOn={data.totpEnabled}
              codesLeft={data.recoveryCodesLeft}
              email={data.email}
              onChanged={() => client.invalidateQueries({ queryKey: SETTINGS_KEY })}
            />
            <Devices />
            <Notices settings={data} />
            <Appearance />
          </>
        )}
      </Loaded>
    </Page>
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

/** A form of the page, with its own button. The button is prominent once there is something to save. */
function SettingsForm({
  form,
  isChanged,
  saveLabel,
  children,
}: {
  form: Pick<Form, "submit" | "problem" | "isPending">;
  isChanged: boolean;
  saveLabel: string;
  children: ReactNode;
}) {
  const { lock } = useViewer();
  return (
    <form
      noValidate
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        form.submit();
      }}
    >
      {children}
      {form.problem}
      <div>
        <Button type="submit" variant={isChanged ? "primary" : "secondary"} pending={form.isPending} {...lock}>
          {saveLabel}
        </Button>
      </div>
    </form>
  );
}

function Profile({ settings: { name: saved, email } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const form = useForm({
    first: { name: saved },
    wrong: ({ name }) => ({ name: isBlank(name) ? "Enter your name, as others see it." : null }),
    send: async ({ name }) => {
      await ask(api.settings.profile.patch({ name: name.trim() }));
      await Promise.all([
        client.invalidateQueries({ queryKey: SETTINGS_KEY }),
        client.invalidateQueries({ queryKey: ME_KEY }),
      ]);
    },
    onSent: () => {
      form.set({ name: form.values.name.trim() });
      toast.done("Name saved.");
    },
  });
  return (
    <Section title="You">
      <SettingsForm form={form} isChanged={form.values.name !== saved} saveLabel="Save name">
        <TextField
          label="Name"
          {...form.field("name")}
          maxLength={PERSON_NAME_CHARS_MAX}
          autoComplete="name"
          disabled={lock.disabled}
        />
        <TextField label="E-mail" hint="You sign in with it. It cannot be changed." value={email} readOnly />
      </SettingsForm>
    </Section>
  );
}

function Password({ settings }: { settings: Settings }) {
  const [times, setTimes] = useState(0);
  const done = () => {
    setTimes(times + 1);
    toast.done("Password changed. Your other devices are signed out.");
  };
  return (
    <Section title="Password" description="Changing it signs out every other device.">
      {/* A new form after each change, so that its fields are empty again. */}
      <PasswordForm key={times} settings={settings} onDone={done} />
    </Section>
  );
}

function PasswordForm({ settings: { name, email, totpEnabled }, onDone }: { settings: Settings; onDone: () => void }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const { brand } = useMe();
  const form = useForm({
    first: { current: "", next: "", code: "" },
    wrong: ({ current, next, code }) => ({
      current: current === "" ? "Enter your current password." : null,
      next: checkPassword(next),
      code: totpEnabled ? checkCode(code) : null,
    }),
    send: async ({ current, next, code }) => {
      await ask(api.settings.password.post({ current, next, ...(totpEnabled && { code: code.trim() }) }));
      // The list of devices has the same query key as its beginning.
      await client.invalidateQueries({ queryKey: SETTINGS_KEY });
    },
    onSent: onDone,
  });
  const { current, next } = form.values;
  return (
    <SettingsForm form={form} isChanged={current !== "" && next !== ""} saveLabel="Change password">
      <input type="text" name="email" value={email} autoComplete="username" readOnly hidden />
      <PasswordField
        label="Current password"
        {...form.field("current")}
        autoComplete="current-password"
        disabled={lock.disabled}
      />
      <NewPassword
        label="New password"
        {...form.field("next")}
        about={[name, email, brand.name]}
        disabled={lock.disabled}
      />
      {totpEnabled && <CodeField {...form.field("code")} {...(lock.disabled && { disabled: true })} />}
    </SettingsForm>
  );
}

/** The thresholds of the notices on Home. 0 switches a notice off. */
function Notices({ settings: { notices } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const saved = typedNotices(notices);
  const form = useForm({
    first: saved,
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
        client.invalidateQueries({ queryKey: ["home"] }),
      ]);
      return thresholds;
    },
    onSent: (thresholds) => {
      form.set(typedNotices(thresholds));
      toast.done("Notices saved.");
    },
  });
  const { values } = form;
  const isChanged =
    values.unitsPercent !== saved.unitsPercent ||
    values.balanceNanoUsd !== saved.balanceNanoUsd ||
    values.days !== saved.days;
  const field = (name: keyof typeof saved) => ({ ...form.field(name), disabled: lock.disabled });
  return (
    <Section
      title="Notices"
      description="Home shows a notice when one of these is reached, before requests stop. 0 switches a notice off."
    >
      <SettingsForm form={form} isChanged={isChanged} saveLabel="Save notices">
        <div className="grid gap-4 sm:grid-cols-3">
          <CountField
            label="Package left"
            hint="Percent of its requests."
            after="% or less"
            {...field("unitsPercent")}
          />
          <DollarField label="Balance below" hint="The available amount." {...field("balanceNanoUsd")} />
          <CountField label="Package ends in" hint="Before its last day." after="days or less" {...field("days")} />
        </div>
      </SettingsForm>
    </Section>
  );
}

function typedNotices({ unitsPercent, balanceNanoUsd, days }: Settings["notices"]) {
  return { unitsPercent: String(unitsPercent), balanceNanoUsd: toUsdInput(balanceNanoUsd), days: String(days) };
}

function Appearance() {
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  return (
    <Section title="Appearance" description="On this device only.">
      <Segmented label="Theme" value={theme} onValue={chooseTheme} options={THEMES} />
    </Section>
  );
}
