import type { Command } from "commander";
import { dropMonths, monthsToDrop } from "../books/dropped_months_store.ts";
import { exportMonth, verifyFiles } from "../books/receipt_files.ts";
import { type MonthProblem, verifySeals } from "../books/seal_check_store.ts";
import {
  CLOSED_AFTER_DAYS,
  type ClosedMonth,
  listClosedMonths,
  listOpenMonths,
  noteExported,
  type Seal,
  sealDue,
} from "../books/seals_store.ts";
import { openSlices, type Slices } from "../books/short_transactions_store.ts";
import { InputError } from "../errors.ts";
import { type Context, defineCommand } from "./context.ts";
import { parsedBy } from "./options.ts";
import { type Output, table } from "./output.ts";
import { progressOf } from "./progress.ts";

/** The command `retention`: seals of months of receipts, their files, and dropping them. */

export function addRetentionCommands(program: Command): void {
  const retention = program.command("retention").description("seal, export and drop the receipts of past months");
  addStatus(retention);
  addSeal(retention);
  addExport(retention);
  addDrop(retention);
  addVerify(retention);
}

const slicesOf = ({ db }: Context): Slices => openSlices(db.sql, { onSlice: progressOf("receipts") });

const MONTH = /^\d{4}-(?:0[1-9]|1[0-2])$/;
const month = parsedBy((text) => {
  if (!MONTH.test(text)) throw new InputError("A month looks like 2030-01.");
  return text;
});

function addStatus(retention: Command): void {
  defineCommand(
    retention.command("status").description("list the months of receipts and their seals"),
    {},
    async ({ db }) => {
      const closed = await listClosedMonths(db.sql);
      const open = await listOpenMonths(db.sql);
      const rows = [
        ...closed.map((one) => [one.month, String(one.receipts), stateOf(one), one.seal?.seal ?? ""]),
        ...open.map(({ month, isDue }) => [
          ...[month, "", isDue ? "to be sealed" : `open: it is closed ${CLOSED_AFTER_DAYS} days after its end`, ""],
        ]),
      ];
      return {
        text: table(["MONTH", "RECEIPTS", "STATE", "SEAL"], rows, "No month is over yet."),
        json: { closed, open },
      };
    },
  );
}

function stateOf({ seal, exportedAt, droppedAt }: ClosedMonth): string {
  if (seal === null) return "closed, being sealed";
  const exported = exportedAt === null ? "" : `, exported ${exportedAt}`;
  return droppedAt === null ? `sealed ${seal.sealedAt}${exported}` : `dropped ${droppedAt}${exported}`;
}

function addSeal(retention: Command): void {
  defineCommand(
    retention.command("seal").description(`seal the months that ended ${CLOSED_AFTER_DAYS} days ago or earlier`),
    {},
    async (context) => {
      const sealed = await sealDue(slicesOf(context));
      const rows = sealed.map(({ month, receipts, seal }) => [month, String(receipts), seal]);
      return { text: table(["MONTH", "RECEIPTS", "SEAL"], rows, "No month is due."), json: { sealed } };
    },
  );
}

function addExport(retention: Command): void {
  defineCommand<{ to: string; month?: string }>(
    retention
      .command("export")
      .description("write the receipts of sealed months to files, and compare these with the seals")
      .requiredOption("--to <folder>", "where the files go; an interrupted export goes on there")
      .option("--month <month>", "only this month; default: all that are sealed and not dropped", month),
    {},
    async (context, { to: folder, month }) => {
      const slices = slicesOf(context);
      const exported: string[] = [];
      for (const seal of sealsToExport(await listClosedMonths(context.db.sql), month)) {
        const isThere = (await verifyFiles(slices, { seal, folder })).length === 0;
        if (!isThere) await exportMonth(slices, { seal, folder });
        const problems = isThere ? [] : await verifyFiles(slices, { seal, folder });
        if (problems.length > 0) return shown(problems, "");
        await noteExported(context.db.sql, seal.month);
        exported.push(seal.month);
      }
      const text =
        exported.length === 0 ? "No sealed month has receipts." : `Exported to ${folder}: ${exported.join(", ")}.`;
      return { text, json: { exported, folder } };
    },
  );
}

