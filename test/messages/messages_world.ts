import { readConfig } from "../../src/config.ts";
import { type Messages, startMessages } from "../../src/messages/delivery.ts";
import { inProcessBus } from "../../src/platform/bus.ts";
import { createLog } from "../../src/platform/log.ts";
import { type Message, type MessageKind, tell } from "../../src/platform/outbox_store.ts";
import { createWorld } from "../world.ts";

/** A database with accounts, and the delivery of its outbox by the database's clock, which the test moves. */

export const SECRET_KEY = "11".repeat(32);

type Told<Kind extends MessageKind> = Omit<Message<Kind>, "data"> & { data?: Partial<Message<Kind>["data"]> };

export type MessagesWorld = Awaited<ReturnType<typeof createMessagesWorld>>;

export async function createMessagesWorld(env: Record<string, string> = {}) {
  const world = await createWorld();
  const log = createLog("silent");
  const config = readConfig({
    DATABASE_URL: world.url,
    SECRET_KEY,
    BASE_URL: "https://api.tollgate.example/v1",
    PANEL_URL: "https://panel.tollgate.example",
    BRAND_NAME: "Operator Inc",
    MAIL_FROM: "Operator <mail@operator.example>",
    ...env,
  });
  const db = world.openDb();
  let aheadMs = 0;
  const nowMs = () => performance.now() + aheadMs;
  const setAhead = async (ms: number) => {
    aheadMs = ms;
    await world.sql.unsafe(
      `create or replace function ledger_now() returns timestamptz language sql volatile as $$ select clock_timestamp() + interval '${ms} ms' $$`,
    );
  };
  const open: Messages[] = [];
  const deps = { db, bus: inProcessBus(log), config, log, nowMs, random: () => 0.5 };
  return {
    ...world,
    deps,
    /** Moves the database's clock ahead. */
    pass: (ms: number) => setAhead(aheadMs + ms),
    /** Lets it agree with this machine's again. */
    resetClock: () => setAhead(0),
    /** The database's time. */
    unixMs: () => Date.now() + aheadMs,
    /** The delivery of one replica. With `tickMs` 0 only `run` delivers. */
    start(tickMs = 0): Messages {
      const messages = startMessages({ ...deps, tickMs });
      open.push(messages);
      return messages;
    },
    /** Values may be missing, as in messages of an older release. */
    tell: <Kind extends MessageKind>({ data = {}, ...message }: Told<Kind>) =>
      db.orm.transaction((tx) => tell(tx, { ...message, data: data as Message<Kind>["data"] })),
    async emailOf({ accountId }: { accountId: number }): Promise<string> {
      const [row] = await world.sql`select email from accounts where id = ${accountId}`;
      return String(row?.email);
    },
    /** Deliveries by status. */
    async counts(): Promise<Record<string, number>> {
      const rows = await world.sql`select status, count(*)::int as n from outbox_deliveries group by status`;
      return Object.fromEntries(rows.map(({ status, n }) => [status, n]));
    },
    async close(): Promise<void> {
      await Promise.all(open.map((messages) => messages.close()));
      await db.close();
      await world.close();
    },
  };
}
