import { setTimeout as sleep } from "node:timers/promises";
import { Type } from "@sinclair/typebox";
import { sendOwnReset } from "../../accounts/password_links_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { siteUrl } from "../../http/host.ts";
import { EMAIL_CHARS_MAX } from "../../limits.ts";
import { canMail } from "../../messages/senders.ts";
import { inTime } from "../../platform/time_limit.ts";
import { type Arrival, countAttempt } from "./sign_in.ts";

/** A password reset that a person asks for by mail. Source: SGN-1, SGN-2. */

/**
 * The answer comes after a whole number of these steps, so that its time does not reveal whether a mail was written.
 */
const ANSWER_STEP_MS = 400;

export const checkForgotten = checker(
  Type.Object({ email: Type.String({ minLength: 3, maxLength: EMAIL_CHARS_MAX }) }, { additionalProperties: false }),
);

/**
 * Sends a link to the account with this address, if there is one that signs in on this host and can be mailed. The answer and its time are
 * the same for every address. Throws InputError if no mail can be sent, too_many_requests.
 */
export async function forgotPassword(deps: Deps, { host, network }: Arrival, email: string): Promise<void> {
  const { name, resellerId } = host;
  if (!(await canMail(deps, resellerId ?? 0)))
    throw new InputError("No mail is sent from here. Ask the person who invited you for a new password.");
  // The operator mails a reseller, also for its own domain.
  const roles = (await canMail(deps, 0)) ? (["customer", "reseller"] as const) : (["customer"] as const);
  const startMs = deps.clock.nowMs();
  // Not by e-mail address: strangers would lock its owner out. How often an account is mailed is limited by the account.
  await countAttempt(deps, [`reset-address:${network}`]);
  await inTime(sendOwnReset(deps, { email, roles, resellerId, site: siteUrl(deps, name) }));
  const restMs = restOfStepMs(deps.clock.nowMs() - startMs);
  await sleep(restMs);
}

/** How long work that took so long waits until the end of its step. */
export function restOfStepMs(tookMs: number): number {
  return Math.ceil(tookMs / ANSWER_STEP_MS) * ANSWER_STEP_MS - tookMs;
}
