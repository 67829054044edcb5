import { randomToken } from "./crypto.ts";
import type { Log } from "./log.ts";
import { connectRedis } from "./redis.ts";
import { within } from "./time_limit.ts";

/** Changes go through this channel; each replica's heartbeat through one of its own. */
const CHANNEL = "tollgate:changes";
const BEAT_CHANNEL_PREFIX = "tollgate:beat:";
/** Changes in one message. */
const CHANGES_PER_MESSAGE = 500;
/** The caller of publish waits no longer than this for Redis. */
const PUBLISH_WAIT_MS = 250;
const BEAT_EVERY_MS = 1000;
/** No heartbeat for this long: the subscriber is taken to hear nothing. */
const SILENCE_MAX_MS = 3000;

/** Something cached has changed. `ref`: an account's id, a model's id or provider's name, a host, or the account of a session. */
export type Change = { kind: "account" | "catalog" | "host" | "session"; ref: string };

export type Bus = {
  /**
   * Tells this replica at once (its handlers have run when publish returns its promise) and the others through Redis.
   * Call it after the commit. Never throws: with Redis away, others learn from the changes table.
   */
  publish(changes: readonly Change[]): Promise<void>;
  /** Tells this replica alone: for what every replica learns by itself, as from the changes table. */
  deliver(changes: readonly Change[]): void;
  /** Has this replica forget everything cached. */
  gap(): void;
  subscribe(handler: (changes: readonly Change[]) => void): void;
  /** Messages may have been missed: forget everything cached. */
  onGap(handler: () => void): void;
  /** False while messages may be going missing. */
  healthy(): boolean;
  close(): void;
};

/** For one replica without Redis. */
export function inProcessBus(log: Log): Bus {
  const handlers = createHandlers(log);
  return {
    publish: async (changes) => handlers.deliver(changes),
    deliver: handlers.deliver,
    gap: handlers.gap,
    subscribe: handlers.subscribe,
    onGap: handlers.onGap,
    healthy: () => true,
    close: () => {},
  };
}

/** For many replicas. Connects by itself, and again after every loss. */
export function redisBus(redisUrl: string, log: Log): Bus {
  const handlers = createHandlers(log);
  const sender = randomToken(9);
  const beatChannel = BEAT_CHANNEL_PREFIX + sender;
  const publisher = connectRedis(redisUrl, { log, use: "bus publisher" });
  // Subscribing again is done here, so that the gap is told after it has taken effect and not before.
  const subscriber = connectRedis(redisUrl, { log, use: "bus subscriber" });
  let heardAtMs = Number.NEGATIVE_INFINITY;
  let resetAtMs = performance.now();
  // Nothing was cached before the first connection, so that its silence is no news.
  let silent = true;
  let gapTold = false;
  let closed = false;

  const hearing = () => performance.now() - heardAtMs <= SILENCE_MAX_MS;

  subscriber.on("ready", () => {
    subscriber.subscribe(CHANNEL, beatChannel).then(
      () => {
        gapTold = true;
        handlers.gap();
        sendBeat();
      },
      (error: unknown) => {
        log.warn({ err: error }, "the bus could not subscribe; it reconnects");
        subscriber.disconnect(true);
      },
    );
  });
  subscriber.on("close", () => {
    heardAtMs = Number.NEGATIVE_INFINITY;
    fallSilent("the bus lost Redis");
  });
  subscriber.on("message", (channel: string, message: string) => {
    if (channel === beatChannel) return heardBeat();
    const received = parseMessage(message);
    if (received === undefined) handlers.gap();
    else if (received.from !== sender) handlers.deliver(received.changes);
  });

  function heardBeat(): void {
    heardAtMs = performance.now();
    if (!silent) return;
    silent = false;
    log.info("the bus hears");
    if (!gapTold) handlers.gap();
  }

  function fallSilent(why: string): void {
    gapTold = false;
    if (silent || closed) return;
    silent = true;
    log.warn(`${why}; caches are flushed, and short-lived until it hears again`);
    handlers.gap();
  }

  function sendBeat(): void {
    publisher.publish(beatChannel, "").catch(() => {}); // Its absence is what tells.
  }

  const beat = setInterval(() => {
    sendBeat();
    if (hearing()) return;
    if (!silent) fallSilent("the bus hears nothing");
    // A connection that looks open and carries nothing, as after a failover, is only ended by us.
    if (subscriber.status === "ready" && performance.now() - resetAtMs > SILENCE_MAX_MS) {
      resetAtMs = performance.now();
      subscriber.disconnect(true);
    }
  }, BEAT_EVERY_MS);

  return {
    async publish(changes) {
      handlers.deliver(changes);
      try {
        for (let i = 0; i < changes.length; i += CHANGES_PER_MESSAGE) {
          const message = JSON.stringify({ from: sender, changes: changes.slice(i, i + CHANGES_PER_MESSAGE) });
          await within(PUBLISH_WAIT_MS, publisher.publish(CHANNEL, message));
        }
      } catch (error) {
        log.warn(
          { err: error, changes: changes.length },
          "changes were not published; other replicas learn from the changes table",
        );
      }
    },
    deliver: handlers.deliver,
    gap: handlers.gap,
    subscribe: handlers.subscribe,
    onGap: handlers.onGap,
    healthy: hearing,
    close() {
      closed = true;
      clearInterval(beat);
      publisher.disconnect();
      subscriber.disconnect();
    },
  };
}

function createHandlers(log: Log) {
  const onChanges: ((changes: readonly Change[]) => void)[] = [];
  const onGaps: (() => void)[] = [];
  const guarded = (run: () => void) => {
    try {
      run();
    } catch (error) {
      log.error({ err: error }, "a handler of changes failed");
    }
  };
  return {
    subscribe: (handler: (changes: readonly Change[]) => void) => void onChanges.push(handler),
    onGap: (handler: () => void) => void onGaps.push(handler),
    deliver(changes: readonly Change[]) {
      if (changes.length > 0) for (const handler of onChanges) guarded(() => handler(changes));
    },
    gap() {
      for (const handler of onGaps) guarded(handler);
    },
  };
}

/** Undefined for what another release may have sent: then it counts as missed. */
function parseMessage(message: string): { from: string; changes: Change[] } | undefined {
  try {
    const parsed: unknown = JSON.parse(message);
    if (typeof parsed !== "object" || parsed === null || !("from" in parsed) || !("changes" in parsed))
      return undefined;
    const { from, changes } = parsed;
    if (typeof from !== "string" || !Array.isArray(changes) || !changes.every(isChange)) return undefined;
    return { from, changes };
  } catch {
    return undefined;
  }
}

/** Whether a value from Redis or the database is a change as this release knows them. */
export function isChange(value: unknown): value is Change {
  if (typeof value !== "object" || value === null || !("kind" in value) || !("ref" in value)) return false;
  return typeof value.kind === "string" && KINDS.has(value.kind) && typeof value.ref === "string";
}
const KINDS = new Set<string>(["account", "catalog", "host", "session"] satisfies Change["kind"][]);
