import { type ErrorCode, Refusal } from "../errors.ts";
import type { ShedReason } from "../platform/metrics.ts";
import { createSemaphore, type Places, type Share } from "../platform/semaphore.ts";
import type { Fractions } from "../platform/share_limit.ts";
import type { ImageToken } from "./image_addresses.ts";

/** How many images a replica passes on at once; an account and a tenant get their shares of it. Source: IMG-10. */
const AT_ONCE_MAX = 64;
/** Requests that wait for that, of all and of an account: a page shows dozens of images at once. */
const WAITING_MAX = 512;
const ACCOUNT_WAITING_MAX = 64;
const RETRY_AFTER_SECONDS = 2;

/** The limit on images that are passed on at once. */
export function createImagePlaces(onShed: (reason: ShedReason) => void): Places {
  const shed = (code: ErrorCode) => {
    onShed("image_files");
    return new Refusal(code, {
      message: "Too many images are being fetched. Try again.",
      retryAfterSeconds: RETRY_AFTER_SECONDS,
    });
  };
  return createSemaphore({
    max: AT_ONCE_MAX,
    waitingMax: WAITING_MAX,
    shareFull: () => shed("too_many_requests"),
    allFull: () => shed("service_unavailable"),
  });
}

export function sharesOf({ accountId, tenantId }: ImageToken, { account, tenant }: Fractions): Share[] {
  const partOf = (fraction: number) => Math.max(1, Math.floor(AT_ONCE_MAX * fraction));
  const own = { id: `account:${accountId}`, atOnceMax: partOf(account), waitingMax: ACCOUNT_WAITING_MAX };
  return tenantId === 0
    ? [own]
    : [own, { id: `tenant:${tenantId}`, atOnceMax: partOf(tenant), waitingMax: WAITING_MAX }];
}
