import { setImmediate } from "node:timers";
import { Redis } from "ioredis";

import type { Log } from "./log.ts";

const CONNECT_TIMEOUT_MS = 2000;
/** A command unanswered for this long: the connection is thrown away. */
const SOCKET_TIMEOUT_MS = 2000;
const RECONNECT_MAX_MS = 1000;
/** After an answer that did not come, Redis is not asked for this long: not every request shall wait the budget out. */
const REDIS_REST_MS = 1000;

/**
 * A connection that never queues what it cannot send, gives up on a silent server, reconnects for ever, and logs an
 * outage once.
 */
export function connectRedis(redisUrl: string, { log, use }: { log: Log; use: string }): Redis {
  const redis = new Redis(redisUrl, {
    connectionName: `tollgate:${use.replaceAll(" ", "-")}`, // Redis refuses a space.
    connectTimeout: CONNECT_TIMEOUT_MS,
    socketTimeout: SOCKET_TIMEOUT_MS,
    enableOfflineQueue: false,
    autoResubscribe: false,
    // What was asked before the loss has been answered otherwise by now.
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
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
  /** The answer, or undefined when Redis is away or too slow. Never throws. */
  ask<T>(question: () => Promise<T>): Promise<T | undefined>;
  /** Sends what needs no answer. */
  tell(send: () => Promise<unknown>): void;
  close(): void;
};

type BudgetOptions = { log: Log; use: string; budgetMs: number; now: () => number; onLate?: () => void };

/** Redis within a budget: whoever asks goes on after `budgetMs`, with or without it. `now` is the monotonic clock, ms. */
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
          // If it was this process that stood still, the answer lies in the socket: let it be read first.
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
      if (redis.status === "ready") send().catch(() => {}); // The lease ends what is not given back.
    },
    close: () => redis.disconnect(),
  };
}
