import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { ApiError, type api, type Role, useMe } from "../api.ts";
import { READ_ONLY } from "../copy.ts";

/**
 * What the dialogs and forms of the money pages have in common.
 *
 *   const { accountId, role, lock } = useViewer();                    // <Button {...lock}>: off while somebody's panel is looked at
 *   const dialog = useOpened<{ kind: "end"; row: Package }>();         // one dialog of a page; each opening is a new form
 *   {dialog.what?.kind === "end" && <EndPackage key={dialog.times} open={dialog.isOpen} onClose={dialog.close} … />}
 *   const { at, rest } = useErrors(save.error, ["email", "name"]);      // <Field error={at("email")}>, <Problem error={rest}>
 */

/** Whose panel this is, and what holds for every control that changes something. */
export type Viewer = { accountId: number; role: Role; lock: { disabled?: boolean; title?: string } };

export function useViewer(): Viewer {
  const { person, viewing } = useMe();
  const { accountId, role } = viewing ?? person;
  return { accountId: Number(accountId), role, lock: viewing ? { disabled: true, title: READ_ONLY } : {} };
}

/** Somebody one looks after, as their page shows them. */
export type Person = NonNullable<Awaited<ReturnType<ReturnType<typeof api.people>["get"]>>["data"]>;

export type Opened<What> = {
  /** What it was opened for; stays while it closes, so that its words do not vanish before it does. */
  what: What | null;
  isOpen: boolean;
  /** A new number for each opening: as `key` it makes every opening a new form, with an idempotency key of its own. */
  times: number;
  open: (what: What) => void;
  close: () => void;
};

export function useOpened<What>(first: What | null = null): Opened<What> {
  const [state, setState] = useState({ what: first, isOpen: first !== null, times: 0 });
  return {
    ...state,
    open: (what) => setState(({ times }) => ({ what, isOpen: true, times: times + 1 })),
    close: () => setState((before) => ({ ...before, isOpen: false })),
  };
}

/** Money and packages stand on many pages: after a change everything is asked for again, what is on the screen at once. */
export function useRefresh(): () => Promise<void> {
  const client = useQueryClient();
  return () => client.invalidateQueries();
}

const TYPING_MS = 200;

/** What is typed, once the hands rest: a list is not asked for at each letter. */
export function useRested(typed: string): string {
  const [rested, setRested] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(() => setRested(typed), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return rested;
}

/** What a form was refused for: `at(name)` is the sentence for that field, `rest` whatever belongs to none of `names`. */
export function useErrors(error: unknown, names: readonly string[]) {
  const param = error instanceof ApiError && error.code === "validation_failed" ? error.param : null;
  const isField = param !== null && names.includes(param);
  useFocusInvalid(isField ? error : null);
  return {
    at: (name: string) => (isField && name === param && error instanceof Error ? error.message : null),
    rest: isField ? null : error,
  };
}

function useFocusInvalid(error: unknown): void {
  useEffect(() => {
    if (error !== null) focusInvalid();
  }, [error]);
}

/** The focus goes to the first field of this form that is wrong, where its sentence is read. */
export function focusInvalid(): void {
  // Some browsers give a pressed button no focus: then the form is the dialog's, or the page's first.
  const inside = document.activeElement?.closest("form") ?? document.querySelector("[role=dialog]") ?? document;
  inside.querySelector<HTMLElement>("[aria-invalid=true]")?.focus();
}
