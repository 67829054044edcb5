import { type Command, Option } from "commander";
import { ExistsError, InputError } from "../errors.ts";
import { type Allotment, grantAllotment, listAllotments, withdrawAllotment } from "../ledger/allotments_store.ts";
import {
  assignPackage,
  endPackage,
  findPackage,
  listPackages,
  type Package,
  type PayWith,
  payerOf,
} from "../ledger/packages_store.ts";
import { type Context, defineCommand } from "./context.ts";
import { offeringOf } from "./offering_commands.ts";
import { accountOf, idOf, integer } from "./options.ts";
import { facts, type Output, table, withMore } from "./output.ts";

/** The commands `package` and `allotment`. */

const PAID_BY = { reseller: "balance", operator: "operator" } as const;

export function addPackageCommands(program: Command): void {
  const command = program.command("package").description("packages of an account");
  addAssign(command);
  addList(command);
  addEnd(command);
}

function addAssign(command: Command): void {
  defineCommand<{
    offering: string;
    after?: true;
    paidBy?: "reseller" | "operator";
    allotment?: true;
    ifMissing?: true;
  }>(
    command
      .command("assign <account>")
      .description("assign an offering; it replaces the active package, whose unused requests are dropped")
      .requiredOption("--offering <offering>", "by id or name")
      .option("--after", "queue it after the packages that the account has")
      .addOption(
        new Option(
          "--paid-by <payer>",
          "whose balance pays the wholesale price (default: the reseller's, if there is one)",
        ).choices(["reseller", "operator"]),
      )
      .option("--allotment", "use one package of the reseller's allotment instead of its balance"),
    { changes: true, adds: true },
    async (context, { offering, after, paidBy, allotment, ifMissing }, [reference]) => {
      if (allotment && paidBy === "operator")
        throw new InputError("An allotment belongs to a reseller: do not use --paid-by operator with it.");
      const account = await accountOf(context, reference);
      const { offeringId } = await offeringOf(context, offering);
      const payWith: PayWith | undefined = allotment ? "allotment" : paidBy && PAID_BY[paidBy];
      if (ifMissing && (await listPackages(context, account.accountId)).some(({ state }) => state !== "ended"))
        throw new ExistsError("The account has an active or queued package already.");
      const assigned = await assignPackage(context, {
        accountId: account.accountId,
        offeringId,
        when: after ? "after" : "now",
        ...payerOf(account, payWith),
        actorId: null,
      });
      return showAssigned(assigned, await replacedBy(context, assigned));
    },
  );
}

/** What an assigned package replaced: it ended the moment that the other one started. */
async function replacedBy(context: Context, { accountId, packageId, startsAt }: Package): Promise<Package[]> {
  const all = await listPackages(context, accountId);
  return all.filter((row) => row.packageId !== packageId && row.endedEarly === "replaced" && row.endsAt === startsAt);
}

function showAssigned(assigned: Package, replaced: readonly Package[]): Output {
  const { text, json } = showPackage(assigned);
  const lines = replaced.map(
    ({ packageId, name, unitsDropped }) =>
      `It replaced package ${packageId} (${name}): ${unitsDropped} unused requests were dropped.`,
  );
  return { text: [text, ...lines].join("\n"), json: { ...Object(json), replaced } };
}

function addList(command: Command): void {
  defineCommand(
    command.command("list <account>").description("list the packages of an account, latest first"),
    {},
    async (context, _options, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      const rows = await listPackages(context, accountId);
      const text = table(
        ["ID", "NAME", "STATE", "STARTS", "ENDS", "USED", "RESERVED", "TOTAL", "DAILY", "PAID BY"],
        rows.map((row) => [
          String(row.packageId),
          row.name,
          row.endedEarly ? `${row.endedEarly}, ${row.unitsDropped} dropped` : row.state,
          row.startsAt,
          row.endsAt,
          String(row.unitsUsed),
          String(row.unitsHeld),
          String(row.totalLimit),
          `${row.dailyLimit}${row.carryover ? ", carryover" : ""}`,
          whoPaid(row),
        ]),
        "The account has no packages.",
      );
      return { text, json: { packages: rows } };
    },
  );
}

