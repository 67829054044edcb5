import { createHmac } from "node:crypto";
import type { Deps } from "../deps.ts";
import { deriveKey } from "../platform/crypto.ts";
import type { Caller } from "./authenticate.ts";

/**
 * Names that a client gives its end users and its cached prompts. All customers share our account at the provider, so the same name
 * of two of them must not be the same there: else one could learn from `cached_tokens` what the other has sent, or get the other's end
 * user blocked. Each is sent as a digest that is stable for its account. Source: PRV-28.
 */

/** Whose names they are. */
export type Namer = { secretKey: Uint8Array; accountId: number };

const PURPOSE = "end-user";

export function namerOf({ config }: Pick<Deps, "config">, { key }: Pick<Caller, "key">): Namer {
  return { secretKey: config.secretKey, accountId: key.accountId };
}

/** The name as it is sent to a provider. */
export function ownName({ secretKey, accountId }: Namer, name: string): string {
  if (name === "") return name;
  return createHmac("sha256", deriveKey(secretKey, PURPOSE)).update(`${accountId} ${name}`).digest("base64url");
}
