import { t } from "@lingui/core/macro";
import { randomKey } from "../../api.ts";
import { DATABASE, isKeptFor } from "../../kept_here.ts";
import { nowMs } from "../../ui/clock.ts";
import { at, type Exchange, sizeOf, toKept } from "./exchanges.ts";

/**
 * The conversations that this browser keeps of one person, in IndexedDB. The server has none of them. Signing out deletes the database
 * (kept_here.ts), and so does another person who signs in.
 */

/** The oldest are dropped first. */
const CHATS_MAX = 100;
const KEPT_CHARS_MAX = 60_000_000;
/** Of a title that was not chosen. */
const TITLE_CHARS_MAX = 60;
export const CHAT_NAME_CHARS_MAX = 100;
/** Another shape of what is kept. */
const SHAPE = 1;
const HEADS = "heads";
const BODIES = "bodies";

/** A conversation in the list. */
export type Head = { id: string; title: string; savedAtMs: number; chars: number; version: number };
type Kept = Head & { exchanges: unknown };

export class KeptChats {
  readonly #accountId: number;
  #opened: Promise<IDBDatabase> | null = null;
  /** The database was deleted, or the browser keeps nothing: nothing is written any more. */
  #isOver = false;

  constructor(accountId: number) {
    this.#accountId = accountId;
  }

  /** The newest first. Throws if the browser keeps none. */
  async list(): Promise<Head[]> {
    const { heads } = await this.#begin("readonly");
    return (await listOf(heads)).sort(newestFirst);
  }

  /** null: it was removed. */
  async read(id: string): Promise<Kept | null> {
    const { heads, bodies } = await this.#begin("readonly");
    const [head, exchanges] = await Promise.all([done(heads.get(id)), done(bodies.get(id))]);
    const read = toHead(head);
    return read && { ...read, exchanges };
  }

  /**
   * Writes a conversation. `version`: of the one that was read or written before; 0 for a new one. If another tab has changed or removed
   * it since, a new one is written, so that no tab overwrites what another has. Returns null if nothing could be written.
   */
  async write(chat: Pick<Head, "id" | "version" | "title"> & { exchanges: readonly Exchange[] }): Promise<Head | null> {
    try {
      const { heads, bodies } = await this.#begin("readwrite");
      const before = toHead(await done(heads.get(chat.id)));
      const isOurs = (before?.version ?? 0) === chat.version;
      const head: Head = {
        id: isOurs ? chat.id : randomKey(),
        title: before?.title ?? chat.title,
        savedAtMs: nowMs(),
        chars: sizeOf(chat.exchanges),
        version: chat.version + 1,
      };
      heads.put(head);
      bodies.put(toKept(chat.exchanges), head.id);
      for (const { id } of tooMany(await listOf(heads))) {
        heads.delete(id);
        bodies.delete(id);
      }
      await ended(heads.transaction);
      return head;
    } catch {
      // The browser has no room, or keeps nothing: the conversation stays in this tab.
      return null;
    }
  }

  async rename(id: string, title: string): Promise<void> {
    const { heads } = await this.#begin("readwrite");
    const head = toHead(await done(heads.get(id)));
    if (head) heads.put({ ...head, title });
    await ended(heads.transaction);
  }

  /** Removes a conversation. Returns what puts it back. */
  async remove(id: string): Promise<() => Promise<void>> {
    const kept = await this.read(id);
    const { heads, bodies } = await this.#begin("readwrite");
    heads.delete(id);
    bodies.delete(id);
    await ended(heads.transaction);
    return async () => {
      if (kept === null) return;
      const { exchanges, ...head } = kept;
      const again = await this.#begin("readwrite");
      again.heads.put(head);
      again.bodies.put(exchanges, id);
      await ended(again.heads.transaction);
    };
  }

  async removeAll(): Promise<void> {
    const { heads, bodies } = await this.#begin("readwrite");
    heads.clear();
    bodies.clear();
    await ended(heads.transaction);
  }

  async #begin(mode: IDBTransactionMode): Promise<{ heads: IDBObjectStore; bodies: IDBObjectStore }> {
    if (this.#isOver || !isKeptFor(this.#accountId)) throw new Error("The conversations of this person were deleted.");
    this.#opened ??= this.#open();
    const transaction = (await this.#opened).transaction([HEADS, BODIES], mode);
    return { heads: transaction.objectStore(HEADS), bodies: transaction.objectStore(BODIES) };
  }

  async #open(): Promise<IDBDatabase> {
    const opening = indexedDB.open(DATABASE, SHAPE);
    opening.onupgradeneeded = () => {
      const database = opening.result;
      for (const name of database.objectStoreNames) database.deleteObjectStore(name);
      database.createObjectStore(HEADS, { keyPath: "id" });
      database.createObjectStore(BODIES);
    };
    const database = await done(opening);
    // Another tab signed out: it waits until this one lets go.
    database.onversionchange = () => {
      this.#isOver = true;
      database.close();
    };
    return database;
  }
}

/** The beginning of the first message. */
export function titleOf([first]: readonly Exchange[]): string {
  const text = first?.text.trim().replace(/\s+/g, " ") ?? "";
  const letters = Array.from(text);
  if (letters.length > TITLE_CHARS_MAX) return `${letters.slice(0, TITLE_CHARS_MAX - 1).join("")}…`;
  return text || (first?.images[0]?.name ?? t`Conversation`);
}

/** The oldest conversations, beyond what is kept. The newest always stays. */
function tooMany(all: Head[]): Head[] {
  let chars = 0;
  return all.sort(newestFirst).filter((head, place) => {
    chars += head.chars;
    return place > 0 && (place >= CHATS_MAX || chars > KEPT_CHARS_MAX);
  });
}

function newestFirst(a: Head, b: Head): number {
  return b.savedAtMs - a.savedAtMs || b.version - a.version;
}

async function listOf(heads: IDBObjectStore): Promise<Head[]> {
  const all: unknown[] = await done(heads.getAll());
  return all.flatMap((each) => toHead(each) ?? []);
}

function toHead(kept: unknown): Head | null {
  const [id, title] = [at(kept, "id"), at(kept, "title")];
  const number = (name: string) => Number(at(kept, name)) || 0;
  if (typeof id !== "string" || typeof title !== "string") return null;
  return { id, title, savedAtMs: number("savedAtMs"), chars: number("chars"), version: number("version") };
}

function done<Value>(request: IDBRequest<Value>): Promise<Value> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

function ended(transaction: IDBTransaction): Promise<void> {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onabort = () => reject(transaction.error);
  });
}
