import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { Check, Copy } from "lucide-react";
import { type ReactNode, useEffect, useState } from "react";
import { formatEnds } from "../format.ts";
import { announce } from "./announce.ts";
import { Button } from "./buttons.tsx";
import { cx } from "./cx.ts";

/**
 * Copying, in two sizes. (CopyField, secrets and snippets are in copy_field.tsx.)
 *
 *   <CopyText value={requestId} what="request id" />          // the text is the button; a long text is shown by its ends
 *   <CopyButton value={record} what="the A record" />         // a button "Copy"
 *   const { isCopied, copy } = useCopy();
 */

const SHOWN_MS = 2_000;

/** `copy(text)` returns whether it worked; `isCopied` is true for two seconds afterwards. */
export function useCopy(): { isCopied: boolean; copy: (text: string) => Promise<boolean> } {
  const [copiedAt, setCopiedAt] = useState(0);
  useEffect(() => {
    if (copiedAt === 0) return;
    const timer = setTimeout(() => setCopiedAt(0), SHOWN_MS);
    return () => clearTimeout(timer);
  }, [copiedAt]);
  const copy = async (text: string) => {
    const isDone = await toClipboard(text);
    if (isDone) {
      setCopiedAt((before) => before + 1);
      announce(t`Copied`);
    }
    return isDone;
  };
  return { isCopied: copiedAt > 0, copy };
}

/** The fallback without a secure context (a panel over http), where there is no clipboard API. */
async function toClipboard(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

function copyBySelection(text: string): boolean {
  const area = document.createElement("textarea");
  const focused = document.activeElement;
  area.value = text;
  area.readOnly = true;
  area.className = "fixed opacity-0";
  // Inside the open dialog, which traps the focus.
  (focused?.closest("[role=dialog]") ?? document.body).append(area);
  area.select();
  const isDone = document.execCommand("copy");
  area.remove();
  if (focused instanceof HTMLElement) focused.focus();
  return isDone;
}

export function CopyText({
  value,
  what,
  isWhole = false,
  className,
}: {
  value: string;
  what: string;
  isWhole?: boolean;
  className?: string;
}) {
  const { isCopied, copy } = useCopy();
  const Icon = isCopied ? Check : Copy;
  return (
    <button
      type="button"
      onClick={() => copy(value)}
      className={cx(
        "row-above -mx-1 inline-flex max-w-[calc(100%+0.5rem)] min-h-6 items-center gap-1.5 rounded-sm px-1 font-mono text-12 text-ink-2 hover:bg-hover hover:text-ink pointer-coarse:min-h-11",
        className,
      )}
    >
      <span className="truncate">{isWhole ? value : formatEnds(value)}</span>
      <Icon size={12} aria-hidden className={cx("flex-none", isCopied && "text-ok")} />
      <span className="sr-only">
        <Trans>Copy {what}</Trans>
      </span>
    </button>
  );
}

export function CopyButton({
  value,
  what,
  label,
  size = "sm",
  variant = "secondary",
  onCopied,
}: {
  value: string;
  /** Its name for screen readers. */
  what: string;
  /** Instead of "Copy". */
  label?: ReactNode;
  size?: "md" | "sm";
  variant?: "primary" | "secondary" | "quiet";
  onCopied?: () => void;
}) {
  const { isCopied, copy } = useCopy();
  return (
    <Button
      size={size}
      variant={variant}
      onClick={async () => (await copy(value)) && onCopied?.()}
      className="row-above"
    >
      {/* Both lie on each other, so that the button keeps its width. */}
      <span className="grid place-items-center *:col-start-1 *:row-start-1 *:inline-flex *:items-center *:gap-2">
        <span className={isCopied ? "invisible" : undefined}>
          <Copy size={16} aria-hidden />
          <span>
            {label === undefined ? (
              <Trans>
                Copy<span className="sr-only"> {what}</span>
              </Trans>
            ) : (
              <>
                {label}
                <span className="sr-only"> {what}</span>
              </>
            )}
          </span>
        </span>
        <span aria-hidden={!isCopied} className={isCopied ? undefined : "invisible"}>
          <Check size={16} className={variant === "primary" ? undefined : "text-ok"} />
          <Trans>Copied</Trans>
        </span>
      </span>
    </Button>
  );
}
