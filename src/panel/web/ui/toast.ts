import { ApiError } from "../api.ts";
import { failureText } from "./states.tsx";

/**
 * Short messages at the edge of the window; toaster.tsx draws them.
 *
 *   toast.done("Key ci created.");                                  // 4 s
 *   toast.undo("Key ci is off.", () => enable.mutateAsync(id));     // 8 s, with Undo; waits while it has the pointer or the focus
 *   toast.failed(error);  toast.failed(error, "Key ci stays on.");  // until it is closed
 *
 * F8 moves the focus to them.
 */

const DONE_MS = 4_000;
const UNDO_MS = 8_000;
const SHOWN_MAX = 3;

export type Entry = {
  id: number;
  tone: "done" | "failed";
  text: string;
  requestId: string | null;
  durationMs: number;
  undo: (() => unknown) | null;
  isOpen: boolean;
};

let entries: readonly Entry[] = [];

/** Those that are shown, and the last that were closed. */
export const currentToasts = () => entries;

let lastId = 0;
const listeners = new Set<() => void>();

export const toast = {
  done: (text: string) => add({ tone: "done", text, requestId: null, durationMs: DONE_MS, undo: null }),
  undo: (text: string, undo: () => unknown) => add({ tone: "done", text, requestId: null, durationMs: UNDO_MS, undo }),
  failed: (error: unknown, before?: string) =>
    add({
      tone: "failed",
      text: [before, failureText(error)].filter(Boolean).join(" "),
      requestId: error instanceof ApiError ? error.requestId : null,
      durationMs: Number.POSITIVE_INFINITY,
      undo: null,
    }),
};

function add(entry: Omit<Entry, "id" | "isOpen">): void {
  lastId += 1;
  set([...entries.filter((each) => each.isOpen).slice(1 - SHOWN_MAX), { ...entry, id: lastId, isOpen: true }]);
}

function set(next: readonly Entry[]): void {
  entries = next;
  for (const listener of listeners) listener();
}

export function closeToast(id: number): void {
  set(entries.map((entry) => (entry.id === id ? { ...entry, isOpen: false } : entry)));
}

export function subscribeToasts(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
