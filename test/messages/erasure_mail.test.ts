import { afterAll, beforeAll, expect, test } from "bun:test";
import { pruneOutbox } from "../../src/messages/deliveries_store.ts";
import { erasePerson } from "../../src/messages/erasure_store.ts";
import { createMessagesWorld, type MessagesWorld } from "./messages_world.ts";
import { type MailBox, openMailBox } from "./post.ts";

/** The mail that confirms an erasure, and what is left of the address. Source: RET-8, RET-10. */

const HOUR_MS = 3_600_000;

let box: MailBox;
let world: MessagesWorld;
beforeAll(async () => {
  box = await openMailBox();
  world = await createMessagesWorld({ SMTP_URL: box.url });
});
afterAll(async () => {
  await world.close();
  await box.close();
});

/** Tables that have the text somewhere. */
async function tablesWith(text: string): Promise<string[]> {
  const tables = await world.sql`
    select table_name as name from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE' and table_name <> 'changes'`;
  const found: string[] = [];
  for (const { name } of tables) {
    const rows =
      await world.sql`select 1 from ${world.sql(String(name))} t where strpos(lower(t::text), ${text}) > 0 limit 1`;
    if (rows.length > 0) found.push(String(name));
  }
  return found;
}

/** A customer whose sign-up was mailed to the address, which is the seller's message. */
async function signedUp(resellerId?: number) {
  const customer = await world.addCustomer(resellerId);
  const email = await world.emailOf(customer);
  const data = {
    address: email.toUpperCase(),
    urlCiphertext: "x",
    expiresAt: new Date(world.unixMs() + HOUR_MS).toISOString(),
  };
  await world.tell({ kind: "sign_up", accountId: resellerId ?? 0, data });
  await world.tell({ kind: "password_changed", accountId: customer.accountId });
  return { ...customer, email };
}

const erase = ({ accountId: personId, email }: { accountId: number; email: string }) =>
  erasePerson(world.deps, { personId, email, force: false });

test("a person is mailed that they are erased, in their language and without their name, and then nothing has the address", async () => {
  const { accountId, email } = await signedUp();
  await world.sql`update accounts set name = 'Zoe Gnu', language = 'de' where id = ${accountId}`;
  const messages = world.start();
  await messages.run();
  await world.tell({ kind: "password_changed", accountId });
  await erase({ accountId, email });
  expect(await tablesWith(email)).toEqual(["outbox_messages"]);
  await messages.run();
  const mail = box.to(email).at(-1);
  expect(mail?.subject).toBe("Ihr Konto bei Operator Inc wurde gelöscht");
  expect(mail?.raw).not.toContain("Zoe");
  // What waited was not sent, and one mail tells of the erasure.
  expect(box.to(email).map(({ subject }) => subject?.includes("Operator Inc"))).toEqual([true, true]);
  await pruneOutbox(world.deps);
  expect(await tablesWith(email)).toEqual([]);
});

test("an address that no mail reaches is not kept either: it is refused, there is no mail server, or it is away for two days", async () => {
  const [refused, unmailed, waiting] = [
    await signedUp(),
    await signedUp((await world.addReseller()).accountId),
    await signedUp(),
  ];
  const messages = world.start();
  await messages.run();
  box.does.refuses = (address) => (address === refused.email ? "550 no such mailbox" : "451 try later");
  for (const person of [refused, unmailed, waiting]) await erase(person);
  await messages.run();
  await pruneOutbox(world.deps);
  // A mail that waits keeps its address until it is sent or given up.
  expect(await Promise.all([refused, unmailed, waiting].map(({ email }) => tablesWith(email)))).toEqual([
    [],
    [],
    ["outbox_messages", "outbox_recipients"],
  ]);
  for (let hours = 0; hours < 50; hours++) {
    await world.pass(HOUR_MS);
    await messages.run();
  }
  await pruneOutbox(world.deps);
  expect(await tablesWith(waiting.email)).toEqual([]);
  box.does.refuses = () => null;
});
