import { deflateRawSync, inflateRawSync } from "node:zlib";
import type { Config } from "../../config.ts";
import { Refusal } from "../../errors.ts";
import type { BodyRoom } from "../../http/body.ts";
import { decryptBytes, deriveKey, encrypt } from "../../platform/crypto.ts";
import type { Db } from "../../platform/db.ts";
import type { Log } from "../../platform/log.ts";
import type { Metrics } from "../../platform/metrics.ts";
import { inSlices } from "../../platform/prune.ts";
import { isRecord } from "../../platform/records.ts";
import { createSemaphore } from "../../platform/semaphore.ts";
import type { Owner } from "../../platform/share_limit.ts";
import { inTime } from "../../platform/time_limit.ts";
import type { Bodies } from "../gate.ts";
import {
  DELETED_MAX,
  deleteOldest,
  deleteResponse,
  findResponses,
  insertResponse,
  type StoredRow,
} from "./stored_responses_store.ts";

/**
 * Responses that later requests refer to, by `previous_response_id` or `item_reference`. Each row has all that the model was given, and
 * what it answered, so that one row continues a conversation, however old its beginning is. Rows are encrypted with a key of the
 * account, bounded by account, and dropped after RESPONSES_KEEP_HOURS. What cannot be stored is only counted: the answer has been paid,
 * and is sent all the same. Source: RSP-3, RSP-12.
 */

/** The most that an account keeps; the oldest are deleted. */
const RESPONSES_MAX = 1_000;
const ACCOUNT_BYTES_MAX = 64 * 1024 * 1024;
/** The largest part of a response, in characters of JSON. */
const PART_CHARS_MAX = 16 * 1024 * 1024;
/** Compressing a longer text would stop the event loop for more than some milliseconds. */
const COMPRESSED_CHARS_MAX = 256 * 1024;
/** An account's bounds are applied once it has stored this much more on this replica. */
const BOUND_EVERY_ROWS = 32;
const BOUND_EVERY_BYTES = 4 * 1024 * 1024;
/** Accounts that are counted for that. The others are counted anew. */
const COUNTED_ACCOUNTS_MAX = 10_000;
/** Rows that one replica writes at once, and that wait; of one account. */
const WRITES = { max: 4, waitingMax: 256, atOnceMax: 2, accountWaitingMax: 32 };
const WRITE_WAIT_MS_MAX = 1_000;
const PLAIN = 0;
const DEFLATED = 1;
/** Items whose ids a provider gave. */
const FOREIGN_IDS_MAX = 1_000;
const ID_CHARS_MAX = 100;

/** What a response was made of. `input` and `response` are JSON. */
export type StoredResponse = { id: string; input: string; response: string };

/** A response that is stored once it has been charged. */
export type Keeper = {
  /** Stores the response object. Never throws. */
  keep(response: string): Promise<void>;
  /** It is not needed any more; idempotent. */
  close(): void;
};

export type StoredResponses = {
  /** 0: nothing is stored. */
  readonly keepHours: number;
  /** Takes the input of a response, as JSON. Undefined if it is too large, or the account has no memory left for it. */
  keeper(owner: Owner, requestId: string, input: string): Keeper | undefined;
  /** Those that there are. Throws service_unavailable. */
  find(accountId: number, wanted: { ids: readonly string[]; itemIds: readonly string[] }): Promise<StoredResponse[]>;
  /** Returns whether there was one. Throws service_unavailable. */
  remove(accountId: number, id: string): Promise<boolean>;
};

type StoredResponsesDeps = {
  db: Db;
  bodies: Bodies;
  log: Log;
  metrics: Pick<Metrics, "responseStored">;
  config: Pick<Config, "responsesKeepHours" | "secretKey">;
};

export function createStoredResponses(deps: StoredResponsesDeps): StoredResponses {
  const { db, log, metrics, config } = deps;
  const { responsesKeepHours: keepHours, secretKey } = config;
  const write = writerOf(db);
  return {
    keepHours,
    keeper(owner, requestId, input) {
      if (input.length > PART_CHARS_MAX) {
        metrics.responseStored("too_large");
        return undefined;
      }
      const seal = new ResponseSeal(secretKey, owner.accountId, requestId);
      const sealed = seal.close("input", input);
      const room = roomFor(deps.bodies, owner, sealed.length);
      if (room === undefined) metrics.responseStored("no_room");
      return room && new RowKeeper({ ...deps, write }, { accountId: owner.accountId, requestId, seal, sealed, room });
    },
    async find(accountId, wanted) {
      const rows = await inTime(findResponses(db, { accountId, keepHours }, wanted));
      return rows.flatMap((row) => {
        try {
          return [new ResponseSeal(secretKey, accountId, row.id).open(row)];
        } catch (err) {
          // Of another SECRET_KEY: as if it were gone.
          log.warn({ err, requestId: row.id }, "a stored response cannot be read");
          return [];
        }
      });
    },
    remove: (accountId, id) => inTime(deleteResponse(db, { accountId, keepHours }, id)),
  };
}

type Write = (accountId: number, row: StoredRow, itemIds: readonly string[]) => Promise<void>;

