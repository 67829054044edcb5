import { InputError, sentence } from "../errors.ts";
import { lazily } from "../platform/lazily.ts";

/**
 * VAT numbers of the EU: their form and check digits, without asking anybody. Whether a number was given to somebody, only the online check
 * of the EU says. Source: TAX-3.
 */

/** The name of the VAT number of each country of the EU in the library. */
const KINDS: Readonly<Record<string, string>> = {
  AT: "uid",
  BE: "vat",
  BG: "vat",
  CY: "vat",
  CZ: "dic",
  DE: "vat",
  DK: "cvr",
  EE: "kmkr",
  ES: "nif",
  FI: "alv",
  FR: "tva",
  GR: "vat",
  HR: "oib",
  HU: "anum",
  IE: "vat",
  IT: "iva",
  LT: "pvm",
  LU: "tva",
  LV: "pvn",
  MT: "vat",
  NL: "btw",
  PL: "nip",
  PT: "nif",
  RO: "cif",
  SE: "vat",
  SI: "ddv",
  SK: "dph",
};
/** Greece writes EL before its numbers. */
const PREFIX_OF: Readonly<Record<string, string>> = { GR: "EL" };
const TYPED_CHARS_MAX = 40;
/** The numbers of all countries, some three hundred modules: loaded when the first number is typed. */
const library = lazily(() => import("stdnum"));

/** The country of a number that `checkVatNumber` returned, by ISO 3166-1. */
export function countryOfVat(vatNumber: string): string {
  const prefix = vatNumber.slice(0, 2);
  return prefix === PREFIX_OF.GR ? "GR" : prefix;
}

/**
 * A typed number in its short form, as in DE136695976; null: nothing was typed. Spaces, dots and dashes are left out, and GR becomes EL. Throws InputError.
 */
export async function checkVatNumber(typed: string | null, param = "vatNumber"): Promise<string | null> {
  const text = (typed ?? "")
    .normalize("NFKC")
    .toUpperCase()
    .replace(/[\s.-]/g, "");
  if (text === "") return null;
  const country = countryOfVat(text);
  const kind = KINDS[country];
  if (kind === undefined || text.length > TYPED_CHARS_MAX)
    throw new InputError(
      "A VAT number of the EU begins with the two letters of its country, as in DE136695976.",
      param,
    );
  const digits = text.slice(2);
  const number = `${PREFIX_OF[country] ?? country}${digits}`;
  const { stdnum } = await library();
  const validator = stdnum[country]?.[kind];
  if (validator === undefined) throw new Error(`the library has no VAT numbers of ${country}`);
  const result = validator.validate(digits);
  // The library also takes numbers that begin with the letters again, and some that lack a zero: only the usual form counts.
  if (!result.isValid || result.compact !== digits)
    throw new InputError(
      sentence("{text} is not a VAT number: a digit or letter is wrong, or one is missing.", { text }),
      param,
    );
  return number;
}
