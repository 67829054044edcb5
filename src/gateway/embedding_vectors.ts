import { strictBase64 } from "../platform/base64.ts";
import { isRecord } from "../platform/records.ts";
import { opened } from "./provider_json.ts";

/**
 * Embeddings in the two forms of OpenAI's API: arrays of numbers, and base64 of little-endian float32. Every platform that runs
 * this service is little-endian, so a Float32Array has the bytes that are sent. Source: EMB-3.
 */

const BYTES_A_NUMBER = 4;

/** An embedding as a provider sent it; checked. */
export type Vector = { readonly numbers: readonly number[] | Float32Array; readonly base64: string | undefined };

/**
 * Reads an embedding in either form; some providers put it in a list, as of several, or in an object by its form. Returns undefined if
 * it is neither, is empty, or has a number that is no finite float32.
 */
export function readVector(given: unknown): Vector | undefined {
  const inner: unknown = Array.isArray(given) && given.length === 1 ? given[0] : given;
  const found = Array.isArray(inner) ? inner : isRecord(inner) ? (inner.float ?? inner.values ?? inner.base64) : given;
  const value = opened(found);
  if (typeof value === "string") return ofBase64(value);
  if (!Array.isArray(value) || value.length === 0) return undefined;
  const numbers: unknown[] = value.every((one) => typeof one === "string") ? value.map(numberIn) : value;
  return numbers.every(isFiniteFloat32) ? { numbers, base64: undefined } : undefined;
}

function ofBase64(text: string): Vector | undefined {
  const base64 = strictBase64(text);
  if (base64 === undefined) return undefined;
  // Copied, because a Float32Array must begin at a multiple of four.
  const bytes = new Uint8Array(Buffer.from(base64, "base64"));
  if (bytes.length === 0 || bytes.length % BYTES_A_NUMBER !== 0) return undefined;
  const numbers = new Float32Array(bytes.buffer);
  return numbers.every(Number.isFinite) ? { numbers, base64 } : undefined;
}

/** The embedding as JSON text, in the form that a client asked for. */
export function vectorJson({ numbers, base64 }: Vector, form: "float" | "base64"): string {
  if (form === "float") return `[${numbers.join(",")}]`;
  return `"${base64 ?? Buffer.from(Float32Array.from(numbers).buffer).toString("base64")}"`;
}

/** A number as a text. */
function numberIn(text: string): number | undefined {
  return /^-?\d{1,30}(?:\.\d{1,30})?(?:e[+-]?\d{1,3})?$/i.test(text) ? Number(text) : undefined;
}

function isFiniteFloat32(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(Math.fround(value));
}
