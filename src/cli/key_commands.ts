import { type Command, Option } from "commander";
import type { Key, KeyMode } from "../accounts/keys_store.ts";
import { ExistsError } from "../errors.ts";
import {
  createKey,
  disableKey,
  enableKey,
  getKey,
  listKeys,
  revokeKey,
  rotateKey,
  updateKey,
} from "../operations/keys.ts";
import { accountBy, defineOperations, orNone } from "./door.ts";
import {
  changedLimits,
  givenLimits,
  type LimitChangeOptions,
  type LimitOptions,
  limitChangeOptions,
  limitOptions,
  limitsText,
} from "./limit_options.ts";
import { END_OF_DAY, endOfDay, idOf, integer, list } from "./options.ts";
import { facts, scope, table, withMore } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `key`. */

const OVERLAP_SECONDS_DEFAULT = 86_400;
/** For --if-missing. */
const KEYS_LOOKED_AT_MAX = 1000;
const ONCE = "The key is shown only this once. Keep it on a server, never in a browser or an app.";

export function addKeyCommands(program: Command): void {
  const key = program.command("key").description("API keys");
  addAdd(key);
  addList(key);
  addStatusChanges(key);
  addRotate(key);
  addLimits(key);
}

/** The names of an account's latest keys that can be used. */
async function namesOfKeys(ask: Door, accountId: number): Promise<Set<string>> {
  const { rows } = await ask(listKeys, { accountId, limit: KEYS_LOOKED_AT_MAX });
  return new Set(rows.filter(({ status }) => status === "enabled").map(({ name }) => name));
}

function addAdd(key: Command): void {
  type Scope = { mode: KeyMode; model?: string[]; host?: string[]; expires?: string };
  type Options = Scope & { account: string; name: string; ifMissing?: true };
  defineOperations<Options & LimitOptions>(
    limitOptions(
      key
        .command("add")
        .description("create a key; the full key is shown only once")
        .requiredOption("--account <account>", "account of the key, by id or e-mail address")
        .requiredOption("--name <name>", "1 to 100 characters")
        .addOption(new Option("--mode <mode>", "billing mode").choices(["package", "payg"]).default("package"))
        .option("--model <id>", "a model the key may use; repeat for more (default: all)", list)
        .option("--host <host>", "a host the key may be used on; repeat for more (default: all)", list)
        .option("--expires <time>", `when the key expires: ${END_OF_DAY} (default: never)`),
      { models: false },
    ),
    { changes: true, adds: true },
    async (ask, { account, name, mode, model = null, host = null, expires, ifMissing, ...limits }) => {
      const { accountId } = await accountBy(ask, account);
      // Several keys may have one name, but then a script that runs twice would make a second one.
      if (ifMissing && (await namesOfKeys(ask, accountId)).has(name))
        throw new ExistsError(`The account has a key ${name} already; it was shown when it was created.`, "name");
      const { secret, key: created } = await ask(createKey, {
        accountId,
        name,
        mode,
        modelIds: model,
        hosts: host,
        expiresAt: expires === undefined ? null : endOfDay(expires),
        limits: givenLimits(limits),
      });
      return { text: `${secret}\n\n${ONCE}\n\n${keyFacts(created)}`, json: { secret, ...created } };
    },
  );
}

function addList(key: Command): void {
  defineOperations<{ account?: string; limit: number; before?: number }>(
    key
      .command("list")
      .description("list keys, newest first")
      .option("--account <account>", "only keys of this account, by id or e-mail address")
      .option("--limit <count>", "number of rows, at most 1000", integer, 100)
      .option("--before <id>", "only keys older than this one: the last id of the previous page", integer),
    {},
    async (ask, { account, limit, before }) => {
      const accountId = account === undefined ? undefined : (await accountBy(ask, account)).accountId;
      const { rows, hasMore } = await ask(listKeys, { accountId, limit, before });
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
        "No keys.",
      );
      return { text: withMore(lines, hasMore, `--before ${rows.at(-1)?.keyId}`), json: { keys: rows, hasMore } };
    },
  );
}

function addStatusChanges(key: Command): void {
  const changes = [
    ["revoke", "end a key permanently", revokeKey],
    ["disable", "stop a key until it is enabled again", disableKey],
    ["enable", "enable a disabled key", enableKey],
  ] as const;
  for (const [name, description, change] of changes) {
    defineOperations(
      key.command(`${name} <key-id>`).description(description),
      { changes: true },
      async (ask, _options, [id]) => {
        const changed = await ask(change, { keyId: (await keyBy(ask, id)).keyId });
        return { text: keyFacts(changed), json: changed };
      },
    );
  }
}

function addRotate(key: Command): void {
  defineOperations<{ overlap: number }>(
    key
      .command("rotate <key-id>")
      .description("replace a key with a new one that has the same settings; the full key is shown only once")
      .option("--overlap <seconds>", "how long the old key still works", integer, OVERLAP_SECONDS_DEFAULT),
    { changes: true },
    async (ask, { overlap }, [id]) => {
      const {
        secret,
        key: created,
        old,
      } = await ask(rotateKey, { keyId: (await keyBy(ask, id)).keyId, overlapSeconds: overlap });
      const ends = `The old key ${old.masked} expires at ${old.expiresAt}.`;
      return { text: `${secret}\n\n${ONCE}\n${ends}\n\n${keyFacts(created)}`, json: { secret, ...created, old } };
    },
  );
}

function addLimits(key: Command): void {
  defineOperations<LimitChangeOptions>(
    limitChangeOptions(
      key
        .command("limits <key-id>")
        .description(
          "show a key's limits, or set all of them, at most those of its account: one that is left out is removed",
        ),
      { models: false },
    ),
    { changes: true },
    async (ask, options, [id]) => {
      const known = await keyBy(ask, id);
      const limits = changedLimits(options);
      const shown = limits === undefined ? known : await ask(updateKey, { keyId: known.keyId, limits });
      return { text: keyFacts(shown), json: shown };
    },
  );
}

/** The key with this id. Throws InputError. */
function keyBy(ask: Door, id: string | undefined): Promise<Key> {
  const keyId = idOf(id, "key's id");
  return orNone(ask(getKey, { keyId }), `There is no key ${keyId}.`);
}

function keyFacts(key: Key): string {
  return facts([
    ["key", `${key.keyId} (${key.masked})`],
    ["account", String(key.accountId)],
    ["name", key.name],
    ["billing mode", key.mode],
    ["models", scope(key.modelIds)],
    ["hosts", scope(key.hosts)],
    ["limits", limitsText(key.limits)],
    ["status", key.status],
    ["expires", key.expiresAt ?? "never"],
  ]);
}
