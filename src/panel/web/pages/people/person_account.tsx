import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { api, ask } from "../../api.ts";
import { limitsText } from "../../copy.ts";
import { formatInstant } from "../../format.ts";
import { DownloadButton } from "../../shared/download_button.tsx";
import { type Opened, type Person, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button } from "../../ui/buttons.tsx";
import { Switch } from "../../ui/choices.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Section } from "../../ui/page.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import type { PersonDialogKind } from "./person_dialogs.tsx";

/** The account of a person: name, sign-in, second factor, pay-as-you-go, suspension. */

export function AccountSection({ person, dialog }: { person: Person; dialog: Opened<PersonDialogKind> }) {
  const viewer = useViewer();
  const { lock } = viewer;
  const isAdmin = viewer.role === "admin";
  const { accountId, name, createdAt } = person;
  const isSelf = accountId === viewer.accountId;
  const activate = useActivate(person);
  const open = (kind: PersonDialogKind) => () => dialog.open(kind);
  const isActive = person.status === "active";
  return (
    <Section title={t`Account`} flush>
      <ul className="divide-y divide-line">
        <Line
          title={t`Name`}
          text={
            <Trans>
              {name}, account {accountId}, added <Instant iso={createdAt} />
            </Trans>
          }
        >
          <Button size="sm" onClick={open("rename")} {...lock}>
            <Trans>Rename</Trans>
          </Button>
        </Line>
        {/* An admin's password is reset on the server; nobody else may become that admin. */}
        {isActive && !(person.role === "admin" && person.hasPassword) && (
          <Line title={t`Sign-in`} text={signInText(person)}>
            <Button size="sm" onClick={open("link")} {...lock}>
              {person.hasPassword ? t`Create a reset link` : t`Create an invitation`}
            </Button>
          </Line>
        )}
        {/* As with the password, only the server can remove an admin's. */}
        {person.totpEnabled && person.role !== "admin" && (
          <Line title={t`Second factor`} text={t`On. They cannot sign in without the app, even with a reset link.`}>
            <Button size="sm" onClick={open("second_factor")} {...lock}>
              <Trans>Remove second factor</Trans>
            </Button>
          </Line>
        )}
        <LimitsLine person={person} onSet={open("limits")} />
        {person.canSwitchPayg && <PaygLine person={person} />}
        {isAdmin && person.role === "reseller" && <PaygRightLine person={person} />}
        {!isSelf && (
          <Line
            title={isActive ? t`Access` : t`Suspended`}
            text={
              isActive
                ? t`Suspending signs them out, and their keys get a 401 error immediately. It can be undone.`
                : t`They cannot sign in, and their keys get a 401 error.`
            }
          >
            {isActive ? (
              <Button size="sm" className="text-bad!" onClick={open("suspend")} {...lock}>
                <Trans>Suspend</Trans>
              </Button>
            ) : (
              <Button size="sm" pending={activate.isPending} onClick={() => activate.mutate()} {...lock}>
                <Trans>Activate</Trans>
              </Button>
            )}
          </Line>
        )}
        {!isSelf && <DataLine person={person} onErase={open("erase")} />}
      </ul>
    </Section>
  );
}

/** What is kept of the person. */
function DataLine({ person: { accountId }, onErase }: { person: Person; onErase: () => void }) {
  const { lock } = useViewer();
  return (
    <Line title={t`Data`} text={t`What is kept of them, as a file. Erasing them cannot be undone.`}>
      <div className="flex flex-wrap gap-2">
        <DownloadButton size="sm" path={() => `/people/${accountId}/data`} fileName="account.json">
          <Trans>Download</Trans>
        </DownloadButton>
        <Button size="sm" className="text-bad!" onClick={onErase} {...lock}>
          <Trans>Erase</Trans>
        </Button>
      </div>
    </Line>
  );
}

