/** Postgres's text of an instant as ISO 8601 in UTC, with milliseconds. */
export function toIso(instant: string): string;
export function toIso(instant: string | null): string | null;
export function toIso(instant: string | null): string | null {
  return instant === null ? null : new Date(instant).toISOString();
}
