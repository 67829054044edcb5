import { setImmediate } from "node:timers";
import { Redis } from "ioredis";

import type { Log } from "./log.ts";

const CONNECT_TIMEOUT_MS = 2000;
/** The connection is closed if a command is unanswered for this long. */
const SOCKET_TIMEOUT_MS = 2000;
const RECONNECT_MAX_MS = 1000;
/** After a missing answer, Redis is not asked for this long, so that not every request waits for the whole budget. */
const REDIS_REST_MS = 1000;

/**
 * A connection that does not queue commands while disconnected, closes when the server is silent or takes no writes, reconnects
 * forever, and logs an outage once.
 */
export function connectRedis(redisUrl: string, { log, use }: { log: Log; use: string }): Redis {
  const redis = new Redis(redisUrl, {
    connectionName: `tollgate:${use.replaceAll(" ", "-")}`, // Redis refuses a space.
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: SOCKET_TIMEOUT_MS,
    enableOfflineQueue: false,
    autoResubscribe: false,
    // The callers have already continued without these answers.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // After a failover this server may have become a replica. The command fails, and the name is looked up again.
    reconnectOnError: ({ message }) => message.includes("READONLY"),
    retryStrategy: (times) => Math.min(50 * times, RECONNECT_MAX_MS),
  });
  let away = false;
  const lost = (error?: Error) => {
    if (away) return;
    away = true;
    log.warn({ use, err: error }, "Redis is away");
  };
  redis.on("error", lost);
  redis.on("ready", () => {
    if (away) log.info({ use }, "Redis is back");
    away = false;
  });
  return redis;
}

export type RedisWithTimeout = {
  redis: Redis;
  /** The answer, or undefined if Redis is away or too slow. Never throws. */
  ask<T>(question: () => Promise<T>): Promise<T | undefined>;
  /** Sends a command that needs no answer. */
  tell(send: () => Promise<unknown>): void;
  close(): void;
};

type BudgetOptions = { log: Log; use: string; budgetMs: number; now: () => number; onLate?: () => void };

/** A connection with a time limit for each question: after `budgetMs` the caller continues without an answer. `now`: the monotonic clock, ms. */
export function redisWithTimeout(
  redisUrl: string,
  { log, use, budgetMs, now, onLate }: BudgetOptions,
): RedisWithTimeout {
  const redis = connectRedis(redisUrl, { log, use });
  let restUntilMs = Number.NEGATIVE_INFINITY;
  let isAway = false;
  const away = (why: string) => {
    restUntilMs = now() + REDIS_REST_MS;
    if (!isAway) log.warn({ use, why }, "Redis does not answer in time; this replica decides by itself");
    isAway = true;
  };
  const present = () => {
    if (isAway) log.info({ use }, "Redis answers in time");
    isAway = false;
  };
  return {
    redis,
    ask(question) {
      if (redis.status !== "ready" || now() < restUntilMs) return Promise.resolve(undefined);
      return new Promise((resolve) => {
        let answered = false;
        const timer = setTimeout(() => {
          // If this process was blocked, the answer may wait in the socket: read it first.
          setImmediate(() => {
            if (!answered) away("late");
            if (!answered) onLate?.();
            resolve(undefined);
          });
        }, budgetMs);
        question().then(
          (answer) => {
            answered = true;
            clearTimeout(timer);
            present();
            resolve(answer);
          },
          (error: unknown) => {
            answered = true;
            clearTimeout(timer);
            away(error instanceof Error ? error.message : "error");
            resolve(undefined);
          },
        );
      });
    },
    tell(send) {
      if (redis.status === "ready") send().catch(() => {}); // A lease ends what was not reported.
    },
    close: () => redis.disconnect(),
  };
}
