import { readFileSync, writeFileSync } from "node:fs";

/** Puts figures into a page between `<!-- name -->` and `<!-- /name -->`. Throws when the page has no such place. */
export function writeFigures(file: string, name: string, text: string): void {
  const { page, from, to } = placeIn(file, name);
  writeFileSync(file, `${page.slice(0, from)}\n\n${text}\n${page.slice(to)}`);
}

/** Throws when there is no such page, or no such place in it. */
export function checkPlace(file: string, name: string): void {
  placeIn(file, name);
}

function placeIn(file: string, name: string): { page: string; from: number; to: number } {
  const page = readFileSync(file, "utf8");
  const [start, end] = [`<!-- ${name} -->`, `<!-- /${name} -->`];
  const [from, to] = [page.indexOf(start) + start.length, page.indexOf(end)];
  if (from < start.length || to < from) throw new Error(`${file} has no ${start} and ${end} behind it`);
  return { page, from, to };
}
