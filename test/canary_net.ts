import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { join } from "node:path";

/**
 * Secrets that are put into the service, and the search for them in all outputs: as plain text, in lower case as hosts
 * are written, in hex, or in base64.
 */

/** A secret is searched for by its two ends, so that half of it is found too. */
const PIECE_CHARS = 20;
/** A shorter one would be found by chance. */
const SECRET_CHARS_MIN = 12;
/** Files are read whole; Postgres's are 16 MB. */
const FILE_BYTES_MAX = 256 * 1024 * 1024;

export type Net = {
  /** Adds a secret. Texts that were remembered before are searched for it too. */
  plant(name: string, secret: string): void;
  /** The secrets in a text or in bytes, as "name as form in where". `mayShow` names those that are allowed there. */
  find(where: string, what: string | Uint8Array, mayShow?: readonly string[]): string[];
  /** The same of every file below a folder. */
  findInFolder(where: string, folder: string): string[];
  /** Remembers a text for `findInCaught`. */
  catch(where: string, what: string, mayShow?: readonly string[]): void;
  findInCaught(): string[];
  names(): string[];
};

/** An empty net. */
export function openNet(): Net {
  const secrets = new Map<string, { form: string; bytes: Buffer }[]>();
  const caught: { where: string; what: string; mayShow: readonly string[] }[] = [];

  const find: Net["find"] = (where, what, mayShow = []) => {
    const bytes = Buffer.from(what as string);
    const findings = [...secrets]
      .filter(([name]) => !mayShow.includes(name))
      .flatMap(([name, forms]) => {
        const found = forms.find((form) => bytes.includes(form.bytes));
        return found ? [`${name} as ${found.form} in ${where}`] : [];
      });
    return findings;
  };

  return {
    plant(name, secret) {
      if (secret.length < SECRET_CHARS_MIN) throw new Error(`${name} is too short to be looked for`);
      secrets.set(name, formsOf(secret));
    },
    find,
    findInFolder: (where, folder) =>
      filesBelow(folder).flatMap((path) => {
        // A running Postgres removes files, such as pg_internal.init: a file that was removed since it was listed
        // contains no secret.
        const bytes = existsSync(path) ? readFileSync(path) : Buffer.alloc(0);
        return find(`${where} ${path.slice(folder.length + 1)}`, bytes);
      }),
    catch: (where, what, mayShow = []) => void caught.push({ where, what, mayShow }),
    findInCaught: () => caught.flatMap(({ where, what, mayShow }) => find(where, what, mayShow)),
    names: () => [...secrets.keys()],
  };
}

/** Every way in which a secret may be written down, by its beginning and by its end. */
function formsOf(secret: string): { form: string; bytes: Buffer }[] {
  const pieces = new Set([secret.slice(0, PIECE_CHARS), secret.slice(-PIECE_CHARS)]);
  return [...pieces].flatMap((piece) => {
    const hex = Buffer.from(piece).toString("hex");
    const texts: [form: string, text: string][] = [
      ["text", piece],
      ["a host's", piece.toLowerCase()],
      ["hex", hex],
      ["hex", hex.toUpperCase()],
      ["a URL's", encodeURIComponent(piece)],
      ...([0, 1, 2] as const).flatMap((before): [string, string][] => {
        const inner = base64Within(piece, before);
        return [
          ["base64", inner],
          ["base64url", inner.replaceAll("+", "-").replaceAll("/", "_")],
        ];
      }),
    ];
    const different = new Map(texts.reverse().map(([form, text]) => [text, form]));
    return [...different].map(([text, form]) => ({ form, bytes: Buffer.from(text) }));
  });
}

/** What base64 makes of a text that stands `before` bytes, of three, behind the beginning of a group, without the ends that others share. */
function base64Within(text: string, before: 0 | 1 | 2): string {
  const lead = before === 0 ? 0 : 3 - before;
  const whole = text.slice(lead, lead + Math.floor((text.length - lead) / 3) * 3);
  return Buffer.from(whole).toString("base64");
}

function filesBelow(folder: string): string[] {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return filesBelow(path);
    return entry.isFile() && statSync(path).size <= FILE_BYTES_MAX ? [path] : [];
  });
}
