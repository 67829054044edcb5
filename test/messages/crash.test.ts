import { afterAll, beforeAll, expect, test } from "bun:test";
import { openShop, type Shop } from "../gateway/shop.ts";
import { until } from "../platform/own_redis.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** A replica that is killed while it sends. Source: MSG-1. */
const MAILS = 40;

let box: MailBox;
let shop: Shop;
beforeAll(async () => {
  box = await openMailBox();
  shop = await openShop({ env: { SMTP_URL: box.url, MAIL_FROM: "mail@operator.example" } });
  await shop.replicas[0]?.stop();
});
afterAll(async () => {
  await shop.close();
  await box.close();
});

test("a kill -9 between the mail server's answer and the commit loses no mail: each arrives at least once", async () => {
  const { sql } = shop.world;
  const people = await sql`
    insert into accounts (role, email, name) select 'reseller', 'r' || i || '@example.com', 'R' || i from generate_series(1, ${MAILS}) i returning id`;
  for (const { id } of people)
    await sql`insert into outbox_messages (kind, account_id, data) values ('domain_lost', ${id}, '{"host":"lost.example"}')`;
  const sent = async () => Number((await sql`select count(*) as n from outbox_deliveries where status = 'sent'`)[0]?.n);
  for (const at of [1, 5, 9]) {
    const doomed = await shop.start({ FAILPOINTS: `after_send=kill@${at}` });
    await until(() => doomed.process.signalCode === "SIGKILL");
    // The claims of the dead run out, as they would after 150 s.
    await sql`update outbox_recipients set next_at = clock_timestamp() where next_at is not null`;
  }
  expect(await sent()).toBeLessThan(MAILS);
  const last = await shop.start();
  await until(async () => (await sent()) === MAILS);
  await last.stop();
  const addresses = new Set(box.mails.flatMap(({ envelopeTo }) => envelopeTo));
  expect(addresses.size).toBe(MAILS);
  // Three deaths, each with at most eight mails of the tenant under way.
  expect(box.mails.length).toBeLessThanOrEqual(MAILS + 3 * 8);
  // Who gets a mail twice can tell: it is the same.
  const ids = new Set(box.mails.map(({ messageId }) => messageId));
  expect(ids.size).toBe(MAILS);
});
