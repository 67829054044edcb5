import { select, t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Activity, CircleUser, Code, Ellipsis, Eye, LogOut, Search } from "lucide-react";
import { type ReactNode, useCallback, useEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { call, type Me, type Role } from "./api.ts";
import { READ_ONLY } from "./failures.ts";
import { groupsOf, isTab, type Place, type PlaceGroup } from "./places.ts";
import { preloadPage } from "./routes.tsx";
import { useKeys } from "./shared/account_queries.ts";
import { IncidentBanner } from "./shared/incident_banner.tsx";
import type { Theme } from "./theme.ts";
import { THEMES } from "./theme_options.ts";
import { BrandMark } from "./ui/brand_mark.tsx";
import { Button, IconButton } from "./ui/buttons.tsx";
import { Segmented } from "./ui/choices.tsx";
import { cx } from "./ui/cx.ts";
import { Drawer } from "./ui/dialog.tsx";
import { NativeSelect } from "./ui/fields.tsx";
import { Menu } from "./ui/menu.tsx";
import type { MenuItem } from "./ui/menu_list.tsx";
import { Palette, usePaletteKey } from "./ui/palette.tsx";
import type { PaletteProps } from "./ui/palette_list.tsx";
import { StaleNotice } from "./ui/stale_notice.tsx";
import { toast } from "./ui/toast.ts";

/**
 * The frame around every signed-in page. From 1024 px a side bar of 224 px, from 768 px one of icons; below, a bar of four tabs and More.
 *
 *   <Shell me={me} theme={theme} onTheme={setTheme} onSignOut={signOut} onLeaveView={leave}>…page…</Shell>
 */

type ShellProps = {
  me: Me;
  theme: Theme;
  onTheme: (theme: Theme) => void;
  onSignOut: () => void;
  /** Stops viewing another person's panel. */
  onLeaveView?: () => void;
  children: ReactNode;
};

/** Pages without this frame: the browser loads them. */
const OUTSIDE = [
  { label: t`API reference`, href: "/docs/api", icon: Code, isOutside: true },
  { label: t`Status`, href: "/status", icon: Activity, isOutside: true },
] as const;

export function Shell({ me, theme, onTheme, onSignOut, onLeaveView, children }: ShellProps) {
  const [isPaletteOpen, setPaletteOpen] = useState(false);
  usePaletteKey(useCallback(() => setPaletteOpen(true), []));
  const groups = groupsOf(roleOf(me));
  const pages = groups.flatMap(({ places }) => places).map(({ label, icon, path }) => ({ label, icon, href: path }));
  const account = <AccountMenu me={me} theme={theme} onTheme={onTheme} onSignOut={onSignOut} />;
  return (
    <div className="flex min-h-dvh flex-col" data-viewing={me.viewing ? "" : undefined}>
      <a
        href="#content"
        className="fixed top-2 start-2 z-50 -translate-y-16 rounded-md bg-raised px-4 py-2 font-medium text-accent-text focus:translate-y-0 focus:shadow-overlay"
      >
        <Trans>Skip to content</Trans>
      </a>
      {me.viewing && <ViewingBar name={me.viewing.name} onLeave={onLeaveView} />}
      <div className="flex flex-1">
        <Rail groups={groups} brand={me.brand} account={account} onSearch={() => setPaletteOpen(true)} />
        <div className="flex min-w-0 flex-1 flex-col">
          <header className="flex h-14 items-center justify-between gap-3 border-b border-line px-4 md:hidden">
            <Brand brand={me.brand} />
            <IconButton icon={Search} label={t`Go to`} onClick={() => setPaletteOpen(true)} />
          </header>
          <main
            id="content"
            tabIndex={-1}
            className="flex min-w-0 flex-1 flex-col pb-[calc(var(--tabs)+env(safe-area-inset-bottom))] outline-none"
          >
            <StaleNotice />
            <IncidentBanner />
            {children}
          </main>
        </div>
      </div>
      <Tabs groups={groups} me={me} theme={theme} onTheme={onTheme} onSignOut={onSignOut} />
      <OwnPalette open={isPaletteOpen} onOpenChange={setPaletteOpen} pages={[...pages, ...OUTSIDE]} />
    </div>
  );
}

/** Loads the keys only when it opens. */
function OwnPalette(props: Omit<PaletteProps, "keys">) {
  const keys = useKeys({ enabled: props.open });
  const usable = keys.data?.rows.filter(({ status }) => status !== "revoked") ?? [];
  return (
    <Palette {...props} keys={usable.map(({ keyId, name, masked }) => ({ id: String(keyId), name, prefix: masked }))} />
  );
}

/** Of the account that the person works in, or of the one they view. */
function roleOf({ viewing, account }: Me): Role {
  return viewing?.role ?? account.role;
}

function ViewingBar({ name, onLeave }: { name: string; onLeave: (() => void) | undefined }) {
  return (
    <aside
      aria-label={t`Viewing as another person`}
      className="sticky top-0 z-20 flex min-h-12 items-center gap-x-3 gap-y-1 border-b border-warn/30 bg-warn-soft px-4 py-1 text-13 text-ink"
    >
      <Eye size={16} aria-hidden className="flex-none text-warn" />
      <p className="min-w-0 flex-1">
        <Trans>
          Viewing as <strong className="font-semibold">{name}</strong>.
        </Trans>{" "}
        {READ_ONLY}
      </p>
      {onLeave && (
        <Button size="sm" onClick={onLeave}>
          <Trans>Leave</Trans>
        </Button>
      )}
    </aside>
  );
}

function Rail({
  groups,
  brand,
  account,
  onSearch,
}: {
  groups: readonly PlaceGroup[];
  brand: Me["brand"];
  account: ReactNode;
  onSearch: () => void;
}) {
  return (
    <header className="sticky top-(--bar) z-10 hidden h-[calc(100dvh-var(--bar))] w-16 flex-none flex-col border-e border-line md:flex lg:w-56">
      <div className="flex h-14 flex-none items-center px-3 lg:px-5">
        <Brand brand={brand} isNarrow />
      </div>
      <div className="px-3 pb-2">
        <button
          type="button"
          onClick={onSearch}
          className="flex min-h-9 w-full items-center justify-center gap-3 rounded-md text-13 text-ink-3 transition-colors hover:bg-hover lg:justify-start lg:border lg:border-line lg:px-3"
        >
          <Search size={16} aria-hidden className="flex-none" />
          <span className="flex-1 text-start max-lg:sr-only">{t`Go to`}</span>
          <kbd aria-hidden className="hidden font-sans text-12 lg:block">
            {IS_MAC ? "⌘K" : "Ctrl K"}
          </kbd>
        </button>
      </div>
      <nav
        aria-label={t({ message: "Main", context: "name of the navigation" })}
        className="flex min-h-0 flex-1 flex-col gap-4 overflow-y-auto px-3 py-2"
      >
        {groups.map(({ id, heading, places }, index) => (
          <div key={id}>
            {heading && (
              <>
                <p className="hidden px-3 pb-1 text-12 text-ink-3 lg:block">{heading}</p>
                <div aria-hidden className="mx-2 mb-3 border-t border-line lg:hidden" />
              </>
            )}
            <ul className="grid gap-0.5">
              {places.map((place) => (
                <li key={place.path}>
                  <NavLink
                    place={place}
                    className="justify-center lg:justify-start lg:px-3"
                    labelClassName="sr-only lg:not-sr-only"
                  />
                </li>
              ))}
              {index === groups.length - 1 &&
                OUTSIDE.map((page) => (
                  <li key={page.href}>
                    <OutsideLink
                      page={page}
                      className="justify-center lg:justify-start lg:px-3"
                      labelClassName="sr-only lg:not-sr-only"
                    />
                  </li>
                ))}
            </ul>
          </div>
        ))}
      </nav>
      <div className="flex-none border-t border-line p-3">{account}</div>
    </header>
  );
}

const IS_MAC = typeof navigator !== "undefined" && /Mac|iPhone|iPad/.test(navigator.userAgent);

function useIsCurrent(path: string): boolean {
  const [location] = useLocation();
  return isAt(path, location);
}

function isAt(path: string, location: string): boolean {
  return path === "/" ? location === "/" : location === path || location.startsWith(`${path}/`);
}

const NAV_LINK = "flex min-h-9 items-center gap-3 rounded-md text-14 transition-colors pointer-coarse:min-h-11";
const NOT_CURRENT = "text-ink-2 hover:bg-hover hover:text-ink";

function OutsideLink({
  page: { href, label, icon: Icon },
  className,
  labelClassName,
}: {
  page: (typeof OUTSIDE)[number];
  className?: string;
  labelClassName?: string;
}) {
  return (
    <a href={href} title={label} className={cx(NAV_LINK, NOT_CURRENT, className)}>
      <Icon size={16} aria-hidden className="flex-none" />
      <span className={labelClassName}>{label}</span>
    </a>
  );
}

function NavLink({
  place: { path, label, icon: Icon },
  className,
  labelClassName,
  onClick,
}: {
  place: Place;
  className?: string;
  labelClassName?: string;
  onClick?: () => void;
}) {
  const isCurrent = useIsCurrent(path);
  const preload = () => preloadPage(path);
  const link = useRef<HTMLAnchorElement>(null);
  // An admin's navigation is longer than most windows.
  useEffect(() => {
    if (isCurrent) link.current?.scrollIntoView({ block: "nearest" });
  }, [isCurrent]);
  return (
    <Link
      ref={link}
      href={path}
      title={label}
      aria-current={isCurrent ? "page" : undefined}
      onPointerEnter={preload}
      onFocus={preload}
      {...(onClick && { onClick })}
      className={cx(NAV_LINK, isCurrent ? "bg-accent-soft font-medium text-accent-text" : NOT_CURRENT, className)}
    >
      <Icon size={16} aria-hidden className="flex-none" />
      <span className={labelClassName}>{label}</span>
    </Link>
  );
}

function Brand({ brand, isNarrow = false }: { brand: Me["brand"]; isNarrow?: boolean }) {
  return (
    <Link href="/" className="flex min-w-0 items-center gap-3 rounded-sm text-14 font-semibold">
      <BrandMark brand={brand} isNarrow={isNarrow} />
    </Link>
  );
}

type AccountProps = Pick<ShellProps, "me" | "theme" | "onTheme" | "onSignOut">;

function AccountMenu({ me, theme, onTheme, onSignOut }: AccountProps) {
  const items: MenuItem[] = [
    { label: t`Settings`, icon: CircleUser, href: "/settings" },
    "line",
    ...accountItems(me),
    {
      heading: t`Theme`,
      value: theme,
      onValue: (value) => onTheme(THEMES.find((each) => each.value === value)?.value ?? "system"),
      options: THEMES,
    },
    "line",
    { label: t`Sign out`, icon: LogOut, onSelect: onSignOut },
  ];
  return (
    <Menu
      side="top"
      align="start"
      header={<WhoIsIn me={me} />}
      items={items}
      trigger={
        <button
          type="button"
          className="flex min-h-10 w-full items-center justify-center gap-3 rounded-md text-start transition-colors hover:bg-hover lg:justify-start lg:px-2"
        >
          <span
            aria-hidden
            className="grid size-7 flex-none place-content-center rounded-full bg-sunken text-12 font-semibold text-ink-2 ring-1 ring-line"
          >
            {initials(me.person.name)}
          </span>
          <span className="sr-only">
            <Trans>Account:</Trans>{" "}
          </span>
          <span className="min-w-0 flex-1 max-lg:sr-only">
            <span className="block truncate text-13 font-medium">{me.person.name}</span>
            <span className="block truncate text-12 text-ink-3">{me.person.email}</span>
          </span>
        </button>
      }
    />
  );
}

/** The accounts that the person works in, if there are several. */
function accountItems({ account, accounts }: Me): MenuItem[] {
  if (accounts.length < 2) return [];
  return [
    {
      heading: t`Account`,
      value: String(account.accountId),
      onValue: (value) => void workIn(value),
      options: accounts.map(({ accountId, name }) => ({ value: String(accountId), label: name })),
    },
    "line",
  ];
}

async function workIn(accountId: string): Promise<void> {
  try {
    await call("/api/panel/work-in", { method: "POST", body: { accountId: Number(accountId) } });
    // A full page load, so that nothing of the other account stays in memory.
    window.location.replace("/");
  } catch (thrown) {
    toast.failed(thrown);
  }
}

function WhoIsIn({ me: { person, account, member } }: { me: Me }) {
  const { role } = person;
  const { name } = account;
  return (
    <>
      <p className="truncate text-13 font-medium">{person.name}</p>
      <p className="truncate text-12 text-ink-3">
        {person.email},{" "}
        {account.accountId === person.accountId
          ? select(role, { customer: "customer", reseller: "reseller", other: "admin" })
          : select(member, {
              owner: `owner of ${name}`,
              developer: `developer of ${name}`,
              billing: `billing of ${name}`,
              other: `viewer of ${name}`,
            })}
      </p>
    </>
  );
}

function initials(name: string): string {
  const words = name.trim().split(/\s+/);
  return [words[0], words.length > 1 ? words[words.length - 1] : ""]
    .map((word) => Array.from(word ?? "")[0] ?? "")
    .join("")
    .toUpperCase();
}

function Tabs({ groups, ...account }: AccountProps & { groups: readonly PlaceGroup[] }) {
  const [isMoreOpen, setMoreOpen] = useState(false);
  const tabs = groups.flatMap(({ places }) => places).filter((place) => isTab(place, roleOf(account.me)));
  const isMore = !useIsOneCurrent(tabs);
  return (
    <nav
      aria-label={t({ message: "Main", context: "name of the navigation" })}
      className="fixed inset-x-0 bottom-0 z-30 border-t border-line bg-surface pb-[env(safe-area-inset-bottom)] md:hidden"
    >
      <ul className="grid h-14 grid-cols-5">
        {tabs.map((place) => (
          <li key={place.path} className="grid">
            <Tab {...place} />
          </li>
        ))}
        <li className="grid">
          <button
            type="button"
            aria-haspopup="dialog"
            aria-expanded={isMoreOpen}
            onClick={() => setMoreOpen(true)}
            className={cx(TAB, isMore ? "text-accent-text" : "text-ink-2")}
          >
            <Ellipsis size={20} aria-hidden />
            <Trans context="other pages">More</Trans>
          </button>
        </li>
      </ul>
      <Drawer open={isMoreOpen} onOpenChange={setMoreOpen} title={t({ message: "More", context: "other pages" })}>
        <MoreList groups={groups} {...account} onClose={() => setMoreOpen(false)} />
      </Drawer>
    </nav>
  );
}

const TAB = "flex flex-col items-center justify-center gap-0.5 text-12 font-medium -outline-offset-2";

function useIsOneCurrent(places: readonly Place[]): boolean {
  const [location] = useLocation();
  return places.some(({ path }) => isAt(path, location));
}

function Tab({ path, label, icon: Icon }: Place) {
  const isCurrent = useIsCurrent(path);
  return (
    <Link
      href={path}
      aria-current={isCurrent ? "page" : undefined}
      className={cx(TAB, isCurrent ? "text-accent-text" : "text-ink-2")}
    >
      <Icon size={20} aria-hidden />
      <span className="max-w-full truncate">{label}</span>
    </Link>
  );
}

function MoreList({
  groups,
  me,
  theme,
  onTheme,
  onSignOut,
  onClose,
}: AccountProps & { groups: readonly PlaceGroup[]; onClose: () => void }) {
  return (
    <div className="grid gap-4">
      {groups.map(({ id, heading, places }, index) => (
        <div key={id}>
          {heading && <p className="px-3 pb-1 text-12 text-ink-3">{heading}</p>}
          <ul>
            {places
              .filter((place) => !isTab(place, roleOf(me)))
              .map((place) => (
                <li key={place.path}>
                  <NavLink place={place} className="min-h-11 px-3" onClick={onClose} />
                </li>
              ))}
            {index === groups.length - 1 &&
              OUTSIDE.map((page) => (
                <li key={page.href}>
                  <OutsideLink page={page} className="min-h-11 px-3" />
                </li>
              ))}
          </ul>
        </div>
      ))}
      <div className="grid gap-3 border-t border-line pt-4">
        <div className="px-3">
          <WhoIsIn me={me} />
        </div>
        {me.accounts.length > 1 && (
          <div className="px-3">
            <NativeSelect
              label={t`Account`}
              value={String(me.account.accountId)}
              onValue={(value) => void workIn(value)}
              options={me.accounts.map(({ accountId, name }) => ({ value: String(accountId), label: name }))}
            />
          </div>
        )}
        <div className="px-3">
          <Segmented label={t`Theme`} value={theme} onValue={onTheme} options={THEMES} />
        </div>
        <Button variant="quiet" icon={LogOut} onClick={onSignOut} className="justify-start px-3">
          <Trans>Sign out</Trans>
        </Button>
      </div>
    </div>
  );
}
