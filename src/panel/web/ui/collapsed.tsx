import { ChevronRight } from "lucide-react";
import { type ReactNode, useState } from "react";

/** A line that opens. It opens by itself when a field in it is invalid. */
export function Collapsed({
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
    <details
      open={isOpen || isWrong}
      onToggle={(event) => setOpen(event.currentTarget.open)}
      className="group border-b border-line last:border-0"
    >
      <summary className="flex min-h-(--row) items-center gap-2 rounded-sm text-14 -outline-offset-2">
        <ChevronRight
          size={16}
          aria-hidden
          className="flex-none text-ink-3 transition-transform group-open:rotate-90"
        />
        {label}: <span className="min-w-0 truncate text-ink-2">{value}</span>
      </summary>
      <div className="pt-1 pb-4 pl-6">{children}</div>
    </details>
  );
}
