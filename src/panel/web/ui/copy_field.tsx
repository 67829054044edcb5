import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { KeyRound } from "lucide-react";
import { type KeyboardEvent, type ReactNode, useEffect, useId, useState } from "react";
import { SECRET } from "../copy.ts";
import { DIRECTION } from "../language.ts";
import { Button } from "./buttons.tsx";
import { Checkbox } from "./choices.tsx";
import { CopyButton } from "./copy_text.tsx";
import { cx } from "./cx.ts";
import { Dialog } from "./dialog.tsx";
import { type Snippet, shortened } from "./request_code.ts";
import { ScrollingCode } from "./scrolling.tsx";
import { Banner } from "./states.tsx";

/**
 * Values to copy. (Small ones: CopyText and CopyButton in copy_text.tsx.)
 *
 *   <CopyField label="Name server record" value="203.0.113.7" />
 *   <SnippetTabs snippets={requestCode({ baseUrl: me.apiBaseUrl, endpoint: "chat", body, key })} />
 *   <SecretOnce open={secret !== null} title="Key ci is ready" value={secret ?? ""} snippets={…} onDone={() => { setSecret(null); refetch(); }} />
 *
 * SecretOnce cannot be lost by accident: until it is copied or ticked as stored, Esc, a click outside and the X ask first, and the
 * browser asks before a reload. Refetch the list in `onDone`, not before. OnceDialog is the same for other values that are shown once.
 */

export function CopyField({ label, value, onCopied }: { label: string; value: string; onCopied?: () => void }) {
  const id = useId();
  return (
    <div className="grid gap-1">
      <label htmlFor={id} className="text-13 font-medium">
        {label}
      </label>
      <div className="flex gap-2">
        <input
          id={id}
          readOnly
          value={value}
          spellCheck={false}
          onFocus={(event) => event.currentTarget.select()}
          className="control min-w-0 flex-1 bg-sunken font-mono text-13 text-ellipsis"
        />
        <CopyButton value={value} what={label} size="md" {...(onCopied && { onCopied })} />
      </div>
    </div>
  );
}

/** One piece of code in several languages. */
export function SnippetTabs({
  snippets,
  label = t`Example request`,
}: {
  snippets: readonly Snippet[];
  label?: string;
}) {
  const id = useId();
  const [shownId, setShownId] = useState(snippets[0]?.id);
  const shown = snippets.find((snippet) => snippet.id === shownId) ?? snippets[0];
  if (shown === undefined) return null;
  const onKeyDown = (event: KeyboardEvent) => {
    const at = snippets.indexOf(shown);
    const forward = DIRECTION === "rtl" ? -1 : 1;
    const step = { ArrowRight: forward, ArrowLeft: -forward }[event.key];
    const next = snippets[step === undefined ? -1 : (at + step + snippets.length) % snippets.length];
    if (next === undefined) return;
    event.preventDefault();
    setShownId(next.id);
    document.getElementById(`${id}-${next.id}`)?.focus();
  };
  return (
    <div className="min-w-0 overflow-hidden rounded-md border border-line bg-sunken">
      <div className="flex items-center justify-between gap-2 border-b border-line pe-1.5">
        <div
          role="tablist"
          aria-label={label}
          onKeyDown={onKeyDown}
          className="flex min-w-0 overflow-x-auto px-1.5 py-1"
        >
          {snippets.map((snippet) => (
            <button
              key={snippet.id}
              id={`${id}-${snippet.id}`}
              type="button"
              role="tab"
              aria-selected={snippet === shown}
              aria-controls={`${id}-panel`}
              tabIndex={snippet === shown ? 0 : -1}
              onClick={() => setShownId(snippet.id)}
              className={cx(
                "min-h-8 rounded-sm px-2.5 text-13 font-medium whitespace-nowrap transition-colors pointer-coarse:min-h-11",
                snippet === shown ? "bg-raised text-ink shadow-[0_1px_2px_var(--shadow)]" : "text-ink-2 hover:text-ink",
              )}
            >
              {snippet.label}
            </button>
          ))}
        </div>
        <CopyButton value={shown.code} what={t`the ${{ language: shown.label }} example`} variant="quiet" />
      </div>
      <div role="tabpanel" id={`${id}-panel`} aria-labelledby={`${id}-${shown.id}`}>
        <ScrollingCode className="text-12 text-ink">{shortened(shown.code)}</ScrollingCode>
      </div>
    </div>
  );
}

export function SecretOnce({
  open,
  title,
  label = t`API key`,
  value,
  snippets,
  onDone,
}: {
  open: boolean;
  title: string;
  label?: string;
  value: string;
  snippets?: readonly Snippet[];
  /** Called once, when it is safe to forget the secret. */
  onDone: () => void;
}) {
  const [isStored, setStored] = useState(false);
  const [isCopied, setCopied] = useState(false);
  const copied = () => setCopied(true);
  return (
    <OnceDialog
      open={open}
      title={title}
      isSafe={isStored || isCopied}
      closeEarly={SECRET.closeEarly}
      keep={<CopyButton value={value} what={label} size="md" variant="primary" onCopied={copied} />}
      onDone={() => {
        setStored(false);
        setCopied(false);
        onDone();
      }}
    >
      <Banner tone="warn" icon={KeyRound}>
        <span className="text-ink">{SECRET.once}</span>
      </Banner>
      <CopyField label={label} value={value} onCopied={copied} />
      {snippets && <SnippetTabs snippets={snippets} />}
      <Checkbox label={SECRET.stored} checked={isStored} onValue={setStored} />
    </OnceDialog>
  );
}

/** A dialog with a value that is shown once. Until `isSafe`, it asks before it closes, and the browser before it leaves the page. */
export function OnceDialog({
  open,
  title,
  isSafe,
  closeEarly,
  keep,
  onDone,
  children,
}: {
  open: boolean;
  title: string;
  isSafe: boolean;
  /** The question before closing. */
  closeEarly: string;
  /** The button that saves the value, beside that question. */
  keep: ReactNode;
  onDone: () => void;
  children: ReactNode;
}) {
  const [isAsking, setAsking] = useState(false);
  useReloadGuard(open && !isSafe);
  const done = () => {
    setAsking(false);
    onDone();
  };
  return (
    <Dialog
      open={open}
      onOpenChange={(wanted) => wanted || done()}
      mayClose={() => {
        if (!isSafe) setAsking(true);
        return isSafe;
      }}
      title={title}
      size="lg"
      footer={
        isAsking && !isSafe ? (
          <div role="alert" className="flex flex-1 flex-wrap items-center justify-between gap-3">
            <p className="text-14 font-medium text-warn">{closeEarly}</p>
            <div className="flex gap-2">
              <Button onClick={done}>
                <Trans>Close anyway</Trans>
              </Button>
              {keep}
            </div>
          </div>
        ) : (
          <Button variant="primary" disabled={!isSafe} onClick={done}>
            <Trans>Done</Trans>
          </Button>
        )
      }
    >
      {children}
    </Dialog>
  );
}

/** Makes the browser ask before it leaves the page. */
function useReloadGuard(isOn: boolean): void {
  useEffect(() => {
    if (!isOn) return;
    const guard = (event: BeforeUnloadEvent) => event.preventDefault();
    addEventListener("beforeunload", guard);
    return () => removeEventListener("beforeunload", guard);
  }, [isOn]);
}
