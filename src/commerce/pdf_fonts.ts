import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { fileURLToPath } from "node:url";
import { inflateSync } from "node:zlib";
import { lazily } from "../platform/lazily.ts";

/**
 * The fonts of PDF files: Inter for Latin, Greek and Cyrillic letters, IBM Plex Sans for Arabic ones, and Noto Sans for Chinese
 * characters. Of the first two there is one small file for each script and weight, so that an invoice with Latin text embeds only one of them. The Chinese file is
 * in `fonts`: the regular weight, with the characters of GB 2312. A PDF file embeds only the letters that it has.
 */

export type Weight = "regular" | "bold";
export type Script = keyof typeof COVERED;

const WEIGHTS = { regular: 400, bold: 600 } as const;

/** The characters that each file has, in hexadecimal. `test/commerce/invoice_pdf.test.ts` compares them with the files. */
const COVERED = {
  latin:
    "20-7e a0-ac ae-ff 131 152-153 2bb-2bc 2c6 2da 2dc 304 308 2002 2009 2013-2014 2018-201a 201c-201e 2022 2026 2032-2033 2039-203a 2044 20ac 2122 2191 2193 2212",
  "latin-ext":
    "100-130 132-148 14a-151 154-1c3 1c5-254 256-27b 27e-284 286-290 292-2a4 2a6-2ba 2bd-2c5 2c7-2cc 2ce-2d7 2dd-2ff 1e00-1e9b 1e9d-1e9f 1ef2-1eff 2020 20a0-20ab 20ad-20af 20b1-20b5 20b8-20ba 20bc-20bf 2113 2c7c 2c7f",
  cyrillic: "301 400-45f 490-491 4b0-4b1 2116",
  "cyrillic-ext": "460-479 480-48f 492-49d 4a0-4af 4b2-4ff 52f",
  greek: "374-376 37a-37f 384-38a 38c 38e-3a1 3a3-3d7 3dc-3dd 3f0-3f6 3f9-3fa 3fc-3ff",
  "greek-ext":
    "1f00-1f15 1f18-1f1d 1f20-1f45 1f48-1f4d 1f50-1f57 1f59 1f5b 1f5d 1f5f-1f7d 1f80-1fb4 1fb6-1fc4 1fc6-1fd3 1fd6-1fdb 1fdd-1fef 1ff2-1ff4 1ff6-1ffe",
  vietnamese: "300 303 309 323 1ea0-1ef1",
  arabic: "600-604 606-61b 61e-6a1 6a3-6ff 750-77f",
  // In noto_sans_sc.txt.
  chinese: "",
} as const;

export const SCRIPTS = Object.keys(COVERED) as Script[];

const RANGES = SCRIPTS.filter((script) => COVERED[script] !== "").flatMap((script) =>
  COVERED[script].split(" ").map((range) => {
    const [first = "", last = first] = range.split("-");
    return { script, first: Number.parseInt(first, 16), last: Number.parseInt(last, 16) };
  }),
);

/** Read with the first Chinese text. */
const chinese = lazily(
  () => new Set(readFileSync(fileURLToPath(new URL("./fonts/noto_sans_sc.txt", import.meta.url).href), "utf8")),
);

/** The file that has a character; undefined: none has it. */
export function scriptOf(character: string): Script | undefined {
  const point = character.codePointAt(0) ?? 0;
  const found = RANGES.find(({ first, last }) => point >= first && point <= last)?.script;
  if (found !== undefined || point < FIRST_CHINESE) return found;
  return chinese().has(character) ? "chinese" : undefined;
}

/** The ideographic space. */
const FIRST_CHINESE = 0x3000;

/** The characters of a text that cannot be printed, each once. Line breaks are not among them. */
export function unprintable(text: string): string[] {
  const all = [...text.normalize("NFC")].filter((char) => char !== "\n" && scriptOf(char) === undefined);
  return [...new Set(all)];
}

/** The printable part of a text, on one line; undefined if no letter and no digit is left. */
export function printable(text: string): string | undefined {
  const spaced = text.normalize("NFC").replace(/\s+/g, " ");
  const left = [...spaced].filter((char) => scriptOf(char) !== undefined).join("");
  return /[\p{L}\p{N}]/u.test(left) ? left.replace(/ {2,}/g, " ").trim() : undefined;
}

/** Read and unpacked once: about 50 KB each, and 2 MB for Chinese. */
const files = new Map<string, Buffer>();

/** The file of a script and weight, as TrueType. */
export function fontFile(script: Script, weight: Weight): Buffer {
  const path = pathOf(script, weight);
  const known = files.get(path);
  if (known) return known;
  const file = unpacked(readFileSync(path));
  files.set(path, file);
  return file;
}

/** Where the file of a script and weight is, as WOFF. */
export function pathOf(script: Script, weight: Weight): string {
  if (script === "chinese") return fileURLToPath(new URL("./fonts/noto_sans_sc.woff", import.meta.url).href);
  const family = script === "arabic" ? "ibm-plex-sans-arabic" : "inter";
  const name = `@fontsource/${family}/files/${family}-${script}-${WEIGHTS[weight]}-normal.woff`;
  return createRequire(import.meta.url).resolve(name);
}

const WOFF_HEAD_BYTES = 44;
const WOFF_ENTRY_BYTES = 20;
const SFNT_HEAD_BYTES = 12;
const SFNT_ENTRY_BYTES = 16;

/**
 * WOFF → TrueType. pdfkit reads WOFF too, but unpacks its tables again for every look-up, which takes a second for a page.
 * Source: W3C WOFF 1.0.
 */
function unpacked(woff: Buffer): Buffer {
  const count = woff.readUInt16BE(12);
  const head = Buffer.alloc(SFNT_HEAD_BYTES + count * SFNT_ENTRY_BYTES);
  woff.copy(head, 0, 4, 8);
  head.writeUInt16BE(count, 4);
  const tables: Buffer[] = [];
  let at = head.length;
  for (let i = 0; i < count; i++) {
    const entry = woff.subarray(WOFF_HEAD_BYTES + i * WOFF_ENTRY_BYTES);
    const [offset, packedBytes, bytes] = [entry.readUInt32BE(4), entry.readUInt32BE(8), entry.readUInt32BE(12)];
    const packed = woff.subarray(offset, offset + packedBytes);
    const table = packedBytes < bytes ? inflateSync(packed, { maxOutputLength: bytes }) : packed;
    const place = SFNT_HEAD_BYTES + i * SFNT_ENTRY_BYTES;
    entry.copy(head, place, 0, 4); // The table's name.
    entry.copy(head, place + 4, 16, 20); // Its checksum.
    head.writeUInt32BE(at, place + 8);
    head.writeUInt32BE(bytes, place + 12);
    // Tables begin at multiples of four.
    const padded = Buffer.concat([table, Buffer.alloc(-bytes & 3)]);
    tables.push(padded);
    at += padded.length;
  }
  return Buffer.concat([head, ...tables]);
}