function signInText({ hasPassword, hasIdentity, link }: Person): string {
  const until = link && formatInstant(link.expiresAt, { now: nowMs() });
  if (!hasPassword && hasIdentity) return t`Signs in by an identity provider, without a password.`;
  if (!hasPassword) return until ? t`Invited; the link works until ${until}.` : t`No password yet, and no valid link.`;
  return until ? t`Has a password. A reset link works until ${until}.` : t`Has a password.`;
}

/** The limits that apply: the lowest of its own, its package's and its reseller's. */
function LimitsLine({ person: { limits }, onSet }: { person: Person; onSet: () => void }) {
  const { lock } = useViewer();
  const { applied } = limits;
  return (
    <Line
      title={t`Limits`}
      text={applied === null ? t`None were set. Those of the service apply.` : t`${{ limits: limitsText(applied) }}.`}
    >
      <Button size="sm" onClick={onSet} {...lock}>
        <Trans>Set limits</Trans>
      </Button>
    </Line>
  );
}

function Line({ title, text, children }: { title: string; text: ReactNode; children: ReactNode }) {
  return (
    <li className="flex flex-wrap items-center justify-between gap-x-6 gap-y-2 px-4 py-3 sm:px-6">
      <div className="min-w-0 flex-[1_1_14rem]">
        <p className="text-14 font-medium">{title}</p>
        <p className="text-13 text-ink-2">{text}</p>
      </div>
      {children}
    </li>
  );
}

/** A right that is on or off. `set` returns what to say when it is set. */
function SwitchLine({
  label,
  hint,
  isOn,
  set,
}: {
  label: string;
  hint: string;
  isOn: boolean;
  set: (isOn: boolean) => Promise<string>;
}) {
  const refresh = useRefresh();
  const { lock } = useViewer();
  const setting = useMutation({
    mutationFn: set,
    onSuccess: async (said) => {
      await refresh();
      toast.done(said);
    },
    onError: (error) => toast.failed(error),
  });
  return (
    <li className="px-4 py-3 sm:px-6">
      <Switch
        label={<span className="font-medium">{label}</span>}
        hint={hint}
        checked={setting.isPending ? setting.variables : isOn}
        pending={setting.isPending}
        onValue={(wanted) => setting.mutate(wanted)}
        disabled={lock.disabled}
      />
    </li>
  );
}

function PaygLine({ person: { accountId, paygEnabled } }: { person: Person }) {
  return (
    <SwitchLine
      label={t`Pay-as-you-go`}
      hint={t`The balance pays for requests whose key is pay-as-you-go, or which the package cannot pay for.`}
      isOn={paygEnabled}
      set={async (enabled) => {
        const { paygEnabled: isOn } = await ask(api.people({ id: accountId }).payg.patch({ enabled }));
        return isOn ? t`The balance pays now.` : t`The balance no longer pays.`;
      }}
    />
  );
}

/** Whether a reseller may switch pay-as-you-go for its customers, or only an admin. */
function PaygRightLine({ person: { accountId, name, maySwitchPayg } }: { person: Person }) {
  return (
    <SwitchLine
      label={t`Pay-as-you-go of its customers`}
      hint={t`The reseller may switch it for each of its customers. If off, only an admin can, and customers cannot spend their balance until then.`}
      isOn={maySwitchPayg}
      set={async (granted) => {
        const { maySwitchPayg: may } = await ask(api.people({ id: accountId })["payg-right"].patch({ granted }));
        return may
          ? t`${name} can switch pay-as-you-go for its customers now.`
          : t`${name} can no longer switch pay-as-you-go.`;
      }}
    />
  );
}

/** Undoes a suspension. */
export function useActivate(person: Person) {
  const refresh = useRefresh();
  return useMutation({
    mutationFn: () => ask(api.people({ id: person.accountId }).activate.post()),
    onSuccess: async () => {
      await refresh();
      toast.done(t`${{ name: person.name }} is active again.`);
    },
    onError: (error) => toast.failed(error),
  });
}
