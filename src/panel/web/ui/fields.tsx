import { Trans } from "@lingui/react/macro";
import { ChevronDown, CircleAlert, type LucideIcon } from "lucide-react";
import { type ComponentProps, createContext, type ReactNode, use, useId, useState } from "react";
import { EMAIL_CHARS_MAX } from "../../../limits.ts";
import { cx } from "./cx.ts";

/**
 * Inputs. A Field gives the input or Combobox inside it its id, hint and error.
 *
 *   <Field label="Name" hint="Only you see it." error={errors.name}><TextInput value={name} onValue={setName} /></Field>
 *   <TextField label="Name" hint="Only you see it." {...form.field("name")} />            // the same, with a form of form.tsx
 *   <LinesField label="Mail domains" rows={2} {...form.field("mailDomains")} />
 *   <EmailField label="E-mail" … />  <CountField label="Pieces" … />  <DollarField label="Amount" … />                     // typed as text: see typed_numbers.ts
 */

type FieldWiring = { id: string; "aria-describedby"?: string; "aria-invalid"?: true; required?: boolean };
export const FieldContext = createContext<FieldWiring | null>(null);

type FieldProps = {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null | false;
  required?: boolean;
  /** Adds "(optional)" to the label. */
  optional?: boolean;
  /** To the right of the label: a counter, a link. */
  aside?: ReactNode;
  className?: string;
};

/** Label, input, error and hint, one below the other. An error does not replace the hint. */
export function Field({
  label,
  hint,
  error,
  required,
  optional,
  aside,
  children,
  className,
}: FieldProps & { children: ReactNode }) {
  const id = useId();
  const describedBy = cx(error && `${id}-error`, Boolean(hint) && `${id}-hint`);
  return (
    <div className={cx("grid content-start gap-1", className)}>
      <div className="flex items-baseline justify-between gap-3">
        <label htmlFor={id} className="text-13 font-medium text-ink">
          {label}
          {optional && (
            <span className="font-normal text-ink-3">
              {" "}
              <Trans>(optional)</Trans>
            </span>
          )}
        </label>
        {aside && <span className="text-12 text-ink-3">{aside}</span>}
      </div>
      <FieldContext
        value={{
          id,
          ...(describedBy && { "aria-describedby": describedBy }),
          ...(error && { "aria-invalid": true }),
          ...(required && { required }),
        }}
      >
        {children}
      </FieldContext>
      {error && <FieldError id={`${id}-error`}>{error}</FieldError>}
      {hint && (
        <p id={`${id}-hint`} className="text-12 text-ink-3">
          {hint}
        </p>
      )}
    </div>
  );
}

/** `id`: of a field that it describes; without one, it is of several fields. */
export function FieldError({ id, children }: { id?: string; children: ReactNode }) {
  return (
    <p id={id} className="flex items-start gap-1 text-12 text-bad">
      <CircleAlert size={14} className="mt-px flex-none" aria-hidden />
      {children}
    </p>
  );
}

type TextInputProps = Omit<ComponentProps<"input">, "onChange" | "prefix"> & {
  onValue?: (value: string) => void;
  /** Keys, hosts and other text that is read letter by letter. */
  mono?: boolean;
  /** Inside the input: "$", "per day". */
  before?: ReactNode;
  after?: ReactNode;
};

export function TextInput({ onValue, mono, before, after, className, type = "text", ...rest }: TextInputProps) {
  const field = use(FieldContext);
  const input = (
    <input
      {...field}
      type={type}
      autoComplete="off"
      spellCheck={mono ? false : undefined}
      autoCapitalize={mono ? "none" : undefined}
      {...rest}
      onChange={(event) => onValue?.(event.currentTarget.value)}
      className={cx("control", mono && "font-mono", before != null && "ps-8", after != null && "pe-20", className)}
    />
  );
  if (before == null && after == null) return input;
  return (
    <span className="relative block">
      {before != null && (
        <span className="pointer-events-none absolute inset-y-0 start-3 grid place-content-center text-14 text-ink-3">
          {before}
        </span>
      )}
      {input}
      {after != null && (
        <span className="pointer-events-none absolute inset-y-0 end-3 grid place-content-center text-13 text-ink-3">
          {after}
        </span>
      )}
    </span>
  );
}

type TextFieldProps = FieldProps & Omit<TextInputProps, keyof FieldProps>;

/** A Field with a TextInput in it. */
export function TextField({ label, hint, error, required, optional, aside, className, ...input }: TextFieldProps) {
  return (
    <Field {...{ label, hint, error, required, optional, aside, className }}>
      <TextInput {...input} />
    </Field>
  );
}

/** An e-mail address. `autoComplete`: whose it is. */
export function EmailField(props: TextFieldProps) {
  return (
    <TextField
      type="email"
      autoComplete="off"
      autoCapitalize="none"
      spellCheck={false}
      maxLength={EMAIL_CHARS_MAX}
      {...props}
    />
  );
}

/** A whole number, kept as typed. */
export function CountField({ label, hint, error, required, optional, aside, className, ...input }: TextFieldProps) {
  return (
    <Field {...{ label, hint, error, required, optional, aside, className }}>
      <TextInput inputMode="numeric" className="figures" {...input} />
    </Field>
  );
}

