import { Link, useLocation } from "wouter";
import { cx } from "./cx.ts";
import { useUrlState } from "./filter_bar.tsx";

/**
 * The parts of a page that has many, one at a time. The URL says which; the first one's has no query.
 *
 *   const tab = useTab(TABS);
 *   <TabBar label="Settings" tabs={TABS} value={tab} />
 *   {tab === "you" && …}
 */
type Tab<Value extends string> = { value: Value; label: string };

/** The part that is shown: the first one, unless the URL names another. */
export function useTab<Value extends string>(tabs: readonly [Tab<Value>, ...Tab<Value>[]]): Value {
  const [{ tab }] = useUrlState<{ tab: string }>({ tab: tabs[0].value });
  return tabs.find(({ value }) => value === tab)?.value ?? tabs[0].value;
}

export function TabBar<Value extends string>({
  label,
  tabs,
  value,
}: {
  /** For screen readers only. */
  label: string;
  tabs: readonly Tab<Value>[];
  value: Value;
}) {
  const [location] = useLocation();
  return (
    <nav aria-label={label} className="-mt-2 overflow-x-auto border-b border-line">
      <ul className="flex gap-4">
        {tabs.map(({ value: own, label: words }, index) => (
          <li key={own}>
            <Link
              href={index === 0 ? location : `${location}?tab=${own}`}
              aria-current={own === value ? "page" : undefined}
              className={cx(
                "flex min-h-10 items-center border-b-2 text-14 font-medium whitespace-nowrap -outline-offset-2 transition-colors pointer-coarse:min-h-11",
                own === value ? "border-accent text-accent-text" : "border-transparent text-ink-2 hover:text-ink",
              )}
            >
              {words}
            </Link>
          </li>
        ))}
      </ul>
    </nav>
  );
}
