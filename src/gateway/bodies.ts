import type { Bodies, BodyRoom } from "../deps.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { type Fractions, type Owner, ShareLimit } from "../platform/share_limit.ts";

/** What a body takes at most, in times its bytes: text beyond ASCII is kept in two bytes a character. */
const WIDE_TEXT = 2;

type BodiesOptions = {
  /** Bodies that are read at once. */
  readsMax: number;
  /** Bytes of bodies that are read or kept at once. */
  bytesMax: number;
  /** Of one body: every account has room for one such. */
  bodyBytesMax: number;
  fractions: Fractions;
  onShed: (reason: ShedReason) => void;
};

/** The replica's room for request bodies: how many are read at once, and how many bytes are kept. */
export function createBodies({ readsMax, bytesMax, bodyBytesMax, fractions, onShed }: BodiesOptions): Bodies {
  const reads = new ShareLimit({
    max: readsMax,
    fractions,
    what: "request bodies on their way",
    reasons: { replica: "body_reads_full", account: "body_reads_per_account", tenant: "body_reads_per_tenant" },
    onShed,
  });
  const bytes = new ShareLimit({
    max: bytesMax,
    fractions,
    min: WIDE_TEXT * bodyBytesMax,
    what: "bytes of request bodies in flight",
    reasons: { replica: "body_bytes_full", account: "body_bytes_per_account", tenant: "body_bytes_per_tenant" },
    onShed,
  });
  return {
    open(owner, size) {
      reads.check(owner, 1);
      bytes.take(owner, size);
      reads.take(owner, 1);
      return new TakenRoom({ reads, bytes }, owner, size);
    },
    reading: () => reads.held,
    bytes: () => bytes.held,
  };
}

class TakenRoom implements BodyRoom {
  readonly #shares: { reads: ShareLimit; bytes: ShareLimit };
  readonly #owner: Owner;
  #bytes: number;
  #state: "reading" | "read" | "closed" = "reading";

  constructor(shares: { reads: ShareLimit; bytes: ShareLimit }, owner: Owner, bytes: number) {
    this.#shares = shares;
    this.#owner = owner;
    this.#bytes = bytes;
  }

  grow(bytes: number): void {
    // The request may have been answered while its body still comes: it is not counted any more, and is not kept.
    if (this.#state !== "reading") throw new Error("the body is not read any more");
    this.#shares.bytes.take(this.#owner, bytes);
    this.#bytes += bytes;
  }

  wasRead(): void {
    if (this.#state !== "reading") return;
    this.#state = "read";
    this.#shares.reads.give(this.#owner, 1);
  }

  close(): void {
    if (this.#state === "closed") return;
    this.wasRead();
    this.#state = "closed";
    this.#shares.bytes.give(this.#owner, this.#bytes);
  }
}
