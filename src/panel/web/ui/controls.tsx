import { ChevronDown, CircleAlert, LoaderCircle, type LucideIcon, Search } from "lucide-react";
import { type ComponentProps, createContext, type ReactNode, use, useEffect, useId, useRef, useState } from "react";
import { Link } from "wouter";
import { announce } from "./announce.ts";
import { cx } from "./cx.ts";

/**
 * What people press, type in and choose from.
 *
 *   <Button variant="primary" icon={Plus} pending={create.isPending} onClick={…}>Create key</Button>
 *   <ButtonLink href="/keys">Keys</ButtonLink>
 *   <IconButton icon={Trash2} label="Delete" onClick={…} />
 *
 *   <Field label="Name" hint="Only you see it." error={errors.name}>
 *     <TextInput value={name} onValue={setName} />
 *   </Field>
 *
 * Inside a Field every input finds its id, hint and error by itself; so do NumberInput, TextArea, NativeSelect and Combobox.
 * Segmented, RadioList and CheckboxList bring their own legend (`label`).
 */

type Variant = "primary" | "secondary" | "quiet" | "danger";
type Size = "md" | "sm";

const VARIANTS: Record<Variant, string> = {
  primary: "bg-accent text-on-accent hover:bg-accent-pressed active:bg-accent-pressed",
  secondary: "bg-raised text-ink shadow-button hover:bg-sunken active:bg-sunken",
  quiet: "text-ink-2 hover:bg-hover hover:text-ink active:bg-hover",
  danger: "bg-bad-fill text-on-bad hover:bg-bad-pressed active:bg-bad-pressed",
};
const SIZES: Record<Size, string> = {
  md: "min-h-(--control) px-4 text-14",
  sm: "min-h-[calc(var(--control)-0.25rem)] px-3 text-13",
};
const BUTTON =
  "inline-flex items-center justify-center gap-2 rounded-md font-medium whitespace-nowrap select-none transition-[background-color,color]";

export type ButtonProps = ComponentProps<"button"> & {
  variant?: Variant;
  size?: Size;
  icon?: LucideIcon;
  /** Under way: keeps its place, its words and the focus, and cannot be pressed again. */
  pending?: boolean;
};

export function Button({
  variant = "secondary",
  size = "md",
  icon: Icon,
  pending,
  children,
  className,
  ...rest
}: ButtonProps) {
  const { disabled, onClick, type = "button", ...others } = rest;
  return (
    <button
      {...others}
      type={type}
      disabled={disabled}
      aria-disabled={pending || others["aria-disabled"]}
      aria-busy={pending || undefined}
      onClick={(event) => (pending ? event.preventDefault() : onClick?.(event))}
      className={cx(
        BUTTON,
        VARIANTS[variant],
        SIZES[size],
        disabled && "opacity-50 saturate-50",

        className,
      )}
    >
      {pending ? (
        <LoaderCircle size={16} className="animate-spin" aria-hidden />
      ) : (
        Icon && <Icon size={16} aria-hidden />
      )}
      {children}
    </button>
  );
}

/** A link that looks like a button. `href` is a path of the panel; another address opens as a plain link. */
export function ButtonLink({
  href,
  variant = "secondary",
  size = "md",
  icon: Icon,
  className,
  children,
  ...rest
}: Omit<ComponentProps<"a">, "href"> & { href: string; variant?: Variant; size?: Size; icon?: LucideIcon }) {
  const all = {
    ...rest,
    className: cx(BUTTON, VARIANTS[variant], SIZES[size], className),
    children: (
      <>
        {Icon && <Icon size={16} aria-hidden />}
        {children}
      </>
    ),
  };
  return href.startsWith("/") ? <Link {...all} href={href} /> : <a {...all} href={href} rel="noreferrer" />;
}

/** A link in running text. */
export function TextLink({ href, className, ...rest }: Omit<ComponentProps<"a">, "href"> & { href: string }) {
  const all = { ...rest, className: cx("text-accent-text underline underline-offset-2 hover:decoration-2", className) };
  return href.startsWith("/") ? <Link {...all} href={href} /> : <a {...all} href={href} rel="noreferrer" />;
}

export type IconButtonProps = Omit<ComponentProps<"button">, "children" | "aria-label"> & {
  icon: LucideIcon;
  label: string;
  size?: Size;
  pending?: boolean;
};

