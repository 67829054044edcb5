import type { Change } from "../../../../accounts/accent.ts";

/** A reseller's colour: reading what was typed, and telling how it was adjusted. */

const CHANGED: Record<Exclude<Change, "none">, string> = {
  darker: "darkened",
  lighter: "lightened",
  softer: "softened",
};

/** "We darkened your colour for text."; null if the colour is used as chosen. */
export function accentNote({ fillChange, textChange }: { fillChange: Change; textChange: Change }): string | null {
  const on = (change: Change, what: string) =>
    change === "none" ? [] : [`We ${CHANGED[change]} your colour for ${what}.`];
  if (fillChange === textChange) return on(fillChange, "text and buttons")[0] ?? null;
  return [...on(textChange, "text"), ...on(fillChange, "buttons")].join(" ") || null;
}

/** A typed colour ("#0A7D5C", "0a7d5c", "#0af") as "#0a7d5c"; null if it is not one. */
export function readHex(typed: string): string | null {
  const digits = /^#?((?:[\da-f]{3}){1,2})$/i.exec(typed.trim())?.[1]?.toLowerCase();
  if (digits === undefined) return null;
  return `#${digits.length === 3 ? digits.replace(/./g, "$&$&") : digits}`;
}
