import { Refusal } from "../errors.ts";
import { createSemaphore, type Places } from "../platform/semaphore.ts";

/** Places in which batches of vouchers are made, in one replica: one at a time, since each writes thousands of rows. */

const AT_ONCE = 1;
/** Of those that wait: all, and one seller's; how long. */
const WAITING_MAX = 8;
const SELLER_WAITING_MAX = 1;
const WAIT_MS_MAX = 10_000;
const RETRY_AFTER_SECONDS = 5;

export function createBatchPlaces(): Places {
  const again = { retryAfterSeconds: RETRY_AFTER_SECONDS };
  return createSemaphore({
    max: AT_ONCE,
    waitingMax: WAITING_MAX,
    shareFull: () =>
      new Refusal("too_many_requests", {
        message: "A batch of yours is still being made. Try again when it has ended.",
        ...again,
      }),
    allFull: () =>
      new Refusal("service_unavailable", {
        message: "Another batch is still being made. Try again when it has ended.",
        ...again,
      }),
  });
}

/** Makes a batch when it is its seller's turn. Throws what `work` throws, too_many_requests, service_unavailable. */
export async function inBatchPlace<T>(
  places: Places,
  { sellerId, signal }: { sellerId: number; signal?: AbortSignal | undefined },
  work: () => Promise<T>,
): Promise<T> {
  const share = { id: String(sellerId), atOnceMax: 1, waitingMax: SELLER_WAITING_MAX };
  const leave = await places.enter([share], { waitMsMax: WAIT_MS_MAX, ...(signal && { signal }) });
  try {
    return await work();
  } finally {
    leave();
  }
}
