import { type Command, Option } from "commander";
import { secretBytes } from "../config_values.ts";
import { InputError } from "../errors.ts";
import { defineCommand } from "./context.ts";
import { replicasUp } from "./doctor_store.ts";
import { readSecret } from "./options.ts";
import type { Output } from "./output.ts";
import { type Rotated, rotateSecretKey } from "./secret_key_store.ts";

/** The command `secret-key`. */

const OLD_KEY_VARIABLE = "OLD_SECRET_KEY";
/** A replica whose heartbeat is younger than this is running, with the old key. */
const REPLICA_SECONDS = 10;
const NAMED_MAX = 20;

export function addSecretKeyCommands(program: Command): void {
  const secretKey = program.command("secret-key").description("the key that encrypts secrets in the database");
  defineCommand<{ oldStdin?: true; oldLost?: true }>(
    secretKey
      .command("rotate")
      .description("replace the database's secret key with SECRET_KEY, and encrypt all secrets again")
      .option("--old-stdin", `read the old key from standard input (default: the variable ${OLD_KEY_VARIABLE})`)
      .addOption(
        new Option("--old-lost", "the old key is lost; secrets that it encrypted stay unreadable").conflicts(
          "oldStdin",
        ),
      ),
    { changes: true, secretKey: true },
    async (context, { oldStdin, oldLost }) => {
      const from = oldLost ? null : await readOldKey(oldStdin);
      const up = await replicasUp(context, REPLICA_SECONDS);
      if (up > 0)
        throw new InputError(
          `Replicas are running (${up}) with the old key. Stop them, and try again after ${REPLICA_SECONDS} seconds.`,
        );
      const rotated = await rotateSecretKey(context, { from, to: context.config.secretKey });
      if (!rotated)
        throw new InputError(
          "The old key is not the database's key. Nothing was changed. If it is lost, use --old-lost.",
        );
      return show(rotated);
    },
  );
}

async function readOldKey(stdin: boolean | undefined): Promise<Uint8Array> {
  const text = await readSecret({ stdin, variable: OLD_KEY_VARIABLE });
  if (text === undefined) throw new InputError("Give the old key: --old-stdin, or --old-lost if it is lost.");
  const bytes = secretBytes(text.trim());
  if (bytes === undefined) throw new InputError("The old key must be 32 bytes in base64 or hex.");
  return bytes;
}

function show(rotated: Rotated): Output {
  const { providerKeys, secondFactors, paymentSecrets, identitySecrets, messageSecrets, unreadable } = rotated;
  const lines = [
    `SECRET_KEY is now the database's key. Encrypted again: ${providerKeys} provider keys, ${secondFactors} second factors, ${paymentSecrets} payment secrets, ${identitySecrets} secrets of identity providers, ${messageSecrets} secrets of mail and webhooks.`,
  ];
  if (unreadable.providers.length > 0)
    lines.push(
      `The keys of these providers are lost; store them again with provider set, or provider key set: ${named(unreadable.providers)}.`,
    );
  if (unreadable.accounts.length > 0)
    lines.push(
      `The second factors of these accounts are lost; they can use recovery codes, or remove them with account remove-second-factor: ${named(unreadable.accounts.map(String))}.`,
    );
  if (unreadable.sellers.length > 0)
    lines.push(
      `Secrets of these sellers are lost; they can set them again on their pages Payments and Sign-in (0 is the operator): ${named(unreadable.sellers.map(String))}.`,
    );
  return { text: lines.join("\n"), json: rotated };
}

function named(all: readonly string[]): string {
  const rest = all.length - NAMED_MAX;
  return all.slice(0, NAMED_MAX).join(", ") + (rest > 0 ? ` and ${rest} more` : "");
}
