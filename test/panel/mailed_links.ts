import { decrypt } from "../../src/platform/crypto.ts";
import { openShop, type Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import type { Person } from "../world.ts";

/** The links in the outbox, as the people who read the mail see them. */

export type Mailed = {
  kind: string;
  url: string;
  token: string;
  to: string | null;
  address: string | null;
  expiresAt: string;
};

/** A host of the reseller that `openMailingShop` adds. */
export const ACME = "ai.acme.test";
export const MAIL = { SMTP_URL: "smtp://127.0.0.1:1", MAIL_FROM: "mail@tollgate.test" };

/** A shop where mail can be sent, with a reseller. It trusts its proxy, and nothing receives the mail. */
export async function openMailingShop(): Promise<{ shop: Shop; acme: Person }> {
  const shop = await openShop({ redisUrl: "", env: { TRUSTED_PROXIES: "127.0.0.1,::1", ...MAIL } });
  const acme = await shop.world.addReseller(ACME);
  return { shop, acme };
}

/** An account's messages with links, oldest first. */
export async function mailedTo({ world }: Shop, { accountId }: { accountId: number }): Promise<Mailed[]> {
  const rows = await world.sql`
    select kind, data from outbox_messages where account_id = ${accountId} and kind in ('password_reset', 'email_change') order by id`;
  return rows.map(({ kind, data }) => {
    const url = decrypt(Buffer.from(TEST_SECRET_KEY, "base64"), Buffer.from(data.urlCiphertext, "base64"));
    const { to = null, address = null, expiresAt } = data;
    return { kind, url, token: url.split("/").at(-1) ?? "", to, address, expiresAt };
  });
}
