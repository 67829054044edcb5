import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { useLocation } from "wouter";
import { type MemberSubject, mayWrite } from "../../../accounts/member_roles.ts";
import { type api, type MemberRole, type Role, useMe } from "../api.ts";
import { READ_ONLY, roleLocked } from "../failures.ts";
import type { Lock } from "../ui/buttons.tsx";
import { subjectOfPage } from "./page_subjects.ts";

/**
 * Hooks that the pages share.
 *
 *   const { accountId, role, lock } = useViewer();                    // <Button {...lock}>: disabled for who may not change it
 *   const dialog = useOpened<{ kind: "end"; row: Package }>();         // one dialog of a page; each opening is a new form
 *   {dialog.what?.kind === "end" && <EndPackage key={dialog.times} open={dialog.isOpen} onClose={dialog.close} … />}
 */

/**
 * Whose panel this is. `lock` goes to every control that changes something: disabled while an admin views another's panel, as the bar on top
 * says, and where it changes what the member's role may not change. `title` then says why.
 */
export type Viewer = {
  accountId: number;
  role: Role;
  /** The role of the person in the account. */
  member: MemberRole;
  lock: Lock;
};

/** `subject`: what the controls change, if that is not what the page changes. */
export function useViewer(subject?: MemberSubject): Viewer {
  const { account, member, viewing } = useMe();
  const [path] = useLocation();
  const { accountId, role } = viewing ?? account;
  const isOpen = mayWrite(member, subject ?? subjectOfPage(path));
  const why = viewing !== null ? READ_ONLY : isOpen ? null : roleLocked(member);
  return { accountId: Number(accountId), role, member, lock: why === null ? {} : { disabled: true, title: why } };
}

/** A person as their page in Customers shows them. */
export type Person = NonNullable<Awaited<ReturnType<ReturnType<typeof api.people>["get"]>>["data"]>;

export type Opened<What> = {
  /** What it was opened for. Kept while it closes, so that its text does not vanish before the dialog does. */
  what: What | null;
  isOpen: boolean;
  /** Counts openings. As `key` it makes each opening a new form with its own idempotency key. */
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

/** Marks every query as stale: money and packages are shown on many pages. What is on the screen is loaded again at once. */
export function useRefresh(): () => Promise<void> {
  const client = useQueryClient();
  return () => client.invalidateQueries();
}

const TYPING_MS = 200;

/** The text once typing pauses, so that a search is not sent for each letter. */
export function useDebounced(typed: string): string {
  const [settled, setSettled] = useState(typed);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(typed), TYPING_MS);
    return () => clearTimeout(timer);
  }, [typed]);
  return settled;
}
