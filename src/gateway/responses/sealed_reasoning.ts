import { decrypt, encrypt } from "../../platform/crypto.ts";
import { refusal } from "./refusals.ts";
import { placeOf, type ResponsesBody } from "./request.ts";

/**
 * A model's reasoning in the `encrypted_content` of its item: some clients send back only that, and some models refuse
 * the next turn without it. It is encrypted and authenticated with SECRET_KEY, and bound to the account. Source: RSP-7.
 */

/** Longer reasoning is not sealed, because clients send all of it back with each turn. */
const SEALED_CHARS_MAX = 128 * 1024;
const PREFIX = "r1.";
const PURPOSE = "responses reasoning";

/** The account for which reasoning is sealed. */
export type Seal = { secretKey: Uint8Array; accountId: number };

/** The sealed text; null if it is too long. */
export function sealReasoning({ secretKey, accountId }: Seal, text: string): string | null {
  if (text.length > SEALED_CHARS_MAX) return null;
  return PREFIX + encrypt(secretKey, `${PURPOSE}\n${accountId}\n${text}`).toString("base64url");
}

/** Whether it was sealed here. Otherwise only the provider that sent it can read it. */
export function isSealedHere(sealed: unknown): sealed is string {
  return typeof sealed === "string" && sealed.startsWith(PREFIX);
}

/** The text that was sealed here. Throws invalid_request if it was changed, or sealed for another account. */
export function openReasoning({ secretKey, accountId }: Seal, sealed: string, param: string): string {
  const head = `${PURPOSE}\n${accountId}\n`;
  let text: string;
  try {
    text = decrypt(secretKey, Buffer.from(sealed.slice(PREFIX.length), "base64url"));
  } catch {
    throw unreadable(param);
  }
  if (!text.startsWith(head)) throw unreadable(param);
  return text.slice(head.length);
}

/** Checks sealed reasoning that is not sent on. Throws as `openReasoning`. */
export function checkReasoning(seal: Seal, body: ResponsesBody): void {
  const { input } = body;
  if (typeof input === "string") return;
  for (const [i, item] of input.entries()) {
    const { encrypted_content: sealed } = item as Readonly<Record<string, unknown>>;
    if (item.type === "reasoning" && isSealedHere(sealed))
      openReasoning(seal, sealed, `${placeOf(body, i)}.encrypted_content`);
  }
}

function unreadable(param: string) {
  return refusal(param, "The encrypted_content is not one that this account was sent, or was changed. Leave it out.");
}
