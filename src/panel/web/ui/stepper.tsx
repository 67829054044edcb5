import { t } from "@lingui/core/macro";
import { Check, Clock, X } from "lucide-react";
import type { ReactNode } from "react";
import { cx } from "./cx.ts";
import { inPlace } from "./in_place.tsx";

/**
 * Progress through a few steps.
 *
 *   <Stepper label="Going live" steps={[{ label: "Records", state: "done" }, { label: "Check", state: "current" }, { label: "Live", state: "todo" }]} />
 */

export type StepState = "done" | "current" | "waiting" | "todo" | "bad";

const MARKS: Record<StepState, string> = {
  done: "bg-ok text-surface",
  current: "bg-accent text-on-accent",
  waiting: "bg-warn-soft text-warn ring-1 ring-warn ring-inset",
  todo: "text-ink-3 ring-1 ring-edge ring-inset",
  bad: "bg-bad-fill text-on-bad",
};
const WORDS: Record<StepState, string> = {
  done: t`done`,
  current: t`current`,
  waiting: t`waited for`,
  todo: t`to come`,
  bad: t`needs you`,
};

export function Stepper({ label, steps }: { label: string; steps: readonly { label: ReactNode; state: StepState }[] }) {
  return (
    <ol aria-label={label} className="flex flex-col gap-2 sm:flex-row sm:items-center sm:gap-0">
      {inPlace(steps, ({ label: words, state }, index) => (
        <li
          aria-current={state === "current" || state === "waiting" ? "step" : undefined}
          className="flex items-center sm:not-last:flex-auto"
        >
          <span
            className={cx(
              "grid size-6 flex-none place-content-center rounded-full text-12 font-semibold",
              MARKS[state],
            )}
          >
            {state === "done" ? (
              <Check size={14} strokeWidth={2.5} aria-hidden />
            ) : state === "bad" ? (
              <X size={14} strokeWidth={2.5} aria-hidden />
            ) : state === "waiting" ? (
              <Clock size={14} strokeWidth={2.5} aria-hidden />
            ) : (
              index + 1
            )}
          </span>
          <span
            className={cx(
              "ms-2 text-13",
              state === "todo" ? "text-ink-3" : "text-ink",
              state !== "todo" && state !== "done" && "font-semibold",
            )}
          >
            {words}
            <span className="sr-only">, {WORDS[state]}</span>
          </span>
          {index < steps.length - 1 && (
            <span
              aria-hidden
              className={cx("mx-3 hidden h-px min-w-4 flex-1 sm:block", state === "done" ? "bg-ok" : "bg-line")}
            />
          )}
        </li>
      ))}
    </ol>
  );
}
