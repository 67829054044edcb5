import { afterEach, beforeEach, expect, test } from "bun:test";
import { sleep } from "../platform/own_redis.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** Source: MSG-3. */

/** Those that a replica sends at once, the slow ones included. */
const CLAIMED_MAX = 16 + 256;

let box: MailBox;
let world: MessagesWorld;
beforeEach(async () => {
  box = await openMailBox();
  world = await createMessagesWorld({ SMTP_URL: box.url });
});
afterEach(async () => {
  await world.close();
  await box.close();
});

test("10,000 waiting messages are sent, and the replica has only a few of them in memory at a time", async () => {
  const people = await world.sql`
    insert into accounts (role, email, name)
    select 'reseller', 'many' || i || '@example.com', 'Many ' || i from generate_series(1, 10000) i returning id`;
  expect(people).toHaveLength(10_000);
  await world.sql`
    insert into outbox_messages (kind, account_id, data) select 'domain_lost', id, '{"host":"lost.example"}' from accounts where name like 'Many %'`;
  let arrived = 0;
  box.does.refuses = () => {
    arrived++;
    return "550 counted, not kept";
  };
  /** Messages that the replica has read and not finished. */
  const claimed = async () => {
    const [row] = await world.sql`
      select count(*)::int as n from outbox_recipients r where claim_id is not null
        and exists (select 1 from outbox_deliveries d where d.recipient_id = r.id and d.status = 'waiting')`;
    return Number(row?.n);
  };
  const messages = world.start();
  let most = 0;
  let isOver = false;
  const watching = (async () => {
    while (!isOver) {
      most = Math.max(most, await claimed());
      await sleep(200);
    }
  })();
  await messages.run();
  isOver = true;
  await watching;
  expect(arrived).toBe(10_000);
  expect(await world.counts()).toEqual({ failed: 10_000 });
  expect(most).toBeWithin(1, CLAIMED_MAX + 1);
}, 600_000);
