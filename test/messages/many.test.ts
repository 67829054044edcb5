import { afterEach, beforeEach, expect, test } from "bun:test";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** Source: MSG-3. */

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
  Bun.gc(true);
  const before = process.memoryUsage().heapUsed;
  const messages = world.start();
  let most = 0;
  const watch = setInterval(() => (most = Math.max(most, process.memoryUsage().heapUsed)), 20);
  await messages.run();
  clearInterval(watch);
  expect(arrived).toBe(10_000);
  expect(await world.counts()).toEqual({ failed: 10_000 });
  expect((most - before) / 1e6).toBeLessThan(150);
}, 600_000);
