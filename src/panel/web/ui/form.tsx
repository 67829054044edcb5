import { t } from "@lingui/core/macro";
import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useEffect, useState } from "react";
import { ApiError } from "../api.ts";
import { Button, type Lock } from "./buttons.tsx";
import { cx } from "./cx.ts";
import { Dialog, type DialogProps } from "./dialog.tsx";
import { FormFrame } from "./form_frame.tsx";
import { Problem } from "./states.tsx";

/**
 * Forms: `useForm` keeps what is typed, checks it, sends it and shows errors; `FormDialog` is the dialog around such a form, `PageForm`
 * puts it into a page.
 *
 *   const form = useForm({
 *     first: { name: person.name, pieces: "" },                // the fields, by the server's names
 *     wrong: ({ name, pieces }) => ({
 *       name: isBlank(name) ? "Enter a name." : null,
 *       pieces: checkCount(pieces, ALLOTMENT_PIECES),          // limits come from src/limits.ts
 *     }),
 *     send: ({ name, pieces }) => ask(api.….post({ name, pieces: readCount(pieces) ?? 0 })),
 *     onSent: onClose,
 *   });
 *   <FormDialog form={form} open={open} onClose={onClose} title="Rename" submitLabel="Save name">
 *     <TextField label="Name" {...form.field("name")} maxLength={PERSON_NAME_CHARS_MAX} />
 *     <CountField label="Pieces" {...form.field("pieces")} />
 *   </FormDialog>
 *   <PageForm form={form} saveLabel="Save name" lock={lock}>…</PageForm>     // after saving: form.reset({ name: saved })
 *
 * - Errors of the page show after an attempt to submit. A `validation_failed` of the server shows at its field (`param`), any
 *   other error below the fields. The first invalid field gets the focus. A field's error goes when the field is changed, and is
 *   looked for again by the next attempt.
 * - While the form is being sent, it cannot be submitted again, cancelled or closed.
 * - A field that is no text (a Segmented, a Combobox) takes `form.values.kind` and `(kind) => form.set({ kind })`.
 */

type Errors<Name extends string> = Record<Name, string | null>;

/** What a form gives to one of its fields. */
export type FieldState<Value = string> = { value: Value; onValue: (value: Value) => void; error: string | null };

export type Form<Values = object, Name extends string = string> = {
  values: Values;
  set: (changes: Partial<Values>) => void;
  /** Spread into a field: its value, its setter and its error. */
  field: <Key extends keyof Values & Name>(name: Key) => FieldState<Values[Key]>;
  errorOf: (name: Name) => string | null;
  /** Begins anew from what is saved now: no errors, and nothing to save. */
  reset: (saved: Values) => void;
  /** Whether the fields differ from what is saved. */
  isChanged: boolean;
  submit: () => void;
  /** The error that belongs to no field, or null. FormDialog and PageForm show it. */
  problem: ReactNode;
  isPending: boolean;
};

const NO_VALUES = {};
const NOTHING: ReadonlySet<string> = new Set();

/**
 * `wrong` names every field that can show an error, by the server's names; null means valid. `otherError` is an error from elsewhere,
 * such as a preview, that shows as if sending had failed.
 */
export function useForm<Name extends string, Sent, Values extends object = object>({
  first,
  wrong,
  send,
  onSent,
  otherError = null,
}: {
  first?: Values;
  wrong: Errors<Name> | ((values: Values) => Errors<Name>);
  send: (values: Values) => Promise<Sent>;
  onSent: (sent: Sent) => void;
  otherError?: unknown;
}): Form<Values, Name> {
  const [saved, setSaved] = useState<Values>(first ?? (NO_VALUES as Values));
  const [values, setValues] = useState(saved);
  const [attempts, setAttempts] = useState(0);
  /** What was changed since the last attempt. */
  const [changed, setChanged] = useState<ReadonlySet<string>>(NOTHING);
  const { mutate, error, isPending } = useMutation({ mutationFn: () => send(values), onSuccess: onSent });
  const errors = typeof wrong === "function" ? wrong(values) : wrong;
  const sent = useServerErrors(error, Object.keys(errors));
  const other = useServerErrors(otherError, Object.keys(errors));
  const rest = sent.rest ?? other.rest;
  useEffect(() => {
    if (attempts > 0) focusInvalid();
  }, [attempts]);
  const set = (changes: Partial<Values>) => {
    setValues((before) => ({ ...before, ...changes }));
    setChanged((before) => new Set([...before, ...Object.keys(changes)]));
  };
  const errorOf = (name: Name) => {
    // A server's name that is no field of its own is one of several fields together.
    const isChangedSince = name in values ? changed.has(name) : changed.size > 0;
    const ownError = isChangedSince ? null : (attempts > 0 && errors[name]) || sent.at(name);
    // It follows from what the fields are now.
    return ownError || other.at(name);
  };
  return {
    values,
    set,
    field: (name) => ({
      value: values[name],
      onValue: (value) => {
        setValues((before) => ({ ...before, [name]: value }));
        setChanged((before) => new Set([...before, String(name)]));
      },
      error: errorOf(name),
    }),
    errorOf,
    reset(next) {
      setSaved(next);
      setValues(next);
      setAttempts(0);
      setChanged(NOTHING);
    },
    isChanged: Object.entries(values).some(([name, value]) => value !== saved[name as keyof Values]),
    submit() {
      setAttempts(attempts + 1);
      setChanged(NOTHING);
      if (!isPending && Object.values(errors).every((each) => each === null)) mutate();
    },
    problem: rest !== null && <Problem error={rest} />,
    isPending,
  };
}

