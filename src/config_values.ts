import { isIP } from "node:net";
import ipaddr from "ipaddr.js";

/** Parses the values of configuration variables: one function for each kind of value. They throw InvalidValue. */

const SECRET_KEY_BYTES = 32;

/** The message says what the value must be: "must be a whole number". */
export class InvalidValue extends Error {
  override readonly name = "InvalidValue";
}

/** Takes the trimmed text; "" means: not set and no default. Throws InvalidValue. */
export type Parse<T> = (text: string) => T;

/** `unset` for "", otherwise what `parse` makes of the text. */
export function optional<T, U>(unset: U, parse: Parse<T>): Parse<T | U> {
  return (text) => (text === "" ? unset : parse(text));
}

export function text(value: string): string {
  return value;
}

export function integer({ min, max }: { min: number; max?: number }): Parse<number> {
  return (value) => {
    if (!/^\d{1,15}$/.test(value)) throw new InvalidValue("must be a whole number");
    const number = Number(value);
    if (number < min) throw new InvalidValue(`must be at least ${min}`);
    if (max !== undefined && number > max) throw new InvalidValue(`must be at most ${max}`);
    return number;
  };
}

/** A number from 0 to 1. */
export function fraction(value: string): number {
  if (!/^(?:0(?:\.\d{1,9})?|1(?:\.0{1,9})?)$/.test(value)) throw new InvalidValue("must be a number from 0 to 1");
  return Number(value);
}

export function flag(value: string): boolean {
  if (value !== "true" && value !== "false") throw new InvalidValue("must be true or false");
  return value === "true";
}

export function choice(choices: readonly string[]): Parse<string> {
  return (value) => {
    if (!choices.includes(value)) throw new InvalidValue(`must be one of ${choices.join(", ")}`);
    return value;
  };
}

/** A URL as written, with one of `schemes`. */
export function url(schemes: readonly string[]): Parse<string> {
  return (value) => {
    if (!URL.canParse(value) || !schemes.includes(new URL(value).protocol.slice(0, -1)))
      throw new InvalidValue(`must be a URL that begins with ${schemes.join(":// or ")}://`);
    return value;
  };
}

/** An http or https URL with exactly this path, without slashes at its end. */
export function webUrl(path: "" | "/v1"): Parse<string> {
  const parseUrl = url(["http", "https"]);
  return (value) => {
    const address = parseUrl(value).replace(/\/+$/, "");
    if (new URL(address).pathname.replace(/\/$/, "") !== path)
      throw new InvalidValue(path === "" ? "must have no path" : `must end in ${path}`);
    return address;
  };
}

/** Comma-separated items, none of them empty. `must` is the message for a list that `isValid` refuses. */
export function list(isValid: (items: string[]) => boolean, must: string): Parse<string[]> {
  return (value) => {
    const items = value.split(",").flatMap((item) => item.trim() || []);
    if (!isValid(items)) throw new InvalidValue(must);
    return items;
  };
}

/** Hosts with their ports, as in 10.0.0.7:8000. */
export function hostsWithPorts(value: string): string[] {
  return list(
    (items) => items.every((item) => /^(?:\[[\da-f:.]+\]|[^\s:/@[\]]+):\d{1,5}$/i.test(item)),
    "must be hosts with their ports, as in 10.0.0.7:8000",
  )(value);
}

/** `name=value` pairs as in OTEL_EXPORTER_OTLP_HEADERS: comma-separated, values percent-encoded. */
export function headers(value: string): Record<string, string> {
  const found: Record<string, string> = {};
  for (const pair of value.split(",").filter((part) => part.trim() !== "")) {
    const [, name, encoded = ""] = /^\s*([\w!#$%&'*+.^`|~-]+)\s*=\s*([!-~]*)\s*$/.exec(pair) ?? [];
    const decoded = percentDecoded(encoded);
    if (name === undefined || decoded === undefined) throw new InvalidValue("must be comma-separated name=value pairs");
    found[name] = decoded;
  }
  return found;
}

/** Undefined for text that is not UTF-8 or has characters that a header's value may not have. */
function percentDecoded(encoded: string): string | undefined {
  try {
    const decoded = decodeURIComponent(encoded);
    return /^[ -~]*$/.test(decoded) ? decoded : undefined;
  } catch {
    return undefined; // decodeURIComponent reports bad input only by throwing.
  }
}

/** `Name <address>`, or only an address. */
export function mailAddress(value: string): { name: string; address: string } {
  const [, name = "", bracketed, bare] = /^(?:([^<>\p{Cc}]*)<([^\s<>]+)>|([^\s<>]+))$/u.exec(value) ?? [];
  const address = bracketed ?? bare ?? "";
  if (!/^[^\s@,;\p{Cc}]+@[^\s@,;\p{Cc}]+$/u.test(address))
    throw new InvalidValue("must be an e-mail address, as in Acme <mail@example.com>");
  return { name: name.trim().replace(/^"(.*)"$/, "$1"), address };
}

export function secretKey(value: string): Buffer {
  const bytes = secretBytes(value);
  if (bytes === undefined) throw new InvalidValue("must be 32 bytes in base64 or hex");
  return bytes;
}

/** The 32 bytes of a key in base64 or hex; undefined for any other text. */
export function secretBytes(value: string): Buffer | undefined {
  if (/^[0-9a-f]{64}$/i.test(value)) return Buffer.from(value, "hex");
  const bytes = /^[A-Za-z0-9+/_-]+=*$/.test(value) ? Buffer.from(value, "base64") : undefined;
  return bytes?.length === SECRET_KEY_BYTES ? bytes : undefined;
}

export function timeZone(value: string): string {
  if (!isTimeZone(value)) throw new InvalidValue("must be an IANA time zone, as in Europe/Berlin");
  return value;
}

/** Whether the runtime knows the IANA time zone `name`. */
export function isTimeZone(name: string): boolean {
  // Intl accepts plain offsets too, which Postgres reads with the opposite sign.
  if (!/^[A-Za-z]/.test(name)) return false;
  try {
    new Intl.DateTimeFormat("en", { timeZone: name });
    return true;
  } catch {
    return false; // Intl reports an unknown zone only by throwing.
  }
}

/** An IP address, or a range as in 10.0.0.0/8. */
export function isAddressOrRange(value: string): boolean {
  const [address = ""] = value.split("/");
  // ipaddr.js alone would accept short forms such as 10.1.
  return isIP(address) !== 0 && (!value.includes("/") || ipaddr.isValidCIDR(value));
}
