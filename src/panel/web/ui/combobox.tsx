import { plural, t } from "@lingui/core/macro";
import { ChevronDown, Search } from "lucide-react";
import { use, useEffect, useId, useRef, useState } from "react";
import { announce } from "./announce.ts";
import { cx } from "./cx.ts";
import { FieldContext, type Option } from "./fields.tsx";

/** Options that are drawn at most. The list says how many more there are; typing narrows it. */
const SHOWN_MAX = 100;

type ComboboxProps<Value extends string> = {
  /** null while nothing is chosen. */
  value: Value | null;
  onValue: (value: Value) => void;
  options: readonly Option<Value>[];
  placeholder?: string;
  emptyText?: string;
  /** Its name outside a Field. */
  label?: string;
  disabled?: boolean;
  className?: string;
};

/** A list to choose from by typing. Arrow keys, Home, End, Enter, Esc. Text that is typed but not chosen is discarded. */
export function Combobox<Value extends string>(props: ComboboxProps<Value>) {
  const { value, options, placeholder = t`Choose…`, emptyText = t`Nothing with that name.`, label, disabled } = props;
  const field = use(FieldContext);
  const ownId = useId();
  const listId = `${ownId}-list`;
  const input = useRef<HTMLInputElement>(null);
  const list = useRef<HTMLDivElement>(null);
  const { isOpen, typed, active, found, shown, open, close, type, setActive, choose, onKeyDown } = useChoosing(
    props,
    input,
  );
  const hidden = found.length - shown.length;
  const chosen = options.find((option) => option.value === value);
  useListPlace(isOpen, input, list);
  const activeValue = shown[active]?.value;
  useEffect(() => {
    if (isOpen && activeValue !== undefined)
      document.getElementById(`${listId}-${active}`)?.scrollIntoView({ block: "nearest" });
  }, [isOpen, active, activeValue, listId]);
  const icon = "pointer-events-none absolute top-1/2 -translate-y-1/2 text-ink-3";
  return (
    <span className={cx("relative block", props.className)}>
      <Search size={16} aria-hidden className={cx(icon, "start-3")} />
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
        onBlur={close}
        onKeyDown={onKeyDown}
        onChange={(event) => type(event.currentTarget.value)}
        className="control pe-9 ps-9 text-ellipsis"
      />
      <ChevronDown size={16} aria-hidden className={cx(icon, "end-3")} />
      <div
        ref={list}
        id={listId}
        role="listbox"
        aria-label={label ?? t`Choices`}
        tabIndex={-1}
        popover="manual"
        // Keeps the focus in the input.
        onMouseDown={(event) => event.preventDefault()}
        className="overlay-rise fixed m-0 max-h-72 overflow-y-auto rounded-md bg-raised p-1 text-ink shadow-overlay"
      >
        {isOpen && <Options {...{ listId, value, shown, active, setActive, choose }} />}
        {isOpen && shown.length === 0 && <p className="px-3 py-2 text-13 text-ink-3">{emptyText}</p>}
        {hidden > 0 && (
          <p className="px-3 py-2 text-12 text-ink-3">{plural(hidden, { other: "Type to see the other #." })}</p>
        )}
      </div>
    </span>
  );
}

/** The state of the list: open or not, what is typed, and the index of the active option among those shown. */
function useChoosing<Value extends string>(
  { value, onValue, options, disabled }: ComboboxProps<Value>,
  input: React.RefObject<HTMLInputElement | null>,
) {
  const [isOpen, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  const [active, setActive] = useState(0);
  const wanted = typed.trim().toLowerCase();
  // A person is found by the e-mail address too, which is the hint.
  const found = options.filter(({ label, value: own, hint = "" }) =>
    `${label} ${own} ${hint}`.toLowerCase().includes(wanted),
  );
  const shown = found.slice(0, SHOWN_MAX);
  const count = found.length;
  useEffect(() => {
    if (isOpen && typed !== "") announce(plural(count, { other: "# found" }));
  }, [isOpen, typed, count]);

  const open = () => {
    if (isOpen || disabled) return;
    setTyped("");
    const chosenAt = options.findIndex((option) => option.value === value);
    setActive(Math.max(0, chosenAt));
    setOpen(true);
  };
  const close = () => setOpen(false);
  const type = (text: string) => {
    setOpen(true);
    setTyped(text);
    setActive(0);
  };
  const choose = (option: Option<Value> | undefined) => {
    if (option === undefined || option.disabled) return;
    onValue(option.value);
    setOpen(false);
    input.current?.focus();
  };
  const onKeyDown = (event: React.KeyboardEvent) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!isOpen && (step || event.key === "Enter")) open();
    else if (!isOpen) return;
    else if (step) setActive((shown.length + active + step) % Math.max(1, shown.length));
    else if (event.key === "Home") setActive(0);
    else if (event.key === "End") setActive(shown.length - 1);
    else if (event.key === "Enter") choose(shown[active]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  };
  return { isOpen, typed, active, found, shown, open, close, type, setActive, choose, onKeyDown };
}

function Options<Value extends string>({
  listId,
  value,
  shown,
  active,
  setActive,
  choose,
}: {
  listId: string;
  value: Value | null;
  shown: readonly Option<Value>[];
  active: number;
  setActive: (index: number) => void;
  choose: (option: Option<Value>) => void;
}) {
  return shown.map((option, index) => (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the input has the focus and handles the keys.
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
  ));
}

/** Puts the list into the top layer, below its input or above it, so that no dialog or table clips it. */
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
