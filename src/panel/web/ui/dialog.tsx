import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import * as Radix from "@radix-ui/react-dialog";
import { X } from "lucide-react";
import { type ReactNode, useId, useRef, useState } from "react";
import { Button, IconButton } from "./buttons.tsx";
import { cx } from "./cx.ts";
import { Field, TextInput } from "./fields.tsx";
import { FormFrame } from "./form_frame.tsx";
import { Problem } from "./states.tsx";

/**
 * Overlays: a dialog in the middle, a drawer on the right, a confirmation. A dialog that is a form is a FormDialog (form.tsx).
 *
 *   <Dialog open={isOpen} onOpenChange={setOpen} title="Link" footer={<Button onClick={close}>Done</Button>}>…</Dialog>
 *   <Drawer open={…} onOpenChange={…} title="Receipt">…</Drawer>
 *   <Confirm open={…} onOpenChange={…} title="Revoke key ci?" confirmLabel="Revoke key" cancelLabel="Keep key"
 *            onConfirm={() => revoke.mutateAsync(id)}>2,140 requests used it in the last 24 h. …</Confirm>
 *
 * The focus moves in, stays in, and returns. Esc and a click outside close it, unless `mayClose` returns false.
 */

export type DialogProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  /** One sentence under the title. */
  description?: ReactNode;
  children?: ReactNode;
  /** The buttons, the main one last. */
  footer?: ReactNode;
  /** Makes body and footer one form, which Enter submits. */
  onSubmit?: () => void;
  size?: "sm" | "md" | "lg";
  /** Whether Esc, a click outside or the X may close it now. */
  mayClose?: () => boolean;
  /** Gets the focus when it opens; default the first field, or else the dialog itself. */
  focusRef?: React.RefObject<HTMLElement | null>;
};

const FIELDS = "input:not(:disabled), select:not(:disabled), textarea:not(:disabled)";
const WIDTHS = { sm: "sm:max-w-[26rem]", md: "sm:max-w-[34rem]", lg: "sm:max-w-[46rem]" };

export function Dialog(props: DialogProps) {
  return (
    <Overlay
      {...props}
      // On a phone it opens at the bottom edge, in reach of the thumb.
      className={cx(
        "overlay-rise fixed inset-x-0 bottom-0 max-h-[92dvh] rounded-t-lg sm:inset-x-4 sm:top-1/2 sm:bottom-auto sm:mx-auto sm:max-h-[85dvh] sm:-translate-y-1/2 sm:rounded-lg",
        WIDTHS[props.size ?? "md"],
      )}
    />
  );
}

export function Drawer(props: DialogProps) {
  return <Overlay {...props} className="overlay-slide fixed inset-y-0 end-0 w-full sm:max-w-[30rem]" />;
}

