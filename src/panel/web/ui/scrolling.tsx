import type { ReactNode } from "react";

/** What scrolls for itself within the page. The keyboard has to reach it, or nobody without a mouse sees the rest. */

/** A part of the page with a name, as a wide or a long table. */
export function Scrolling({ label, className, children }: { label: string; className: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard.
    <section tabIndex={0} aria-label={label} className={className}>
      {children}
    </section>
  );
}

/** Lines of code that scroll sideways, not the page. */
export function ScrollingCode({ className, children }: { className: string; children: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: what scrolls must be reachable by keyboard.
    <pre tabIndex={0} className={`overflow-x-auto p-4 font-mono leading-5 -outline-offset-2 ${className}`}>
      <code>{children}</code>
    </pre>
  );
}
