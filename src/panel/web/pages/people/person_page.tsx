import { plural, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useMutation, useQuery } from "@tanstack/react-query";
import { Ban, ChartColumn, Ellipsis, Eye, Plus, Users } from "lucide-react";
import { lazy, Suspense } from "react";
import { ApiError, api, ask } from "../../api.ts";
import { CONFIRM } from "../../copy.ts";
import { FAILURES } from "../../failures.ts";
import { formatInstant } from "../../format.ts";
import { type Opened, type Person, useOpened, useRefresh, useViewer } from "../../shared/page_hooks.ts";
import { Button, ButtonLink, IconButton } from "../../ui/buttons.tsx";
import { nowMs } from "../../ui/clock.ts";
import { Confirm } from "../../ui/dialog.tsx";
import { Later } from "../../ui/later.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Banner, Empty, ErrorState, Loaded, Loading, Skeleton } from "../../ui/states.tsx";
import { TabBar, useTab } from "../../ui/tab_bar.tsx";
import { toast } from "../../ui/toast.ts";
import { BalanceSection } from "../billing/balance_section.tsx";
import { PackagesSection } from "../billing/packages_section.tsx";
import { type Package, useBilling } from "../billing/queries.ts";
import { Renewal } from "../billing/renewal.tsx";
import { UsageChart } from "../usage/usage_chart.tsx";
import { AccountSection, useActivate } from "./person_account.tsx";
import type { PersonDialogKind } from "./person_dialogs.tsx";
import { Allotments, TheirKeys } from "./person_parts.tsx";
import { personQuery } from "./queries.ts";

/**
 * The page of one person, for their reseller or an admin. What only an admin may do is shown only to admins; the server enforces the
 * same rule.
 */

const AssignDialog = lazy(() => import("../orders/assign_dialog.tsx").then((m) => ({ default: m.AssignDialog })));
const LimitsDialog = lazy(() => import("./person_limits.tsx").then((m) => ({ default: m.LimitsDialog })));
const Statement = lazy(() => import("../billing/statement.tsx").then((m) => ({ default: m.Statement })));
const UsageFigures = lazy(() => import("../home/usage_figures.tsx").then((m) => ({ default: m.UsageFigures })));
const loadDialogs = () => import("./person_dialogs.tsx");
const loadMoney = () => import("./person_money.tsx");
const GrantDialog = lazy(() => loadMoney().then((m) => ({ default: m.GrantDialog })));
const MoneyDialog = lazy(() => loadMoney().then((m) => ({ default: m.MoneyDialog })));
const LinkDialog = lazy(() => import("./person_invite.tsx").then((m) => ({ default: m.LinkDialog })));
const RenameDialog = lazy(() => loadDialogs().then((m) => ({ default: m.RenameDialog })));
const SecondFactorConfirm = lazy(() => loadDialogs().then((m) => ({ default: m.SecondFactorConfirm })));
const ErasePerson = lazy(() => loadDialogs().then((m) => ({ default: m.ErasePerson })));
const SuspendConfirm = lazy(() => loadDialogs().then((m) => ({ default: m.SuspendConfirm })));

const CHART_DAYS = 30;

const MONEY = { value: "money", label: t`Packages and balance` } as const;
const USAGE = { value: "usage", label: t`Usage and keys` } as const;
/** Limits, rights, and what cannot be undone. */
const ACCOUNT = { value: "account", label: t`Account` } as const;
type PersonTab = { value: "money" | "usage" | "statement" | "account"; label: string };
const TABS: readonly [PersonTab, ...PersonTab[]] = [MONEY, USAGE, ACCOUNT];
const RESELLER_TABS: typeof TABS = [MONEY, USAGE, { value: "statement", label: t`Statement` }, ACCOUNT];

/** Packages, balance, usage, keys, and the account itself. */
export function PersonView({ accountId, listName }: { accountId: number; listName: string }) {
  const person = useQuery({
    ...personQuery(accountId),
    enabled: Number.isSafeInteger(accountId),
  });
  if (person.data) return <KnownPerson person={person.data} />;
  const isUnknown = person.error instanceof ApiError && person.error.code === "not_found";
  if (isUnknown || !Number.isSafeInteger(accountId)) return <NoSuchPerson listName={listName} />;
  return (
    <Page title={listName}>
      {person.error ? (
        <ErrorState error={person.error} onRetry={() => void person.refetch()} />
      ) : (
        <Loading className="grid gap-6">
          <Skeleton className="h-5 w-72" />
          <Skeleton className="h-56 rounded-lg" />
          <Skeleton className="h-56 rounded-lg" />
        </Loading>
      )}
    </Page>
  );
}