function Overlay({
  open,
  onOpenChange,
  title,
  description,
  children,
  footer,
  onSubmit,
  mayClose,
  focusRef,
  className,
}: DialogProps & { className: string }) {
  const content = useRef<HTMLDivElement>(null);
  /** What had the focus before, and gets it back. */
  const opener = useRef<Element | null>(null);
  const change = (wanted: boolean) => {
    if (wanted || mayClose === undefined || mayClose()) onOpenChange(wanted);
  };
  const body = <Body footer={footer}>{children}</Body>;
  return (
    <Radix.Root open={open} onOpenChange={change}>
      <Radix.Portal>
        <Radix.Overlay className="overlay-back z-40" />
        <Radix.Content
          {...(description === undefined && { "aria-describedby": undefined })}
          ref={content}
          tabIndex={-1}
          onOpenAutoFocus={(event) => {
            event.preventDefault();
            opener.current = document.activeElement;
            (focusRef?.current ?? content.current?.querySelector<HTMLElement>(FIELDS) ?? content.current)?.focus();
          }}
          onCloseAutoFocus={(event) => {
            event.preventDefault();
            // The opener may be gone, such as a button of a dialog that was open before this one.
            const back = opener.current?.isConnected ? opener.current : document.getElementById("content");
            if (back instanceof HTMLElement) back.focus();
          }}
          onEscapeKeyDown={(event) => {
            // This runs before the handlers inside: with an open Combobox list, Esc must only close the list.
            if (content.current?.querySelector("[data-list-open]")) event.preventDefault();
          }}
          className={cx("z-50 flex flex-col bg-raised text-ink shadow-overlay outline-none", className)}
        >
          <Header title={title} description={description} />
          {onSubmit ? (
            <FormFrame onSubmit={onSubmit} className="flex min-h-0 flex-1 flex-col">
              {body}
            </FormFrame>
          ) : (
            body
          )}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

function Header({ title, description }: Pick<DialogProps, "title" | "description">) {
  return (
    <header className="flex items-start gap-4 border-b border-line py-3 pe-3 ps-4 sm:ps-6">
      <div className="min-w-0 flex-1 py-[calc((var(--control)-1.5rem)/2)]">
        <Radix.Title className="text-16 leading-6 font-semibold">{title}</Radix.Title>
        {description !== undefined && (
          <Radix.Description className="mt-1 text-13 text-ink-2">{description}</Radix.Description>
        )}
      </div>
      <Radix.Close asChild>
        <IconButton icon={X} label={t({ message: "Close", context: "verb" })} />
      </Radix.Close>
    </header>
  );
}

function Body({ footer, children }: Pick<DialogProps, "footer" | "children">) {
  return (
    <>
      <div className="grid min-h-0 flex-1 auto-rows-max content-start gap-4 overflow-y-auto px-4 py-4 sm:px-6">
        {children}
      </div>
      {footer && (
        <div className="flex flex-col-reverse gap-2 border-t border-line px-4 py-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:flex-row sm:justify-end sm:px-6">
          {footer}
        </div>
      )}
    </>
  );
}

type ConfirmProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  children?: ReactNode;
  confirmLabel: string;
  cancelLabel?: string;
  /** The dialog closes when it succeeds; an error that it throws is shown, and the dialog stays open. */
  onConfirm: () => Promise<unknown> | unknown;
  /** Has to be typed first: only for a domain or a person. */
  typeName?: string;
  isDanger?: boolean;
};

/** A question before an action that cannot be undone. The focus is on the safe button. */
export function Confirm(props: ConfirmProps) {
  const { open, title, children, confirmLabel, cancelLabel = t`Cancel`, typeName, isDanger = true } = props;
  const safe = useRef<HTMLButtonElement>(null);
  const bodyId = useId();
  const { typed, setTyped, isPending, error, change, confirm } = useConfirm(props);
  return (
    <Dialog
      open={open}
      onOpenChange={change}
      title={title}
      size="sm"
      focusRef={safe}
      mayClose={() => !isPending}
      footer={
        <>
          <Button ref={safe} onClick={() => change(false)} disabled={isPending}>
            {cancelLabel}
          </Button>
          <Button
            variant={isDanger ? "danger" : "primary"}
            pending={isPending}
            disabled={typeName !== undefined && typed.trim() !== typeName}
            aria-describedby={bodyId}
            onClick={confirm}
          >
            {confirmLabel}
          </Button>
        </>
      }
    >
      <div id={bodyId} className="text-14 text-ink-2">
        {children}
      </div>
      {typeName !== undefined && (
        <Field
          label={
            <Trans>
              Type <span className="font-mono font-semibold">{typeName}</span> to continue
            </Trans>
          }
        >
          <TextInput value={typed} onValue={setTyped} mono />
        </Field>
      )}
      {error !== null && <Problem error={error} />}
    </Dialog>
  );
}

function useConfirm({ onOpenChange, onConfirm }: ConfirmProps) {
  const [typed, setTyped] = useState("");
  const [isPending, setPending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const change = (wanted: boolean) => {
    setTyped("");
    setError(null);
    onOpenChange(wanted);
  };
  const confirm = async () => {
    setPending(true);
    setError(null);
    try {
      await onConfirm();
      change(false);
    } catch (thrown) {
      setError(thrown);
    } finally {
      setPending(false);
    }
  };
  return { typed, setTyped, isPending, error, change, confirm };
}
