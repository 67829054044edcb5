import process from "node:process";
import { Command, CommanderError, Help, type Option } from "commander";
import { addAccountCommands } from "./cli/account_commands.ts";
import { addBalanceCommands, addPaygCommands, addUsageCommand } from "./cli/balance_commands.ts";
import { defineCommand } from "./cli/context.ts";
import { addDoctorCommand } from "./cli/doctor.ts";
import { sentenceOf } from "./cli/errors.ts";
import { addHostCommands } from "./cli/host_commands.ts";
import { addKeyCommands } from "./cli/key_commands.ts";
import { addModelCommands } from "./cli/model_commands.ts";
import { addOfferingCommands } from "./cli/offering_commands.ts";
import { addAllotmentCommands, addPackageCommands } from "./cli/package_commands.ts";
import { addProviderCommands } from "./cli/provider_commands.ts";
import { addSecretKeyCommands } from "./cli/secret_key_commands.ts";
import { migrate } from "./platform/migrate.ts";

/** The operator's command line: `bun run cli …`. Changes take effect on running replicas immediately. */

const EXIT_FAILED = 1;
const EXIT_MISUSED = 2;
const HELP = new Help();
const isRequired = ({ mandatory }: Option) => mandatory;

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
  });

defineCommand(
  program.command("migrate").description("apply new migrations to the database"),
  {},
  async ({ config }) => {
    const { before, applied } = await migrate(config.databaseUrl);
    const text = applied === before ? "The database is up to date." : `${applied - before} migrations applied.`;
    return { text, json: { applied, before } };
  },
);
addProviderCommands(program);
addModelCommands(program);
addAccountCommands(program);
addHostCommands(program);
addOfferingCommands(program);
addPackageCommands(program);
addAllotmentCommands(program);
addKeyCommands(program);
addPaygCommands(program);
addBalanceCommands(program);
addUsageCommand(program);
addSecretKeyCommands(program);
addDoctorCommand(program);

try {
  await program.parseAsync(process.argv);
} catch (error) {
  if (error instanceof CommanderError) {
    // commander has already printed the problem, or the help.
    process.exitCode = error.exitCode === 0 ? 0 : EXIT_MISUSED;
  } else {
    process.stderr.write(`${sentenceOf(error)}\n`);
    process.exitCode = EXIT_FAILED;
  }
}
