import { cx } from "./cx.ts";

/**
 * A brand: its logo for the current theme, or its first letter and its name.
 *
 *   <BrandMark brand={me.brand} />
 *   <BrandMark brand={me.brand} isNarrow />              // only the letter from 768 to 1024 px, where the side bar is narrow
 *   <BrandMark brand={draft} theme="dark" />             // for a background of that theme
 */

export type BrandLook = { name: string; logoLight: string | null; logoDark: string | null };

const LOGO = "h-7 w-auto max-w-[min(11rem,100%)] object-contain object-left";

export function BrandMark({
  brand: { name, logoLight, logoDark },
  theme,
  isNarrow = false,
}: {
  brand: BrandLook;
  theme?: "light" | "dark";
  isNarrow?: boolean;
}) {
  const light = logoLight ?? logoDark;
  const dark = logoDark ?? logoLight;
  const letter = (
    <span
      aria-hidden
      className={cx(
        "grid size-8 flex-none place-content-center rounded-md bg-accent font-semibold text-on-accent",
        isNarrow && "lg:size-7",
        isNarrow && light && "max-md:hidden lg:hidden",
      )}
    >
      {Array.from(name)[0]?.toUpperCase()}
    </span>
  );
  if (light && dark) {
    const className = cx(LOGO, isNarrow && "md:max-lg:hidden");
    return (
      <>
        {isNarrow && letter}
        {isNarrow && <span className="sr-only max-md:hidden lg:hidden">{name}</span>}
        {theme !== "dark" && (
          <img src={light} alt={name} className={cx(className, theme === undefined && "only-light")} />
        )}
        {theme !== "light" && (
          <img src={dark} alt={name} className={cx(className, theme === undefined && "only-dark")} />
        )}
      </>
    );
  }
  return (
    <>
      {letter}
      <span className={cx("truncate", isNarrow && "md:max-lg:sr-only")}>{name}</span>
    </>
  );
}
