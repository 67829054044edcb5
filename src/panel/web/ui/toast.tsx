import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import * as Radix from "@radix-ui/react-toast";
import { Check, CircleAlert, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { ApiError } from "../api.ts";
import { Button, IconButton } from "./buttons.tsx";
import { CopyText } from "./copy_text.tsx";
import { failureText } from "./states.tsx";

/**
 * Short messages at the edge of the window. `<Toaster />` is mounted once, in main.tsx.
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

type Entry = {
  id: number;
  tone: "done" | "failed";
  text: string;
  requestId: string | null;
  durationMs: number;
  undo: (() => unknown) | null;
  isOpen: boolean;
};

let entries: readonly Entry[] = [];
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

function close(id: number): void {
  set(entries.map((entry) => (entry.id === id ? { ...entry, isOpen: false } : entry)));
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Toaster() {
  const shown = useSyncExternalStore(subscribe, () => entries);
  return (
    <Radix.Provider swipeDirection="right" label={t`Notice`}>
      {shown.map((entry) => (
        <Toast key={entry.id} entry={entry} />
      ))}
      <Radix.Viewport
        // Radix writes the key into it.
        label={t`Notices (${{ hotkey: "{hotkey}" }})`}
        className="fixed right-0 bottom-[calc(var(--tabs,0px)+env(safe-area-inset-bottom))] z-[60] flex w-full flex-col gap-2 p-4 sm:w-[26rem]"
      />
    </Radix.Provider>
  );
}

function Toast({ entry: { id, tone, text, requestId, durationMs, undo, isOpen } }: { entry: Entry }) {
  const takeBack = async () => {
    try {
      await undo?.();
    } catch (error) {
      toast.failed(error);
    }
  };
  return (
    <Radix.Root
      open={isOpen}
      onOpenChange={(open) => open || close(id)}
      duration={durationMs}
      type={tone === "failed" ? "foreground" : "background"}
      className="toast flex items-center gap-3 rounded-md bg-raised py-2 pr-2 pl-4 text-14 text-ink shadow-overlay"
    >
      {tone === "failed" ? (
        <CircleAlert size={16} aria-hidden className="flex-none text-bad" />
      ) : (
        <Check size={16} aria-hidden className="flex-none text-ok" />
      )}
      <Radix.Description className="min-w-0 flex-1 py-1">
        {text}
        {requestId && <CopyText value={requestId} what={t`request id`} className="mt-1" />}
      </Radix.Description>
      {undo && (
        <Radix.Action asChild altText={t`Undo`}>
          <Button size="sm" onClick={takeBack}>
            <Trans>Undo</Trans>
          </Button>
        </Radix.Action>
      )}
      <Radix.Close asChild>
        <IconButton icon={X} label={t({ message: "Close", context: "verb" })} size="sm" />
      </Radix.Close>
    </Radix.Root>
  );
}
