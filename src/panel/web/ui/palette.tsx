import { t } from "@lingui/core/macro";
import { lazy, Suspense, useEffect } from "react";
import { Dialog } from "./dialog.tsx";
import type { PaletteProps } from "./palette_list.tsx";
import { Loading, Skeleton } from "./states.tsx";

/**
 * ⌘K or Ctrl+K: finds pages, your own keys, and the receipt of a request id (yours, or one of an account you manage).
 *
 *   usePaletteKey(() => setOpen(true));
 *   <Palette open={isOpen} onOpenChange={setOpen} pages={[{ label: "Keys", href: "/keys", icon: KeyRound }]} keys={[{ id, name, prefix }]} />
 */

const List = lazy(() => import("./palette_list.tsx").then((module) => ({ default: module.PaletteList })));

export function Palette(props: PaletteProps) {
  return (
    <Dialog open={props.open} onOpenChange={props.onOpenChange} title={t`Go to`}>
      <Suspense
        fallback={
          <Loading>
            <Skeleton className="h-9" />
          </Loading>
        }
      >
        <List {...props} />
      </Suspense>
    </Dialog>
  );
}

export function usePaletteKey(onPress: () => void): void {
  useEffect(() => {
    const listen = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.metaKey || event.ctrlKey) || event.shiftKey || event.altKey)
        return;
      event.preventDefault();
      onPress();
    };
    addEventListener("keydown", listen);
    return () => removeEventListener("keydown", listen);
  }, [onPress]);
}
