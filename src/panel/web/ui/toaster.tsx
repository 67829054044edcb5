import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import * as Radix from "@radix-ui/react-toast";
import { Check, CircleAlert, X } from "lucide-react";
import { useSyncExternalStore } from "react";
import { Button, IconButton } from "./buttons.tsx";
import { CopyText } from "./copy_text.tsx";
import { closeToast, currentToasts, type Entry, subscribeToasts, toast } from "./toast.ts";

/** Draws the notices of toast.ts. Mounted once, in main.tsx, whose first load it is not in. */

export function Toaster() {
  const shown = useSyncExternalStore(subscribeToasts, currentToasts);
  return (
    <Radix.Provider swipeDirection="right" label={t`Notice`}>
      {shown.map((entry) => (
        <Toast key={entry.id} entry={entry} />
      ))}
      <Radix.Viewport
        // Radix writes the key into it.
        label={t`Notices (${{ hotkey: "{hotkey}" }})`}
        className="fixed end-0 bottom-[calc(var(--tabs,0px)+env(safe-area-inset-bottom))] z-[60] flex w-full flex-col gap-2 p-4 sm:w-[26rem]"
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
      onOpenChange={(open) => open || closeToast(id)}
      duration={durationMs}
      type={tone === "failed" ? "foreground" : "background"}
      className="toast flex items-center gap-3 rounded-md bg-raised py-2 pe-2 ps-4 text-14 text-ink shadow-overlay"
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
