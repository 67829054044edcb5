import { isRecord } from "../../platform/records.ts";

/**
 * OpenRouter's `reasoning_details`: what a model thought, with signatures, which must come back as a whole with the message's calls. In a
 * stream it comes in pieces. Source: RSP-15.
 */

type Fields = Readonly<Record<string, unknown>>;

/** Details of one answer. */
const DETAILS_MAX = 1_000;
/** Texts that the next piece continues. */
const CONTINUED = ["text", "summary", "data", "signature"];

export class ReasoningDetails {
  readonly #details: Record<string, unknown>[] = [];

  /** Adds what a delta, or a message, has of them. */
  take(given: unknown): void {
    if (!Array.isArray(given)) return;
    for (const piece of given) if (isRecord(piece)) this.#add(piece);
  }

  /** All of them; undefined: there are none. */
  get all(): readonly Fields[] | undefined {
    return this.#details.length === 0 ? undefined : this.#details;
  }

  /** A piece continues the detail before it that has its type and its index. */
  #add(piece: Fields): void {
    const last = this.#details.at(-1);
    if (last === undefined || last.type !== piece.type || last.index !== piece.index || isOther(last, piece)) {
      if (this.#details.length < DETAILS_MAX) this.#details.push({ ...piece });
      return;
    }
    for (const [name, value] of Object.entries(piece)) {
      const before = last[name];
      const isMore = CONTINUED.includes(name) && typeof before === "string" && typeof value === "string";
      if (isMore) last[name] = before + value;
      else if (value !== null && value !== undefined) last[name] = value;
    }
  }
}

/** Whether two details without an index, or with different ids, are not pieces of one. */
function isOther(last: Fields, { id, index, type }: Fields): boolean {
  if (typeof id === "string" && typeof last.id === "string" && id !== last.id) return true;
  return index === undefined && type !== "reasoning.text";
}
