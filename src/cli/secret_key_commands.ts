import { type Command, Option } from "commander";
import { secretBytes } from "../config_values.ts";
import { InputError } from "../errors.ts";
import { does } from "./context.ts";
import { replicasUp } from "./doctor_store.ts";
import { readSecret } from "./options.ts";
import type { Output } from "./output.ts";
import { type Rotated, rotateSecretKey } from "./secret_key_store.ts";

/** The command `secret-key`. */

const OLD_KEY_VARIABLE = "OLD_SECRET_KEY";
/** A replica that was heard of within this time is up: it would go on with the old key. */
const REPLICA_SECONDS = 10;
const NAMED_MAX = 20;

export function addSecretKeyCommands(program: Command): void {
  const secretKey = program.command("secret-key").description("what the database's secrets are encrypted with");
  does<{ oldStdin?: true; oldLost?: true }>(
    secretKey
      .command("rotate")
      .description("make SECRET_KEY, a new one, the database's: what the old one encrypted is encrypted anew")
      .option("--old-stdin", `read the old key from standard input (default: the variable ${OLD_KEY_VARIABLE})`)
      .addOption(
        new Option("--old-lost", "the old key is lost: what it encrypted stays unreadable").conflicts("oldStdin"),
      ),
    { changes: true, secretKey: true },
    async (context, { oldStdin, oldLost }) => {
      const from = oldLost ? null : await readOldKey(oldStdin);
      const up = await replicasUp(context, REPLICA_SECONDS);
      if (up > 0)
        throw new InputError(
          `Replicas are running (${up}), with the old key: stop them, and try again ${REPLICA_SECONDS} seconds later.`,
        );
      const rotated = await rotateSecretKey(context, { from, to: context.config.secretKey });
      if (!rotated)
        throw new InputError("That is not the database's key so far: nothing was changed. A lost one: --old-lost.");
      return show(rotated);
    },
  );
}

async function readOldKey(stdin: boolean | undefined): Promise<Uint8Array> {
  const text = await readSecret({ stdin, variable: OLD_KEY_VARIABLE });
  if (text === undefined) throw new InputError("Give the old key: --old-stdin; or --old-lost.");
  const bytes = secretBytes(text.trim());
  if (bytes === undefined) throw new InputError("The old key must be 32 bytes in base64 or hex.");
  return bytes;
}

function show(rotated: Rotated): Output {
  const { providers, secondFactors, unreadable } = rotated;
  const lines = [
    `SECRET_KEY is the database's now. Encrypted anew: ${providers} providers' keys, ${secondFactors} second factors.`,
  ];
  if (unreadable.providers.length > 0)
    lines.push(`Store the keys of these providers again, with provider set: ${named(unreadable.providers)}.`);
  if (unreadable.accounts.length > 0)
    lines.push(
      `The second factors of these accounts cannot be read: recovery codes work, or remove them: ${named(unreadable.accounts.map(String))}.`,
    );
  return { text: lines.join("\n"), json: rotated };
}

function named(all: readonly string[]): string {
  const rest = all.length - NAMED_MAX;
  return all.slice(0, NAMED_MAX).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
