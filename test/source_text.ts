/** Separates code from text in TypeScript source, well enough for the house rules, without a parser. */

export interface SourceText {
  /** The source with comments and the contents of strings replaced by spaces; quotes stay, and so does its length. */
  code: string;
  /** Contents of the string and template literals, without `${…}`. */
  strings: string[];
  /** Regular expressions as written, with their flags. */
  regExps: string[];
}

/** A slash after one of these starts a regular expression; elsewhere it is a division. */
const beforeRegExp = /(?:^|[=(,:[!&|?{};>\n]|\breturn|\bcase|\btypeof)\s*$/;

/** Several rules read the same file. */
const known = new Map<string, SourceText>();

export function codeAndStrings(source: string): SourceText {
  const text = known.get(source) ?? read(source);
  known.set(source, text);
  return text;
}

function read(source: string): SourceText {
  let code = "";
  const strings: string[] = [];
  const regExps: string[] = [];
  /** For each open template literal: the depth of braces inside its `${`, and its text so far. */
  const templates: { depth: number; read: string }[] = [];
  let at = 0;

  const blank = (end: number) => {
    code += source.slice(at, end).replace(/[^\n]/g, " ");
    at = end;
  };
  const keep = (length: number) => {
    code += source.slice(at, at + length);
    at += length;
  };
  const endOf = (pattern: RegExp) => {
    pattern.lastIndex = at;
    const found = pattern.exec(source);
    return found ? found.index : source.length;
  };

  /** Reads from inside a template literal to its end or to the next `${`. */
  const readTemplate = (before: string) => {
    const end = endOf(/(?<!\\)(?:\\\\)*(?:`|\$\{)/g);
    let stop = end;
    while (source[stop] === "\\") stop++;
    const all = before + source.slice(at, stop);
    blank(stop);
    if (source[at] === "`" || at >= source.length) {
      strings.push(all);
      keep(1);
    } else {
      keep(2);
      templates.push({ depth: 0, read: all });
    }
  };

  while (at < source.length) {
    const char = source[at];
    const pair = source.slice(at, at + 2);
    const template = templates.at(-1);
    if (pair === "//") blank(endOf(/\n/g));
    else if (pair === "/*") blank(Math.min(source.indexOf("*/", at + 2) + 2 || source.length, source.length));
    else if (char === '"' || char === "'") {
      const literal = new RegExp(`${char}((?:[^${char}\\\\\\n]|\\\\[\\s\\S])*)${char}`, "y");
      literal.lastIndex = at;
      const content = literal.exec(source)?.[1];
      keep(1);
      // A quote that is not closed on its line is an apostrophe in a page's text: "don't".
      if (content === undefined) continue;
      strings.push(content);
      blank(at + content.length);
      keep(1);
    } else if (char === "`") {
      keep(1);
      readTemplate("");
    } else if (char === "/" && beforeRegExp.test(code.slice(-20))) {
      const literal = /\/(?:[^\\/\n[]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y;
      literal.lastIndex = at;
      const found = literal.exec(source)?.[0];
      if (found) {
        regExps.push(found);
        blank(at + found.length);
      } else keep(1);
    } else if (template && char === "{") {
      template.depth++;
      keep(1);
    } else if (template && char === "}" && template.depth-- === 0) {
      templates.pop();
      keep(1);
      readTemplate(template.read);
    } else keep(1);
  }
  return { code, strings, regExps };
}
