import { useQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useState, useSyncExternalStore } from "react";
import { api, ask, ME_KEY, useMe } from "../api.ts";
import { parseUsd, toUsdInput } from "../format.ts";
import { chooseTheme, currentTheme, subscribeTheme } from "../theme.ts";
import { THEMES } from "../theme_options.ts";
import { Button } from "../ui/buttons.tsx";
import { Segmented } from "../ui/choices.tsx";
import { Field, PasswordInput, TextInput } from "../ui/fields.tsx";
import { useForm } from "../ui/form.tsx";
import { Page, Section } from "../ui/page.tsx";
import { Loaded, Skeleton } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { Devices } from "./devices.tsx";
import { checkPassword, NewPassword } from "./new_password.tsx";
import { useViewer } from "./page_hooks.ts";
import { CodeField, checkCode, SecondFactor } from "./second_factor.tsx";
import { checkCount, checkUsd, readCount } from "./typed_numbers.ts";

/** One's own settings: name, password, second factor, devices, notices, looks. */

const NAME_CHARS_MAX = 100;
/** Source: accounts › people_store. */
const NOTICE_DAYS_MAX = 30;
const NOTICE_USD_MAX = 9_000_000;
const SETTINGS_KEY = ["settings"] as const;

type Settings = NonNullable<Awaited<ReturnType<typeof api.settings.get>>["data"]>;

