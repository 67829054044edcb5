import { cloneElement, lazy, Suspense, useState } from "react";
import type { MenuProps } from "./menu_list.tsx";

/**
 * A menu behind a button. Its code loads after the page is drawn; a click before that opens the menu once it has loaded.
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