/** A button with an icon alone. Its words are its name, and its title. */
export function IconButton({
  icon: Icon,
  label,
  size = "md",
  pending,
  className,
  onClick,
  type = "button",
  ...rest
}: IconButtonProps) {
  return (
    <button
      title={label}
      {...rest}
      type={type}
      aria-label={label}
      aria-disabled={pending || undefined}
      onClick={(event) => (pending ? event.preventDefault() : onClick?.(event))}
      className={cx(
        "inline-grid flex-none place-content-center rounded-md text-ink-2 transition-colors hover:bg-hover hover:text-ink disabled:opacity-50",
        size === "md" ? "size-(--control)" : "size-[calc(var(--control)-0.25rem)]",
        className,
      )}
    >
      {pending ? <LoaderCircle size={16} className="animate-spin" aria-hidden /> : <Icon size={16} aria-hidden />}
    </button>
  );
}

type FieldWiring = { id: string; "aria-describedby"?: string; "aria-invalid"?: true; required?: boolean };
const FieldContext = createContext<FieldWiring | null>(null);

/** Label above, input, hint, error. The error replaces nothing: the hint stays readable. */
export function Field({
  label,
  hint,
  error,
  required,
  optional,
  aside,
  children,
  className,
}: {
  label: ReactNode;
  hint?: ReactNode;
  error?: string | null | false;
  required?: boolean;
  /** Says so beside the label. */
  optional?: boolean;
  /** Stands right of the label: a counter, a link. */
  aside?: ReactNode;
  children: ReactNode;
  className?: string;
}) {
  const id = useId();
  const describedBy = cx(error && `${id}-error`, Boolean(hint) && `${id}-hint`);
  return (
    <div className={cx("grid content-start gap-1", className)}>
      <div className="flex items-baseline justify-between gap-3">
        <label htmlFor={id} className="text-13 font-medium text-ink">
          {label}
          {optional && <span className="font-normal text-ink-3"> (optional)</span>}
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

function FieldError({ id, children }: { id: string; children: ReactNode }) {
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
  /** Stand inside the input: "$", "per day". */
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
      className={cx("control", mono && "font-mono", before != null && "pl-8", after != null && "pr-20", className)}
    />
  );
  if (before == null && after == null) return input;
  return (
    <span className="relative block">
      {before != null && (
        <span className="pointer-events-none absolute inset-y-0 left-3 grid place-content-center text-14 text-ink-3">
          {before}
        </span>
      )}
      {input}
      {after != null && (
        <span className="pointer-events-none absolute inset-y-0 right-3 grid place-content-center text-13 text-ink-3">
          {after}
        </span>
      )}
    </span>
  );
}

/** A whole or decimal number. `value` is null while nothing readable stands in it. */
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
      <TextInput {...rest} {...(onValue && { onValue })} type={isShown ? "text" : "password"} className="pr-16" />
      <button
        type="button"
        aria-pressed={isShown}
        onClick={() => setShown(!isShown)}
        className="absolute inset-y-1 right-1 rounded-sm px-3 text-13 font-medium text-ink-2 hover:bg-hover hover:text-ink"
      >
        {isShown ? "Hide" : "Show"}
        <span className="sr-only"> password</span>
      </button>
    </span>
  );
}

export function TextArea({
  onValue,
  mono,
  className,
  ...rest
}: Omit<ComponentProps<"textarea">, "onChange"> & { onValue?: (value: string) => void; mono?: boolean }) {
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

export type Option<Value extends string = string> = {
  value: Value;
  label: string;
  /** A second, quieter line or word. */
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
  /** Outside a Field: its name for those who do not see it. */
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
        className="pointer-events-none absolute top-1/2 right-3 -translate-y-1/2 text-ink-3"
      />
    </span>
  );
}

/** More than this are not drawn; the list says so, and typing narrows it. */
const COMBOBOX_SHOWN_MAX = 100;

/**
 * A list to choose from by typing. Arrow keys, Home, End, Enter, Esc. What is typed and not chosen is taken back.
 * `value` is null while nothing is chosen.
 */