/** Throws InputError if the month that is asked for has no seal, or its receipts were dropped. */
function sealsToExport(closed: readonly ClosedMonth[], asked: string | undefined): Seal[] {
  const seals = closed.flatMap(({ seal, droppedAt }) => (seal === null || droppedAt !== null ? [] : [seal]));
  if (asked === undefined) return seals;
  const found = seals.filter(({ month }) => month === asked);
  if (found.length === 0)
    throw new InputError(`${asked} is not sealed, or its receipts were dropped: see retention status.`);
  return found;
}

function addDrop(retention: Command): void {
  defineCommand<{ upTo?: string; files?: string | false }>(
    retention
      .command("drop")
      .description("drop the receipts of sealed months; their totals stay. Without --up-to it shows them")
      .option("--up-to <month>", "this month and all before it", month)
      .option("--files <folder>", "where their files are, which are compared with the seals first")
      .option("--no-files", "their receipts are not needed any more"),
    {},
    async (context, { upTo, files }) => {
      const closed = await listClosedMonths(context.db.sql);
      if (upTo === undefined) {
        const months = monthsToDrop(closed, "9999-12").map(({ month }) => month);
        const text = months.length === 0 ? "No sealed month has receipts." : `Could be dropped: ${months.join(", ")}.`;
        return { text, json: { months } };
      }
      const unsealed = closed.find(({ month, seal }) => month <= upTo && seal === null);
      const due = monthsToDrop(closed, upTo);
      if (unsealed || closed.every(({ month }) => month < upTo))
        throw new InputError(`${unsealed?.month ?? upTo} is not sealed: see retention status.`);
      if (typeof files !== "string" && files !== false)
        throw new InputError("Say where the files of these months are, with --files, or --no-files.");
      const slices = slicesOf(context);
      if (typeof files === "string")
        for (const { seal } of due) {
          const problems = seal === null ? [] : await verifyFiles(slices, { seal, folder: files });
          if (problems.length > 0) return shown(problems, "");
        }
      const isExportUsed = context.config.receiptExport !== undefined;
      const { months, stoppedBy } = await dropMonths(slices, { isExportUsed, upTo });
      const text = months.length === 0 ? "Nothing was dropped." : `Dropped: ${months.join(", ")}.`;
      if (stoppedBy) return { ...shown([stoppedBy], text), json: { months, problems: [stoppedBy] } };
      return { text, json: { months, problems: [] } };
    },
  );
}

function addVerify(retention: Command): void {
  defineCommand<{ files?: string }>(
    retention
      .command("verify")
      .description("compare all seals with their receipts and totals; exits with 1 if something differs")
      .option("--files <folder>", "also compare the files there"),
    {},
    async (context, { files }) => {
      const { problems, months } = await verifyAll(slicesOf(context), context, files);
      return shown(problems, `${months} sealed months are unchanged.`);
    },
  );
}

/** Every seal, and the files in a folder: of each sealed month, if it is given. */
export async function verifyAll(
  slices: Slices,
  { db }: Context,
  folder: string | undefined,
): Promise<{ problems: MonthProblem[]; months: number }> {
  const problems = await verifySeals(slices);
  const seals = (await listClosedMonths(db.sql)).flatMap(({ seal, exportedAt }) =>
    seal === null || exportedAt === null ? [] : [seal],
  );
  if (folder !== undefined) for (const seal of seals) problems.push(...(await verifyFiles(slices, { seal, folder })));
  return { problems, months: (await listClosedMonths(db.sql)).filter(({ seal }) => seal !== null).length };
}

function shown(problems: readonly MonthProblem[], good: string): Output {
  const lines = problems.map(({ month, problem }) => `${month}: ${problem}`);
  return {
    text: [...(good === "" || problems.length > 0 ? [] : [good]), ...lines].join("\n"),
    json: { problems },
    exitCode: problems.length > 0 ? 1 : 0,
  };
}
