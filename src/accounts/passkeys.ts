import { createHmac, randomBytes } from "node:crypto";
import type {
  AuthenticationResponseJSON,
  PublicKeyCredentialCreationOptionsJSON,
  PublicKeyCredentialRequestOptionsJSON,
  RegistrationResponseJSON,
} from "@simplewebauthn/server";
import type { Config } from "../config.ts";
import { InputError } from "../errors.ts";
import type { ChangeDeps } from "../platform/changes_store.ts";
import { constantTimeEqual, deriveKey } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { sha256 } from "../platform/runtime.ts";
import {
  credentialsOf,
  databaseUnixMs,
  findPasskey,
  insertPasskey,
  recordUse,
  type SignedChallenge,
  type StoredPasskey,
} from "./passkeys_store.ts";

/**
 * Passkeys (Web Authentication Level 3): a key pair in the person's device, bound to one host, which signs a challenge after the device
 * has checked a fingerprint or a PIN. So one signature is both factors. Source: SGN-9, SGN-10, SGN-11, SGN-12.
 */

/** How long a challenge may be signed. */
const CHALLENGE_MS = 5 * 60_000;
const NONCE_BYTES = 16;
/** Room for milliseconds since 1970. */
const EXPIRY_BYTES = 6;
const MAC_BYTES = 32;
const CHALLENGE_BYTES = NONCE_BYTES + EXPIRY_BYTES + MAC_BYTES;
/** Source: W3C Web Authentication Level 3 › 7.1. */
const CREDENTIAL_ID_BYTES_MAX = 1023;
/** COSE algorithms: EdDSA, ES256, RS256. */
const ALGORITHMS = [-8, -7, -257];
const TRANSPORTS = ["ble", "cable", "hybrid", "internal", "nfc", "smart-card", "usb"] as const;
type Transport = (typeof TRANSPORTS)[number];

/** Loaded with the first passkey: it costs 19 MB and a tenth of a second, and most replicas meet none. */
const library = () => import("@simplewebauthn/server");

type KeyDeps = { db: Db; config: Pick<Config, "secretKey"> };
type Deps = KeyDeps & ChangeDeps;

/** Where passkeys are made and used: the host, its origin in the browser, and its reseller (null: the service's own). */
export type Site = { host: string; origin: string; resellerId: number | null };

/**
 * What a challenge is for. It is valid for that alone: on that host, and unless it is for a sign-in, in that session (a digest in hex).
 */
export type Purpose = { kind: "sign in"; host: string } | { kind: "add" | "confirm"; host: string; session: string };

/** The request to sign a challenge with any passkey of the host. */
export async function signInOptions(deps: KeyDeps, host: string): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const { generateAuthenticationOptions } = await library();
  return generateAuthenticationOptions({
    rpID: host,
    challenge: await newChallenge(deps, { kind: "sign in", host }),
    timeout: CHALLENGE_MS,
    userVerification: "required",
  });
}

type Owner = { accountId: number; session: string };

/** The request to sign a challenge with one of the person's own passkeys, to confirm something. */
export async function confirmOptions(
  deps: KeyDeps,
  host: string,
  { accountId, session }: Owner,
): Promise<PublicKeyCredentialRequestOptionsJSON> {
  const { generateAuthenticationOptions } = await library();
  return generateAuthenticationOptions({
    rpID: host,
    challenge: await newChallenge(deps, { kind: "confirm", host, session }),
    timeout: CHALLENGE_MS,
    userVerification: "required",
    allowCredentials: await descriptorsOf(deps, { accountId, host }),
  });
}

/** The request to make a passkey. Call it only after the person has proved who they are: its challenge is the proof of that. */
export async function creationOptions(
  deps: KeyDeps,
  host: string,
  { accountId, session, email, name, brand }: Owner & { email: string; name: string; brand: string },
): Promise<PublicKeyCredentialCreationOptionsJSON> {
  const { generateRegistrationOptions } = await library();
  return generateRegistrationOptions({
    rpID: host,
    rpName: brand,
    userName: email,
    userDisplayName: name,
    userID: userHandle(deps, { accountId, host }),
    challenge: await newChallenge(deps, { kind: "add", host, session }),
    timeout: CHALLENGE_MS,
    attestationType: "none",
    supportedAlgorithmIDs: ALGORITHMS,
    authenticatorSelection: { residentKey: "required", userVerification: "required" },
    excludeCredentials: await descriptorsOf(deps, { accountId, host }),
  });
}

