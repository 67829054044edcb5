import type { LucideIcon } from "lucide-react";
import { lazy, Suspense, useEffect } from "react";
import { Dialog } from "./dialog.tsx";
import { Loading, Skeleton } from "./states.tsx";

/**
 * ⌘K or Ctrl+K: pages, own keys, and a request id, which opens its receipt: one's own, or that of somebody one looks after.
 *
 *   usePaletteKey(() => setOpen(true));
 *   <Palette open={isOpen} onOpenChange={setOpen} pages={[{ label: "Keys", href: "/keys", icon: KeyRound }]} keys={[{ id, name, prefix }]} />
 */

export type PalettePage = {
  label: string;
  href: string;
  icon: LucideIcon;
  /** Not a page of this app: it is loaded. */
  isOutside?: boolean;
};
export type PaletteKey = { id: string; name: string; prefix: string };
export type PaletteProps = {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  pages: readonly PalettePage[];
  keys?: readonly PaletteKey[] | undefined;
};

const List = lazy(() => import("./palette_list.tsx").then((module) => ({ default: module.PaletteList })));

export function Palette(props: PaletteProps) {
  return (
    <Dialog open={props.open} onOpenChange={props.onOpenChange} title="Go to">
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
