import { hashPassword } from "../../src/accounts/passwords.ts";
import type { Answer, Shop } from "../../test/gateway/shop.ts";
import { mailedTo } from "../../test/panel/mailed_links.ts";
import { ok, PANEL, PASSWORD, signInTo } from "../../test/panel/panel_client.ts";
import type { Attack } from "./attack.ts";
import { ms, said } from "./neighbour.ts";

/** Attempts to keep other people out of the panel. All come through a proxy that the replica trusts, from the addresses that it names. */

const ENV = {
  ...{ TRUSTED_PROXIES: "127.0.0.1,::1" },
  ...{ SMTP_URL: "smtp://127.0.0.1:1", MAIL_FROM: "mail@tollgate.test" },
};
const ADDRESSES = 10;
const SIGN_INS = 90;
const OTHERS = 10;
/** A hash takes 30 ms of a core, and at least one runs at once: ten others beside ten attackers need no more than this. */
const SIGN_IN_MS_MAX = 5_000;
const FORGOTTEN = 30;

export const peopleAttacks: Attack[] = [
  {
    name: `${SIGN_INS} sign-ins with right passwords at once, from ${ADDRESSES} addresses, while ${OTHERS} others sign in`,
    env: ENV,
    async run(shop, begin) {
      const [attackers, others] = [await people(shop, ADDRESSES), await people(shop, OTHERS)];
      await begin();
      const flood = Array.from({ length: SIGN_INS }, (_, i) =>
        signIn(shop, attackers[i % ADDRESSES] ?? "", `198.51.100.${(i + Math.floor(i / ADDRESSES)) % ADDRESSES}`),
      );
      const counts: Record<string, number> = {};
      let slowestMs = 0;
      for (const [i, email] of others.entries()) {
        const startMs = performance.now();
        const { status } = await signIn(shop, email, `192.0.2.${i}`);
        slowestMs = Math.max(slowestMs, performance.now() - startMs);
        counts[status] = (counts[status] ?? 0) + 1;
      }
      const tolls: Record<string, number> = {};
      for (const { status } of await Promise.all(flood)) tolls[status] = (tolls[status] ?? 0) + 1;
      return {
        attacker: said(tolls),
        others: `${OTHERS} others: ${said(counts)}; the slowest took ${ms(slowestMs)}`,
        isStopped: counts[200] === OTHERS && slowestMs <= SIGN_IN_MS_MAX,
      };
    },
  },
  {
    name: `a stranger asks ${FORGOTTEN} times to reset the password of another person, for whom an admin has made a link`,
    env: ENV,
    async run(shop, begin) {
      const victim = await shop.world.addCustomer();
      const [email = ""] = await withPasswords(shop, [victim.accountId]);
      const admin = await signInTo(shop, await shop.world.addAdmin(), { address: "192.0.2.1" });
      const made =
        String(ok(await admin.post(`/people/${victim.accountId}/link`)).url)
          .split("/")
          .at(-1) ?? "";
      await begin();
      const tolls: Record<string, number> = {};
      for (let i = 0; i < FORGOTTEN; i++) {
        const { status } = await forgot(shop, email, `198.51.100.${i % ADDRESSES}`);
        tolls[status] = (tolls[status] ?? 0) + 1;
      }
      const opened = await shop.call(`/api/panel/links/${made}`, { host: PANEL, headers: from("192.0.2.2") });
      const own = await forgot(shop, email, "192.0.2.3");
      const mails = await mailedTo(shop, victim);
      const body = { password: `${PASSWORD}, a new one` };
      const set = await post(shop, `/links/${mails.at(-1)?.token}`, body, "192.0.2.3");
      return {
        attacker: said(tolls),
        others: `the admin's link: ${opened.status}; the person's own request: ${own.status}; ${mails.length} mail; its link sets a password: ${set.status}`,
        isStopped: [opened, own, set].every(({ status }) => status === 200),
      };
    },
  },
];

const from = (address: string) => ({ origin: `http://${PANEL}`, "x-forwarded-for": address });
const post = (shop: Shop, path: string, body: unknown, address: string): Promise<Answer> =>
  shop.call(`/api/panel${path}`, { host: PANEL, body, headers: from(address) });
const signIn = (shop: Shop, email: string, address: string) =>
  post(shop, "/sign-in", { email, password: PASSWORD }, address);
const forgot = (shop: Shop, email: string, address: string) => post(shop, "/sign-in/forgot", { email }, address);

/** The e-mail addresses of new customers with PASSWORD. */
async function people(shop: Shop, count: number): Promise<string[]> {
  const added = await Promise.all(Array.from({ length: count }, () => shop.world.addCustomer()));
  return withPasswords(
    shop,
    added.map(({ accountId }) => accountId),
  );
}

/** Gives PASSWORD, hashed as in production, and returns the accounts' e-mail addresses. */
async function withPasswords(shop: Shop, accountIds: readonly number[]): Promise<string[]> {
  const digest = await hashPassword(PASSWORD);
  const rows = await shop.world
    .sql`update accounts set password_hash = ${digest} where id = any(${[...accountIds]}) returning email`;
  return rows.map(({ email }) => String(email));
}
