/** The message of any thrown value. Never throws, as turning an unknown value into text may. */
export function messageOf(thrown: unknown): string {
  if (thrown instanceof Error) return thrown.message;
  return typeof thrown === "string" ? thrown : "an error without a message";
}