export function Combobox<Value extends string>({
  value,
  onValue,
  options,
  placeholder = "Choose…",
  emptyText = "Nothing by that name.",
  label,
  disabled,
  className,
}: {
  value: Value | null;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
  placeholder?: string;
  emptyText?: string;
  /** Outside a Field. */
  label?: string;
  disabled?: boolean;
  className?: string;
}) {
  const field = use(FieldContext);
  const ownId = useId();
  const listId = `${ownId}-list`;
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const [isOpen, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [active, setActive] = useState(0);

  const chosen = options.find((option) => option.value === value);
  const wanted = typed.trim().toLowerCase();
  const found = options.filter((option) => `${option.label} ${option.value}`.toLowerCase().includes(wanted));
  const shown = found.slice(0, COMBOBOX_SHOWN_MAX);

  const open = () => {
    if (isOpen || disabled) return;
    setTyped("");
    setActive(
      Math.max(
        0,
        options.findIndex((option) => option.value === value),
      ),
    );
    setOpen(true);
  };
  const choose = (option: Option<Value> | undefined) => {
    if (option === undefined || option.disabled) return;
    onValue(option.value);
    setOpen(false);
    input.current?.focus();
  };
  useListPlace(isOpen, input, list);
  useEffect(() => {
    if (isOpen && typed !== "") announce(`${found.length} found`);
  }, [isOpen, typed, found.length]);
  // biome-ignore lint/correctness/useExhaustiveDependencies: what is scrolled to changes with the list as well.
  useEffect(() => {
    if (isOpen) document.getElementById(`${listId}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [isOpen, active, typed, listId]);

  const onKeyDown = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!isOpen && (step || event.key === "Enter")) open();
    else if (!isOpen) return;
    else if (step) setActive((shown.length + active + step) % Math.max(1, shown.length));
    else if (event.key === "Home") setActive(0);
    else if (event.key === "End") setActive(shown.length - 1);
    else if (event.key === "Enter") choose(shown[active]);
    else if (event.key === "Escape") setOpen(false);
    else return;
    event.preventDefault();
  };

  return (
    <span className={cx("relative block", className)}>
      <Search
        size={16}
        aria-hidden
        className="pointer-events-none absolute top-1/2 left-3 -translate-y-1/2 text-ink-3"
      />
      <input
        id={ownId}
        {...field}
        ref={input}
        role="combobox"
        aria-label={label}
        aria-expanded={isOpen}
        data-list-open={isOpen || undefined}
        aria-controls={listId}
        aria-autocomplete="list"
        aria-activedescendant={isOpen && shown[active] ? `${listId}-${active}` : undefined}
        autoComplete="off"
        spellCheck={false}
        disabled={disabled}
        placeholder={chosen?.label ?? placeholder}
        value={isOpen ? typed : (chosen?.label ?? "")}
        onClick={open}
        onBlur={() => setOpen(false)}
        onKeyDown={onKeyDown}
        onChange={(event) => {
          setOpen(true);
          setTyped(event.currentTarget.value);
          setActive(0);
        }}
        className="control pr-9 pl-9 text-ellipsis"
      />
      <ChevronDown
        size={16}
        aria-hidden
        className="pointer-events-none absolute top-1/2 right-3 -translate-y-1/2 text-ink-3"
      />
      <div
        ref={list}
        id={listId}
        role="listbox"
        aria-label={label ?? "Choices"}
        tabIndex={-1}
        popover="manual"
        // The focus stays in the input.
        onMouseDown={(event) => event.preventDefault()}
        className="overlay-rise fixed m-0 max-h-72 overflow-y-auto rounded-md bg-raised p-1 text-ink shadow-overlay"
      >
        {isOpen &&
          shown.map((option, index) => (
            // biome-ignore lint/a11y/useKeyWithClickEvents: the keys work in the input, which has the focus.
            <div
              key={option.value}
              id={`${listId}-${index}`}
              role="option"
              tabIndex={-1}
              aria-selected={option.value === value}
              aria-disabled={option.disabled || undefined}
              onMouseMove={() => setActive(index)}
              onClick={() => choose(option)}
              className={cx(
                "flex min-h-9 items-center gap-2 rounded-sm px-3 py-1 text-14",
                index === active && "bg-hover",
                option.value === value && "font-medium text-accent-text",
                option.disabled && "opacity-50",
              )}
            >
              <span className="min-w-0 flex-1 truncate">{option.label}</span>
              {option.hint && (
                <span className="max-w-1/2 flex-none truncate text-13 font-normal text-ink-3">{option.hint}</span>
              )}
            </div>
          ))}
        {isOpen && shown.length === 0 && <p className="px-3 py-2 text-13 text-ink-3">{emptyText}</p>}
        {found.length > shown.length && (
          <p className="px-3 py-2 text-12 text-ink-3">Type to see the other {found.length - shown.length}.</p>
        )}
      </div>
    </span>
  );
}

/** Puts the list into the top layer, below its input or above it, so that no dialog or table cuts it off. */
function useListPlace(
  isOpen: boolean,
  input: React.RefObject<HTMLInputElement | null>,
  list: React.RefObject<HTMLDivElement | null>,
): void {
  useEffect(() => {
    const [anchor, box] = [input.current, list.current];
    if (!isOpen || !anchor || !box) return;
    const place = () => {
      const at = anchor.getBoundingClientRect();
      const isBelow = innerHeight - at.bottom > 300 || at.top < innerHeight - at.bottom;
      box.style.width = `${at.width}px`;
      box.style.left = `${at.left}px`;
      box.style.top = isBelow ? `${at.bottom + 4}px` : "auto";
      box.style.bottom = isBelow ? "auto" : `${innerHeight - at.top + 4}px`;
    };
    box.showPopover();
    place();
    addEventListener("resize", place);
    addEventListener("scroll", place, true);
    return () => {
      removeEventListener("resize", place);
      removeEventListener("scroll", place, true);
      box.hidePopover();
    };
  }, [isOpen, input, list]);
}

/** Two to five choices side by side; one holds. */
export function Segmented<Value extends string>({
  label,
  value,
  onValue,
  options,
  className,
}: {
  /** Said, not shown. */
  label: string;
  value: Value;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
  className?: string;
}) {
  const name = useId();
  return (
    <fieldset
      className={cx(
        "inline-flex max-w-full overflow-x-auto rounded-md bg-sunken p-0.5 ring-1 ring-line ring-inset",
        className,
      )}
    >
      <legend className="sr-only">{label}</legend>
      {options.map(({ value: own, label: words, icon: Icon, disabled }) => (
        <label
          key={own}
          className={cx(
            "flex min-h-[calc(var(--control)-0.25rem)] items-center justify-center gap-2 rounded-[6px] px-3 text-13 font-medium whitespace-nowrap transition-colors",
            "has-focus-visible:outline-2 has-focus-visible:outline-offset-2 has-focus-visible:outline-focus",
            own === value
              ? "bg-raised text-ink shadow-[0_1px_2px_var(--shadow)] ring-1 ring-line"
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

/** Choices one below the other, with room for a sentence each. */
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
          label={option.label}
          {...(option.hint && { hint: option.hint })}
          disabled={option.disabled}
        >
          <input
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
  label,
  hint,
  disabled,
  children,
}: {
  label: ReactNode;
  hint?: ReactNode;
  disabled?: boolean | undefined;
  children: ReactNode;
}) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the input comes as a child.
    <label className={cx("flex items-start gap-3 py-1 text-14 pointer-coarse:py-3", disabled && "text-ink-3")}>
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
}: {
  label: ReactNode;
  hint?: ReactNode;
  checked: boolean;
  onValue: (checked: boolean) => void;
  /** Some of several. */
  isMixed?: boolean;
  disabled?: boolean;
}) {
  const box = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (box.current) box.current.indeterminate = isMixed;
  }, [isMixed]);
  return (
    <ChoiceLine label={label} hint={hint} disabled={disabled}>
      <input
        ref={box}
        type="checkbox"
        checked={checked}
        disabled={disabled}
        onChange={(event) => onValue(event.currentTarget.checked)}
        className="tick"
      />
    </ChoiceLine>
  );
}

const FILTER_FROM = 9;

/** Several of many, or all: `value` null means all, also those that come later. */
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
        <div className="ml-2 grid gap-1 border-l border-line pl-5">
          {options.length >= FILTER_FROM && (
            <TextInput
              value={typed}
              onValue={setTyped}
              placeholder="Filter"
              aria-label={`Filter ${label.toLowerCase()}`}
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
            {shown.length === 0 && <p className="py-1 text-13 text-ink-3">Nothing by that name.</p>}
          </div>
        </div>
      )}
      {error && <FieldError id={`${id}-error`}>{error}</FieldError>}
    </fieldset>
  );
}

/** On or off, at once. For what only counts after "Save", use a Checkbox. */
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
      <label htmlFor={id} className="min-w-0 text-14">
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
          // A finger needs more room than the eye.
          "after:absolute after:-inset-3",
          checked ? "border-accent bg-accent" : "border-edge bg-sunken",
          pending && "opacity-60",
        )}
      >
        <span
          aria-hidden
          className={cx(
            "absolute top-1/2 left-0.5 size-3.5 -translate-y-1/2 rounded-full transition-transform",
            checked ? "translate-x-4 bg-on-accent" : "bg-edge",
          )}
        />
      </button>
    </div>
  );
}
