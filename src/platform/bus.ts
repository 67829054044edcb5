import { type Redis, ReplyError } from "ioredis";
import { randomToken } from "./crypto.ts";
import type { Log } from "./log.ts";
import { connectRedis } from "./redis.ts";
import { within } from "./time_limit.ts";

/** Changes go through this channel; each replica's heartbeat through a channel of its own. */
const CHANNEL = "tollgate:changes";
const BEAT_CHANNEL_PREFIX = "tollgate:beat:";
/** Changes in one message. */
const CHANGES_PER_MESSAGE = 500;
/** Longest wait of `publish` for Redis. */
const PUBLISH_WAIT_MS = 250;
const BEAT_EVERY_MS = 1000;
/** Without a heartbeat for this long, the subscriber is assumed to receive nothing. */
const SILENCE_MAX_MS = 3000;

/**
 * A cached row has changed. `ref`: the account's id (for an active host, its reseller's), the model's id or provider's name, or the
 * session's account id.
 * `escrow`: a request of the account waits for what replicas have drawn of it and do not use. `provider_key`: the state of a
 * provider's key, by its id.
 */
export type Change = {
  kind: "account" | "catalog" | "session" | "escrow" | "provider_key";
  ref: string;
};

export type Bus = {
  /**
   * Tells this replica (its handlers have run when publish returns its promise), and the others through Redis. Call it after the
   * commit. Never throws: while Redis is away, the others learn from the table `changes`.
   */
  publish(changes: readonly Change[]): Promise<void>;
  /** Tells this replica only: for what every replica learns by itself, as from the table `changes`. */
  deliver(changes: readonly Change[]): void;
  /** Tells this replica that changes may have been missed. */
  gap(): void;
  subscribe(handler: (changes: readonly Change[]) => void): void;
  /** Changes may have been missed: the handler drops everything cached. */
  onGap(handler: () => void): void;
  /** False while messages may be lost. */
  healthy(): boolean;
  /** False if Redis refused the last write: it is full, or read-only. */
  takesWrites(): boolean;
  close(): void;
};

/** For a single replica, without Redis. */
export function inProcessBus(log: Log): Bus {
  const handlers = createHandlers(log);
  return {
    publish: async (changes) => handlers.deliver(changes),
    deliver: handlers.deliver,
    gap: handlers.gap,
    subscribe: handlers.subscribe,
    onGap: handlers.onGap,
    healthy: () => true,
    takesWrites: () => true,
    close: () => {},
  };
}

/** For many replicas. Connects by itself, and reconnects after every loss. */
export function redisBus(redisUrl: string, log: Log): Bus {
  const handlers = createHandlers(log);
  const sender = randomToken(9);
  const beatChannel = BEAT_CHANNEL_PREFIX + sender;
  const publisher = connectRedis(redisUrl, { log, use: "bus publisher" });
  let takesWrites = true;
  const noteWrite = (refusal?: Error) => {
    if (takesWrites && refusal) log.warn({ err: refusal }, "Redis refuses writes");
    if (!takesWrites && !refusal) log.info("Redis takes writes again");
    takesWrites = refusal === undefined;
  };
  const sendBeat = () => {
    publisher.publish(beatChannel, "").catch(() => {}); // Its absence is noticed.
    // A former primary that has become a read-only replica publishes too, and only this replica may hear it. But it refuses a write, and
    // then the connection is replaced (redis.ts).
    publisher.set(beatChannel, "", "PX", SILENCE_MAX_MS).then(
      () => noteWrite(),
      // Without an answer nothing is known, and the heartbeat's absence is noticed.
      (error) => error instanceof ReplyError && noteWrite(error),
    );
  };
  const listener = startListener(connectRedis(redisUrl, { log, use: "bus subscriber" }), {
    log,
    beatChannel,
    sendBeat,
    onGap: handlers.gap,
    onMessage(message) {
      const received = parseMessage(message);
      if (received === undefined) handlers.gap();
      else if (received.from !== sender) handlers.deliver(received.changes);
    },
  });

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
    healthy: listener.isHearing,
    takesWrites: () => takesWrites,
    close() {
      listener.close();
      publisher.disconnect();
    },
  };
}

type ListenerOptions = {
  log: Log;
  beatChannel: string;
  /** Publishes a heartbeat, which comes back to this listener. */
  sendBeat: () => void;
  onMessage: (message: string) => void;
  /** Messages may have been missed. */
  onGap: () => void;
};

/** Subscribes, and watches by heartbeats whether messages arrive. */
function startListener(subscriber: Redis, { log, beatChannel, sendBeat, onMessage, onGap }: ListenerOptions) {
  let heardAtMs = Number.NEGATIVE_INFINITY;
  let resetAtMs = performance.now();
  // Nothing is cached before the first connection, so its silence is not reported.
  let isSilent = true;
  let gapReported = false;
  let closed = false;
  const isHearing = () => performance.now() - heardAtMs <= SILENCE_MAX_MS;

  function heardBeat(): void {
    heardAtMs = performance.now();
    if (!isSilent) return;
    isSilent = false;
    log.info("the bus receives messages");
    if (!gapReported) onGap();
  }

  function fallSilent(why: string): void {
    gapReported = false;
    if (isSilent || closed) return;
    isSilent = true;
    log.warn(`${why}; caches are flushed, and entries expire early until messages arrive again`);
    onGap();
  }

  // `autoResubscribe` is off: the gap must be reported after the subscription has taken effect, not before.
  subscriber.on("ready", () => {
    subscriber.subscribe(CHANNEL, beatChannel).then(
      () => {
        gapReported = true;
        onGap();
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
    if (channel === beatChannel) heardBeat();
    else onMessage(message);
  });

  const beat = setInterval(() => {
    sendBeat();
    if (isHearing()) return;
    if (!isSilent) fallSilent("the bus receives nothing");
    // A connection that looks open but carries nothing, as after a failover, has to be closed by us.
    if (subscriber.status === "ready" && performance.now() - resetAtMs > SILENCE_MAX_MS) {
      resetAtMs = performance.now();
      subscriber.disconnect(true);
    }
  }, BEAT_EVERY_MS);

  return {
    isHearing,
    close() {
      closed = true;
      clearInterval(beat);
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

/** Undefined: not of the expected form, as from another release. It counts as missed. */
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

/** Whether a value from Redis or the database is a change that this release knows. */
export function isChange(value: unknown): value is Change {
  if (typeof value !== "object" || value === null || !("kind" in value) || !("ref" in value)) return false;
  return typeof value.kind === "string" && KINDS.has(value.kind) && typeof value.ref === "string";
}
const KINDS = new Set<string>(["account", "catalog", "session", "escrow", "provider_key"] satisfies Change["kind"][]);
