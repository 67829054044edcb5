import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { cx } from "./cx.ts";
import { FieldError, type Option, TextInput } from "./fields.tsx";

/** Choices: one of few, one of several, several of many, on or off. Segmented, RadioList and CheckboxList draw their own legend (`label`). */

type SegmentedProps<Value extends string> = {
  label: string;
  value: Value;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
};

/** Two to five choices side by side, one of them chosen. The label is for screen readers only. */
export function Segmented<Value extends string>({
  label,
  value,
  onValue,
  options,
  className,
}: SegmentedProps<Value> & { className?: string }) {
  const name = useId();
  return (
    <fieldset
      className={cx(
        "inline-flex min-w-0 max-w-full overflow-x-auto rounded-md bg-sunken p-0.5 ring-1 ring-line ring-inset",
        className,
      )}
    >
      <legend className="sr-only">{label}</legend>
      {options.map(({ value: own, label: words, icon: Icon, disabled }) => (
        <label
          key={own}
          className={cx(
            // The hidden input is placed within it: otherwise a row of choices that scrolls would widen the page.
            "relative flex min-h-[calc(var(--control)-0.25rem)] items-center justify-center gap-2 rounded-[6px] px-3 text-13 font-medium whitespace-nowrap transition-colors",
            "has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-focus",
            own === value
              ? // Not the ground of a dialog: then the other choices would look like the chosen one in the dark theme.
                "bg-accent-soft text-accent-text ring-1 ring-accent ring-inset"
              : "text-ink-2 hover:text-ink",
            disabled && "opacity-50",
          )}
        >
          <input
            type="radio"
            name={name}
            value={own}
            checked={own === value}
            disabled={disabled}
            onChange={() => onValue(own)}
            className="sr-only"
          />
          {Icon && <Icon size={16} aria-hidden className="flex-none" />}
          {words}
        </label>
      ))}
    </fieldset>
  );
}

/** A Segmented with its label above it. `children`: a hint or an error below it. */
export function SegmentedField<Value extends string>({
  children,
  ...segmented
}: SegmentedProps<Value> & { children?: ReactNode }) {
  return (
    <div className="grid justify-items-start gap-1">
      <span className="text-13 font-medium">{segmented.label}</span>
      <Segmented {...segmented} />
      {children}
    </div>
  );
}

/** Choices one below the other, each with room for a sentence. */
export function RadioList<Value extends string>({
  label,
  value,
  onValue,
  options,
  error,
}: {
  label: string;
  value: Value | null;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
  error?: string | null | false;
}) {
  const name = useId();
  return (
    <fieldset aria-describedby={error ? `${name}-error` : undefined} className="grid gap-1">
      <legend className="mb-1 text-13 font-medium">{label}</legend>
      {options.map((option) => (
        <ChoiceLine
          key={option.value}
          id={`${name}-${option.value}`}
          label={option.label}
          {...(option.hint && { hint: option.hint })}
          disabled={option.disabled}
        >
          <input
            id={`${name}-${option.value}`}
            type="radio"
            name={name}
            checked={option.value === value}
            disabled={option.disabled}
            onChange={() => onValue(option.value)}
            className="tick"
          />
        </ChoiceLine>
      ))}
      {error && <FieldError id={`${name}-error`}>{error}</FieldError>}
    </fieldset>
  );
}

function ChoiceLine({
  id,
  label,
  hint,
  disabled,
  children,
}: {
  /** Of the input, which is the child. */
  id: string;
  label: ReactNode;
  hint?: ReactNode;
  disabled?: boolean | undefined;
  children: ReactNode;
}) {
  return (
    <label
      htmlFor={id}
      className={cx("flex items-start gap-3 py-1 text-14 pointer-coarse:py-3", disabled && "text-ink-3")}
    >
      {children}
      <span className="min-w-0">
        {label}
        {hint && <span className="block text-13 text-ink-3">{hint}</span>}
      </span>
    </label>
  );
}

