import { type Command, Option } from "commander";
import { setPaygRight } from "../accounts/accounts_store.ts";
import {
  addOffering,
  findOffering,
  listOfferings,
  type Offering,
  setOfferingEnabled,
} from "../accounts/offerings_store.ts";
import { listUsageRecords, type Page, type UsageRow } from "../books/usage_records_store.ts";
import { InputError } from "../errors.ts";
import { type Allotment, grantAllotment, listAllotments, withdrawAllotment } from "../ledger/allotments_store.ts";
import { addBalance, setPayg } from "../ledger/balances_store.ts";
import {
  assignPackage,
  endPackage,
  findPackage,
  listPackages,
  type Package,
  type PayWith,
  payerOf,
} from "../ledger/packages_store.ts";
import { type Context, does } from "./context.ts";
import { formatUsd, parseUsd } from "./money.ts";
import { accountOf, idOf, integer, list, parsedBy } from "./options.ts";
import { facts, type Output, scope, table, yesNo } from "./output.ts";

/** The commands `offering`, `package`, `allotment`, `payg`, `balance` and `usage`. */

export function addOfferingCommands(program: Command): void {
  const offering = program.command("offering").description("what can be sold as a package");

  does<{
    name: string;
    kind: "daily" | "custom";
    daily: number;
    days?: number;
    total?: number;
    carryover?: true;
    tokens?: number;
    model?: string[];
    timeZone?: string;
    wholesale: bigint;
  }>(
    offering
      .command("add")
      .description(
        "add an offering: daily is 1 day with 100 to 2000 requests, custom 1 to 30 days with a chosen daily count",
      )
      .requiredOption("--name <name>", "unique, 1 to 100 characters")
      .addOption(new Option("--kind <kind>").choices(["daily", "custom"]).makeOptionMandatory())
      .requiredOption("--daily <requests>", "requests a day", integer)
      .option("--days <days>", "how long it runs (default: 1)", integer)
      .option("--total <requests>", "requests over its life (default: daily x days)", integer)
      .option("--carryover", "what is left of a day is kept for the next")
      .option("--tokens <tokens>", "tokens over its life (default: not counted)", integer)
      .option("--model <id>", "a model in its scope; again for more (default: all)", list)
      .option("--time-zone <zone>", "whose midnights part its days (default: BILLING_TIMEZONE)")
      .requiredOption("--wholesale <usd>", "what a reseller pays for it", parsedBy(parseUsd)),
    {},
    async (context, { name, kind, daily, days, total, carryover, tokens, model, timeZone, wholesale }) =>
      showOffering(
        await addOffering(context, {
          name,
          kind,
          days,
          dailyLimit: daily,
          totalLimit: total,
          carryover,
          tokenLimit: tokens,
          modelIds: model,
          timeZone: timeZone ?? context.config.billingTimeZone,
          wholesaleNanoUsd: wholesale,
        }),
      ),
  );

  does(offering.command("list").description("offerings, newest first"), {}, async (context) => {
    const rows = await listOfferings(context);
    const text = table(
      [
        "ID",
        "NAME",
        "KIND",
        "DAYS",
        "DAILY",
        "TOTAL",
        "CARRYOVER",
        "TOKENS",
        "MODELS",
        "TIME ZONE",
        "WHOLESALE",
        "ON SALE",
      ],
      rows.map((row) => [
        String(row.offeringId),
        row.name,
        row.kind,
        String(row.days),
        String(row.dailyLimit),
        String(row.totalLimit),
        yesNo(row.carryover),
        row.tokenLimit === null ? "" : String(row.tokenLimit),
        scope(row.modelIds),
        row.timeZone,
        formatUsd(row.wholesaleNanoUsd),
        yesNo(row.enabled),
      ]),
      "There are no offerings.",
    );
    return { text, json: { offerings: rows } };
  });

  for (const [name, enabled, description] of [
    ["enable", true, "put an offering on sale again"],
    ["disable", false, "take an offering off sale; packages that were sold stay"],
  ] as const) {
    does(
      offering.command(`${name} <offering>`).description(description),
      {},
      async (context, _options, [reference]) => {
        const { offeringId } = await offeringOf(context, reference);
        await setOfferingEnabled(context, { offeringId, enabled });
        return showOffering(await offeringOf(context, String(offeringId)));
      },
    );
  }
}

/** The offering with this id or name. Throws InputError. */
async function offeringOf(context: Context, reference = ""): Promise<Offering> {
  const byName = await findOffering(context, { name: reference });
  const offering =
    byName ??
    (/^\d{1,15}$/.test(reference) ? await findOffering(context, { offeringId: Number(reference) }) : undefined);
  if (!offering) throw new InputError(`There is no offering ${JSON.stringify(reference)}.`);
  return offering;
}

