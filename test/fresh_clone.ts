import { cpSync, readFileSync } from "node:fs";
import { dirname, join, relative } from "node:path";

const repository = dirname(import.meta.dirname);
/** Not in a clone: git's own folder, and ignored files. */
const NOT_CLONED = [".git", ...readFileSync(join(repository, ".gitignore"), "utf8").split("\n")]
  .map((line) => line.trim().replace(/\/$/, ""))
  .filter((line) => line !== "");

/** Copies this repository to `place` like `git clone`: without dependencies or build output. */
export function freshClone(place: string): string {
  cpSync(repository, place, {
    recursive: true,
    filter: (path) => !NOT_CLONED.includes(relative(repository, path)),
  });
  return place;
}
