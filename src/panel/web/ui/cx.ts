/** Class names in one string; what is false, null or empty is left out: `cx("row", isOpen && "row-open")`. */
export function cx(...names: (string | false | null | undefined)[]): string {
  return names.filter(Boolean).join(" ");
}
