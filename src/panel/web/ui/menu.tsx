import type { LucideIcon } from "lucide-react";
import { cloneElement, lazy, type ReactElement, type ReactNode, Suspense, useState } from "react";

/**
 * A menu behind a button. Its library comes when the page stands; a press before that opens it as soon as it is there.
 *
 *   <Menu
 *     trigger={<IconButton icon={MoreHorizontal} label="Actions for ci" />}
 *     items={[
 *       { label: "Rotate", icon: RotateCw, onSelect: rotate },
 *       { label: "Usage", href: "/usage?key=7" },
 *       "line",
 *       { label: "Revoke", icon: Ban, tone: "danger", onSelect: askRevoke },
 *     ]}
 *   />
 *   { heading: "Theme", value: theme, onValue: setTheme, options: [{ value: "dark", label: "Dark" }] }   // one of several
 */

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
  /** Stands above the items: who is signed in. */
  header?: ReactNode;
  side?: "bottom" | "top" | "right";
  align?: "start" | "end";
};

const OpenMenu = lazy(() => import("./menu_list.tsx").then((module) => ({ default: module.MenuList })));

export function Menu(props: MenuProps) {
  const [isWanted, setWanted] = useState(false);
  const waiting = cloneElement(props.trigger, { "aria-haspopup": "menu", onClick: () => setWanted(true) });
  return (
    <Suspense fallback={waiting}>
      <OpenMenu {...props} isOpenAtFirst={isWanted} />
    </Suspense>
  );
}
