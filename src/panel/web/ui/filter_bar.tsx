import { Trans } from "@lingui/react/macro";
import { Search, X } from "lucide-react";
import type { ComponentProps, ReactNode } from "react";
import { useLocation, useSearch } from "wouter";
import { Button } from "./buttons.tsx";
import { cx } from "./cx.ts";
import { TextInput } from "./fields.tsx";

/**
 * Filters over a table, kept in the URL, so that a filtered view can be shared.
 *
 *   const [filters, setFilters] = useUrlState({ days: "7", key: "", outcome: "charged" });   // the defaults; all text
 *   <FilterBar isFiltered={filters.key !== ""} onClear={() => setFilters({ key: "" })} aside={<Button>CSV</Button>}>
 *     <SearchInput label="Search by name" value={filters.q} onValue={(q) => setFilters({ q })} maxLength={…} />
 *     <NativeSelect label="Key" value={filters.key} onValue={(key) => setFilters({ key })} options={…} />
 *   </FilterBar>
 *
 * Defaults are not written into the URL. `setFilters(…, { push: true })` adds a history entry.
 */
export function FilterBar({
  children,
  isFiltered,
  onClear,
  aside,
}: {
  children: ReactNode;
  isFiltered?: boolean;
  onClear?: () => void;
  /** On the right: export, a switch of the view. */
  aside?: ReactNode;
}) {
  return (
    <search className="flex flex-wrap items-center gap-2">
      {children}
      {isFiltered && onClear && (
        <Button variant="quiet" size="sm" icon={X} onClick={onClear}>
          <Trans context="verb">Clear</Trans>
        </Button>
      )}
      {aside && <div className="flex sm:ms-auto flex-wrap items-center gap-2">{aside}</div>}
    </search>
  );
}

/** Where a list is searched. `label` is its name for screen readers. */
export function SearchInput({
  label,
  className,
  ...input
}: { label: string; maxLength: number } & Omit<ComponentProps<typeof TextInput>, "type" | "before" | "maxLength">) {
  return (
    <TextInput
      type="search"
      aria-label={label}
      before={<Search size={16} aria-hidden />}
      className={cx("w-72 max-w-full ps-9", className)}
      {...input}
    />
  );
}

export function useUrlState<State extends Record<string, string>>(
  defaults: State,
): [State, (changes: Partial<State>, options?: { push?: boolean }) => void] {
  const search = useSearch();
  const [, navigate] = useLocation();
  const state = readState(search, defaults);
  const set = (changes: Partial<State>, { push = false } = {}) => {
    // From the window, not from this render, so that two changes in one handler both take effect.
    const params = new URLSearchParams(window.location.search);
    for (const [name, value] of Object.entries(changes)) {
      if (value === undefined || value === defaults[name]) params.delete(name);
      else params.set(name, value);
    }
    const text = params.toString();
    navigate(`${window.location.pathname}${text && `?${text}`}`, { replace: !push });
  };
  return [state, set];
}

function readState<State extends Record<string, string>>(search: string, defaults: State): State {
  const params = new URLSearchParams(search);
  const state = { ...defaults };
  for (const name in defaults) {
    const given = params.get(name);
    if (given !== null) Object.assign(state, { [name]: given });
  }
  return state;
}
