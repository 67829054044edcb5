import { type Static, Type } from "@sinclair/typebox";
import { type Challenge, createChallenge, randomInt, verifySolution } from "altcha-lib";
import { deriveKey as workOf } from "altcha-lib/algorithms/pbkdf2";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import { deriveKey } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { sha256 } from "../platform/runtime.ts";
import { databaseUnixMs, type SignedChallenge } from "./passkeys_store.ts";

/**
 * Proof of work: a browser finds a number before a stranger is served, which costs it half a second, and a flood as much for each
 * request. The service knows the number, so that checking costs it next to nothing. Source: SUP-3.
 */

/** How long a challenge may be solved and sent. */
const CHALLENGE_MS = 10 * 60_000;
/** Rounds of PBKDF2 for each number that is tried, and which numbers are asked for. */
const COST = 5_000;
const NUMBERS = { min: 100, max: 300 };
const HEX_CHARS_MAX = 200;

/** A challenge and its solution, as browsers send them. */
export const ProofShape = Type.Object(
  {
    challenge: Type.Object(
      {
        parameters: Type.Record(Type.String({ maxLength: 20 }), Type.Unknown(), { maxProperties: 20 }),
        signature: Type.String({ maxLength: HEX_CHARS_MAX }),
      },
      { additionalProperties: false },
    ),
    solution: Type.Object(
      {
        counter: Type.Integer({ minimum: 0 }),
        derivedKey: Type.String({ maxLength: HEX_CHARS_MAX }),
        time: Type.Optional(Type.Number()),
      },
      { additionalProperties: false },
    ),
  },
  { additionalProperties: false },
);
export type Proof = Static<typeof ProofShape>;

type KeyDeps = { config: Pick<Config, "secretKey"> };

/** A new challenge for the form of a host. */
export async function newSignUpChallenge(deps: KeyDeps & { db: Db }, host: string): Promise<Challenge> {
  return createChallenge({
    algorithm: "PBKDF2/SHA-256",
    cost: COST,
    counter: randomInt(NUMBERS.min, NUMBERS.max),
    deriveKey: workOf,
    // By the database's clock, since replicas' clocks may be minutes apart.
    data: { host, endsUnixMs: (await databaseUnixMs(deps)) + CHALLENGE_MS },
    ...secretsOf(deps),
  });
}

/**
 * Checks a solution. Returns what `takeChallenge` needs, which checks that it has not ended and was not used. Throws InputError for one that is wrong, of
 * another host, or not ours.
 */
export async function checkProof(
  deps: KeyDeps,
  { challenge, solution }: Proof,
  host: string,
): Promise<SignedChallenge> {
  const { parameters, signature } = challenge;
  // The signature is checked first, over all parameters: those of a signed challenge are as they were made. So they need no shape, which
  // would have to be the library's.
  const { verified } = await verifySolution({
    challenge: { parameters: parameters as unknown as Challenge["parameters"], signature },
    solution: { counter: solution.counter, derivedKey: solution.derivedKey },
    deriveKey: workOf,
    ...secretsOf(deps),
  });
  const { data } = parameters;
  if (!verified || typeof data !== "object" || data === null || !("host" in data) || !("endsUnixMs" in data))
    throw wrongProof();
  if (data.host !== host || typeof data.endsUnixMs !== "number") throw wrongProof();
  return { digest: Buffer.from(sha256(signature)), expiresUnixMs: data.endsUnixMs };
}

export function wrongProof(): InputError {
  return new InputError("The check of your browser has ended or was used before. Send the form again.", "proof");
}

function secretsOf({ config }: KeyDeps) {
  const secret = (use: string) => Buffer.from(deriveKey(config.secretKey, use)).toString("base64url");
  return {
    hmacSignatureSecret: secret("sign-up-challenge"),
    hmacKeySignatureSecret: secret("sign-up-solution"),
  };
}
