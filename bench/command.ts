import { parseArgs } from "node:util";
import { UsageError } from "./options.ts";
import { checkPlace } from "./written.ts";

/** The command line of `bun run bench:scale`, `bench:cost` and `bench:parts`. */

export type Flags = {
  isQuick: boolean;
  /** The page into which the tables are written, between the marks with the bench's name. */
  write: string | undefined;
  json: string | undefined;
};

const usage = (name: string) => `bun run bench:${name} [flags]
  --quick            fewer and shorter rounds
  --write FILE       the tables into a Markdown file, between <!-- ${name} --> and <!-- /${name} -->
  --json FILE        all figures as JSON`;

/**
 * Runs a bench and ends the process: with 0, with 1 when `run` says no or throws, with 2 when the command line is wrong.
 * Before that, it stops what `run` gave to `atEnd`, the last first, also on a signal.
 */
export async function command(
  name: "scale" | "cost" | "parts",
  run: (flags: Flags, atEnd: (stop: () => Promise<unknown>) => void) => Promise<boolean>,
): Promise<never> {
  const started: (() => Promise<unknown>)[] = [];
  const stopAll = async () => {
    for (let stop = started.pop(); stop !== undefined; stop = started.pop()) await stop();
  };
  for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
    process.once(signal, () => void stopAll().finally(() => process.exit(130)));
  try {
    const flags = readFlags(name, process.argv.slice(2));
    if (flags === "help") console.log(usage(name));
    const isGood = flags === "help" || (await run(flags, (stop) => started.push(stop)));
    await stopAll();
    process.exit(isGood ? 0 : 1);
  } catch (error) {
    await stopAll();
    console.error(error instanceof Error ? error.message : error);
    process.exit(error instanceof UsageError ? 2 : 1);
  }
}

/** Throws UsageError in one line, also if `--write` would fail after the measurement. */
function readFlags(name: string, args: string[]): Flags | "help" {
  try {
    const { values } = parseArgs({
      args,
      options: {
        help: { type: "boolean", short: "h", default: false },
        quick: { type: "boolean", default: false },
        write: { type: "string" },
        json: { type: "string" },
      },
    });
    if (values.help) return "help";
    if (values.write !== undefined) checkPlace(values.write, name);
    return { isQuick: values.quick, write: values.write, json: values.json };
  } catch (error) {
    throw new UsageError(error instanceof Error ? error.message.split(". ")[0] : String(error));
  }
}
