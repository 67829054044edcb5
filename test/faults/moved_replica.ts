import { randomUUID } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Shop } from "../gateway/shop.ts";
import { NO_TABLES, type ReplicaProcess, startReplicaProcess } from "../replica.ts";

const MOVED_CLOCK = `--preload=${fileURLToPath(new URL("../browser/moved_clock.ts", import.meta.url))}`;

export type MovedReplica = ReplicaProcess & { moveTo(aheadMs: number): void };

/** A replica whose clock is ahead of the machine's, which is also the database's; behind, if negative. */
export async function startMovedReplica(
  shop: Shop,
  aheadMs: number,
  env: Record<string, string> = {},
): Promise<MovedReplica> {
  const name = `clock-${randomUUID()}`;
  mkdirSync(shop.world.spoolDir, { recursive: true });
  const file = join(shop.world.spoolDir, name);
  const moveTo = (ms: number) => writeFileSync(file, String(-ms));
  moveTo(aheadMs);
  const replica = await startReplicaProcess({
    DATABASE_URL: shop.world.url,
    REDIS_URL: process.env.REDIS_URL ?? "",
    SPOOL_DIR: join(shop.world.spoolDir, `spool-${name}`),
    PROVIDER_ALLOW_PRIVATE: `127.0.0.1:${shop.provider.port}`,
    CLOCK_BACK_FILE: file,
    BUN_OPTIONS: `${MOVED_CLOCK} ${NO_TABLES}`,
    ...env,
  });
  return { ...replica, moveTo };
}
