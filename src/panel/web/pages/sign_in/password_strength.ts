import { plural, t } from "@lingui/core/macro";
import { NEW_PASSWORD_CHARS } from "../../../../limits.ts";

/** The rules for a new password, and an estimate of how hard it is to guess. */

const { min: CHARS_MIN, max: CHARS_MAX } = NEW_PASSWORD_CHARS;
export const PASSWORD_RULES = t`${{ min: CHARS_MIN }} to ${{ max: CHARS_MAX }} characters. Several unrelated words make a password that is strong and easy to remember.`;

/** `level` 0: not allowed by its length; 1: easy to guess; 2: fair; 3: strong. */
export type Strength = { level: 0 | 1 | 2 | 3; words: string };

/** Estimated bits; below, an attacker with the digest can guess the password. */
const FAIR_BITS = 40;
const STRONG_BITS = 60;
/** The weight of a character that continues a run: "aaaa", "4567", "tyui". */
const RUN_WEIGHT = 0.2;
const KEYBOARD = /* not a text */ "qwertyuiop asdfghjkl zxcvbnm qwertzuiop azertyuiop";
/** Parts of the most common leaked passwords. */
const COMMON =
  /passw(?:or|0r)d|letmein|welcome|iloveyou|sunshine|princess|football|baseball|superman|dragon|monkey|master|shadow|michael|jordan|secret|access|hello|login|admin|server|summer|winter|spring|autumn|change(?:me|it)|test|demo|(?:19|20)\d\d/g;
const CLASSES = [
  { of: /[a-z]/, chars: 26 },
  { of: /[A-Z]/, chars: 26 },
  { of: /\d/, chars: 10 },
  { of: /[^A-Za-z\d]/, chars: 33 },
] as const;

/**
 * Estimates how hard a password is to guess, as a hint; the server enforces only its length. `about`: text that others know about the
 * owner (name, e-mail, brand), which adds no strength.
 */
export function strengthOf(password: string, about: readonly string[]): Strength {
  const chars = Array.from(password.normalize("NFKC")).length;
  if (chars < CHARS_MIN)
    return {
      level: 0,
      words: plural({ count: CHARS_MIN - chars }, { one: "# more character.", other: "# more characters." }),
    };
  if (chars > CHARS_MAX)
    return { level: 0, words: plural({ count: chars - CHARS_MAX }, { other: "# too many characters." }) };
  const pool = CLASSES.reduce((sum, { of, chars: count }) => (of.test(password) ? sum + count : sum), 0);
  const bits = effectiveLength(shortened(password.toLowerCase(), about)) * Math.log2(pool);
  if (bits < FAIR_BITS) return { level: 1, words: t`Easy to guess. Add words or characters without a pattern.` };
  if (bits < STRONG_BITS)
    return { level: 2, words: t({ message: "Fair. A longer one is safer.", context: "a password" }) };
  return { level: 3, words: t({ message: "Strong.", context: "a password" }) };
}

/** Replaces repeated, known and common parts by one character each. */
function shortened(text: string, about: readonly string[]): string {
  const known = about.flatMap((each) => each.toLowerCase().split(/[^\p{L}\d]+/u)).filter((word) => word.length > 2);
  const once = /^(.+?)\1+$/su.exec(text)?.[1] ?? text;
  return known.reduce((rest, word) => rest.replaceAll(word, "\u0000"), once.replace(COMMON, "\u0000"));
}

/** The number of characters, where one that continues a run counts less. */
function effectiveLength(text: string): number {
  const chars = Array.from(text);
  return chars.reduce((sum, char, at) => sum + (continuesRun(chars[at - 1], char) ? RUN_WEIGHT : 1), 0);
}

function continuesRun(before: string | undefined, char: string): boolean {
  if (before === undefined) return false;
  const step = (char.codePointAt(0) ?? 0) - (before.codePointAt(0) ?? 0);
  return Math.abs(step) <= 1 || KEYBOARD.includes(before + char) || KEYBOARD.includes(char + before);
}
