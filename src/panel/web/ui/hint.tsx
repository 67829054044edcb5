import { type ReactNode, useEffect, useId, useRef, useState } from "react";
import { cx } from "./cx.ts";

/**
 * Words that explain themselves when they are touched, focused or pointed at. A `title` would tell only the pointer.
 *
 *   <Hint says="gpt-a, gpt-b, gpt-c">3 models</Hint>
 *   <Hint says={null}>All</Hint>                         // nothing to explain: plain words
 */
export function Hint({ says, children, className }: { says: ReactNode; children: ReactNode; className?: string }) {
  if (says === null || says === undefined || says === "") return <span className={className}>{children}</span>;
  return (
    <Explained says={says} className={className}>
      {children}
    </Explained>
  );
}

/** From the edge of the window. */
const EDGE_PX = 8;

function Explained({
  says,
  children,
  className,
}: {
  says: ReactNode;
  children: ReactNode;
  className: string | undefined;
}) {
  const id = useId();
  const words = useRef<HTMLButtonElement>(null);
  const box = useRef<HTMLSpanElement>(null);
  const [isOpen, setOpen] = useState(false);
  useEffect(() => {
    const [anchor, shown] = [words.current, box.current];
    if (!isOpen || !anchor || !shown) return;
    shown.showPopover();
    place(anchor, shown);
    const close = () => setOpen(false);
    // A tap elsewhere does not take the focus from a button in every browser.
    const onPointer = ({ target }: PointerEvent) =>
      target instanceof Node && anchor.contains(target) === false && close();
    addEventListener("scroll", close, true);
    addEventListener("pointerdown", onPointer);
    return () => {
      removeEventListener("scroll", close, true);
      removeEventListener("pointerdown", onPointer);
      shown.hidePopover();
    };
  }, [isOpen]);
  return (
    <>
      <button
        ref={words}
        type="button"
        aria-describedby={id}
        onClick={() => setOpen(true)}
        onFocus={() => setOpen(true)}
        onBlur={() => setOpen(false)}
        onPointerEnter={({ pointerType }) => pointerType === "mouse" && setOpen(true)}
        onPointerLeave={({ pointerType }) => pointerType === "mouse" && setOpen(false)}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || !isOpen) return;
          // Only the explanation closes, not the dialog around it.
          event.stopPropagation();
          setOpen(false);
        }}
        className={cx(
          "row-above inline-block min-h-6 rounded-sm text-start underline decoration-dotted underline-offset-4",
          className,
        )}
      >
        {children}
      </button>
      <span
        ref={box}
        id={id}
        role="tooltip"
        popover="manual"
        className="fixed m-0 max-w-80 rounded-md bg-raised px-3 py-2 text-13 font-normal wrap-anywhere whitespace-normal text-ink shadow-overlay"
      >
        {says}
      </span>
    </>
  );
}

/** Below the words, or above them if there is no room; inside the window. */
function place(anchor: HTMLElement, box: HTMLElement): void {
  const at = anchor.getBoundingClientRect();
  const { width, height } = box.getBoundingClientRect();
  const isBelow = at.bottom + height + EDGE_PX < innerHeight;
  box.style.left = `${Math.max(EDGE_PX, Math.min(at.left, innerWidth - width - EDGE_PX))}px`;
  box.style.top = `${isBelow ? at.bottom + 4 : at.top - height - 4}px`;
}