type Added = Owner & { name: string; response: RegistrationResponseJSON };

/** Adds a passkey that a browser made for `creationOptions`. Throws InputError for `response` or `name`, or if there are too many. */
export async function addPasskey(
  deps: Deps,
  { host, origin }: Site,
  { accountId, session, name, response }: Added,
): Promise<void> {
  const { verifyRegistrationResponse } = await library();
  const made = await verified(async () => {
    await refuseCertificates(response);
    return verifyRegistrationResponse({
      response,
      expectedChallenge: (challenge) => isOurs(deps, challenge, { kind: "add", host, session }),
      expectedOrigin: origin,
      expectedRPID: host,
      requireUserVerification: true,
      supportedAlgorithmIDs: ALGORITHMS,
    });
  });
  const info = made?.verified ? made.registrationInfo : undefined;
  const challenge = signedChallengeOf(response.response.clientDataJSON);
  if (info === undefined || challenge === undefined) throw notVerified();
  const { id, publicKey, counter } = info.credential;
  const credentialId = Buffer.from(id, "base64url");
  if (credentialId.length > CREDENTIAL_ID_BYTES_MAX) throw notVerified();
  const passkey = {
    ...{ accountId, host, name, credentialId, publicKey: Buffer.from(publicKey), counter },
    transports: TRANSPORTS.filter((known) => response.response.transports?.includes(known)),
    synced: info.credentialDeviceType === "multiDevice",
  };
  if (!(await insertPasskey(deps, passkey, challenge))) throw expired("response");
}

/**
 * Refuses certificates of authenticators: nobody asked for them, and the library would ask the servers that they name whether they are
 * revoked. Source: SEC-3.
 */
async function refuseCertificates({ response }: RegistrationResponseJSON): Promise<void> {
  const { fmt, attStmt } = await readAttestation(response.attestationObject);
  if ((fmt !== "none" && fmt !== "packed") || attStmt.get("x5c") !== undefined) throw notVerified();
}

async function readAttestation(attestationObject: string) {
  const { decodeAttestationObject } = await import("@simplewebauthn/server/helpers");
  const attestation = decodeAttestationObject(Buffer.from(attestationObject, "base64url"));
  return { fmt: attestation.get("fmt"), attStmt: attestation.get("attStmt") };
}

/**
 * The account whose passkey has signed a challenge of `purpose` on this site. `null`: unknown here, of an account that may not enter,
 * or the signature, origin, host or challenge is wrong. `expired`: the challenge was used before, or is too old. `cloned`: there is a
 * copy of the passkey, so it no longer signs in.
 */
export async function checkPasskey(
  deps: Deps,
  { host, origin, resellerId }: Site,
  { purpose, response }: { purpose: Purpose; response: AuthenticationResponseJSON },
): Promise<{ accountId: number; passkeyId: number } | "expired" | "cloned" | null> {
  const credentialId = Buffer.from(response.id, "base64url");
  const stored = await findPasskey(deps, { host, resellerId, credentialId });
  const challenge = signedChallengeOf(response.response.clientDataJSON);
  if (!stored?.mayEnter || challenge === undefined) return null;
  const { verifyAuthenticationResponse } = await library();
  const checked = await verified(() =>
    verifyAuthenticationResponse({
      response,
      expectedChallenge: (text) => isOurs(deps, text, purpose),
      expectedOrigin: origin,
      expectedRPID: host,
      credential: credentialOf(stored),
      requireUserVerification: true,
    }),
  );
  if (!checked?.verified) return null;
  const { passkeyId, accountId } = stored;
  const used = await recordUse(deps, { passkeyId, counter: checked.authenticationInfo.newCounter, challenge });
  if (used === "gone") return null;
  if (used === "replayed") return "expired";
  return used === "used" ? { accountId, passkeyId } : used;
}

