import { t } from "@lingui/core/macro";
import type { Change } from "../../../../accounts/accent.ts";

/** A reseller's colour: reading what was typed, and telling how it was adjusted. */

type Notes = Readonly<Record<Change, string | null>>;

const OF_BOTH: Notes = {
  none: null,
  darker: t`We darkened your colour for text and buttons.`,
  lighter: t`We lightened your colour for text and buttons.`,
  softer: t`We softened your colour for text and buttons.`,
};
const OF_TEXT: Notes = {
  none: null,
  darker: t`We darkened your colour for text.`,
  lighter: t`We lightened your colour for text.`,
  softer: t`We softened your colour for text.`,
};
const OF_BUTTONS: Notes = {
  none: null,
  darker: t`We darkened your colour for buttons.`,
  lighter: t`We lightened your colour for buttons.`,
  softer: t`We softened your colour for buttons.`,
};

/** "We darkened your colour for text."; null if the colour is used as chosen. */
export function accentNote({ fillChange, textChange }: { fillChange: Change; textChange: Change }): string | null {
  if (fillChange === textChange) return OF_BOTH[fillChange];
  return [OF_TEXT[textChange], OF_BUTTONS[fillChange]].filter((note) => note !== null).join(" ");
}

/** A typed colour ("#0A7D5C", "0a7d5c", "#0af") as "#0a7d5c"; null if it is not one. */
export function readHex(typed: string): string | null {
  const digits = /^#?((?:[\da-f]{3}){1,2})$/i.exec(typed.trim())?.[1]?.toLowerCase();
  if (digits === undefined) return null;
  return `#${digits.length === 3 ? digits.replace(/./g, "$&$&") : digits}`;
}
