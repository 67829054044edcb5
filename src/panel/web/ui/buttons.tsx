import { LoaderCircle, type LucideIcon } from "lucide-react";
import type { ComponentProps } from "react";
import { Link } from "wouter";
import { cx } from "./cx.ts";

/**
 * Buttons and links.
 *
 *   <Button variant="primary" icon={Plus} pending={create.isPending} onClick={…}>Create key</Button>
 *   <ButtonLink href="/keys">Keys</ButtonLink>
 *   <IconButton icon={Trash2} label="Delete" onClick={…} />
 */

type Variant = "primary" | "secondary" | "quiet" | "danger";
type Size = "md" | "sm";

const VARIANTS: Record<Variant, string> = {
  primary: "bg-accent text-on-accent hover:bg-accent-pressed active:bg-accent-pressed",
  secondary: "bg-raised text-ink shadow-button hover:bg-sunken active:bg-sunken",
  quiet: "text-ink-2 hover:bg-hover hover:text-ink active:bg-hover",
  danger: "bg-bad-fill text-on-bad hover:bg-bad-pressed active:bg-bad-pressed",
};
const SIZES: Record<Size, string> = {
  md: "min-h-(--control) px-4 text-14",
  sm: "min-h-[calc(var(--control)-0.25rem)] px-3 text-13",
};
const BUTTON =
  "inline-flex items-center justify-center gap-2 rounded-md font-medium whitespace-nowrap select-none transition-[background-color,color]";

/** Of a control that somebody may not use: `title` says why. */
export type Lock = { disabled?: true; title?: string };

export type ButtonProps = ComponentProps<"button"> & {
  variant?: Variant;
  size?: Size;
  icon?: LucideIcon;
  /** In progress: keeps its size, label and focus, and ignores clicks. */
  pending?: boolean;
};

export function Button({
  variant = "secondary",
  size = "md",
  icon: Icon,
  pending,
  children,
  className,
  ...rest
}: ButtonProps) {
  const { disabled, onClick, type = "button", ...others } = rest;
  return (
    <button
      {...others}
      type={type}
      disabled={disabled}
      aria-disabled={pending || others["aria-disabled"]}
      aria-busy={pending || undefined}
      onClick={(event) => (pending ? event.preventDefault() : onClick?.(event))}
      className={cx(
        BUTTON,
        VARIANTS[variant],
        SIZES[size],
        // Its own, or its fieldset's.
        "disabled:opacity-50 disabled:saturate-50",
        className,
      )}
    >
      {pending ? (
        <LoaderCircle size={16} className="animate-spin" aria-hidden />
      ) : (
        Icon && <Icon size={16} aria-hidden />
      )}
      {children}
    </button>
  );
}

/** A link that looks like a button. `href` is a path of the panel; another address opens as a plain link. */
export function ButtonLink({
  href,
  variant = "secondary",
  size = "md",
  icon: Icon,
  className,
  children,
  ...rest
}: Omit<ComponentProps<"a">, "href"> & { href: string; variant?: Variant; size?: Size; icon?: LucideIcon }) {
  const all = {
    ...rest,
    className: cx(BUTTON, VARIANTS[variant], SIZES[size], className),
    children: (
      <>
        {Icon && <Icon size={16} aria-hidden />}
        {children}
      </>
    ),
  };
  return href.startsWith("/") ? <Link {...all} href={href} /> : <a {...all} href={href} rel="noreferrer" />;
}

/** A link in running text. */
export function TextLink({ href, className, ...rest }: Omit<ComponentProps<"a">, "href"> & { href: string }) {
  const all = { ...rest, className: cx("text-accent-text underline underline-offset-2 hover:decoration-2", className) };
  return href.startsWith("/") ? <Link {...all} href={href} /> : <a {...all} href={href} rel="noreferrer" />;
}

export type IconButtonProps = Omit<ComponentProps<"button">, "children" | "aria-label"> & {
  icon: LucideIcon;
  label: string;
  size?: Size;
  pending?: boolean;
};

/** A button with only an icon. `label` is its name and its title. */
export function IconButton({
  icon: Icon,
  label,
  size = "md",
  pending,
  className,
  onClick,
  type = "button",
  ...rest
}: IconButtonProps) {
  return (
    <button
      title={label}
      {...rest}
      type={type}
      aria-label={label}
      aria-disabled={pending || undefined}
      onClick={(event) => (pending ? event.preventDefault() : onClick?.(event))}
      className={cx(
        "inline-grid flex-none place-content-center rounded-md text-ink-2 transition-colors hover:bg-hover hover:text-ink disabled:opacity-50",
        size === "md" ? "size-(--control)" : "size-[calc(var(--control)-0.25rem)]",
        className,
      )}
    >
      {pending ? <LoaderCircle size={16} className="animate-spin" aria-hidden /> : <Icon size={16} aria-hidden />}
    </button>
  );
}
