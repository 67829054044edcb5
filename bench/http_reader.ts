/** Reads the answers of an HTTP/1.1 connection that is kept alive: one after the other, as their bytes come. */

const HEAD_BYTES_MAX = 32 * 1024;
const CR_LF = 2;

export type AnswerEvents = {
  head(status: number): void;
  /** A piece of the body, as it was read from the socket. */
  body(bytes: Buffer): void;
  end(): void;
};

/** Thrown at bytes that are no answer as the contenders send them. */
export class NotHttp extends Error {
  override readonly name = "NotHttp";
}

type State = "head" | "length" | "size" | "chunk" | "chunk end" | "trailer";

/** Throws NotHttp. Takes `content-length` and chunked bodies; a body that the connection's end ends is not HTTP enough. */
export class AnswerReader {
  readonly #events: AnswerEvents;
  #state: State = "head";
  /** Bytes of the body or the chunk that are still to come. */
  #left = 0;
  /** A head or a line whose end has not come yet. */
  #rest: Buffer | undefined;

  constructor(events: AnswerEvents) {
    this.#events = events;
  }

  push(read: Buffer): void {
    let bytes = read;
    if (this.#rest !== undefined) {
      bytes = Buffer.concat([this.#rest, read]);
      this.#rest = undefined;
    }
    let at = 0;
    while (at < bytes.length) {
      const next = this.#step(bytes, at);
      if (next < 0) {
        this.#rest = bytes.subarray(at);
        if (this.#rest.length > HEAD_BYTES_MAX) throw new NotHttp("a line without an end");
        return;
      }
      at = next;
    }
  }

  /** Takes what stands at `at`; returns where the next begins, −1 when its end has not come yet. */
  #step(bytes: Buffer, at: number): number {
    switch (this.#state) {
      case "head":
        return this.#head(bytes, at);
      case "size":
        return this.#size(bytes, at);
      case "trailer":
        return this.#trailer(bytes, at);
      case "chunk end":
        if (bytes.length < at + CR_LF) return -1;
        this.#state = "size";
        return at + CR_LF;
      default:
        return this.#bytes(bytes, at);
    }
  }

  #head(bytes: Buffer, at: number): number {
    const end = bytes.indexOf("\r\n\r\n", at);
    if (end < 0) return -1;
    const head = bytes.toString("latin1", at, end).toLowerCase();
    if (!head.startsWith("http/1.1 ")) throw new NotHttp(head.slice(0, 80));
    this.#events.head(Number(head.slice(9, 12)));
    const lengthAt = head.indexOf("\r\ncontent-length:");
    if (lengthAt >= 0) {
      this.#left = Number.parseInt(head.slice(lengthAt + 17), 10);
      this.#state = "length";
      if (this.#left === 0) this.#end();
    } else if (head.includes("\r\ntransfer-encoding: chunked")) this.#state = "size";
    else throw new NotHttp("an answer without a length");
    return end + 2 * CR_LF;
  }

  #size(bytes: Buffer, at: number): number {
    const end = bytes.indexOf("\r\n", at);
    if (end < 0) return -1;
    this.#left = Number.parseInt(bytes.toString("latin1", at, end), 16);
    if (!Number.isInteger(this.#left)) throw new NotHttp("a chunk without a size");
    this.#state = this.#left === 0 ? "trailer" : "chunk";
    return end + CR_LF;
  }

  #trailer(bytes: Buffer, at: number): number {
    const end = bytes.indexOf("\r\n", at);
    if (end < 0) return -1;
    if (end === at) this.#end();
    return end + CR_LF;
  }

  #bytes(bytes: Buffer, at: number): number {
    const end = Math.min(bytes.length, at + this.#left);
    this.#left -= end - at;
    const isLength = this.#state === "length";
    this.#events.body(at === 0 && end === bytes.length ? bytes : bytes.subarray(at, end));
    if (this.#left === 0) {
      if (isLength) this.#end();
      else this.#state = "chunk end";
    }
    return end;
  }

  #end(): void {
    this.#state = "head";
    this.#events.end();
  }
}
