import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { ChartColumn, House, KeyRound } from "lucide-react";
import { type CSSProperties, useState } from "react";
import { type Accent, accentVariables, type Shades } from "../../../../accounts/accent.ts";
import { BrandMark } from "../../ui/brand_mark.tsx";
import { Segmented } from "../../ui/choices.tsx";
import { cx } from "../../ui/cx.ts";
import { Section } from "../../ui/page.tsx";
import { PasskeyChoice } from "../sign_in/passkey_choice.tsx";
import { SignInFields, SignInView } from "../sign_in/sign_in_view.tsx";

/** A preview of the sign-in page and the panel in either theme, before the brand is saved. */

type Pictures = { logoLight: string | null; logoDark: string | null; icon: string | null };
type Theme = "light" | "dark";

const THEMES = [
  { value: "light", label: t`Light` },
  { value: "dark", label: t`Dark` },
] as const;

export function BrandPreview({
  name,
  support,
  pictures,
  shades,
  sendsMail,
  signUp,
}: {
  name: string;
  support: string;
  /** Whether the brand's customers can get a link for a new password. */
  sendsMail: boolean;
  signUp: boolean;
  pictures: Pictures;
  /** null: the standard colour. */
  shades: Accent | null;
}) {
  const [theme, setTheme] = useState<Theme>("light");
  const brand = { name, logoLight: pictures.logoLight, logoDark: pictures.logoDark };
  const mark = <BrandMark brand={brand} theme={theme} />;
  return (
    <Section
      title={t`What customers see`}
      action={<Segmented label={t`Theme of the preview`} value={theme} onValue={setTheme} options={THEMES} />}
      className="lg:sticky lg:top-[calc(var(--bar)+1.5rem)]"
    >
      <figure
        aria-label={
          theme === "light" ? t`Sign-in page and panel of ${name}, light` : t`Sign-in page and panel of ${name}, dark`
        }
        // Nothing in it can be used: it is a picture, drawn by the real page.
        inert
        style={accentStyle(shades?.[theme])}
        className={cx("grid gap-4 overflow-hidden rounded-md border border-line bg-bg pb-4 text-ink", `on-${theme}`)}
      >
        <Tab icon={pictures.icon} name={name} />
        <div className="grid gap-6 px-4 py-4">
          <SignInView
            look={brand}
            theme={theme}
            name={name}
            support={support === "" ? null : support}
            sendsMail={sendsMail}
            signUp={signUp}
            isPreview
          >
            <SignInFields email="" password="" isPreview />
            <PasskeyChoice />
          </SignInView>
        </div>
        <div className="mx-4 grid text-12 grid-cols-[8.5rem_minmax(0,1fr)] overflow-hidden rounded-md border border-line">
          <span className="grid content-start gap-2 border-e border-line p-2">
            <span className="flex min-w-0 items-center gap-2 px-1 py-1 text-12 font-semibold">{mark}</span>
            <Rail />
          </span>
          <HomePage />
        </div>
      </figure>
    </Section>
  );
}

/** Shades as a style. undefined: the standard colours of app.css stay. */
export function accentStyle(shades: Shades | undefined): CSSProperties {
  return shades === undefined ? {} : accentVariables(shades);
}

function Tab({ icon, name }: { icon: string | null; name: string }) {
  return (
    <span className="flex bg-sunken px-2 pt-2">
      <span className="flex max-w-48 min-w-0 text-12 items-center gap-2 rounded-t-md bg-bg px-3 py-1.5">
        {icon === null ? (
          <span className="size-4 flex-none rounded-sm bg-line" />
        ) : (
          <img src={icon} alt="" className="size-4 flex-none object-contain" />
        )}
        <span className="truncate">
          <Trans>Sign in · {name}</Trans>
        </span>
      </span>
    </span>
  );
}

const PLACES = [
  { id: "home", icon: House, label: t`Home` },
  { id: "keys", icon: KeyRound, label: t`Keys` },
  { id: "usage", icon: ChartColumn, label: t`Usage` },
];

function Rail() {
  return PLACES.map(({ id, icon: Icon, label }, index) => (
    <span
      key={id}
      className={cx(
        "flex items-center gap-2 rounded-sm px-2 py-1",
        index === 0 ? "bg-accent-soft font-medium text-accent-text" : "text-ink-2",
      )}
    >
      <Icon size={12} aria-hidden />
      {label}
    </span>
  ));
}

/** The example figures of the preview. */
const LEFT = 312;
const LIMIT = 500;

function HomePage() {
  return (
    <span className="grid content-start gap-2 bg-bg p-3">
      <span className="text-14 font-semibold">{t`Home`}</span>
      <span className="text-ink-2">
        <Trans>
          {LEFT} of {LIMIT} left
        </Trans>
      </span>
      <span className="h-1.5 overflow-hidden rounded-full bg-line">
        <span className="block h-full rounded-full bg-accent" style={{ width: `${(100 * LEFT) / LIMIT}%` }} />
      </span>
      <span className="text-accent-text underline">{t`Show usage`}</span>
      <span className="justify-self-start rounded-sm bg-accent px-2 py-1 font-medium text-on-accent">{t`Create key`}</span>
    </span>
  );
}
