import { fontFile, type Script, scriptOf, type Weight } from "./pdf_fonts.ts";

/**
 * Text in a PDF whose letters come from several font files: measured, wrapped and drawn. pdfkit wraps text of one font only.
 */

export type Style = {
  size: number;
  weight?: Weight;
  color?: string;
  /** For amounts: digits of equal width, so that they align. */
  isFigures?: boolean;
};
type Place = { x: number; y: number; width: number; align?: "left" | "right" };
type Run = { script: Script; text: string };

/**
 * fontkit accepts this form too. Kerning would hide the point of "7.00". Layouts with features are not cached, and so
 * are slower.
 */
const FIGURES = { tnum: true, kern: false } as unknown as PDFKit.Mixins.OpenTypeFeatures[];

/** Height of a line, in sizes of the font. */
const LINE = 1.4;
/** Draws a text, wrapped to the width. Returns its height. */
export function drawText(doc: PDFKit.PDFDocument, text: string, place: Place, style: Style): number {
  const lines = wrap(doc, text, place.width, style);
  lines.forEach((line, index) => {
    drawLine(doc, line, { ...place, y: place.y + index * lineHeight(style) }, style);
  });
  return lines.length * lineHeight(style);
}

/** The height that `drawText` needs. */
export function heightOf(doc: PDFKit.PDFDocument, text: string, width: number, style: Style): number {
  return wrap(doc, text, width, style).length * lineHeight(style);
}

function lineHeight({ size }: Style): number {
  return size * LINE;
}

function drawLine(doc: PDFKit.PDFDocument, line: string, { x, y, width, align }: Place, style: Style): void {
  let at = align === "right" ? x + width - widthOf(doc, line, style) : x;
  doc.fillColor(style.color ?? "black");
  for (const { script, text } of runsOf(line)) {
    setFont(doc, script, style);
    const features = style.isFigures ? { features: FIGURES } : {};
    doc.text(text, at, y, { lineBreak: false, ...features });
    at += doc.widthOfString(text, features);
  }
}

function widthOf(doc: PDFKit.PDFDocument, text: string, style: Style): number {
  let sum = 0;
  for (const run of runsOf(text)) {
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

/** The text in runs of one font file each. Characters that no file has are left out: see `printable`. */
function runsOf(text: string): Run[] {
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
