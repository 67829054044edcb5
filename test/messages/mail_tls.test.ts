import { afterAll, beforeAll, expect, test } from "bun:test";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { listDeliveries } from "../../src/messages/deliveries_store.ts";
import { listDownServers } from "../../src/messages/mail_breakers_store.ts";
import { saveMailServer } from "../../src/messages/mail_servers_store.ts";
import { newRequestId } from "../../src/platform/crypto.ts";
import { makeCertificate } from "./made_certificate.ts";
import { createMessagesWorld } from "./messages_world.ts";
import { openMailBox, ownAddress } from "./post.ts";

/** Mail servers with TLS: from the start, and by STARTTLS. Source: MSG-8, MSG-12. */
const run = promisify(execFile);

let forLocalhost: Awaited<ReturnType<typeof makeCertificate>>;
let forAddress: Awaited<ReturnType<typeof makeCertificate>>;
let forOther: Awaited<ReturnType<typeof makeCertificate>>;
beforeAll(async () => {
  [forLocalhost, forAddress, forOther] = (await Promise.all(
    ["DNS:localhost", "IP:127.0.0.1", "DNS:other.example"].map(makeCertificate),
  )) as [typeof forLocalhost, typeof forAddress, typeof forOther];
});
afterAll(() => Promise.all([forLocalhost, forAddress, forOther].map(({ remove }) => remove())));

type Sending = { trusts?: string; as?: string; host?: string; allowPrivate?: string };
/** Sends one mail to a box in a process of its own. */
async function sendTo(
  { url }: { url: string },
  { trusts, as = "", host = "localhost", allowPrivate = "" }: Sending = {},
): Promise<{ sent: boolean; fault?: string; message?: string }> {
  const to = url.replace("127.0.0.1", `${as}${host}`);
  const env = { ...process.env, ...(trusts !== undefined && { NODE_EXTRA_CA_CERTS: trusts }) };
  const { stdout } = await run(process.execPath, [`${import.meta.dir}/send_one.ts`, to, allowPrivate], { env });
  return JSON.parse(stdout);
}
const WITH_PASSWORD = "operator:a%20secret@";

for (const fromStart of [true, false]) {
  const how = fromStart ? "TLS from the start" : "STARTTLS";
  test(`${how}: a trusted certificate with the server's name is accepted, by name and by address`, async () => {
    for (const [certificate, host] of [
      [forLocalhost, "localhost"],
      [forAddress, "127.0.0.1"],
    ] as const) {
      const box = await openMailBox({ tls: { ...certificate, fromStart } });
      expect(await sendTo(box, { trusts: certificate.authorityPath, as: WITH_PASSWORD, host })).toEqual({ sent: true });
      expect(box.does.secure).toEqual([true]);
      expect(box.does.users).toEqual(["operator"]);
      await box.close();
    }
  });

  test(`${how}: an untrusted certificate, or one of another name, is refused before the password is sent`, async () => {
    const box = await openMailBox({ tls: { ...forLocalhost, fromStart } });
    const untrusted = await sendTo(box, { as: WITH_PASSWORD });
    expect(untrusted).toMatchObject({ sent: false, fault: "server" });
    expect(untrusted.message).toMatch(/^The mail server's TLS certificate is not valid: .*(self.signed|verify)/i);
    const other = await openMailBox({ tls: { ...forOther, fromStart } });
    const misnamed = await sendTo(other, { trusts: forOther.authorityPath, as: WITH_PASSWORD });
    expect(misnamed).toMatchObject({ sent: false, fault: "server" });
    expect(misnamed.message).toMatch(/^The mail server's TLS certificate is not valid: .*(altnames|name)/i);
    // Without a password too: the mail would be readable to whoever answered.
    expect(await sendTo(box)).toMatchObject({ sent: false, fault: "server" });
    for (const { mails, does } of [box, other]) expect([mails.length, does.users]).toEqual([0, []]);
    await Promise.all([box.close(), other.close()]);
  });
}

test("a server without TLS never gets a password, unless the operator has allowed its private address", async () => {
  const hidden = await openMailBox({ tls: { ...forLocalhost, hidesStartTls: true } });
  const without = await openMailBox();
  for (const box of [hidden, without]) {
    const refused = await sendTo(box, { trusts: forLocalhost.authorityPath, as: WITH_PASSWORD });
    expect(refused).toMatchObject({ sent: false, fault: "server" });
    expect(refused.message).toStartWith("The mail server did not begin TLS, and the password is not sent without it: ");
    expect([box.mails.length, box.does.users]).toEqual([0, []]);
    const allowPrivate = `localhost:${box.port}`;
    expect(await sendTo(box, { as: WITH_PASSWORD, allowPrivate })).toEqual({ sent: true });
    expect(box.does.users).toEqual(["operator"]);
    // Without a password there is nothing to protect but the mail.
    expect(await sendTo(box)).toEqual({ sent: true });
    await box.close();
  }
});

test("the page says what is wrong with a certificate, and the mails wait until it is replaced", async () => {
  const host = ownAddress();
  const allowed = `${host}:2525`;
  const world = await createMessagesWorld({ MESSAGES_ALLOW_PRIVATE: allowed });
  const { accountId } = await world.addReseller();
  await world.sql`insert into brands (reseller_id, name, version) values (${accountId}, 'Lumen AI', '1')`;
  const by = { ...world.deps, by: { accountId: 1, requestId: newRequestId() } };
  const server = { host, port: 2525, userName: "lumen", password: "a secret" };
  await saveMailServer(by, accountId, { ...server, fromAddress: "hello@lumen.example", fromName: "Lumen AI" });
  const box = await openMailBox({ host, port: 2525, tls: forOther });
  const customer = await world.addCustomer(accountId);
  await world.tell({ kind: "package_used_up", accountId: customer.accountId, data: { name: "Starter" } });
  const messages = world.start();
  await messages.run();
  const [down] = await listDownServers(world.deps, { tenantId: accountId });
  expect(down?.why).toStartWith("The mail server's TLS certificate is not valid: ");
  const { rows } = await listDeliveries(world.deps, { tenantId: accountId });
  expect(rows).toMatchObject([{ status: "waiting", attempts: 1, error: down?.why }]);
  expect(box.does.users).toEqual([]);
  await box.close();
  const mended = await openMailBox({ host, port: 2525 });
  await world.pass(60_000);
  await messages.run();
  expect(mended.mails).toHaveLength(1);
  expect(await listDownServers(world.deps, { tenantId: accountId })).toEqual([]);
  await mended.close();
  await world.close();
});