export function SettingsPage() {
  const client = useQueryClient();
  const settings = useQuery({ queryKey: SETTINGS_KEY, queryFn: () => ask(api.settings.get()) });
  return (
    <Page title="Settings" lead="Who you are, how you sign in, and when we tell you something." size="sm">
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
            <Looks />
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

/** A form of the page with its own button, which is lively once there is something to save. */
function OwnForm({
  onSubmit,
  isChanged,
  isPending,
  save,
  children,
}: {
  onSubmit: () => void;
  isChanged: boolean;
  isPending: boolean;
  save: string;
  children: ReactNode;
}) {
  const { lock } = useViewer();
  return (
    <form
      noValidate
      className="grid gap-4"
      onSubmit={(event) => {
        event.preventDefault();
        onSubmit();
      }}
    >
      {children}
      <div>
        <Button type="submit" variant={isChanged ? "primary" : "secondary"} pending={isPending} {...lock}>
          {save}
        </Button>
      </div>
    </form>
  );
}

function Profile({ settings: { name: saved, email } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const [typed, setTyped] = useState<string | null>(null);
  const name = typed ?? saved;
  const form = useForm({
    wrong: { name: name.trim() === "" ? "Your name, as others see it." : null },
    send: async () => {
      await ask(api.settings.profile.patch({ name: name.trim() }));
      await Promise.all([
        client.invalidateQueries({ queryKey: SETTINGS_KEY }),
        client.invalidateQueries({ queryKey: ME_KEY }),
      ]);
    },
    onSent: () => {
      setTyped(null);
      toast.done("Name saved.");
    },
  });
  return (
    <Section title="You">
      <OwnForm onSubmit={form.submit} isChanged={name !== saved} isPending={form.isPending} save="Save name">
        <Field label="Name" error={form.errorOf("name")}>
          <TextInput
            value={name}
            onValue={setTyped}
            maxLength={NAME_CHARS_MAX}
            autoComplete="name"
            disabled={lock.disabled}
          />
        </Field>
        <Field label="E-mail" hint="You sign in with it. It cannot be changed.">
          <TextInput value={email} readOnly />
        </Field>
        {form.problem}
      </OwnForm>
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
      {/* A new form after each change: nothing of the old one is left in its fields. */}
      <PasswordForm key={times} settings={settings} onDone={done} />
    </Section>
  );
}

function PasswordForm({ settings: { name, email, totpEnabled }, onDone }: { settings: Settings; onDone: () => void }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const { brand } = useMe();
  const [current, setCurrent] = useState("");
  const [next, setNext] = useState("");
  const [code, setCode] = useState("");
  const form = useForm({
    wrong: {
      current: current === "" ? "Your present password." : null,
      next: checkPassword(next),
      code: totpEnabled ? checkCode(code) : null,
    },
    send: async () => {
      await ask(api.settings.password.post({ current, next, ...(totpEnabled && { code: code.trim() }) }));
      // The devices stand in there as well.
      await client.invalidateQueries({ queryKey: SETTINGS_KEY });
    },
    onSent: onDone,
  });
  return (
    <OwnForm
      onSubmit={form.submit}
      isChanged={current !== "" && next !== ""}
      isPending={form.isPending}
      save="Change password"
    >
      <input type="text" name="email" value={email} autoComplete="username" readOnly hidden />
      <Field label="Present password" error={form.errorOf("current")}>
        <PasswordInput value={current} onValue={setCurrent} autoComplete="current-password" disabled={lock.disabled} />
      </Field>
      <NewPassword
        label="New password"
        value={next}
        onValue={setNext}
        error={form.errorOf("next")}
        about={[name, email, brand.name]}
        disabled={lock.disabled}
      />
      {totpEnabled && (
        <CodeField value={code} onValue={setCode} error={form.errorOf("code")} disabled={lock.disabled} />
      )}
      {form.problem}
    </OwnForm>
  );
}

/** Thresholds below which Home says something; 0 switches one off. */
function Notices({ settings: { notices } }: { settings: Settings }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const saved = {
    percent: String(notices.unitsPercent),
    balance: toUsdInput(notices.balanceNanoUsd),
    days: String(notices.days),
  };
  const [typed, setTyped] = useState<Partial<typeof saved>>({});
  const { percent, balance, days } = { ...saved, ...typed };
  const isChanged = percent !== saved.percent || balance !== saved.balance || days !== saved.days;
  const form = useForm({
    wrong: {
      unitsPercent: checkCount(percent, { min: 0, max: 100 }),
      balanceNanoUsd: checkUsd(balance, { maxUsd: NOTICE_USD_MAX, decimals: 9 }),
      days: checkCount(days, { min: 0, max: NOTICE_DAYS_MAX }),
    },
    send: async () => {
      const wanted = {
        unitsPercent: readCount(percent) ?? 0,
        balanceNanoUsd: parseUsd(balance) ?? "0",
        days: readCount(days) ?? 0,
      };
      await ask(api.settings.notices.patch(wanted));
      await Promise.all([
        client.invalidateQueries({ queryKey: SETTINGS_KEY }),
        client.invalidateQueries({ queryKey: ["home"] }),
      ]);
    },
    onSent: () => {
      setTyped({});
      toast.done("Notices saved.");
    },
  });
  const set = (change: Partial<typeof saved>) => setTyped({ ...typed, ...change });
  return (
    <Section
      title="Notices"
      description="Home tells you when one of these is reached, so that nothing stops by surprise. 0 switches one off."
    >
      <OwnForm onSubmit={form.submit} isChanged={isChanged} isPending={form.isPending} save="Save notices">
        <div className="grid gap-4 sm:grid-cols-3">
          <Field label="Package left" hint="Percent of its requests." error={form.errorOf("unitsPercent")}>
            <TextInput
              value={percent}
              onValue={(value) => set({ percent: value })}
              inputMode="numeric"
              after="% or less"
              disabled={lock.disabled}
              className="figures"
            />
          </Field>
          <Field label="Balance below" hint="What is free, held apart." error={form.errorOf("balanceNanoUsd")}>
            <TextInput
              value={balance}
              onValue={(value) => set({ balance: value })}
              inputMode="decimal"
              before="$"
              disabled={lock.disabled}
              className="figures"
            />
          </Field>
          <Field label="Package ends in" hint="Before its last day." error={form.errorOf("days")}>
            <TextInput
              value={days}
              onValue={(value) => set({ days: value })}
              inputMode="numeric"
              after="days or less"
              disabled={lock.disabled}
              className="figures"
            />
          </Field>
        </div>
        {form.problem}
      </OwnForm>
    </Section>
  );
}

function Looks() {
  const theme = useSyncExternalStore(subscribeTheme, currentTheme);
  return (
    <Section title="Looks" description="On this device alone.">
      <Segmented label="Theme" value={theme} onValue={chooseTheme} options={THEMES} />
    </Section>
  );
}