/** Counter 0, so that the library checks the signature whatever the counter is. The database then compares the counters. */
function credentialOf({ credentialId, publicKey }: StoredPasskey) {
  return { id: credentialId.toString("base64url"), publicKey: new Uint8Array(publicKey), counter: 0 };
}

/** What `verify` returns; undefined if it throws: the library throws for every response that is wrong or malformed. */
async function verified<T>(verify: () => Promise<T>): Promise<T | undefined> {
  try {
    return await verify();
  } catch {
    return undefined; // The caller refuses the response. What was wrong is the sender's text, and is not repeated.
  }
}

function notVerified(): InputError {
  return new InputError("This passkey could not be verified. Try again.", "response");
}

/** The error for a challenge that was used before, or is too old. */
export function expired(param: string): InputError {
  return new InputError("The passkey took too long, or was sent twice. Try again.", param);
}

async function descriptorsOf(deps: KeyDeps, owner: { accountId: number; host: string }) {
  return (await credentialsOf(deps, owner)).map(({ credentialId, transports }) => ({
    id: credentialId.toString("base64url"),
    transports: transports.filter((one): one is Transport => TRANSPORTS.some((known) => known === one)),
  }));
}

/** Names the account to its authenticators, which replace a passkey of the same account. Tells nothing about the account. */
function userHandle({ config }: KeyDeps, { accountId, host }: { accountId: number; host: string }) {
  const key = deriveKey(config.secretKey, "passkey-user");
  return new Uint8Array(createHmac("sha256", key).update(`${host}\0${accountId}`).digest());
}

/** Random bytes, when they expire, and a code that proves that this service made them for this purpose. */
async function newChallenge(deps: KeyDeps, purpose: Purpose) {
  const body = Buffer.alloc(NONCE_BYTES + EXPIRY_BYTES);
  randomBytes(NONCE_BYTES).copy(body);
  body.writeUIntBE((await databaseUnixMs(deps)) + CHALLENGE_MS, NONCE_BYTES, EXPIRY_BYTES);
  return new Uint8Array(Buffer.concat([body, codeOf(deps, body, purpose)]));
}

function codeOf({ config }: Pick<KeyDeps, "config">, body: Uint8Array, purpose: Purpose): Buffer {
  const key = deriveKey(config.secretKey, "passkey-challenge");
  const session = purpose.kind === "sign in" ? "" : purpose.session;
  return createHmac("sha256", key).update(body).update(`${purpose.kind}\0${purpose.host}\0${session}`).digest();
}

/** Whether this service made the challenge for this purpose. `recordUse` and `insertPasskey` check its age, and that it is new. */
function isOurs(deps: Pick<KeyDeps, "config">, challenge: string, purpose: Purpose): boolean {
  const bytes = Buffer.from(challenge, "base64url");
  if (bytes.length !== CHALLENGE_BYTES) return false;
  const [body, code] = [bytes.subarray(0, -MAC_BYTES), bytes.subarray(-MAC_BYTES)];
  return constantTimeEqual(code.toString("base64url"), codeOf(deps, body, purpose).toString("base64url"));
}

/** The challenge in what the browser signed; undefined: there is none of ours' length. */
function signedChallengeOf(clientDataJson: string): SignedChallenge | undefined {
  const bytes = Buffer.from(challengeIn(clientDataJson), "base64url");
  if (bytes.length !== CHALLENGE_BYTES) return undefined;
  return { digest: Buffer.from(sha256(bytes)), expiresUnixMs: bytes.readUIntBE(NONCE_BYTES, EXPIRY_BYTES) };
}

function challengeIn(clientDataJson: string): string {
  try {
    const data: unknown = JSON.parse(Buffer.from(clientDataJson, "base64url").toString("utf8"));
    const challenge = typeof data === "object" && data !== null && "challenge" in data ? data.challenge : undefined;
    return typeof challenge === "string" ? challenge : "";
  } catch {
    return ""; // Not JSON: no challenge.
  }
}
