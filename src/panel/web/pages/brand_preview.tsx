import { ChartColumn, House, KeyRound } from "lucide-react";
import { type CSSProperties, useState } from "react";
import type { Accent, Shades } from "../../../accounts/accent.ts";
import { BrandMark } from "../ui/brand_mark.tsx";
import { Segmented } from "../ui/choices.tsx";
import { cx } from "../ui/cx.ts";
import { Section } from "../ui/page.tsx";

/** A preview of the sign-in page and the panel in either theme, before the brand is saved. */

type Pictures = { logoLight: string | null; logoDark: string | null; icon: string | null };
type Theme = "light" | "dark";

const THEMES = [
  { value: "light", label: "Light" },
  { value: "dark", label: "Dark" },
] as const;

export function BrandPreview({
  name,
  support,
  pictures,
  shades,
}: {
  name: string;
  support: string;
  pictures: Pictures;
  /** null: the standard colour. */
  shades: Accent | null;
}) {
  const [theme, setTheme] = useState<Theme>("light");
  const brand = { name, logoLight: pictures.logoLight, logoDark: pictures.logoDark };
  const mark = <BrandMark brand={brand} theme={theme} />;
  return (
    <Section
      title="What customers see"
      action={<Segmented label="Theme of the preview" value={theme} onValue={setTheme} options={THEMES} />}
      className="lg:sticky lg:top-[calc(var(--bar)+1.5rem)]"
    >
      <div
        role="img"
        aria-label={`Sign-in page and panel of ${name}, ${theme}`}
        style={accentVariables(shades?.[theme])}
        className={cx(
          "grid gap-4 overflow-hidden rounded-md border border-line bg-bg pb-4 text-12 text-ink",
          `on-${theme}`,
        )}
      >
        <Tab icon={pictures.icon} name={name} />
        <div className="mx-auto grid w-56 max-w-full justify-items-center gap-3">
          <span className="flex max-w-full min-w-0 items-center gap-2 text-13 font-semibold">{mark}</span>
          <SignInCard />
          {support !== "" && (
            <span className="max-w-full text-center break-words text-ink-2">
              Forgot your password? Ask <span className="text-accent-text underline">{support}</span>
            </span>
          )}
        </div>
        <div className="mx-4 grid grid-cols-[8.5rem_minmax(0,1fr)] overflow-hidden rounded-md border border-line">
          <span className="grid content-start gap-2 border-r border-line p-2">
            <span className="flex min-w-0 items-center gap-2 px-1 py-1 text-12 font-semibold">{mark}</span>
            <Rail />
          </span>
          <HomePage />
        </div>
      </div>
    </Section>
  );
}

/** The accent variables of app.css, with the shade that each takes. */
export const ACCENT_VARIABLES = [
  ["--accent", "accent"],
  ["--on-accent", "onAccent"],
  ["--accent-text", "accentText"],
  ["--accent-soft", "accentSoft"],
] as const satisfies readonly (readonly [`--${string}`, keyof Shades])[];

/** Shades as a style. undefined: the standard colours of app.css stay. */
export function accentVariables(shades: Shades | undefined): CSSProperties {
  return shades === undefined
    ? {}
    : Object.fromEntries(ACCENT_VARIABLES.map(([variable, shade]) => [variable, shades[shade]]));
}

function Tab({ icon, name }: { icon: string | null; name: string }) {
  return (
    <span className="flex bg-sunken px-2 pt-2">
      <span className="flex max-w-48 min-w-0 items-center gap-2 rounded-t-md bg-bg px-3 py-1.5">
        {icon === null ? (
          <span className="size-4 flex-none rounded-sm bg-line" />
        ) : (
          <img src={icon} alt="" className="size-4 flex-none object-contain" />
        )}
        <span className="truncate">Sign in · {name}</span>
      </span>
    </span>
  );
}

function SignInCard() {
  return (
    <span className="grid w-full gap-2 rounded-md border border-line bg-surface p-3">
      <span className="text-14 font-semibold">Sign in</span>
      <span className="h-6 rounded-sm border border-edge" />
      <span className="h-6 rounded-sm border border-edge" />
      <span className="grid h-7 place-content-center rounded-sm bg-accent font-medium text-on-accent">Sign in</span>
    </span>
  );
}

const PLACES = [
  { icon: House, label: "Home" },
  { icon: KeyRound, label: "Keys" },
  { icon: ChartColumn, label: "Usage" },
];

function Rail() {
  return PLACES.map(({ icon: Icon, label }, index) => (
    <span
      key={label}
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
      <span className="text-14 font-semibold">Home</span>
      <span className="text-ink-2">
        {LEFT} of {LIMIT} left
      </span>
      <span className="h-1.5 overflow-hidden rounded-full bg-line">
        <span className="block h-full rounded-full bg-accent" style={{ width: `${(100 * LEFT) / LIMIT}%` }} />
      </span>
      <span className="text-accent-text underline">Show usage</span>
      <span className="justify-self-start rounded-sm bg-accent px-2 py-1 font-medium text-on-accent">Create key</span>
    </span>
  );
}
