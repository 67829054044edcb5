import { hash } from "@node-rs/argon2";
import { codeAt } from "../accounts/authenticator.ts";
import type { Answer, CallOptions, Shop } from "../gateway/shop.ts";

/** Calls the panel over HTTP as its web app does: signed in on a host, with the session's cookie, Origin and CSRF token. */

export const PANEL = "panel.tollgate.test";
export const PASSWORD = "a long enough password";

export type PanelSession = {
  accountId: number;
  email: string;
  host: string;
  cookie: string;
  csrf: string;
  /** Any call; `options.headers` replace the session's own. */
  call(path: string, options: CallOptions): Promise<Answer>;
  get(path: string): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  patch(path: string, body?: unknown): Promise<Answer>;
  put(path: string, body?: unknown): Promise<Answer>;
  delete(path: string): Promise<Answer>;
};

/** Sets PASSWORD; returns the e-mail address. The hash has cheap parameters, since argon2 is not what is tested. */
export async function givePassword(shop: Shop, { accountId }: { accountId: number }): Promise<string> {
  const digest = await hash(PASSWORD, { memoryCost: 1024, timeCost: 1, parallelism: 1 });
  const [row] = await shop.world
    .sql`update accounts set password_hash = ${digest} where id = ${accountId} returning email`;
  return String(row?.email);
}

/**
 * Sets PASSWORD and signs in, by default on the panel's own host. Paths are below /api/panel.
 *
 * `address` is the client's, where the shop trusts its proxy: one address may sign in ten times a minute.
 */
export async function signInTo(
  shop: Shop,
  person: { accountId: number },
  { host = PANEL, origin, code, address }: { host?: string; origin?: string; code?: string; address?: string } = {},
): Promise<PanelSession> {
  const email = await givePassword(shop, person);
  const at = origin === undefined ? {} : { origin };
  const answer = await shop.call("/api/panel/sign-in", {
    host,
    body: { email, password: PASSWORD, ...(code !== undefined && { code }) },
    headers: { origin: `http://${host}`, ...(address !== undefined && { "x-forwarded-for": address }) },
    ...at,
  });
  if (answer.status !== 200) throw new Error(`sign-in: ${answer.status} ${answer.text}`);
  const cookie = cookieOf(answer);
  const csrf = String(answer.json.csrfToken);
  const call = (path: string, options: CallOptions) =>
    shop.call(`/api/panel${path}`, {
      host,
      ...at,
      ...options,
      headers: { cookie, origin: `http://${host}`, "x-csrf-token": csrf, ...options.headers },
    });
  return {
    accountId: person.accountId,
    email,
    host,
    cookie,
    csrf,
    call,
    get: (path) => call(path, {}),
    post: (path, body = {}, headers = {}) => call(path, { body, method: "POST", headers }),
    patch: (path, body = {}) => call(path, { body, method: "PATCH" }),
    put: (path, body = {}) => call(path, { body, method: "PUT" }),
    delete: (path) => call(path, { method: "DELETE" }),
  };
}

/** Switches the second factor on. `code(n)` is n half minutes after the confirmed code. */
export async function addSecondFactor(session: PanelSession) {
  const { secret } = ok(await session.post("/settings/totp", { proof: { password: PASSWORD } }));
  const unixMs = Date.now();
  const confirmed = ok(await session.post("/settings/totp/confirm", { code: codeAt(secret, 0, unixMs) }));
  const recoveryCodes: string[] = confirmed.recoveryCodes;
  return { secret: String(secret), recoveryCodes, code: (steps: number) => codeAt(secret, steps, unixMs) };
}

/** A POST whose body's end is held back until `finish`. */
export function postHeldBack(session: PanelSession, path: string, body: object) {
  const text = JSON.stringify(body);
  let finish = () => {};
  const held = new ReadableStream<Uint8Array>({
    start(controller) {
      controller.enqueue(new TextEncoder().encode(text.slice(0, -1)));
      finish = () => {
        controller.enqueue(new TextEncoder().encode(text.slice(-1)));
        controller.close();
      };
    },
  });
  return { answer: session.call(path, { method: "POST", body: held }), finish };
}

/** The JSON of a 200 response. Throws Error for any other. */
export function ok({ status, json, text }: Answer): Answer["json"] {
  if (status !== 200) throw new Error(`200 was expected, not ${status}: ${text}`);
  return json;
}

/** The session cookie that a sign-in set, as `name=value`. */
export const cookieOf = (answer: Answer): string => answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
