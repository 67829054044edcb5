import process from "node:process";
import { Command, CommanderError, Help, type Option } from "commander";
import { addAccountCommands } from "./cli/account_commands.ts";
import { addBalanceCommands, addPaygCommands } from "./cli/balance_commands.ts";
import { defineCommand } from "./cli/context.ts";
import { addDoctorCommand } from "./cli/doctor.ts";
import { sentenceOf } from "./cli/errors.ts";
import { addFiguresCommand } from "./cli/figures_command.ts";
import { addHostCommands } from "./cli/host_commands.ts";
import { addIdentityProviderCommands } from "./cli/identity_provider_commands.ts";
import { addIncidentCommands } from "./cli/incident_commands.ts";
import { addKeyCommands } from "./cli/key_commands.ts";
import { addMeasuredCommands } from "./cli/measured_commands.ts";
import { addMemberCommands } from "./cli/member_commands.ts";
import { addModelCommands } from "./cli/model_commands.ts";
import { addOfferingCommands } from "./cli/offering_commands.ts";
import { addAllotmentCommands, addPackageCommands } from "./cli/package_commands.ts";
import { addOrderCommands, addPaymentCommands } from "./cli/payment_commands.ts";
import { addProviderCommands } from "./cli/provider_commands.ts";
import { addReceiptCommand } from "./cli/receipt_command.ts";
import { addRetentionCommands } from "./cli/retention_commands.ts";
import { addSecretKeyCommands } from "./cli/secret_key_commands.ts";
import { addSellingCommands } from "./cli/selling_commands.ts";
import { addSignUpCommands } from "./cli/sign_up_commands.ts";
import { atTerminal, type Terminal, terminal } from "./cli/terminal.ts";
import { addUsageCommand } from "./cli/usage_command.ts";
import { addVoucherCommands } from "./cli/voucher_commands.ts";
import { migrate } from "./platform/migrate.ts";

/** The operator's command line: `bun run cli …`. Changes take effect on running replicas immediately. */

const EXIT_FAILED = 1;
const EXIT_MISUSED = 2;
const HELP = new Help();
const isRequired = ({ mandatory }: Option) => mandatory;

/** In the order of the help. */
const GROUPS = [
  addMigrateCommand,
  addProviderCommands,
  addModelCommands,
  addAccountCommands,
  addMemberCommands,
  addIdentityProviderCommands,
  addHostCommands,
  addOfferingCommands,
  addMeasuredCommands,
  addPackageCommands,
  addAllotmentCommands,
  addVoucherCommands,
  addIncidentCommands,
  addSellingCommands,
  addSignUpCommands,
  addKeyCommands,
  addPaygCommands,
  addBalanceCommands,
  addOrderCommands,
  addPaymentCommands,
  addUsageCommand,
  addFiguresCommand,
  addReceiptCommand,
  addRetentionCommands,
  addSecretKeyCommands,
  addDoctorCommand,
];

/** Runs one command. It never throws: a failure is a sentence on `err` and an exit code. */
export async function runCommand(words: readonly string[], at: Terminal): Promise<void> {
  await atTerminal(at, async () => {
    try {
      await createProgram().parseAsync(words, { from: "user" });
    } catch (error) {
      // commander has already printed its problem, or the help.
      if (error instanceof CommanderError) return at.exitsWith(error.exitCode === 0 ? 0 : EXIT_MISUSED);
      at.err(`${sentenceOf(error)}\n`);
      at.exitsWith(EXIT_FAILED);
    }
  });
}

function createProgram(): Command {
  const program = new Command("cli")
    .description("Manages Tollgate: accounts, keys, packages, balances, models and providers. Needs DATABASE_URL.")
    .exitOverride()
    .showHelpAfterError("(see --help)")
    .configureHelp({
      sortSubcommands: false,
      showGlobalOptions: false,
      // Required options are shown in the usage line and marked in the list.
      commandUsage: (command) =>
        [HELP.commandUsage(command), ...command.options.filter(isRequired).map(({ flags }) => flags)].join(" "),
      optionDescription: (option) =>
        [HELP.optionDescription(option), isRequired(option) ? "(required)" : ""].filter(Boolean).join(" "),
    })
    .configureOutput({ writeOut: terminal().out, writeErr: terminal().err });
  for (const add of GROUPS) add(program);
  return program;
}

function addMigrateCommand(program: Command): void {
  defineCommand(
    program.command("migrate").description("apply new migrations to the database"),
    {},
    async ({ config }) => {
      const { before, applied } = await migrate(config.databaseUrl);
      const text = applied === before ? "The database is up to date." : `${applied - before} migrations applied.`;
      return { text, json: { applied, before } };
    },
  );
}

if (import.meta.main)
  await runCommand(process.argv.slice(2), {
    env: process.env,
    stdin: process.stdin,
    out: (text) => void process.stdout.write(text),
    err: (text) => void process.stderr.write(text),
    exitsWith(code) {
      process.exitCode = code;
    },
  });
