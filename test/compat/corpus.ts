import { Glob } from "bun";
import type { Entry } from "./form.ts";

/** `file`: as in `providers/azure.ts`. */
export type CorpusFile = { file: string; entries: readonly Entry[] };

/** All exchanges, by the file that they are in. `folder`: only those of providers, or of clients. */
export async function corpusOf(folder: "providers" | "clients" | "*" = "*"): Promise<CorpusFile[]> {
  const files = [
    ...new Glob(`${folder === "*" ? "{providers,clients}" : folder}/*.ts`).scanSync({ cwd: import.meta.dirname }),
  ].sort();
  return Promise.all(
    files.map(async (file) => ({ file, entries: (await import(`./${file}`)).default as readonly Entry[] })),
  );
}