function addEnd(command: Command): void {
  defineCommand(
    command.command("end <package-id>").description("end an active or queued package now; later ones move up"),
    { changes: true },
    async (context, _options, [id]) => {
      const packageId = idOf(id, "package's id");
      const found = await findPackage(context, packageId);
      if (!found) throw new InputError(`There is no package ${packageId}.`);
      return showPackage(await endPackage(context, { accountId: found.accountId, packageId }));
    },
  );
}

function showPackage(row: Package): Output {
  const text = facts([
    ["package", String(row.packageId)],
    ["account", String(row.accountId)],
    ["name", row.name],
    ["state", row.endedEarly ? `ended, ${row.unitsDropped} requests dropped` : row.state],
    ["runs", `${row.startsAt} to ${row.endsAt} (${row.timeZone})`],
    ["quota", `${row.dailyLimit} a day${row.carryover ? ", carryover" : ""}, ${row.totalLimit} in total`],
    ["paid by", whoPaid(row)],
  ]);
  return { text, json: row };
}

function whoPaid({ paidByAccountId, allotmentId }: Package): string {
  if (paidByAccountId === null) return "operator";
  return allotmentId === null ? `account ${paidByAccountId}` : `account ${paidByAccountId}, allotment ${allotmentId}`;
}

export function addAllotmentCommands(program: Command): void {
  const command = program.command("allotment").description("packages that a reseller may assign without paying");

  defineCommand<{ offering: string; pieces: number; reason: string }>(
    command
      .command("grant <reseller>")
      .description("grant a reseller a number of packages of an offering")
      .requiredOption("--offering <offering>", "by id or name")
      .requiredOption("--pieces <number>", "number of packages, 1 to 100000", integer)
      .requiredOption("--reason <text>", "reason, recorded with the grant"),
    { changes: true },
    async (context, { offering, pieces, reason }, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      const { offeringId } = await offeringOf(context, offering);
      const granted = await grantAllotment(context, {
        resellerId: accountId,
        offeringId,
        pieces,
        reason,
        actorId: null,
      });
      return { text: allotmentTable([granted]), json: granted };
    },
  );

  defineCommand<{ reseller?: string; before?: number; limit: number }>(
    command
      .command("list")
      .description("list grants, newest first")
      .option("--reseller <account>", "only grants to this reseller, by id or e-mail address")
      .option("--limit <count>", "number of rows, at most 100", integer, 100)
      .option("--before <id>", "only grants older than this one: the last id of the previous page", integer),
    {},
    async (context, { reseller, before, limit }) => {
      const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
      const { rows, hasMore } = await listAllotments(context, { resellerId, before, limit });
      const lines = allotmentTable(rows);
      const text = withMore(lines, hasMore, `--before ${rows.at(-1)?.allotmentId}`);
      return { text, json: { allotments: rows, hasMore } };
    },
  );

  defineCommand(
    command.command("withdraw <allotment-id>").description("take back the packages that are not yet assigned"),
    { changes: true },
    async (context, _options, [id]) => {
      const { allotment, withdrawn } = await withdrawAllotment(context, idOf(id, "allotment's id"));
      return { text: `${withdrawn} packages taken back.`, json: { ...allotment, withdrawn } };
    },
  );
}

function allotmentTable(rows: readonly Allotment[]): string {
  return table(
    ["ID", "RESELLER", "OFFERING", "GRANTED", "USED", "LEFT", "GRANTED AT", "REASON"],
    rows.map((row) => [
      String(row.allotmentId),
      row.resellerName,
      row.offeringName,
      String(row.granted),
      String(row.used),
      String(row.left),
      row.createdAt,
      row.reason ?? "",
    ]),
    "No grants.",
  );
}