/** Returns what stores a row within the account's bounds. A few rows are written at once, and an account has its share of them. */
function writerOf(db: Db): Write {
  const growth = new Growth();
  const busy = () => new Refusal("service_unavailable");
  const { max, waitingMax, atOnceMax, accountWaitingMax } = WRITES;
  const writes = createSemaphore({ max, waitingMax, shareFull: busy, allFull: busy });
  return async (accountId, row, itemIds) => {
    const share = { id: String(accountId), atOnceMax, waitingMax: accountWaitingMax };
    const leave = await writes.enter([share], { waitMsMax: WRITE_WAIT_MS_MAX });
    try {
      await inTime(insertResponse(db, { accountId, ...row, itemIds }));
      if (!growth.note(accountId, row.input.length + row.response.length)) return;
      const bounds = { accountId, responsesMax: RESPONSES_MAX, bytesMax: ACCOUNT_BYTES_MAX };
      await inSlices(DELETED_MAX, () => inTime(deleteOldest(db, bounds)));
    } finally {
      leave();
    }
  };
}

type Kept = { accountId: number; requestId: string; seal: ResponseSeal; sealed: Buffer; room: BodyRoom };

type KeeperDeps = Pick<StoredResponsesDeps, "log" | "metrics"> & { write: Write };

/** Has the input of a response until the response is there. */
class RowKeeper implements Keeper {
  readonly #deps: KeeperDeps;
  #kept: Kept | undefined;

  constructor(deps: KeeperDeps, kept: Kept) {
    this.#deps = deps;
    this.#kept = kept;
  }

  async keep(response: string): Promise<void> {
    const { log, metrics, write } = this.#deps;
    if (this.#kept === undefined) return;
    const { accountId, requestId, seal, sealed } = this.#kept;
    if (response.length > PART_CHARS_MAX) return metrics.responseStored("too_large");
    try {
      const row = { id: requestId, input: sealed, response: seal.close("response", response) };
      await write(accountId, row, foreignIds(response, requestId));
      metrics.responseStored("stored");
    } catch (err) {
      metrics.responseStored("failed");
      log.warn({ err, requestId }, "a response was not stored");
    }
  }

  close(): void {
    this.#kept?.room.close();
    this.#kept = undefined;
  }
}

/** Memory for an input until its response is stored; undefined: there is none. */
function roomFor(bodies: Bodies, owner: Owner, bytes: number): BodyRoom | undefined {
  try {
    const room = bodies.open(owner, bytes);
    room.wasRead();
    return room;
  } catch (error) {
    if (error instanceof Refusal) return undefined;
    throw error;
  }
}

/** Encrypts the parts of a response for its account, its id and their place. */
class ResponseSeal {
  readonly #key: Uint8Array;
  readonly #id: string;

  constructor(secretKey: Uint8Array, accountId: number, id: string) {
    this.#key = deriveKey(secretKey, `responses.${accountId}`);
    this.#id = id;
  }

  close(part: "input" | "response", json: string): Buffer {
    const isSmall = json.length <= COMPRESSED_CHARS_MAX;
    const bytes = isSmall ? deflateRawSync(json, { level: 1 }) : Buffer.from(json);
    return encrypt(this.#key, Buffer.concat([Buffer.of(isSmall ? DEFLATED : PLAIN), bytes]), `${this.#id}.${part}`);
  }

  /** Throws an Error if the bytes are damaged, or of another key. */
  open({ id, input, response }: StoredRow): StoredResponse {
    return { id, input: this.#opened("input", input), response: this.#opened("response", response) };
  }

  #opened(part: "input" | "response", sealed: Buffer): string {
    const bytes = decryptBytes(this.#key, sealed, `${this.#id}.${part}`);
    const plain = bytes.subarray(1);
    return (bytes[0] === DEFLATED ? inflateRawSync(plain) : plain).toString("utf8");
  }
}

/** The ids of output items that do not contain the response's own. */
function foreignIds(response: string, requestId: string): string[] {
  const own = requestId.replaceAll("-", "");
  const value: unknown = JSON.parse(response);
  const output = isRecord(value) && Array.isArray(value.output) ? (value.output as unknown[]) : [];
  return output
    .map((item) => (isRecord(item) ? item.id : undefined))
    .filter((id): id is string => typeof id === "string" && id.length <= ID_CHARS_MAX && !id.includes(own))
    .slice(0, FOREIGN_IDS_MAX);
}

/** Counts what each account has stored since its bounds were applied. */
class Growth {
  readonly #accounts = new Map<number, { rows: number; bytes: number }>();

  /** Returns whether the bounds are to be applied now. */
  note(accountId: number, bytes: number): boolean {
    const grown = this.#accounts.get(accountId) ?? { rows: 0, bytes: 0 };
    grown.rows++;
    grown.bytes += bytes;
    const isDue = grown.rows >= BOUND_EVERY_ROWS || grown.bytes >= BOUND_EVERY_BYTES;
    if (isDue) this.#accounts.delete(accountId);
    else this.#accounts.set(accountId, grown);
    if (this.#accounts.size > COUNTED_ACCOUNTS_MAX) this.#accounts.clear();
    return isDue;
  }
}
