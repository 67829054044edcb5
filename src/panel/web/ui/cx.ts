/** Class names in one string; false, null and empty ones are left out: `cx("row", isOpen && "row-open")`. */
export function cx(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}
