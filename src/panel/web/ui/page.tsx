import type { LucideIcon } from "lucide-react";
import { type ReactNode, useEffect, useId } from "react";
import { type BrandLook, BrandMark } from "./brand_mark.tsx";
import { BrowserLanguage } from "./browser_language.tsx";
import { cx } from "./cx.ts";
import { inPlace } from "./in_place.tsx";

/**
 * The frame of a page's content: a heading, one sentence, one primary action; then sections. No card in a card.
 *
 *   <Page title="Keys" lead="Create them, see who uses them, retire them safely." action={<Button variant="primary">Create key</Button>}>
 *     <Section title="Active" flush>…a table…</Section>
 *     <Section title="Limits" description="…">…padded…</Section>
 *   </Page>
 *   <SignedOutPage title="Sign in" lead="…">…a form…</SignedOutPage>              // for visitors who are not signed in
 *   <Figures><Figure label="Balance" note="$0.03 held">$12.40</Figure></Figures>
 *   <Facts facts={[["Created", <Instant …/>], ["Host", host]]} />
 */

/** The brand's name, as the server wrote it into the page: titles are "Keys · Acme". */
export function brandName(): string {
  return document.querySelector<HTMLMetaElement>('meta[name="application-name"]')?.content ?? "";
}

export function useTitle(title: string): void {
  useEffect(() => {
    const brand = brandName();
    document.title = brand ? `${title} · ${brand}` : title;
  }, [title]);
}

export function Page({
  title,
  lead,
  action,
  children,
  size = "md",
}: {
  title: string;
  lead?: ReactNode;
  action?: ReactNode;
  children: ReactNode;
  /** "sm" for pages of forms, "full" for a page that fills the window (the playground). */
  size?: "sm" | "md" | "full";
}) {
  useTitle(title);
  return (
    <div
      className={cx(
        "mx-auto flex w-full flex-col gap-6 px-4 pt-6 pb-12 sm:px-6 lg:px-8 lg:pt-8",
        { sm: "max-w-[46rem]", md: "max-w-[76rem]", full: "min-h-0 flex-1" }[size],
      )}
    >
      <header className="flex flex-wrap items-start justify-between gap-x-6 gap-y-3">
        <div className="min-w-0 flex-[1_1_16rem]">
          <h1 tabIndex={-1} className="text-20 font-semibold outline-none">
            {title}
          </h1>
          {lead && <p className="mt-1 max-w-[42rem] text-14 text-ink-2">{lead}</p>}
        </div>
        {action && <div className="flex max-w-full flex-none flex-wrap gap-2">{action}</div>}
      </header>
      {children}
    </div>
  );
}

/** A page for visitors who are not signed in: one narrow card under the brand's mark. */
export function SignedOutPage({
  title,
  lead,
  brand,
  children,
  footer,
}: {
  title: string;
  lead?: ReactNode;
  /** null: not known yet, its place is kept. Without it the name alone. */
  brand?: BrandLook | null;
  children?: ReactNode;
  /** Below the card: where to get help. */
  footer?: ReactNode;
}) {
  useTitle(title);
  return (
    <div className="grid min-h-dvh grid-cols-[minmax(0,24rem)] content-start justify-center gap-6 px-4 pt-[max(2rem,14vh)] pb-12">
      <main className="grid gap-6">
        <SignedOutCard
          title={<h1 className="text-20 font-semibold">{title}</h1>}
          lead={lead}
          mark={brand !== null && <BrandMark brand={brand ?? { name: brandName(), logoLight: null, logoDark: null }} />}
          footer={footer}
        >
          {children}
        </SignedOutCard>
      </main>
      <footer className="justify-self-center">
        <BrowserLanguage />
      </footer>
    </div>
  );
}

