import { hash } from "@node-rs/argon2";
import type { Answer, CallOptions, Shop } from "../gateway/shop.ts";

/** The panel as its page calls it: a person with a password, signed in on a host, over a socket. */

export const PANEL = "panel.tollgate.test";
export const PASSWORD = "a long enough password";

export type PanelSession = {
  accountId: number;
  email: string;
  host: string;
  cookie: string;
  csrf: string;
  get(path: string): Promise<Answer>;
  post(path: string, body?: unknown, headers?: Record<string, string>): Promise<Answer>;
  patch(path: string, body?: unknown): Promise<Answer>;
  put(path: string, body?: unknown): Promise<Answer>;
  delete(path: string): Promise<Answer>;
};

/** Gives an account of the world its password. Cheap parameters: what is tested is not argon2. */
export async function givePassword(shop: Shop, { accountId }: { accountId: number }): Promise<string> {
  const digest = await hash(PASSWORD, { memoryCost: 1024, timeCost: 1, parallelism: 1 });
  const [row] = await shop.world
    .sql`update accounts set password_hash = ${digest} where id = ${accountId} returning email`;
  return String(row?.email);
}

/** Signs an account in; `host` is the panel's own unless told otherwise. Paths are below /api/panel. */
export async function signInTo(
  shop: Shop,
  person: { accountId: number },
  { host = PANEL, origin, code }: { host?: string; origin?: string; code?: string } = {},
): Promise<PanelSession> {
  const email = await givePassword(shop, person);
  const at = origin === undefined ? {} : { origin };
  const answer = await shop.call("/api/panel/sign-in", {
    host,
    body: { email, password: PASSWORD, ...(code !== undefined && { code }) },
    headers: { origin: `http://${host}` },
    ...at,
  });
  if (answer.status !== 200) throw new Error(`sign-in: ${answer.status} ${answer.text}`);
  const cookie = answer.headers.get("set-cookie")?.split(";", 1)[0] ?? "";
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
    get: (path) => call(path, {}),
    post: (path, body = {}, headers = {}) => call(path, { body, method: "POST", headers }),
    patch: (path, body = {}) => call(path, { body, method: "PATCH" }),
    put: (path, body = {}) => call(path, { body, method: "PUT" }),
    delete: (path) => call(path, { method: "DELETE" }),
  };
}
