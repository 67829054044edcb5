import { forgetForm, recordForm } from "../../accounts/forms_store.ts";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import type { Actor } from "../../platform/changes_store.ts";
import { sha256 } from "../../platform/runtime.ts";

/** Idempotency of the panel's forms: the page sends one `Idempotency-Key` per opened form, and the work is done once. */

const HEADER = "idempotency-key";
const FORM_KEY = /^[\x21-\x7e]{1,100}$/;

/** SHA-256 of the bodies of requests that carry the header. */
const bodyDigests = new WeakMap<Request, Uint8Array>();

/** Remembers a body's digest, so that `once` can tell a repeated form from a changed one. */
export function noteFormBody(request: Request, text: string | Uint8Array): void {
  if (request.headers.has(HEADER)) bodyDigests.set(request, sha256(text));
}

/**
 * Does the work of a form at most once per `Idempotency-Key` and person. A second submit throws idempotency_conflict; with
 * another body, idempotency_mismatch. If the work fails, the form may be sent again. Without the header the work is always done.
 */
export async function once<T>(
  deps: Deps,
  { person, request }: { person: { by: Actor }; request: Request },
  work: () => Promise<T>,
): Promise<T> {
  const formKey = request.headers.get(HEADER);
  if (formKey === null) return await work();
  if (!FORM_KEY.test(formKey)) {
    throw new Refusal("invalid_request", {
      message: "The header Idempotency-Key must be 1 to 100 visible characters.",
    });
  }
  const form = { accountId: person.by.accountId, formKey, bodyDigest: digestOf(request) };
  const claimed = await recordForm(deps, form);
  if (claimed === "same") throw new Refusal("idempotency_conflict");
  if (claimed === "other")
    throw new Refusal("idempotency_mismatch", {
      message: "This form was already sent with different contents. Open it again.",
      status: 422,
    });
  try {
    return await work();
  } catch (error) {
    await forgetForm(deps, form);
    throw error;
  }
}

/** SHA-256 over method, path and body. */
function digestOf(request: Request): Buffer {
  const endpoint = `${request.method} ${new URL(request.url).pathname}\0`;
  return Buffer.from(sha256(Buffer.concat([Buffer.from(endpoint), bodyDigests.get(request) ?? Buffer.alloc(0)])));
}