function showOffering(offering: Offering): Output {
  const text = facts([
    ["offering", String(offering.offeringId)],
    ["name", offering.name],
    [
      "allowance",
      `${offering.dailyLimit} a day for ${offering.days} days${offering.carryover ? ", carryover" : ""}, ${offering.totalLimit} in all`,
    ],
    ["tokens", offering.tokenLimit === null ? "not counted" : String(offering.tokenLimit)],
    ["models", scope(offering.modelIds)],
    ["time zone", offering.timeZone],
    ["wholesale", formatUsd(offering.wholesaleNanoUsd)],
    ["on sale", yesNo(offering.enabled)],
  ]);
  return { text, json: offering };
}

export function addPackageCommands(program: Command): void {
  const command = program.command("package").description("packages of an account");

  does<{ offering: string; after?: true; paidBy?: "reseller" | "operator"; allotment?: true }>(
    command
      .command("assign <account>")
      .description("assign an offering; it takes over at once, and what was left of the active package is dropped")
      .requiredOption("--offering <offering>", "by id or name")
      .option("--after", "queue it behind the packages the account has")
      .addOption(
        new Option(
          "--paid-by <payer>",
          "whose balance pays the wholesale price (default: the reseller, where there is one)",
        ).choices(["reseller", "operator"]),
      )
      .option("--allotment", "take a piece of the reseller's allotment in place of its balance"),
    { changes: true },
    async (context, { offering, after, paidBy, allotment }, [reference]) => {
      if (allotment && paidBy === "operator")
        throw new InputError("An allotment is a reseller's: leave out --paid-by operator.");
      const account = await accountOf(context, reference);
      const { offeringId } = await offeringOf(context, offering);
      const payWith: PayWith | undefined = allotment ? "allotment" : paidBy && PAID_BY[paidBy];
      return showPackage(
        await assignPackage(context, {
          accountId: account.accountId,
          offeringId,
          when: after ? "after" : "now",
          ...payerOf(account, payWith),
          actorId: null,
        }),
      );
    },
  );

  does(
    command.command("list <account>").description("packages of an account, the latest first"),
    {},
    async (context, _options, [reference]) => {
      const { accountId } = await accountOf(context, reference);
      const rows = await listPackages(context, accountId);
      const text = table(
        ["ID", "NAME", "STATE", "STARTS", "ENDS", "USED", "HELD", "TOTAL", "DAILY", "PAID BY"],
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
        "The account has had no package.",
      );
      return { text, json: { packages: rows } };
    },
  );

  does(
    command.command("end <package-id>").description("end an active or queued package now; those behind it move up"),
    { changes: true },
    async (context, _options, [id]) => {
      const packageId = idOf(id, "package's id");
      const found = await findPackage(context, packageId);
      if (!found) throw new InputError(`There is no package ${packageId}.`);
      return showPackage(await endPackage(context, { accountId: found.accountId, packageId }));
    },
  );
}

const PAID_BY = { reseller: "balance", operator: "operator" } as const;

function showPackage(row: Package): Output {
  const text = facts([
    ["package", String(row.packageId)],
    ["account", String(row.accountId)],
    ["name", row.name],
    ["state", row.endedEarly ? `ended, ${row.unitsDropped} requests dropped` : row.state],
    ["runs", `${row.startsAt} to ${row.endsAt} (${row.timeZone})`],
    ["allowance", `${row.dailyLimit} a day${row.carryover ? ", carryover" : ""}, ${row.totalLimit} in all`],
    ["paid by", whoPaid(row)],
  ]);
  return { text, json: row };
}

function whoPaid({ paidByAccountId, allotmentId }: Package): string {
  if (paidByAccountId === null) return "operator";
  return allotmentId === null ? `account ${paidByAccountId}` : `account ${paidByAccountId}, allotment ${allotmentId}`;
}

