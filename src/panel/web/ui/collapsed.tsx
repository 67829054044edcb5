import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";
import { cx } from "./cx.ts";

/**
 * Lines that open.
 *
 *   <Collapsed look="section" label="Still stuck?">…padded…</Collapsed>        // beside sections
 *   <Collapsed look="rows" label="Ended keys (3)"><DataTable …/></Collapsed>   // at the end of a section without padding
 *   <Collapsed look="quiet" label="Thoughts">…</Collapsed>                     // in text
 *   <CollapsedField label="Models" value="all" isWrong={error !== null}>…</CollapsedField>
 */

const LOOKS = {
  section: {
    box: "rounded-lg border border-line bg-surface",
    line: "min-h-12 rounded-lg px-4 py-2 text-14 font-semibold sm:px-6",
  },
  rows: {
    box: "border-t border-line",
    line: "min-h-(--row) px-4 py-2 text-13 font-medium text-ink-2 hover:text-ink sm:px-6",
  },
  quiet: {
    box: "rounded-md bg-sunken",
    line: "min-h-9 rounded-md px-3 text-13 text-ink-2 pointer-coarse:min-h-11",
  },
  field: { box: "border-b border-line last:border-0", line: "min-h-(--row) rounded-sm text-14" },
} as const;

export function Collapsed({
  look,
  label,
  open,
  onOpen,
  children,
}: {
  look: keyof typeof LOOKS;
  label: ReactNode;
  /** With `onOpen`, if somebody else decides whether it is open. */
  open?: boolean;
  onOpen?: (isOpen: boolean) => void;
  children: ReactNode;
}) {
  const { box, line } = LOOKS[look];
  return (
    <details open={open} onToggle={(event) => onOpen?.(event.currentTarget.open)} className={cx("group", box)}>
      <summary className={cx("flex items-center gap-2 -outline-offset-2", line)}>
        <ChevronRight
          size={16}
          aria-hidden
          className="flex-none text-ink-3 transition-transform group-open:rotate-90"
        />
        {label}
      </summary>
      {children}
    </details>
  );
}

/** Fields behind what they are set to. It opens by itself when one of them is invalid. */
export function CollapsedField({
  label,
  value,
  isWrong,
  children,
}: {
  label: string;
  value: string;
  isWrong: boolean;
  children: ReactNode;
}) {
  const [isOpen, setOpen] = useState(false);
  return (
    <Collapsed
      look="field"
      label={
        <>
          {label}: <span className="min-w-0 truncate text-ink-2">{value}</span>
        </>
      }
      open={isOpen || isWrong}
      onOpen={setOpen}
    >
      <div className="pt-1 pb-4 ps-6">{children}</div>
    </Collapsed>
  );
}
