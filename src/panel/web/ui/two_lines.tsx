import type { ReactNode } from "react";
import { cx } from "./cx.ts";

/**
 * A table cell of two lines: a name, and below it what tells things of one name apart.
 *
 *   <TwoLines below={email}>{name}</TwoLines>
 *   <TwoLines below={baseUrl} isMono>{name}</TwoLines>      // keys, URLs and names at providers
 */
export function TwoLines({
  children,
  below,
  isMono = false,
}: {
  children: ReactNode;
  /** null: one line. */
  below: ReactNode;
  isMono?: boolean;
}) {
  return (
    <span className="grid min-w-0 gap-0.5 py-1">
      <span className="font-medium wrap-anywhere">{children}</span>
      {below != null && below !== false && (
        <span className={cx("font-normal wrap-anywhere text-ink-2", isMono && "font-mono text-12")}>{below}</span>
      )}
    </span>
  );
}
