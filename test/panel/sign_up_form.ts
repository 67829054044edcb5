import { type Challenge, solveChallenge } from "altcha-lib";
import { deriveKey } from "altcha-lib/algorithms/pbkdf2";
import { decrypt } from "../../src/platform/crypto.ts";
import type { Answer, Shop } from "../gateway/shop.ts";
import { TEST_SECRET_KEY } from "../replica.ts";
import { ok, PANEL } from "./panel_client.ts";

/** Signs up as a person does with the form: with proof of work, and the link of the mail. */

export const TERMS = { termsUrl: "https://acme.example/terms", privacyUrl: "https://acme.example/privacy" };

export type Filled = { email: string; name?: string; accepted?: boolean; proof?: unknown };
export type At = { host?: string; address?: string };

let networks = 0;
/** An address in a network of its own, so that tests do not share their limits. */
export function newNetwork(): string {
  networks++;
  return `10.${networks >> 8}.${networks & 255}.1`;
}

/** A solved challenge of a host. */
export async function solved(shop: Shop, { host = PANEL, address = newNetwork() }: At = {}) {
  return solve(ok(await shop.call("/api/panel/sign-up/challenge", { host, headers: { "x-forwarded-for": address } })));
}

/** What a browser sends after it has solved a challenge. */
export async function solve(challenge: Challenge) {
  const solution = await solveChallenge({ challenge, deriveKey });
  if (!solution) throw new Error("no solution");
  return { challenge, solution: { counter: solution.counter, derivedKey: solution.derivedKey } };
}

/** Sends the form. Without `proof`, solves a challenge first. */
export async function signUp(
  shop: Shop,
  { email, name = "Ann", accepted = true, proof }: Filled,
  { host = PANEL, address = newNetwork() }: At = {},
): Promise<Answer> {
  return shop.call("/api/panel/sign-up", {
    host,
    body: { email, name, accepted, proof: proof ?? (await solved(shop, { host })) },
    headers: { origin: `http://${host}`, "x-forwarded-for": address },
  });
}

/** The tokens of the links that were mailed to an address to confirm it, oldest first. */
export async function linksTo({ world }: Shop, email: string): Promise<string[]> {
  const rows = await world.sql`
    select data from outbox_messages where kind = 'sign_up' and data ->> 'address' = ${email.toLowerCase()} order by id`;
  return rows.map(({ data }) => {
    const url = decrypt(Buffer.from(TEST_SECRET_KEY, "base64"), Buffer.from(data.urlCiphertext, "base64"));
    return url.split("/").at(-1) ?? "";
  });
}

export const openLink = (shop: Shop, token: string, { host = PANEL, address = newNetwork() }: At = {}) =>
  shop.call(`/api/panel/links/${token}`, { host, headers: { "x-forwarded-for": address } });

export const confirm = (
  shop: Shop,
  token: string,
  { host = PANEL, address = newNetwork(), password = "a long enough password" }: At & { password?: string } = {},
) =>
  shop.call(`/api/panel/links/${token}`, {
    host,
    body: { password },
    headers: { origin: `http://${host}`, "x-forwarded-for": address },
  });

/** Signs up, and confirms the address. Returns the new account's id. */
export async function signedUpAs(shop: Shop, email: string, at: At = {}): Promise<number> {
  ok(await signUp(shop, { email }, at));
  const token = (await linksTo(shop, email)).at(-1) ?? "";
  ok(await confirm(shop, token, at));
  const [row] = await shop.world
    .sql`select id from accounts where email = ${email.toLowerCase()} order by id desc limit 1`;
  return Number(row?.id);
}