/** A percentage, kept as typed. */
export function PercentField(props: TextFieldProps) {
  return <CountField inputMode="decimal" after="%" {...props} />;
}

/** US dollars, kept as typed. */
export function DollarField({ label, hint, error, required, optional, aside, className, ...input }: TextFieldProps) {
  return (
    <Field {...{ label, hint, error, required, optional, aside, className }}>
      <TextInput before="$" inputMode="decimal" className="figures" {...input} />
    </Field>
  );
}

/** An amount of a currency, kept as typed. */
export function MoneyField({ currency, ...props }: TextFieldProps & { currency: string }) {
  if (currency === "usd") return <DollarField {...props} />;
  return <CountField inputMode="decimal" after={currency.toUpperCase()} {...props} />;
}

/** A whole or decimal number. `value` is null while the text is not a number. */
export function NumberInput({
  value,
  onValue,
  decimal = false,
  ...rest
}: Omit<TextInputProps, "value" | "onValue" | "type" | "min" | "max"> & {
  value: number | null;
  onValue: (value: number | null) => void;
  decimal?: boolean;
}) {
  const [typed, setTyped] = useState<string | null>(null);
  const shown =
    typed !== null && readNumber(typed, decimal) === value ? typed : value === null ? (typed ?? "") : String(value);
  return (
    <TextInput
      {...rest}
      inputMode={decimal ? "decimal" : "numeric"}
      value={shown}
      onBlur={() => value !== null && setTyped(null)}
      onValue={(text) => {
        setTyped(text);
        onValue(readNumber(text, decimal));
      }}
      className={cx("figures", rest.className)}
    />
  );
}

function readNumber(text: string, decimal: boolean): number | null {
  const plain = text.trim().replaceAll(",", "");
  if (!(decimal ? /^-?\d*\.?\d+$/ : /^-?\d+$/).test(plain)) return null;
  const number = Number(plain);
  return Number.isSafeInteger(decimal ? Math.trunc(number) : number) ? number : null;
}

/** Password, with a button that shows it. */
export function PasswordInput({ onValue, ...rest }: Omit<TextInputProps, "type" | "after" | "before">) {
  const [isShown, setShown] = useState(false);
  return (
    <span className="relative block">
      <TextInput {...rest} {...(onValue && { onValue })} type={isShown ? "text" : "password"} className="pe-16" />
      <button
        type="button"
        aria-pressed={isShown}
        onClick={() => setShown(!isShown)}
        className="absolute inset-y-1 end-1 rounded-sm px-3 text-13 font-medium text-ink-2 hover:bg-hover hover:text-ink"
      >
        {isShown ? (
          <Trans>
            Hide<span className="sr-only"> password</span>
          </Trans>
        ) : (
          <Trans>
            Show<span className="sr-only"> password</span>
          </Trans>
        )}
      </button>
    </span>
  );
}

/** A Field with a PasswordInput in it. */
export function PasswordField({ label, hint, error, required, optional, aside, className, ...input }: TextFieldProps) {
  return (
    <Field {...{ label, hint, error, required, optional, aside, className }}>
      <PasswordInput {...input} />
    </Field>
  );
}

type TextAreaProps = Omit<ComponentProps<"textarea">, "onChange"> & {
  onValue?: (value: string) => void;
  mono?: boolean;
};

export function TextArea({ onValue, mono, className, ...rest }: TextAreaProps) {
  const field = use(FieldContext);
  return (
    <textarea
      {...field}
      rows={4}
      {...rest}
      onChange={(event) => onValue?.(event.currentTarget.value)}
      className={cx("control block resize-y", mono && "font-mono", className)}
    />
  );
}

/** A Field with a TextArea of one value a line, such as a domain: nothing that a browser should correct. */
export function LinesField({ label, hint, error, optional, ...area }: FieldProps & TextAreaProps) {
  return (
    <Field {...{ label, hint, error, optional }}>
      <TextArea autoCapitalize="none" spellCheck={false} {...area} />
    </Field>
  );
}

export type Option<Value extends string = string> = {
  value: Value;
  label: string;
  /** A second line or word. */
  hint?: string;
  disabled?: boolean;
  icon?: LucideIcon;
};

export function NativeSelect<Value extends string>({
  value,
  onValue,
  options,
  label,
  className,
  ...rest
}: Omit<ComponentProps<"select">, "value" | "onChange" | "children"> & {
  value: Value;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
  /** Its name for screen readers, outside a Field. */
  label?: string;
}) {
  const field = use(FieldContext);
  return (
    <span className={cx("relative inline-block", field && "w-full", className)}>
      <select
        {...field}
        aria-label={label}
        {...rest}
        value={value}
        onChange={(event) => {
          const chosen = options[event.currentTarget.selectedIndex];
          if (chosen) onValue(chosen.value);
        }}
        className="control"
      >
        {options.map((option) => (
          <option key={option.value} value={option.value} disabled={option.disabled}>
            {option.hint ? `${option.label} (${option.hint})` : option.label}
          </option>
        ))}
      </select>
      <ChevronDown
        size={16}
        aria-hidden
        className="pointer-events-none absolute top-1/2 end-3 -translate-y-1/2 text-ink-3"
      />
    </span>
  );
}
