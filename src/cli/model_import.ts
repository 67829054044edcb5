import { readFile, stat } from "node:fs/promises";
import { basename } from "node:path";
import { createInterface } from "node:readline";
import type { Command } from "commander";
import type { FieldChange, ImportItem } from "../catalog/price_diff.ts";
import type { Imported, ImportPreview } from "../catalog/price_import_store.ts";
import { PRICE_FILE_BYTES_MAX, parsePriceList } from "../catalog/price_list.ts";
import { InputError } from "../errors.ts";
import { applyPriceImport, previewPriceImport } from "../operations/price_imports.ts";
import { defineOperations } from "./door.ts";
import { formatPrice } from "./money.ts";
import { list } from "./options.ts";
import { facts, type Output } from "./output.ts";
import { terminal } from "./terminal.ts";

/** The command `model import`: shows the changes that a price list would make, asks, and applies exactly these. */

const NOTHING: Imported = { added: [], changed: [] };
const MODELS_IN_A_LINE_MAX = 20;

type ImportOptions = {
  provider: string[];
  markup: string;
  models?: string[];
  new?: true;
  file?: string;
  yes?: true;
  json?: true;
};

export function addImport(model: Command): void {
  defineOperations<ImportOptions>(
    model
      .command("import")
      .description(
        "compare prices, context lengths and status with a price list; show the differences, and apply them if you agree",
      )
      .requiredOption(
        "--provider <id>",
        "provider of the price list, as in openai; repeat or use commas for more",
        list,
      )
      .option("--markup <percent>", "what to add to its prices, as in 20 or 12.5", "0")
      .option("--models <ids>", "only these; those that the catalog does not have are added, disabled", list)
      .option("--new", "without --models: also add every model of the provider, disabled")
      .option("--file <path>", "a price list in JSON instead of the installed one")
      .option("--yes", "apply the differences without asking"),
    { changes: true },
    async (ask, { provider, markup, models, new: addsNew, file, yes, json }, _, doorWith) => {
      if (models && addsNew) throw new InputError("Give --models or --new, not both.");
      if (file !== undefined && doorWith === undefined)
        throw new InputError("A server uses its installed price list: leave out --file, or use the database.");
      const priceList = file === undefined ? undefined : await parsePriceList(await readText(file), basename(file));
      const door = doorWith?.({ priceList }) ?? ask;
      const request = { providers: trimmed(provider), markup };
      const preview = await door(previewPriceImport, { ...request, models: models && trimmed(models), addsNew });
      const confirmed = preview.items.filter(({ kind }) => kind === "new" || kind === "changed");
      const text = describe(preview, { markup, addsNew: addsNew === true || models !== undefined });
      // With --json, the document is the only output, so no question is asked.
      if (!json) terminal().out(`${text}\n\n`);
      const isApplied = confirmed.length > 0 && (yes === true || (!json && (await isAgreed(confirmed.length))));
      const imported = isApplied
        ? await door(applyPriceImport, {
            ...request,
            confirmed: confirmed.map(({ modelId, digest }) => ({ modelId, digest })),
          })
        : NOTHING;
      return outputOf(preview, { ...imported, isApplied });
    },
  );
}

function trimmed(names: readonly string[]): string[] {
  return names.map((name) => name.trim()).filter((name) => name !== "");
}

/** The file as text. A file that is too large is not read. */
async function readText(path: string): Promise<string> {
  const size = await stat(path).then(
    (found) => (found.isFile() ? found.size : undefined),
    () => undefined,
  );
  if (size === undefined) throw new InputError(`The file ${path} cannot be read.`);
  if (size > PRICE_FILE_BYTES_MAX)
    throw new InputError(`The file ${path} is larger than ${PRICE_FILE_BYTES_MAX / 1e6} MB.`);
  return await readFile(path, "utf8").catch(() => {
    throw new InputError(`The file ${path} cannot be read.`);
  });
}

/** Asks on stderr. The end of the input means no. */
async function isAgreed(count: number): Promise<boolean> {
  const { stdin, err } = terminal();
  const lines = createInterface({ input: stdin });
  err(`Apply to ${modelsText(count)}? (y/N) `);
  const answer = await new Promise<string>((resolve) => lines.once("line", resolve).once("close", () => resolve("")));
  lines.close();
  return /^y(es)?$/i.test(answer.trim());
}

function outputOf({ source, items, newModels }: ImportPreview, result: Imported & { isApplied: boolean }): Output {
  const { isApplied, added, changed } = result;
  const text = isApplied
    ? `${modelsText(changed.length)} changed, ${modelsText(added.length)} added${added.length > 0 ? ": give them routes with model route, then enable them with model set --enable" : ""}.`
    : "Nothing was changed.";
  return { text, json: { source, items, newModels, applied: isApplied, added, changed } };
}

function modelsText(count: number): string {
  return count === 1 ? "1 model" : `${count} models`;
}

/** The comparison for people: new and changed models, those that cannot be imported and why, and unchanged ones. */
function describe(
  { source, items, newModels }: ImportPreview,
  { markup, addsNew }: { markup: string; addsNew: boolean },
): string {
  const of = (kind: ImportItem["kind"]) => items.filter((item) => item.kind === kind);
  const unchanged = of("unchanged");
  const others = unchanged.length - MODELS_IN_A_LINE_MAX;
  const parts = [
    `${source}, plus ${markup}%`,
    ...section("New, disabled until you enable them:", of("new")),
    ...section("Changed:", of("changed")),
    ...section("Cannot be imported:", of("unmapped")),
    ...(unchanged.length === 0
      ? []
      : [
          `Unchanged: ${unchanged
            .slice(0, MODELS_IN_A_LINE_MAX)
            .map(({ modelId }) => modelId)
            .join(", ")}${others > 0 ? `, and ${others} more` : ""}`,
        ]),
    ...(newModels > 0 && !addsNew
      ? [`Not in the catalog: ${modelsText(newModels)}. Name them with --models, or give --new.`]
      : []),
  ];
  return parts.join("\n\n");
}

function section(title: string, items: readonly ImportItem[]): string[] {
  return items.length === 0 ? [] : [[title, ...items.map(describeItem)].join("\n")];
}

function describeItem({ modelId, listed, changes, notes, reason }: ImportItem): string {
  const title = `  ${modelId}${listed === null ? "" : ` (${listed})`}`;
  if (reason !== null) return `${title}: ${reason}`;
  const rows = changes.map(
    ({ label, unit, from, to }) => [`    ${label}`, `${amountText(from, unit)} → ${amountText(to, unit)}`] as const,
  );
  return [title, ...(rows.length > 0 ? [facts(rows)] : []), ...notes.map((note) => `    ${note}`)].join("\n");
}

function amountText(value: number | string | null, unit: FieldChange["unit"]): string {
  if (value === null) return "none";
  if (typeof value === "string") return value;
  if (unit === "tokens") return value.toLocaleString("en-US");
  return `${formatPrice(value)}${unit === "per_million" ? "/M" : ""}`;
}
