import { Fragment, type ReactNode } from "react";

/**
 * Draws items that are identified only by their index: parts of a text, turns of a conversation, entries of a menu.
 * Items may be added or removed only at the end; others need their own keys.
 */
export function inPlace<T>(items: readonly T[], draw: (item: T, place: number) => ReactNode): ReactNode {
  return items.map((item, place) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: an item is its place.
    <Fragment key={place}>{draw(item, place)}</Fragment>
  ));
}
