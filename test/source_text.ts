/** Tells code from text in TypeScript source, well enough for the house rules: no parser, no dependency. */

export interface SourceText {
  /** As long as the source: comments and the contents of strings are spaces, quotes stay. */
  code: string;
  /** Contents of the string and template literals, `${…}` left out. */
  strings: string[];
  /** Regular expressions as written, with their flags. */
  regExps: string[];
}

/** After one of these a slash begins a regular expression, not a division. */
const beforeRegExp = /(?:^|[=(,:[!&|?{};>\n]|\breturn|\bcase|\btypeof)\s*$/;

export function codeAndStrings(source: string): SourceText {
  let code = "";
  const strings: string[] = [];
  const regExps: string[] = [];
  /** For each open template the depth of braces inside its `${`, and what of it was read before. */
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

  /** From inside a template to its end or to the next `${`. */
  const readTemplate = (read: string) => {
    const end = endOf(/(?<!\\)(?:\\\\)*(?:`|\$\{)/g);
    let stop = end;
    while (source[stop] === "\\") stop++;
    const all = read + source.slice(at, stop);
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
      // A quote without a partner on its line stands in the text of a page: "don't".
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
