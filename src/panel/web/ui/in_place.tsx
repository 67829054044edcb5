import { Fragment, type ReactNode } from "react";

/**
 * Draws items that have no name but their place: parts of a text, turns of a conversation, entries of a menu. They come and go at the
 * end, if at all; what is moved or taken out of the middle needs a key of its own.
 */
export function inPlace<T>(items: readonly T[], draw: (item: T, place: number) => ReactNode): ReactNode {
  return items.map((item, place) => (
    // biome-ignore lint/suspicious/noArrayIndexKey: an item is its place.
    <Fragment key={place}>{draw(item, place)}</Fragment>
  ));
}
