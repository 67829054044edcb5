import type { ReactNode } from "react";
import { cx } from "./cx.ts";

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

/** A small table that scrolls in a box, with its head in view. `head` is its cells, `children` its rows. */
export function ScrollingTable({
  label,
  className,
  head,
  children,
}: {
  label: string;
  className: string;
  head: ReactNode;
  children: ReactNode;
}) {
  return (
    <Scrolling label={label} className="max-h-80 overflow-auto rounded-md border border-line">
      <table
        className={cx(
          "w-full border-collapse [&_td]:px-3 [&_td]:py-1.5 [&_th]:px-3 [&_th]:py-1.5 [&_thead]:text-12 [&_thead]:text-ink-3",
          className,
        )}
      >
        <caption className="sr-only">{label}</caption>
        <thead className="sticky top-0 bg-sunken">
          <tr>{head}</tr>
        </thead>
        <tbody>{children}</tbody>
      </table>
    </Scrolling>
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
