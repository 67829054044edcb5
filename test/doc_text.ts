/** Parses Markdown for tests: code blocks, commands, links, headings. Pure. */

export type Block = {
  /** The first word after the fence, and the rest of that line. */
  language: string;
  mark: string;
  text: string;
  /** The number of its first line, from 1. */
  line: number;
};

/** Fenced blocks, including those in lists, without their indentation. Throws Error for a block that is not closed. */
export function blocksOf(document: string): Block[] {
  const blocks: Block[] = [];
  let open: (Block & { indent: number; lines: string[] }) | undefined;
  document.split("\n").forEach((line, i) => {
    const fence = /^( *)```(\S*) ?(.*)$/.exec(line);
    if (open === undefined) {
      if (!fence) return;
      const [, indent = "", language = "", mark = ""] = fence;
      open = { language, mark: mark.trim(), text: "", line: i + 2, indent: indent.length, lines: [] };
    } else if (fence) {
      const { language, mark, line: first, lines } = open;
      blocks.push({ language, mark, line: first, text: lines.join("\n") });
      open = undefined;
    } else {
      open.lines.push(line.slice(open.indent));
    }
  });
  if (open) throw new Error(`the block at line ${open.line} is not closed`);
  return blocks;
}

/** The document without its fenced blocks. */
export function proseOf(document: string): string {
  return document.replace(/^( *)```[\s\S]*?^ *```$/gm, "");
}

/** A heading and the text below it, up to the next heading of its level or above. Throws Error if there is no such heading. */
export function sectionOf(document: string, heading: string): string {
  const lines = document.split("\n");
  const start = lines.findIndex((line) => /^#{1,6} /.test(line) && line.replace(/^#+ /, "") === heading);
  if (start < 0) throw new Error(`there is no heading "${heading}"`);
  const level = /^#+/.exec(lines[start] ?? "")?.[0].length ?? 0;
  let inBlock = false;
  const end = lines.findIndex((line, i) => {
    if (/^ *```/.test(line)) inBlock = !inBlock;
    return i > start && !inBlock && new RegExp(`^#{1,${level}} `).test(line);
  });
  return lines.slice(start, end < 0 ? undefined : end).join("\n");
}

/** The commands of a shell text, without comments; continued lines are joined. For texts without control structures. */
export function commandsOf(text: string): string[] {
  return text
    .replace(/\\\n\s*/g, "")
    .split("\n")
    .flatMap((line) => withoutComment(line).split(/&&|;|\|/))
    .map((command) => command.trim())
    .filter((command) => command !== "");
}

function withoutComment(line: string): string {
  let quote = "";
  for (let i = 0; i < line.length; i++) {
    const char = line[i] ?? "";
    if (quote !== "") quote = char === quote ? "" : quote;
    else if (char === '"' || char === "'") quote = char;
    else if (char === "#" && (i === 0 || /\s/.test(line[i - 1] ?? ""))) return line.slice(0, i);
  }
  return line;
}

/** Relative links of a document: `[text](target)` and `src="target"`. */
export function relativeLinksOf(document: string): string[] {
  const text = proseOf(document).replace(/`[^`\n]*`/g, "");
  const inText = [...text.matchAll(/\]\(([^)\s]+)\)/g)].map(([, target = ""]) => target);
  const inTags = [...text.matchAll(/\b(?:src|srcset|href)="([^"]+)"/g)].map(([, target = ""]) => target);
  return [...inText, ...inTags].filter((target) => !/^(?:[a-z]+:|\/\/)/i.test(target));
}

/** The anchors that GitHub gives a document's headings. */
export function anchorsOf(document: string): Set<string> {
  const seen = new Map<string, number>();
  const headings = [...proseOf(document).matchAll(/^#{1,6} +(.+?) *$/gm)].map(([, heading = ""]) => heading);
  return new Set(
    headings.map((heading) => {
      const words = heading.replace(/\[([^\]]*)\]\([^)]*\)/g, "$1").toLowerCase();
      const slug = words.replace(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-");
      const times = seen.get(slug) ?? 0;
      seen.set(slug, times + 1);
      return times === 0 ? slug : `${slug}-${times}`;
    }),
  );
}
