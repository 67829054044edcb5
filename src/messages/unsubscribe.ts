import { createHmac } from "node:crypto";
import { constantTimeEqual, deriveKey } from "../platform/crypto.ts";
import { isOptional, type OptionalKind } from "./kinds.ts";

/**
 * Tokens of links that switch off one kind of mail for one account, without signing in. They contain the account and
 * the kind, and are signed with a separate key. They do not expire, since mails are kept for years, and allow nothing
 * else. Source: MSG-13.
 */

/** Account, kind, and 32 bytes in base64url. */
const TOKEN = /^([1-9]\d{0,15})\.([a-z0-9_]{1,40})\.([A-Za-z0-9_-]{43})$/;

/** What a token is for. */
export type Unsubscribe = { accountId: number; kind: OptionalKind };

export function unsubscribeToken(secretKey: Uint8Array, { accountId, kind }: Unsubscribe): string {
  const claim = `${accountId}.${kind}`;
  return `${claim}.${signatureOf(secretKey, claim)}`;
}

/** undefined: it was not signed with this key, or its kind can no longer be switched off. */
export function readUnsubscribeToken(secretKey: Uint8Array, token: string): Unsubscribe | undefined {
  const [, accountId, kind, signature] = TOKEN.exec(token) ?? [];
  if (accountId === undefined || kind === undefined || signature === undefined || !isOptional(kind)) return undefined;
  if (!constantTimeEqual(signature, signatureOf(secretKey, `${accountId}.${kind}`))) return undefined;
  return { accountId: Number(accountId), kind };
}

function signatureOf(secretKey: Uint8Array, claim: string): string {
  return createHmac("sha256", deriveKey(secretKey, "unsubscribe")).update(claim).digest("base64url");
}
