import { ChevronDown, Search } from "lucide-react";
import { use, useEffect, useId, useRef, useState } from "react";
import { announce } from "./announce.ts";
import { cx } from "./cx.ts";
import { FieldContext, type Option } from "./fields.tsx";

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
