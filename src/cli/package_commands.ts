import type { StaticDecode } from "@sinclair/typebox";
import { type Command, Option } from "commander";
import { ExistsError, InputError } from "../errors.ts";
import type { Allotment } from "../ledger/allotments_store.ts";
import {
  assignPackage,
  endPackage,
  getHoldings,
  grantAllotment,
  listAllotments,
  type PackageShape,
  withdrawAllotment,
} from "../operations/packages.ts";
import { accountBy, defineOperations, offeringBy, orNone } from "./door.ts";
import { idOf, integer } from "./options.ts";
import { facts, type Output, table, withMore } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The commands `package` and `allotment`. */

const PAID_BY = { reseller: "balance", operator: "operator" } as const;
const WHO_PAID = { operator: "operator", balance: "the reseller's balance", allotment: "the reseller's allotment" };

type Package = StaticDecode<typeof PackageShape>;

export function addPackageCommands(program: Command): void {
  const command = program.command("package").description("packages of an account");
  addAssign(command);
  addList(command);
  addEnd(command);
}

function addAssign(command: Command): void {
  defineOperations<{
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
    async (ask, { offering, after, paidBy, allotment, ifMissing }, [reference]) => {
      if (allotment && paidBy === "operator")
        throw new InputError("An allotment belongs to a reseller: do not use --paid-by operator with it.");
      const { accountId } = await accountBy(ask, reference);
      const { offeringId } = await offeringBy(ask, offering);
      if (ifMissing && (await packagesOf(ask, accountId)).some(({ state }) => state !== "ended"))
        throw new ExistsError("The account has an active or queued package already.");
      const { package: assigned } = await ask(assignPackage, {
        accountId,
        offeringId,
        when: after ? "after" : "now",
        payWith: allotment ? "allotment" : paidBy && PAID_BY[paidBy],
      });
      return showAssigned(assigned, await replacedBy(ask, assigned));
    },
  );
}

async function packagesOf(ask: Door, accountId: number): Promise<Package[]> {
  return (await ask(getHoldings, { accountId })).packages;
}

/** What an assigned package replaced: it ended the moment that the other one started. */
async function replacedBy(ask: Door, { accountId, packageId, startsAt }: Package): Promise<Package[]> {
  const all = await packagesOf(ask, accountId);
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
  defineOperations(
    command
      .command("list <account>")
      .description("list the packages of an account, latest first; of those that ended, the last ones"),
    {},
    async (ask, _options, [reference]) => {
      const rows = await packagesOf(ask, (await accountBy(ask, reference)).accountId);
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
  defineOperations(
    command
      .command("end <account> <package-id>")
      .description("end an active or queued package of an account now; later ones move up"),
    { changes: true },
    async (ask, _options, [reference, id]) => {
      const { accountId } = await accountBy(ask, reference);
      const packageId = idOf(id, "package's id");
      const ended = ask(endPackage, { accountId, packageId });
      return showPackage((await orNone(ended, `The account has no package ${packageId}.`)).package);
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

function whoPaid({ paidWith }: Package): string {
  return WHO_PAID[paidWith ?? "operator"];
}

export function addAllotmentCommands(program: Command): void {
  const command = program.command("allotment").description("packages that a reseller may assign without paying");

  defineOperations<{ offering: string; pieces: number; reason: string }>(
    command
      .command("grant <reseller>")
      .description("grant a reseller a number of packages of an offering")
      .requiredOption("--offering <offering>", "by id or name")
      .requiredOption("--pieces <number>", "number of packages, 1 to 100000", integer)
      .requiredOption("--reason <text>", "reason, recorded with the grant"),
    { changes: true },
    async (ask, { offering, pieces, reason }, [reference]) => {
      const { accountId: resellerId } = await accountBy(ask, reference);
      const { offeringId } = await offeringBy(ask, offering);
      const { allotment } = await ask(grantAllotment, { resellerId, offeringId, pieces, reason });
      return { text: allotmentTable([allotment]), json: allotment };
    },
  );

  defineOperations<{ reseller?: string; before?: number; limit: number }>(
    command
      .command("list")
      .description("list grants, newest first")
      .option("--reseller <account>", "only grants to this reseller, by id or e-mail address")
      .option("--limit <count>", "number of rows, at most 100", integer, 100)
      .option("--before <id>", "only grants older than this one: the last id of the previous page", integer),
    {},
    async (ask, { reseller, before, limit }) => {
      const resellerId = reseller === undefined ? undefined : (await accountBy(ask, reseller)).accountId;
      const { rows, hasMore } = await ask(listAllotments, { resellerId, before, limit });
      const lines = allotmentTable(rows);
      const text = withMore(lines, hasMore, `--before ${rows.at(-1)?.allotmentId}`);
      return { text, json: { allotments: rows, hasMore } };
    },
  );

  defineOperations(
    command.command("withdraw <allotment-id>").description("take back the packages that are not yet assigned"),
    { changes: true },
    async (ask, _options, [id]) => {
      const allotmentId = idOf(id, "allotment's id");
      const taken = ask(withdrawAllotment, { allotmentId });
      const { allotment, withdrawn } = await orNone(taken, `There is no allotment ${allotmentId}.`);
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
