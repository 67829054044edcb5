import { deadline } from "./deadline.ts";

/**
 * Reads what still arrives of bodies that nobody wants, and drops it. If a connection were closed as soon as it is answered, a client that
 * is still sending would often see a reset in place of the answer. Without a bound, a client could send for ever. Source: RFC 9112 §9.6.
 */
export type ReadOn = {
  /**
   * Resolves, and never rejects, when the body has ended, when a bound is reached, or at `close`. The body is cancelled then, but not before
   * `answered` has resolved and a piece that was asked for has arrived: on Deno, another one would be read to its end.
   */
  read(body: ReadableStream<Uint8Array>, answered?: Promise<void>): Promise<void>;
  /** Ends every reading, and begins no other. */
  close(): void;
};

type Bounds = {
  /** Read of one body. */
  bytesMax: number;
  /** For one body. */
  ms: number;
  /** Without a byte: a client that has read its answer and stopped, or that waits for the answer's end. */
  stallMs: number;
  /** Bodies at a time. Another one ends the oldest, so that clients that send nothing do not keep others from their answers. */
  bodiesMax: number;
};

/** More than the largest body that is allowed by default, so that a client whose body is too large reads why. */
const BOUNDS: Bounds = { bytesMax: 32 * 1024 * 1024, ms: 30_000, stallMs: 2_000, bodiesMax: 256 };

export function createReadOn({ bytesMax, ms, stallMs, bodiesMax }: Bounds = BOUNDS): ReadOn {
  const open = new Set<() => void>();
  let closed = false;
  const endOldest = () => {
    for (const end of open) return end();
  };
  return {
    async read(body, answered) {
      if (closed || body.locked) return;
      if (open.size >= bodiesMax) endOldest();
      const reader = body.getReader();
      const over = Promise.withResolvers<void>();
      const end = () => {
        open.delete(end);
        over.resolve();
      };
      open.add(end);
      const stopClock = deadline(ms, end);
      drop(reader, { bytesMax, answered, goesOn: () => open.has(end), next: () => deadline(stallMs, end) }).then(
        end,
        end,
      );
      await over.promise;
      stopClock();
    },
    close() {
      closed = true;
      for (const end of open) end();
    },
  };
}

type Dropping = {
  bytesMax: number;
  answered: Promise<void> | undefined;
  goesOn: () => boolean;
  /** Starts a clock for each piece, and returns what stops it. */
  next: () => () => void;
};

/** Reads at most `bytesMax` bytes, and cancels what is left. Throws what the body throws. */
async function drop(
  reader: ReadableStreamDefaultReader<Uint8Array>,
  { bytesMax, answered, goesOn, next }: Dropping,
): Promise<void> {
  for (let bytes = 0; bytes < bytesMax && goesOn(); ) {
    const stopClock = next();
    const { done, value } = await reader.read().finally(stopClock);
    if (done) return;
    bytes += value.byteLength;
  }
  await answered;
  await reader.cancel();
}
