/**
 * Reads values of the URL, which anybody can write.
 *
 *   const show = oneOf(SHOWN, filters.show, "all");        // a value that the page does not know becomes its default
 *   const id = idIn(filters.provider);                     // null: it is not an id
 */

/** The highest id has this many digits, so that it is a safe integer. */
const ID = /^[1-9]\d{0,14}$/;

export function idIn(text: string): number | null {
  return ID.test(text) ? Number(text) : null;
}

/** The value of one of the options, which `text` names; otherwise `otherwise`. */
export function oneOf<Value extends string>(
  options: readonly { value: Value }[],
  text: string,
  otherwise: NoInfer<Value>,
): Value {
  return options.find(({ value }) => value === text)?.value ?? otherwise;
}
