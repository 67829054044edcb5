/** Looks at the imports of all files together: which files import each other in a circle, and which files nothing uses. */
import { posix } from "node:path";
import { imports, relativeImports, type SourceFile } from "./house_rules.ts";
import { codeAndStrings } from "./source_text.ts";

/**
 * The circles of imports, type imports included: each is a set of files that all reach each other (a strongly connected
 * component, by Tarjan's algorithm).
 */
export function importCircles(files: readonly SourceFile[]): string[][] {
  const paths = new Set(files.map(({ path }) => path));
  const targetsOf = new Map(
    files.map(({ path, text }) => [
      path,
      relativeImports(path, text).flatMap(({ target }) => (paths.has(target) ? target : [])),
    ]),
  );
  const indexes = new Map<string, number>();
  const stack: string[] = [];
  const circles: string[][] = [];
  /** Returns the lowest index on the stack that `path` reaches. */
  const visit = (path: string): number => {
    const index = indexes.size;
    let lowest = index;
    indexes.set(path, index);
    stack.push(path);
    for (const target of targetsOf.get(path) ?? []) {
      const seen = indexes.get(target);
      if (seen === undefined) lowest = Math.min(lowest, visit(target));
      else if (stack.includes(target)) lowest = Math.min(lowest, seen);
    }
    if (lowest === index) {
      const circle = stack.splice(stack.indexOf(path));
      if (circle.length > 1) circles.push(circle.sort());
    }
    return lowest;
  };
  for (const path of paths) if (!indexes.has(path)) visit(path);
  return circles;
}

/** A test reads all files of these folders. */
const READ_BY_FOLDER = /^test\/compat\/(?:providers|clients)\//;

/**
 * Files that no other file uses: not imported, not named in a string (workers, child processes and bundles are started so: by
 * file name, or within a folder by the name without its extension), and not named in `mentions`, the texts that name entries.
 * Test files and declarations (`.d.ts`) are found by their names.
 */
export function unusedFiles(files: readonly SourceFile[], mentions: readonly string[]): string[] {
  const used = new Set<string>();
  const fileNames = new Set<string>();
  for (const { path, text } of files) {
    const folder = posix.dirname(path);
    for (const { target } of relativeImports(path, text)) used.add(target);
    for (const string of codeAndStrings(text).strings) {
      if (/\.tsx?$/.test(string)) fileNames.add(posix.basename(string));
      else if (/^[\w/-]+$/.test(string)) used.add(`${posix.join(folder, string)}.ts`);
    }
  }
  return files
    .map(({ path }) => path)
    .filter((path) => !/\.(?:test\.tsx?|d\.ts)$/.test(path))
    .filter((path) => !READ_BY_FOLDER.test(path))
    .filter((path) => !used.has(path) && !fileNames.has(posix.basename(path)))
    .filter((path) => !mentions.some((text) => text.includes(path)));
}

/** The packages that a process loads when it starts with `entry`: those that import() names are loaded later. */
export function packagesAtStart(files: readonly SourceFile[], entry: string): Set<string> {
  const texts = new Map(files.map(({ path, text }) => [path, text]));
  const seen = new Set([entry]);
  const packages = new Set<string>();
  // A set also iterates over what is added meanwhile.
  for (const path of seen)
    for (const { from, isType, isCall } of imports(texts.get(path) ?? "")) {
      if (isType || isCall) continue;
      if (from.startsWith(".")) seen.add(posix.join(posix.dirname(path), from));
      else packages.add(from);
    }
  return packages;
}