export function addAllotmentCommands(program: Command): void {
  const command = program
    .command("allotment")
    .description("pieces of an offering that a reseller hands out without paying");

  does<{ offering: string; pieces: number; reason: string }>(
    command
      .command("grant <reseller>")
      .description("grant a reseller pieces of an offering")
      .requiredOption("--offering <offering>", "by id or name")
      .requiredOption("--pieces <number>", "how many packages, 1 to 100000", integer)
      .requiredOption("--reason <text>", "kept with the grant"),
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

  does<{ reseller?: string; before?: number; limit: number }>(
    command
      .command("list")
      .description("grants, newest first")
      .option("--reseller <account>", "only this reseller's, by id or address")
      .option("--limit <count>", "rows, 100 at most", integer, 100)
      .option("--before <id>", "older than this grant: the last id of the page before", integer),
    {},
    async (context, { reseller, before, limit }) => {
      const resellerId = reseller === undefined ? undefined : (await accountOf(context, reseller)).accountId;
      const { rows, hasMore } = await listAllotments(context, { resellerId, before, limit });
      const lines = allotmentTable(rows);
      const text = hasMore ? `${lines}\nThere are more: --before ${rows.at(-1)?.allotmentId}` : lines;
      return { text, json: { allotments: rows, hasMore } };
    },
  );

  does(
    command.command("withdraw <allotment-id>").description("take back the pieces that were not handed out"),
    { changes: true },
    async (context, _options, [id]) => {
      const { allotment, withdrawn } = await withdrawAllotment(context, idOf(id, "allotment's id"));
      return { text: `${withdrawn} pieces were taken back.`, json: { ...allotment, withdrawn } };
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
    "Nothing was granted.",
  );
}

export function addPaygCommands(program: Command): void {
  const payg = program.command("payg").description("whether an account may pay by its balance");
  for (const [name, enabled] of [
    ["enable", true],
    ["disable", false],
  ] as const) {
    does(
      payg.command(`${name} <account>`).description(`${name} pay-as-you-go`),
      { changes: true },
      async (context, _options, [reference]) => {
        const { accountId } = await accountOf(context, reference);
        await setPayg(context, accountId, enabled);
        return { text: `PAYG of account ${accountId} is ${name}d.`, json: { accountId, paygEnabled: enabled } };
      },
    );
  }
  for (const [name, description, granted] of [
    ["grant", "let a reseller enable and disable it for its own customers", true],
    ["withdraw", "take that right from a reseller; its customers stay as they are", false],
  ] as const) {
    does(
      payg.command(`${name} <reseller>`).description(description),
      { changes: true },
      async (context, _options, [reference]) => {
        const { accountId } = await accountOf(context, reference);
        await setPaygRight(context, accountId, granted);
        const may = granted ? "may enable and disable" : "may not enable or disable";
        return { text: `Reseller ${accountId} ${may} PAYG for its customers.`, json: { accountId, granted } };
      },
    );
  }
}

export function addBalanceCommands(program: Command): void {
  const balance = program.command("balance").description("what an account can spend by pay-as-you-go");
  does<{ reason?: string }>(
    balance
      .command("add <account> <usd>")
      .description("add to a balance; a negative amount is a correction, and must say why")
      .option("--reason <text>", "kept with the entry"),
    { changes: true },
    async (context, { reason }, [reference, usd = ""]) => {
      const nanoUsd = parseUsd(usd);
      const { accountId } = await accountOf(context, reference);
      if (nanoUsd < 0n && !reason) throw new InputError("A correction must say why: give --reason.");
      const kind = nanoUsd < 0n ? "correction" : "top_up";
      const after = await addBalance(context, { accountId, nanoUsd, kind, reason: reason ?? null, actorId: null });
      const text = facts([
        ["account", String(accountId)],
        ["added", formatUsd(nanoUsd)],
        ["balance", formatUsd(after)],
      ]);
      return { text, json: { accountId, addedNanoUsd: nanoUsd, balanceNanoUsd: after } };
    },
  );
}

export function addUsageCommand(program: Command): void {
  does<{
    account?: string;
    model?: string;
    host?: string[];
    since?: string;
    until?: string;
    limit: number;
    after?: string;
  }>(
    program
      .command("usage")
      .description("usage records, newest first")
      .option("--account <account>", "only this account's, by id or address")
      .option("--model <id>", "only of this model")
      .option("--host <host>", "only on this host; again for more", list)
      .option("--since <time>", "from this time on, as 2030-01-31 or 2030-01-31T12:00:00Z")
      .option("--until <time>", "before this time")
      .option("--limit <count>", "rows, 1000 at most", integer, 100)
      .option("--after <request-id>", "older than this record: the last id of the page before"),
    {},
    async (context, { account, model, host, since, until, limit, after }) => {
      const accountId = account === undefined ? undefined : (await accountOf(context, account)).accountId;
      return showUsage(
        await listUsageRecords(context, {
          accountId,
          modelId: model,
          hosts: host,
          start: since,
          end: until,
          limit,
          after,
        }),
      );
    },
  );
}

function showUsage({ rows, hasMore, nextAfter }: Page<UsageRow>): Output {
  const lines = table(
    ["TIME", "REQUEST", "ACCOUNT", "KEY", "MODEL", "HOST", "MODE", "IN", "OUT", "COST", "HOW IT ENDED"],
    rows.map((row) => [
      row.createdAt,
      row.requestId,
      String(row.accountId),
      String(row.keyId),
      row.modelId,
      row.host,
      row.mode,
      String(row.promptTokens),
      String(row.completionTokens),
      row.mode === "payg" ? formatUsd(row.chargedNanoUsd) : row.units === 1 ? "1 request" : `${row.units} requests`,
      row.estimated ? `${row.reason}, estimated` : row.reason,
    ]),
    "There are no usage records.",
  );
  const text = hasMore ? `${lines}\nThere may be more: --after ${nextAfter}` : lines;
  return { text, json: { usage: rows, hasMore, nextAfter } };
}
