import { type ErrorCode, Refusal } from "../errors.ts";
import { decrypt, deriveKey, encrypt } from "../platform/crypto.ts";
import type { Db } from "../platform/db.ts";
import { isRecord } from "../platform/records.ts";
import { claimWrite, forgetWrite, keepAnswer, type WriteRef } from "./writes_store.ts";

/** Makes a write with an Idempotency-Key once: the same request gets the same answer for a day. Source: MGT-5. */

const PURPOSE = "api_writes";
const KEY_FORM = /^[\x21-\x7e]{1,255}$/;

export type Answer = { status: number; body: string };
type Deps = { db: Db; config: { secretKey: Uint8Array } };

/** Throws invalid_request. */
export function checkWriteKey(key: string): void {
  if (!KEY_FORM.test(key))
    throw new Refusal("invalid_request", {
      message: "The header Idempotency-Key must be 1 to 255 visible characters.",
    });
}

/**
 * `replayed`: the answer is that of an earlier request. `work` marks the write in its transactions (`markWrite`). `refused` makes the answer
 * of a refusal. Throws idempotency_conflict while the write is being made, or if its answer is lost; idempotency_mismatch if the key was
 * used for another write; and what `work` throws before anything is committed.
 */
export async function writeOnce(
  deps: Deps,
  ref: WriteRef & { bodyDigest: Buffer },
  { work, refused }: { work: () => Promise<Answer>; refused: (error: unknown) => Answer },
): Promise<Answer & { replayed: boolean }> {
  const claim = await claimWrite(deps, ref);
  if (claim.state === "other") throw mismatch();
  if (claim.state === "running") throw new Refusal("idempotency_conflict", { retryAfterSeconds: 1 });
  if (claim.state === "lost") throw lost();
  if (claim.state === "answered") return { ...open(deps, ref, claim.answer), replayed: true };
  let answer: Answer;
  try {
    answer = await work();
  } catch (error) {
    // What was committed before it failed must not be done again.
    if (await forgetWrite(deps, ref)) throw error;
    answer = refused(error);
  }
  await keepAnswer(deps, ref, seal(deps, ref, answer));
  return { ...answer, replayed: false };
}

const contextOf = ({ accountId, writeKey }: WriteRef) => `${accountId} ${writeKey}`;

function seal({ config }: Deps, ref: WriteRef, answer: Answer): Buffer {
  return encrypt(deriveKey(config.secretKey, PURPOSE), JSON.stringify(answer), contextOf(ref));
}

/** Throws idempotency_conflict if it was kept with another SECRET_KEY. */
function open({ config }: Deps, ref: WriteRef, sealed: Buffer): Answer {
  let answer: unknown;
  try {
    answer = JSON.parse(decrypt(deriveKey(config.secretKey, PURPOSE), sealed, contextOf(ref)));
  } catch {
    throw lost();
  }
  if (!isRecord(answer) || typeof answer.status !== "number" || typeof answer.body !== "string") throw lost();
  return { status: answer.status, body: answer.body };
}

function mismatch(): Refusal {
  return conflict("idempotency_mismatch", "This Idempotency-Key was already used for a different request.", 422);
}

function lost(): Refusal {
  return conflict(
    "idempotency_conflict",
    "This request was made, and its answer was lost when the service stopped. Read what it changed.",
  );
}

function conflict(code: ErrorCode, message: string, status?: number): Refusal {
  return new Refusal(code, { message, ...(status !== undefined && { status }) });
}