/** What such a page shows; the brand's preview draws it too. */
export function SignedOutCard({
  title,
  lead,
  mark,
  footer,
  children,
}: {
  title: ReactNode;
  lead?: ReactNode;
  mark: ReactNode;
  footer?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <>
      <p className="flex min-h-8 min-w-0 items-center justify-center gap-3 text-16 font-semibold">{mark}</p>
      <div className="rounded-lg border border-line bg-surface p-6">
        {title}
        {lead && <p className="mt-1 text-14 break-words text-ink-2">{lead}</p>}
        {children && <div className="mt-6 grid gap-4">{children}</div>}
      </div>
      {footer && <div className="text-center text-13 text-ink-2">{footer}</div>}
    </>
  );
}

export function Section({
  title,
  description,
  action,
  icon: Icon,
  children,
  flush = false,
  id,
  className,
}: {
  title?: ReactNode;
  description?: ReactNode;
  /** At the right of the title. */
  action?: ReactNode;
  icon?: LucideIcon;
  children?: ReactNode;
  /** Without padding: a table or a list with lines of its own. */
  flush?: boolean;
  id?: string;
  className?: string;
}) {
  const headingId = useId();
  const hasHeader = Boolean(title || description || action);
  return (
    <section
      id={id}
      aria-labelledby={title ? headingId : undefined}
      className={cx("min-w-0 rounded-lg border border-line bg-surface", className)}
    >
      {hasHeader && (
        <header
          className={cx(
            "flex flex-wrap items-start justify-between gap-x-4 gap-y-2 px-4 pt-4 sm:px-6",
            flush ? "border-b border-line pb-4" : "pb-4",
          )}
        >
          <div className="min-w-0 flex-[1_1_12rem]">
            {title && (
              <h2 id={headingId} className="flex items-center gap-2 text-14 font-semibold wrap-anywhere">
                {Icon && <Icon size={16} aria-hidden className="flex-none text-ink-3" />}
                {title}
              </h2>
            )}
            {description && (
              <p className={cx("max-w-[42rem] text-13 text-ink-2", Boolean(title) && "mt-1")}>{description}</p>
            )}
          </div>
          {action && (
            <div className="flex min-h-9 max-w-full flex-none sm:-my-2 flex-wrap items-center gap-2">{action}</div>
          )}
        </header>
      )}
      <div
        className={cx(
          flush
            ? cx("overflow-clip", hasHeader ? "rounded-b-lg" : "rounded-lg")
            : cx("px-4 sm:px-6", children ? "pb-6" : "pb-2", !hasHeader && "pt-4 sm:pt-6"),
        )}
      >
        {children}
      </div>
    </section>
  );
}

/** A row of figures, parted by lines; below each other on a phone. */
export function Figures({ children }: { children: ReactNode }) {
  return (
    <div className="grid gap-x-8 gap-y-6 sm:auto-cols-fr sm:grid-flow-col sm:*:not-first:border-s sm:*:not-first:border-line sm:*:not-first:ps-8">
      {children}
    </div>
  );
}

export function Figure({ label, children, note }: { label: ReactNode; children: ReactNode; note?: ReactNode }) {
  return (
    <div className="grid min-w-0 content-start gap-2">
      <div className="text-12 font-medium text-ink-3">{label}</div>
      <div className="text-28 font-semibold break-words tabular-nums">{children}</div>
      {note && <div className="text-13 text-ink-2">{note}</div>}
    </div>
  );
}

/** Names and values, one below the other: details of one thing. */
export function Facts({ facts }: { facts: readonly (readonly [name: ReactNode, value: ReactNode])[] }) {
  return (
    <dl className="grid grid-cols-[minmax(6rem,auto)_1fr] gap-x-6 gap-y-2 text-13">
      {inPlace(facts, ([name, value]) => (
        <div className="col-span-2 grid grid-cols-subgrid">
          <dt className="text-ink-3">{name}</dt>
          <dd className="min-w-0 text-ink tabular-nums">{value}</dd>
        </div>
      ))}
    </dl>
  );
}
