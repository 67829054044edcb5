import * as Radix from "@radix-ui/react-dropdown-menu";
import { Check, type LucideIcon } from "lucide-react";
import { type ReactElement, type ReactNode, useRef, useState } from "react";
import { useLocation } from "wouter";
import { cx } from "./cx.ts";
import { inPlace } from "./in_place.tsx";

/** The menu itself, loaded by menu.tsx, which shows how to use it. Not modal: the page behind it can be scrolled. */

export type MenuItem =
  | "line"
  | {
      label: ReactNode;
      icon?: LucideIcon;
      /** A path of the panel; or else `onSelect`. */
      href?: string;
      onSelect?: () => void;
      tone?: "danger";
      disabled?: boolean;
      /** Why it cannot be chosen, or a shortcut. */
      hint?: string;
    }
  | {
      heading: string;
      value: string;
      onValue: (value: string) => void;
      options: readonly { value: string; label: string; icon?: LucideIcon }[];
    };

export type MenuProps = {
  /** One button. It gets the attributes and handlers it needs. */
  trigger: ReactElement<{ onClick?: () => void; "aria-haspopup"?: "menu" }>;
  items: readonly MenuItem[];
  /** Above the items: who is signed in. */
  header?: ReactNode;
  side?: "bottom" | "top" | "right";
  align?: "start" | "end";
};

const ITEM =
  "flex min-h-9 cursor-default items-center gap-3 rounded-sm px-3 py-1 text-14 outline-none select-none data-[highlighted]:bg-hover data-[disabled]:opacity-50 pointer-coarse:min-h-11";

export function MenuList({
  trigger,
  items,
  header,
  side = "bottom",
  align = "end",
  isOpenAtFirst,
}: MenuProps & { isOpenAtFirst: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const chosen = useRef<(() => void) | undefined>(undefined);
  const [home, setHome] = useState<Element | null>(null);
  return (
    <Radix.Root
      modal={false}
      defaultOpen={isOpenAtFirst}
      onOpenChange={(open) => open && setHome(homeOf(button.current))}
    >
      <Radix.Trigger asChild ref={button}>
        {trigger}
      </Radix.Trigger>
      <Radix.Portal container={home}>
        <Radix.Content
          onCloseAutoFocus={() => {
            // The choice acts when the focus is back on the button: a dialog it opens gives the focus back to there.
            const act = chosen.current;
            chosen.current = undefined;
            if (act) setTimeout(act);
          }}
          side={side}
          align={align}
          sideOffset={6}
          collisionPadding={8}
          className="z-50 max-h-[min(28rem,var(--radix-dropdown-menu-content-available-height))] min-w-48 max-w-80 animate-rise overflow-y-auto rounded-md bg-raised p-1 text-ink shadow-overlay"
        >
          {header && <div className="border-b border-line px-3 py-2">{header}</div>}
          {inPlace(items, (item) => (
            <Entry
              item={item}
              onChoose={(act) => {
                chosen.current = act;
              }}
            />
          ))}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

/** Where the menu is mounted: in the landmark of its button; for a button in a dialog, at the end of the page, above everything. */
function homeOf(button: Element | null): Element | null {
  return button?.closest("[role=dialog]") ? null : (button?.closest(/* not a text */ "main, header, nav") ?? null);
}

function Entry({ item, onChoose }: { item: MenuItem; onChoose: (act: (() => void) | undefined) => void }) {
  const [, navigate] = useLocation();
  if (item === "line") return <Radix.Separator className="my-1 h-px bg-line" />;
  if ("heading" in item) {
    return (
      <Radix.RadioGroup value={item.value} onValueChange={item.onValue}>
        <Radix.Label className="px-3 pt-2 pb-1 text-12 text-ink-3">{item.heading}</Radix.Label>
        {item.options.map(({ value, label, icon: Icon }) => (
          // The menu stays open, so that the choice is visible.
          <Radix.RadioItem key={value} value={value} onSelect={(event) => event.preventDefault()} className={ITEM}>
            {Icon && <Icon size={16} aria-hidden className="flex-none text-ink-3" />}
            <span className="flex-1">{label}</span>
            <Radix.ItemIndicator>
              <Check size={16} aria-hidden className="text-accent-text" />
            </Radix.ItemIndicator>
          </Radix.RadioItem>
        ))}
      </Radix.RadioGroup>
    );
  }
  const { label, icon: Icon, href, onSelect, tone, disabled, hint } = item;
  const isDanger = tone === "danger";
  const inside = (
    <>
      {Icon && <Icon size={16} aria-hidden className={cx("flex-none", !isDanger && "text-ink-3")} />}
      <span className="min-w-0 flex-1">
        {label}
        {hint && <span className="block text-12 text-ink-3">{hint}</span>}
      </span>
    </>
  );
  const className = cx(ITEM, isDanger && "text-bad data-[highlighted]:bg-bad-soft");
  if (href === undefined) {
    return (
      <Radix.Item disabled={disabled} onSelect={() => onChoose(onSelect)} className={className}>
        {inside}
      </Radix.Item>
    );
  }
  return (
    <Radix.Item asChild disabled={disabled} className={className}>
      {/* A real link, so that it can be opened in another tab; a plain press stays in the panel. */}
      <a
        href={href}
        onClick={(event) => {
          if (event.ctrlKey || event.metaKey || event.shiftKey) return;
          event.preventDefault();
          navigate(href);
        }}
      >
        {inside}
      </a>
    </Radix.Item>
  );
}
