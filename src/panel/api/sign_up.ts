import { setTimeout as sleep } from "node:timers/promises";
import { type Static, Type } from "@sinclair/typebox";
import { checkProof, newSignUpChallenge, ProofShape } from "../../accounts/sign_up_challenge.ts";
import { OPERATOR } from "../../commerce/sellers_store.ts";
import { type ShownSignUpSettings, signUpSettingsOf } from "../../commerce/sign_up_settings_store.ts";
import { askToSignUp, checkSignUp } from "../../commerce/sign_ups_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { checker } from "../../http/checks.ts";
import { widerNetworkOf } from "../../http/client_address.ts";
import { siteUrl } from "../../http/host.ts";
import { EMAIL_CHARS_MAX, PERSON_NAME_CHARS_MAX } from "../../limits.ts";
import { canMail } from "../../messages/senders.ts";
import { inTime } from "../../platform/time_limit.ts";
import { languageFor } from "../site.ts";
import { restOfStepMs } from "./own_reset.ts";
import { type Arrival, countAttempt } from "./sign_in.ts";

/** Signing up on a seller's host. Source: SUP-1, SUP-2, SUP-3. */

/** Of a wider network, in a window of the limiter. Of a network: as many as its failed sign-ins. */
const WIDER_NETWORK_MAX = 60;
/** Requests with a proof of work of their own, of one seller: each may be a mail to a stranger. */
const SELLER_MAX = 300;
/** Beside these, of networks from which nobody else has asked: a flood from a few networks closes sign-up for none of the others. */
const SELLER_FIRST_MAX = 300;
/** Challenges of one network: each costs the service a hundredth of a second. */
const CHALLENGES_MAX = 60;

const SignUpBody = Type.Object(
  {
    email: Type.String({ minLength: 3, maxLength: EMAIL_CHARS_MAX }),
    /** Two code units a character, and room for spaces. The store has the exact limit. */
    name: Type.String({ maxLength: PERSON_NAME_CHARS_MAX * 3 }),
    /** The terms and the privacy policy. */
    accepted: Type.Boolean(),
    proof: ProofShape,
  },
  { additionalProperties: false },
);
type LimiterDeps = Pick<Deps, "signInLimiter">;

export const checkSignUpBody = checker(SignUpBody);

/** What the form shows. `isOpen` false: nobody can sign up. Throws too_many_requests: it is read from the database for each. */
export async function signUpForm(deps: Deps, { host: { resellerId }, network }: Arrival) {
  await deps.limiter.take(`sign-up-form:${network}`);
  const settings = await inTime(settingsOf(deps, resellerId));
  const { isOpen, termsUrl, privacyUrl, trial, trialName } = settings;
  if (!isOpen) return { isOpen, termsUrl: null, privacyUrl: null, trial: null };
  const { amountNanoUsd } = trial;
  const hasTrial = trialName !== null || amountNanoUsd !== null;
  return {
    ...{ isOpen, termsUrl, privacyUrl },
    trial: hasTrial ? { name: trialName, amountNanoUsd: amountNanoUsd === null ? null : String(amountNanoUsd) } : null,
  };
}

/** Throws too_many_requests. */
export async function signUpChallenge(deps: Deps, { host, network }: Arrival) {
  await countAttempt(deps, [{ id: `sign-up-challenge:${network}`, max: CHALLENGES_MAX }]);
  return await inTime(newSignUpChallenge(deps, host.name));
}

/**
 * Mails a link to the address. The answer and its time are the same for every address that may sign up. Throws InputError,
 * too_many_requests. Source: SUP-2.
 */
export async function requestSignUp(
  deps: Deps,
  { host, network, device }: Arrival,
  { email, name, accepted, proof }: Static<typeof SignUpBody>,
  request: Request,
): Promise<void> {
  const startMs = deps.clock.nowMs();
  // Before anything is looked up. Not by e-mail address: strangers would lock its owner out.
  await countAttempt(deps, [
    `sign-up:${network}`,
    { id: `sign-up-wider:${widerNetworkOf(device.address)}`, max: WIDER_NETWORK_MAX },
  ]);
  const sellerId = host.resellerId ?? OPERATOR;
  checkSignUp(await inTime(settingsOf(deps, host.resellerId)), { email, name });
  if (!accepted) throw new InputError("Accept the terms and the privacy policy to sign up.", "accepted");
  const checked = await checkProof(deps, proof, host.name);
  const takePlace = () => takePlaceOf(deps, sellerId, widerNetworkOf(device.address));
  const language = languageFor(request, await deps.brands.get(host.resellerId));
  const asked = { sellerId, email, name, site: siteUrl(deps, host.name), language, proof: checked, takePlace };
  await inTime(askToSignUp(deps, asked));
  await sleep(restOfStepMs(deps.clock.nowMs() - startMs));
}

/** Counts a request whose proof was used by it alone. Throws too_many_requests. */
export async function takePlaceOf(deps: LimiterDeps, sellerId: number, wider: string): Promise<void> {
  const first = [
    { id: `sign-up-of:${sellerId}:${wider}`, max: 1 },
    { id: `sign-up-first:${sellerId}`, max: SELLER_FIRST_MAX },
  ];
  if (await hasPlace(deps, first)) return;
  await countAttempt(deps, [{ id: `sign-up-seller:${sellerId}`, max: SELLER_MAX }]);
}

async function hasPlace(deps: LimiterDeps, ids: Parameters<typeof countAttempt>[1]): Promise<boolean> {
  try {
    await countAttempt(deps, ids);
    return true;
  } catch (error) {
    if (error instanceof Refusal && error.code === "too_many_requests") return false;
    throw error;
  }
}

/** The settings; closed while the seller can send no mail. */
async function settingsOf(deps: Deps, resellerId: number | null): Promise<ShownSignUpSettings> {
  const [settings, mails] = await Promise.all([
    signUpSettingsOf(deps, resellerId ?? OPERATOR),
    canMail(deps, resellerId ?? OPERATOR),
  ]);
  return { ...settings, isOpen: settings.isOpen && mails };
}