export function Checkbox({
  label,
  hint,
  checked,
  onValue,
  isMixed = false,
  disabled,
  error,
}: {
  label: ReactNode;
  hint?: ReactNode;
  checked: boolean;
  onValue: (checked: boolean) => void;
  /** Some of several are checked. */
  isMixed?: boolean;
  disabled?: boolean;
  error?: string | null | false;
}) {
  const id = useId();
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current) box.current.indeterminate = isMixed;
  }, [isMixed]);
  const line = (
    <ChoiceLine id={id} label={label} hint={hint} disabled={disabled}>
      <input
        id={id}
        ref={box}
        type="checkbox"
        checked={checked}
        disabled={disabled}
        aria-invalid={Boolean(error) || undefined}
        aria-describedby={error ? `${id}-error` : undefined}
        onChange={(event) => onValue(event.currentTarget.checked)}
        className="tick"
      />
    </ChoiceLine>
  );
  if (!error) return line;
  return (
    <div className="grid gap-1">
      {line}
      <FieldError id={`${id}-error`}>{error}</FieldError>
    </div>
  );
}

const FILTER_FROM = 9;

/** Several of many, or all: `value` null means all, including ones that are added later. */
export function CheckboxList({
  label,
  allLabel,
  value,
  onValue,
  options,
  error,
}: {
  label: string;
  /** "All models, new ones too". */
  allLabel: string;
  value: readonly string[] | null;
  onValue: (value: string[] | null) => void;
  options: readonly Option[];
  error?: string | null | false;
}) {
  const id = useId();
  const [typed, setTyped] = useState("");
  const shown = options.filter((option) => option.label.toLowerCase().includes(typed.trim().toLowerCase()));
  const toggle = (own: string, isOn: boolean) =>
    onValue(options.map((option) => option.value).filter((each) => (each === own ? isOn : value?.includes(each))));
  return (
    <fieldset aria-describedby={error ? `${id}-error` : undefined} className="grid gap-1">
      <legend className="mb-1 text-13 font-medium">{label}</legend>
      <Checkbox label={allLabel} checked={value === null} onValue={(all) => onValue(all ? null : [])} />
      {value !== null && (
        <div className="ms-2 grid gap-1 border-s border-line ps-5">
          {options.length >= FILTER_FROM && (
            <TextInput
              value={typed}
              onValue={setTyped}
              placeholder={t({ message: "Filter", context: "verb" })}
              aria-label={t`Filter ${{ what: label }}`}
              className="mb-1"
            />
          )}
          <div className="max-h-56 overflow-y-auto p-1">
            {shown.map((option) => (
              <Checkbox
                key={option.value}
                label={option.label}
                hint={option.hint}
                checked={value.includes(option.value)}
                onValue={(isOn) => toggle(option.value, isOn)}
                {...(option.disabled && { disabled: true })}
              />
            ))}
            {shown.length === 0 && (
              <p className="py-1 text-13 text-ink-3">
                <Trans>Nothing with that name.</Trans>
              </p>
            )}
          </div>
        </div>
      )}
      {error && <FieldError id={`${id}-error`}>{error}</FieldError>}
    </fieldset>
  );
}

/** On or off, with immediate effect. For a choice that takes effect with "Save", use a Checkbox. */
export function Switch({
  label,
  hint,
  checked,
  onValue,
  pending,
  disabled,
}: {
  label: ReactNode;
  hint?: ReactNode;
  checked: boolean;
  onValue: (checked: boolean) => void;
  pending?: boolean;
  disabled?: boolean;
}) {
  const id = useId();
  return (
    <div className="flex items-start justify-between gap-4">
      <label htmlFor={id} className="min-w-0 py-0.5 text-14">
        {label}
        {hint && <span className="block text-13 text-ink-3">{hint}</span>}
      </label>
      <button
        id={id}
        type="button"
        role="switch"
        aria-checked={checked}
        aria-busy={pending || undefined}
        disabled={disabled}
        onClick={() => !pending && onValue(!checked)}
        className={cx(
          "relative my-0.5 h-5 w-9 flex-none rounded-full border transition-colors disabled:opacity-50",
          // A larger target for fingers.
          "after:absolute after:-inset-3",
          checked ? "border-accent bg-accent" : "border-edge bg-sunken",
          pending && "opacity-60",
        )}
      >
        <span
          aria-hidden
          className={cx(
            "absolute top-1/2 start-0.5 size-3.5 -translate-y-1/2 rounded-full transition-transform",
            checked ? "translate-x-4 bg-on-accent rtl:-translate-x-4" : "bg-edge",
          )}
        />
      </button>
    </div>
  );
}