/** `at(name)` is the server's message for that field; `rest` is the error if it belongs to none of `names`. */
function useServerErrors(error: unknown, names: readonly string[]) {
  const param = error instanceof ApiError && error.code === "validation_failed" ? error.param : null;
  const isField = param !== null && names.includes(param);
  useEffect(() => {
    if (isField && error !== null) focusInvalid();
  }, [error, isField]);
  return {
    at: (name: string) => (isField && name === param && error instanceof Error ? error.message : null),
    rest: isField ? null : error,
  };
}

/** Moves the focus to the first invalid field of the current form, so that its message is read out. */
export function focusInvalid(): void {
  // Some browsers give a clicked button no focus: then the form is the dialog's, or the page's first.
  const inside = document.activeElement?.closest("form") ?? document.querySelector("[role=dialog]") ?? document;
  inside.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
}

export function isBlank(typed: string): boolean {
  return typed.trim() === "";
}

/** Whether it can be an e-mail address; the server decides. */
export function isEmail(typed: string): boolean {
  return /^\S+@\S+$/.test(typed.trim());
}

/** What the frame of a form needs of it. */
type Sending = Pick<Form, "submit" | "problem" | "isPending">;
type Saving = Sending & Pick<Form, "isChanged">;

/** What every dialog gets from the page that opens it. */
export type DialogState = { open: boolean; onClose: () => void };

/** A dialog that is one form: its fields, the error that belongs to no field, and a footer with Cancel and Submit. */
export function FormDialog({
  form,
  open,
  onClose,
  submitLabel,
  cancelLabel = t`Cancel`,
  isDanger = false,
  canSubmit = true,
  children,
  ...dialog
}: DialogState &
  Pick<DialogProps, "title" | "description" | "size" | "focusRef" | "children"> & {
    form: Sending;
    submitLabel: ReactNode;
    cancelLabel?: string;
    isDanger?: boolean;
    /** False while something outside the fields forbids it, such as a balance that is too small. */
    canSubmit?: boolean;
  }) {
  return (
    <Dialog
      {...dialog}
      open={open}
      onOpenChange={(isOpen) => isOpen || onClose()}
      mayClose={() => !form.isPending}
      onSubmit={() => canSubmit && form.submit()}
      footer={
        <>
          <Button onClick={onClose} disabled={form.isPending}>
            {cancelLabel}
          </Button>
          <Button
            type="submit"
            variant={isDanger ? "danger" : "primary"}
            pending={form.isPending}
            disabled={!canSubmit}
          >
            {submitLabel}
          </Button>
        </>
      }
    >
      {children}
      {form.problem}
    </Dialog>
  );
}

/** A form of a page: its fields, the error that belongs to no field, and its button, which is filled once there is something to save. */
export function PageForm({
  form,
  saveLabel,
  isProminent = false,
  lock = {},
  actions,
  className,
  children,
}: {
  form: Saving;
  saveLabel: string;
  /** The button is always filled: saving is what the page is for. */
  isProminent?: boolean;
  /** Of `useViewer`: then fields and buttons are disabled, and why is said below. */
  lock?: Lock;
  /** Buttons after the one that saves. */
  actions?: ReactNode;
  className?: string;
  children: ReactNode;
}) {
  const isFilled = isProminent || form.isChanged;
  return (
    <FormFrame onSubmit={form.submit} className={cx("max-w-[42rem]", className)}>
      <fieldset disabled={lock.disabled} className="grid min-w-0 gap-4">
        {children}
        {form.problem}
        <div className="flex flex-wrap gap-2">
          <Button type="submit" variant={isFilled ? "primary" : "secondary"} pending={form.isPending} {...lock}>
            {saveLabel}
          </Button>
          {actions}
        </div>
        {lock.title && <p className="text-13 text-ink-3">{lock.title}</p>}
      </fieldset>
    </FormFrame>
  );
}