function NoSuchPerson({ listName }: { listName: string }) {
  return (
    <Page title={listName}>
      <Section>
        <Empty icon={Users}>{FAILURES.notFound}</Empty>
      </Section>
    </Page>
  );
}

function KnownPerson({ person }: { person: Person }) {
  const { role, lock } = useViewer("packages");
  const dialog = useOpened<PersonDialogKind>();
  const isAdmin = role === "admin";
  const tabs = isAdmin && person.role === "reseller" ? RESELLER_TABS : TABS;
  const tab = useTab(tabs);
  return (
    <Page
      title={person.name}
      lead={leadOf(person, isAdmin)}
      action={
        <>
          {isAdmin && person.role !== "admin" && <ViewAs person={person} />}
          <ButtonLink href={`/usage?accountId=${person.accountId}`} icon={ChartColumn}>
            <Trans>Requests</Trans>
          </ButtonLink>
          <Button variant="primary" icon={Plus} onClick={() => dialog.open("assign")} {...lock}>
            <Trans>Assign package</Trans>
          </Button>
        </>
      }
    >
      <PersonBanner person={person} dialog={dialog} />
      <TabBar label={person.name} tabs={tabs} value={tab} />
      {tab === "money" && <Money person={person} dialog={dialog} />}
      {tab === "usage" && (
        <>
          <UsageChart
            title={plural({ days: CHART_DAYS }, { one: "Usage of the last # day", other: "Usage of the last # days" })}
            filter={{ accountId: person.accountId }}
            days={CHART_DAYS}
            empty={
              <Section title={t`Usage`}>
                <p className="text-14 text-ink-2">
                  {plural(
                    { days: CHART_DAYS },
                    { one: "No requests in the last # day.", other: "No requests in the last # days." },
                  )}
                </p>
              </Section>
            }
          />
          {person.role !== "admin" && (
            <Suspense fallback={<Skeleton className="h-96 rounded-lg" />}>
              <UsageFigures
                of={person.role === "reseller" ? { resellerId: person.accountId } : { accountId: person.accountId }}
              />
            </Suspense>
          )}
          <TheirKeys accountId={person.accountId} />
        </>
      )}
      {tab === "statement" && (
        <Suspense fallback={<Skeleton className="h-96 rounded-lg" />}>
          <Statement resellerId={person.accountId} />
        </Suspense>
      )}
      {tab === "account" && <AccountSection person={person} dialog={dialog} />}
      <Later>{dialog.what && <PersonDialog key={dialog.times} dialog={dialog} person={person} />}</Later>
    </Page>
  );
}

/** Packages and balance; of a reseller also what it may assign without paying. */
function Money({ person, dialog }: { person: Person; dialog: Opened<PersonDialogKind> }) {
  const { role, lock } = useViewer("balances");
  const billing = useBilling(person.accountId);
  const isAdmin = role === "admin";
  return (
    <>
      <Loaded query={billing} skeleton={<Skeleton className="h-64 rounded-lg" />}>
        {({ packages, balance }) => (
          <>
            <TheirPackages
              person={person}
              packages={packages}
              onTurn={() => void billing.refetch()}
              onAssign={() => dialog.open("assign")}
            />
            <BalanceSection
              accountId={person.accountId}
              balance={balance}
              role={person.role}
              action={
                <Button size="sm" onClick={() => dialog.open("money")} {...lock}>
                  {isAdmin ? t`Top up or correct` : t`Top up`}
                </Button>
              }
            />
          </>
        )}
      </Loaded>
      {isAdmin && person.role === "reseller" && <Allotments person={person} onGrant={() => dialog.open("grant")} />}
    </>
  );
}

function leadOf({ email, role, resellerName }: Person, isAdmin: boolean): string {
  if (!isAdmin) return email;
  if (role === "admin") return t`${email}, admin`;
  if (role === "reseller") return t`${email}, reseller`;
  return resellerName ? t`${email}, customer of ${resellerName}` : t`${email}, direct customer`;
}

function PersonDialog({ dialog, person }: { dialog: Opened<PersonDialogKind>; person: Person }) {
  const state = { open: dialog.isOpen, onClose: dialog.close };
  switch (dialog.what) {
    case "assign":
      return <AssignDialog {...state} holder={person} />;
    case "money":
      return <MoneyDialog {...state} person={person} />;
    case "link":
      return <LinkDialog {...state} person={person} />;
    case "rename":
      return <RenameDialog {...state} person={person} />;
    case "limits":
      return <LimitsDialog {...state} person={person} />;
    case "grant":
      return <GrantDialog {...state} person={person} />;
    case "suspend":
      return <SuspendConfirm {...state} person={person} />;
    case "erase":
      return <ErasePerson {...state} person={person} />;
    case "second_factor":
      return <SecondFactorConfirm {...state} person={person} />;
    case null:
      return null;
  }
}

