/** One domain a line, or separated by commas or spaces. */
export function domainsIn(typed: string): string[] {
  return typed.split(/[\s,;]+/).filter((one) => one !== "");
}
