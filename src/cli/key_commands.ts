import { type Command, Option } from "commander";
import {
  createKey,
  disableKey,
  enableKey,
  findKey,
  type Key,
  type KeyMode,
  listKeys,
  revokeKey,
  rotateKey,
} from "../accounts/keys_store.ts";
import { InputError } from "../errors.ts";
import { type Context, does } from "./context.ts";
import { accountOf, idOf, integer, list } from "./options.ts";
import { facts, scope, table, withMore } from "./output.ts";

/** The command `key`. */

const OVERLAP_SECONDS_DEFAULT = 86_400;
const ONCE = "This is the only time the key is shown. Keep it on a server, never in a browser or an app.";

export function addKeyCommands(program: Command): void {
  const key = program.command("key").description("API keys");
  addAdd(key);
  addList(key);
  addStatusChanges(key);
  addRotate(key);
}

function addAdd(key: Command): void {
  does<{ account: string; name: string; mode: KeyMode; model?: string[]; host?: string[]; expires?: string }>(
    key
      .command("add")
      .description("create a key; it is shown in full this once")
      .requiredOption("--account <account>", "whose key, by id or address")
      .requiredOption("--name <name>", "1 to 100 characters")
      .addOption(new Option("--mode <mode>", "what pays").choices(["package", "payg"]).default("package"))
      .option("--model <id>", "a model it may name; again for more (default: all)", list)
      .option("--host <host>", "a host it may be used on; again for more (default: all)", list)
      .option("--expires <time>", "when it ends, as 2030-01-31T00:00:00Z (default: never)"),
    { changes: true },
    async (context, { account, name, mode, model = null, host = null, expires = null }) => {
      const { accountId } = await accountOf(context, account);
      const { secret, key: created } = await createKey(context, {
        accountId,
        name,
        mode,
        modelIds: model,
        hosts: host,
        expiresAt: expires,
      });
      return { text: `${secret}\n\n${ONCE}\n\n${keyFacts(created)}`, json: { secret, ...created } };
    },
  );
}

function addList(key: Command): void {
  does<{ account?: string; limit: number; before?: number }>(
    key
      .command("list")
      .description("keys, newest first")
      .option("--account <account>", "only this account's, by id or address")
      .option("--limit <count>", "rows, 1000 at most", integer, 100)
      .option("--before <id>", "older than this key: the last id of the page before", integer),
    {},
    async (context, { account, limit, before }) => {
      const accountId = account === undefined ? undefined : (await accountOf(context, account)).accountId;
      const { rows, hasMore } = await listKeys(context, { accountId, limit, before });
      const lines = table(
        ["ID", "ACCOUNT", "NAME", "KEY", "MODE", "MODELS", "HOSTS", "STATUS", "EXPIRES"],
        rows.map((row) => [
          String(row.keyId),
          String(row.accountId),
          row.name,
          row.masked,
          row.mode,
          scope(row.modelIds),
          scope(row.hosts),
          row.status,
          row.expiresAt ?? "never",
        ]),
        "There are no keys.",
      );
      return { text: withMore(lines, hasMore, `--before ${rows.at(-1)?.keyId}`), json: { keys: rows, hasMore } };
    },
  );
}

function addStatusChanges(key: Command): void {
  const changes = [
    ["revoke", "end a key for good", revokeKey],
    ["disable", "switch a key off until it is enabled again", disableKey],
    ["enable", "switch a disabled key on", enableKey],
  ] as const;
  for (const [name, description, change] of changes) {
    does(
      key.command(`${name} <key-id>`).description(description),
      { changes: true },
      async (context, _options, [id]) => {
        const changed = await change(context, await keyOf(context, id));
        return { text: keyFacts(changed), json: changed };
      },
    );
  }
}

function addRotate(key: Command): void {
  does<{ overlap: number }>(
    key
      .command("rotate <key-id>")
      .description("replace a key by a new one with the same settings; it is shown in full this once")
      .option("--overlap <seconds>", "the old key works for this much longer", integer, OVERLAP_SECONDS_DEFAULT),
    { changes: true },
    async (context, { overlap }, [id]) => {
      const {
        secret,
        key: created,
        old,
      } = await rotateKey(context, { ...(await keyOf(context, id)), overlapSeconds: overlap });
      const ends = `The old key ${old.masked} ends at ${old.expiresAt}.`;
      return { text: `${secret}\n\n${ONCE}\n${ends}\n\n${keyFacts(created)}`, json: { secret, ...created, old } };
    },
  );
}

/** A key is known by its id alone; whose it is, is looked up. */
async function keyOf(context: Context, id: string | undefined): Promise<{ accountId: number; keyId: number }> {
  const keyId = idOf(id, "key's id");
  const key = await findKey(context, { keyId });
  if (!key) throw new InputError(`There is no key ${keyId}.`);
  return { accountId: key.accountId, keyId };
}

function keyFacts(key: Key): string {
  return facts([
    ["key", `${key.keyId} (${key.masked})`],
    ["account", String(key.accountId)],
    ["name", key.name],
    ["mode", key.mode],
    ["models", scope(key.modelIds)],
    ["hosts", scope(key.hosts)],
    ["status", key.status],
    ["expires", key.expiresAt ?? "never"],
  ]);
}
