import type { ReactNode } from "react";

/** Parts that scroll inside the page. They can be focused, so that they scroll without a mouse. */

/** A named part of the page, such as a wide table. */
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
