import bidiFactory from "bidi-js";
import { fontFile, type Script, scriptOf, type Weight } from "./pdf_fonts.ts";

/**
 * Text in a PDF whose letters come from several font files: measured, wrapped and drawn, also from right to left. pdfkit wraps text of one
 * font only, and joins the letters of Arabic words, but does not order the words of a line.
 */

/** A file and the direction of its language. Places are those of a page from left to right; a page from right to left is mirrored. */
export type Sheet = { doc: PDFKit.PDFDocument; direction: "ltr" | "rtl" };

export type Style = {
  size: number;
  weight?: Weight;
  color?: string;
  /** For amounts: digits of equal width, so that they align. */
  isFigures?: boolean;
};
type Place = { x: number; y: number; width: number; align?: "start" | "end" };
type Run = { script: Script; text: string };

/**
 * fontkit accepts this form too. Kerning would hide the point of "7.00". Layouts with features are not cached, and so
 * are slower.
 */
const FIGURES = { tnum: true, kern: false } as unknown as PDFKit.Mixins.OpenTypeFeatures[];

/** In sizes of the font: the height of a line, and where its letters stand. Of itself, each font would stand at another height. */
const LINE = 1.4;
const BASELINE = 0.96875;

/** Draws a text, wrapped to the width. Returns its height. */
export function drawText(sheet: Sheet, text: string, place: Place, style: Style): number {
  const lines = wrap(sheet.doc, text, place.width, style);
  lines.forEach((line, index) => {
    drawLine(sheet, line, { ...place, y: place.y + index * lineHeight(style) }, style);
  });
  return lines.length * lineHeight(style);
}

/** The height that `drawText` needs. */
export function heightOf({ doc }: Sheet, text: string, width: number, style: Style): number {
  return wrap(doc, text, width, style).length * lineHeight(style);
}

function lineHeight({ size }: Style): number {
  return size * LINE;
}

function drawLine(
  { doc, direction }: Sheet,
  line: string,
  { x, y, width, align = "start" }: Place,
  style: Style,
): void {
  const isRtl = direction === "rtl";
  const runs = runsOf(line, direction);
  const left = isRtl ? doc.page.width - x - width : x;
  let at = isRtl === (align === "start") ? left + width - widthOf(doc, runs, style) : left;
  doc.fillColor(style.color ?? "black");
  for (const { script, text } of runs) {
    setFont(doc, script, style);
    const features = style.isFigures ? { features: FIGURES } : {};
    doc.text(text, at, y + BASELINE * style.size, { lineBreak: false, baseline: "alphabetic", ...features });
    at += doc.widthOfString(text, features);
  }
}

function widthOf(doc: PDFKit.PDFDocument, runs: readonly Run[], style: Style): number {
  let sum = 0;
  for (const run of runs) {
    setFont(doc, run.script, style);
    sum += doc.widthOfString(run.text, style.isFigures ? { features: FIGURES } : {});
  }
  return sum;
}

/** Lines that fit the width. A word that is wider than a line is broken where the line is full. */
function wrap(doc: PDFKit.PDFDocument, text: string, width: number, style: Style): string[] {
  const lines: string[] = [];
  for (const paragraph of text.normalize("NFC").split("\n")) {
    const line = { text: "", width: 0 };
    const next = () => {
      lines.push(line.text.trimEnd());
      Object.assign(line, { text: "", width: 0 });
    };
    for (const word of paragraph.split(/(?<=\s)/)) {
      if (line.width > 0 && line.width + estimate(doc, word.trimEnd(), style) > width) next();
      for (const char of word) {
        const wide = estimate(doc, char, style);
        if (line.width > 0 && line.width + wide > width && char.trim() !== "") next();
        line.text += char;
        line.width += wide;
      }
    }
    lines.push(line.text.trimEnd());
  }
  return lines;
}

/** The sum of the characters' widths, without kerning: to lay out every candidate text would take seconds. */
function estimate(doc: PDFKit.PDFDocument, text: string, style: Style): number {
  let sum = 0;
  for (const char of text) sum += charWidth(doc, char, style);
  return sum;
}

function charWidth(doc: PDFKit.PDFDocument, char: string, { weight = "regular", size }: Style): number {
  const script = scriptOf(char);
  if (script === undefined) return 0;
  const name = `${weight}:${char}`;
  const known = charWidths.get(name);
  if (known !== undefined) return known * size;
  setFont(doc, script, { weight, size: 1 });
  const width = doc.widthOfString(char);
  if (charWidths.size < CHAR_WIDTHS_MAX) charWidths.set(name, width);
  return width * size;
}

/** By weight and character, for a size of 1. There are fewer characters than the limit. */
const CHAR_WIDTHS_MAX = 4_000;
const charWidths = new Map<string, number>();

/** The line in runs of one font file each, from left to right. Characters that no file has are left out: see `printable`. */
function runsOf(line: string, direction: Sheet["direction"]): Run[] {
  if (!RTL_LETTER.test(line)) return fontRuns(line);
  return levelRuns(line, direction).flatMap(({ text, isRtl }) =>
    isRtl ? fontRuns(text).reverse().map(mirrored) : fontRuns(text),
  );
}

const RTL_LETTER = /[\p{Script=Arabic}\p{Script=Hebrew}]/u;
const bidi = bidiFactory();

/** A run whose signs stand from right to left. The font turns Arabic letters itself, as it joins them. */
function mirrored({ script, text }: Run): Run {
  if (script === "arabic") return { script, text };
  const turned = [...text].reverse().map((char) => bidi.getMirroredCharacter(char) ?? char);
  return { script, text: turned.join("") };
}

/** The parts of a line that have one direction each, from left to right, ordered by rule L2 of Unicode annex 9. */
function levelRuns(line: string, direction: Sheet["direction"]): { text: string; isRtl: boolean }[] {
  const { levels } = bidi.getEmbeddingLevels(line, direction);
  const runs: { text: string; level: number }[] = [];
  for (let at = 0; at < line.length; at++) {
    const level = levels[at] ?? 0;
    const last = runs.at(-1);
    if (last?.level === level) last.text += line[at];
    else runs.push({ text: line[at] ?? "", level });
  }
  for (let level = Math.max(...levels); level > 0; level--) {
    for (let from = 0; from < runs.length; from++) {
      let to = from;
      while (to < runs.length && (runs[to]?.level ?? 0) >= level) to++;
      if (to > from) runs.splice(from, to - from, ...runs.slice(from, to).reverse());
      from = to;
    }
  }
  return runs.map(({ text, level }) => ({ text, isRtl: level % 2 === 1 }));
}

function fontRuns(text: string): Run[] {
  const runs: Run[] = [];
  for (const char of text) {
    const script = scriptOf(char);
    if (script === undefined) continue;
    const last = runs[runs.length - 1];
    if (last?.script === script) last.text += char;
    else runs.push({ script, text: char });
  }
  return runs;
}

/** Fonts are parsed when they are first used in a file. */
const parsed = new WeakMap<PDFKit.PDFDocument, Set<string>>();

function setFont(doc: PDFKit.PDFDocument, script: Script, { size, weight = "regular" }: Style): void {
  const name = `${script}-${weight}`;
  const known = parsed.get(doc) ?? new Set<string>();
  parsed.set(doc, known);
  if (!known.has(name)) {
    doc.registerFont(name, fontFile(script, weight));
    known.add(name);
  }
  doc.font(name).fontSize(size);
}