/** Why the person cannot sign in, and what to do. */
function PersonBanner({ person, dialog }: { person: Person; dialog: Opened<PersonDialogKind> }) {
  const { lock } = useViewer();
  const activate = useActivate(person);
  if (person.status === "suspended") {
    return (
      <Banner
        tone="bad"
        title={t`${{ name: person.name }} is suspended.`}
        action={
          <Button size="sm" pending={activate.isPending} onClick={() => activate.mutate()} {...lock}>
            <Trans>Activate</Trans>
          </Button>
        }
      >
        <Trans>They cannot sign in, and their keys get a 401 error. Packages keep running.</Trans>
      </Banner>
    );
  }
  if (person.hasPassword) return null;
  return (
    <Banner
      tone="warn"
      title={person.link ? t`Invited, and not signed in yet.` : t`They cannot sign in yet.`}
      action={
        <Button size="sm" onClick={() => dialog.open("link")} {...lock}>
          <Trans>Create a new link</Trans>
        </Button>
      }
    >
      {person.link
        ? t`Their link works until ${{ time: formatInstant(person.link.expiresAt, { now: nowMs() }) }}. It was shown only once; a new one replaces it.`
        : t`They have no valid link to choose a password with.`}
    </Banner>
  );
}

function ViewAs({ person: { accountId, name } }: { person: Person }) {
  const view = useMutation({
    mutationFn: () => ask(api.people({ id: accountId }).view.post()),
    // A full page load, so that nothing loaded as the admin stays in memory.
    onSuccess: () => window.location.assign("/"),
    onError: (error) => toast.failed(error),
  });
  return (
    <Button icon={Eye} pending={view.isPending || view.isSuccess} onClick={() => view.mutate()}>
      <Trans>
        View as<span className="sr-only"> {name}</span>
      </Trans>
    </Button>
  );
}

function endedText(name: string, unitsDropped: number): string {
  return plural(unitsDropped, {
    one: `${name} has ended; # request dropped.`,
    other: `${name} has ended; # requests dropped.`,
  });
}

type PackagesProps = { person: Person; packages: readonly Package[]; onTurn: () => void; onAssign: () => void };

function TheirPackages({ person, packages, onTurn, onAssign }: PackagesProps) {
  const { lock } = useViewer("packages");
  const refresh = useRefresh();
  const ending = useOpened<Package>();
  // Only an active package has an allowance.
  const wordsOf = ({ state, name, allowance }: Package) =>
    state === "queued" ? CONFIRM.unqueuePackage(name) : CONFIRM.endPackage(name, allowance?.totalLeft ?? 0);
  const asked = ending.what && wordsOf(ending.what);
  return (
    <>
      <PackagesSection
        packages={packages}
        isOwn={false}
        onTurn={onTurn}
        {...(person.role === "customer" && {
          renewal: ({ packageId }) => <Renewal packageId={packageId} accountId={person.accountId} />,
        })}
        firstStep={
          <Button onClick={onAssign} {...lock}>
            <Trans>Assign the first package</Trans>
          </Button>
        }
        actions={(row) => (
          <Menu
            trigger={<IconButton icon={Ellipsis} label={t`Actions for ${{ name: row.name }}`} />}
            items={[
              {
                label: row.state === "queued" ? t`Take out of the queue` : t`End now`,
                icon: Ban,
                tone: "danger",
                disabled: lock.disabled,
                ...(lock.title && { hint: lock.title }),
                onSelect: () => ending.open(row),
              },
            ]}
          />
        )}
      />
      {ending.what && asked && (
        <Confirm
          open={ending.isOpen}
          onOpenChange={(isOpen) => isOpen || ending.close()}
          title={asked.title}
          confirmLabel={asked.confirmLabel}
          cancelLabel={t`Keep package`}
          onConfirm={async () => {
            const { accountId } = person;
            const packageId = ending.what?.packageId ?? 0;
            const { package: ended, unitsDropped } = await ask(
              api.people({ id: accountId }).packages({ packageId }).end.post(),
            );
            await refresh();
            toast.done(endedText(ended.name, unitsDropped));
          }}
        >
          {asked.body}
        </Confirm>
      )}
    </>
  );
}
