import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
// The package has no types.
// @ts-expect-error TS7016
import Provider from "oidc-provider";

/** A real OpenID Connect server on loopback: `oidc-provider`, with its own pages to sign in. Who signs in as "ann" is "ann". */

export const CLIENT = { clientId: "tollgate", clientSecret: "a-client-secret-of-some-length" };

export type RealIssuer = {
  issuer: string;
  /** As IDENTITY_ALLOW_PRIVATE has it. */
  hostPort: string;
  /** What the server says about its people, by their ids. */
  people: Map<string, Record<string, unknown>>;
  /** `sites`: origins of the panel. */
  serve(sites: readonly string[]): void;
  stop(): Promise<void>;
};

/** Listens. It answers once it is told the sites that use it, with `serve`. */
export async function startRealIssuer(): Promise<RealIssuer> {
  const people = new Map<string, Record<string, unknown>>();
  let answer = (_: unknown, response: { end(): void }) => response.end();
  const server = createServer((request, response) => answer(request, response));
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const issuer = `http://127.0.0.1:${port}`;
  return {
    issuer,
    hostPort: `127.0.0.1:${port}`,
    people,
    serve(sites) {
      answer = providerOf(issuer, { sites, people }).callback();
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };
}

function providerOf(issuer: string, { sites, people }: { sites: readonly string[]; people: RealIssuer["people"] }) {
  const provider = new Provider(issuer, {
    clients: [
      {
        client_id: CLIENT.clientId,
        client_secret: CLIENT.clientSecret,
        redirect_uris: sites.map((site) => `${site}/sign-in/callback`),
        post_logout_redirect_uris: sites.map((site) => `${site}/sign-in`),
      },
    ],
    cookies: { keys: ["a key of the test"] },
    pkce: { required: () => true },
    claims: { openid: ["sub"], email: ["email", "email_verified"], profile: ["name", "groups"] },
    findAccount: (_: unknown, id: string) => ({ accountId: id, claims: () => ({ sub: id, ...people.get(id) }) }),
    // Nobody is asked for consent, as in a company's own server.
    async loadExistingGrant({ oidc }: { oidc: { client: { clientId: string }; session: { accountId: string } } }) {
      const grant = new provider.Grant({ clientId: oidc.client.clientId, accountId: oidc.session.accountId });
      grant.addOIDCScope("openid email profile");
      await grant.save();
      return grant;
    },
  });
  return provider;
}

/** Signs in on the server's own page, as a browser without scripts does. Returns the query with which it sends the person back. */
export async function signInThere(url: string, login: string): Promise<string> {
  const jar = new Map<string, string>();
  const go = async (to: URL, init: RequestInit = {}): Promise<URL> => {
    const cookie = [...jar].map(([name, value]) => `${name}=${value}`).join("; ");
    const response = await fetch(to, { ...init, redirect: "manual", headers: { ...init.headers, cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
      if (value === "") jar.delete(name);
      else jar.set(name, value);
    }
    const location = response.headers.get("location");
    if (location === null) throw new Error(`${to.pathname}: ${response.status} ${await response.text()}`);
    return new URL(location, to);
  };
  let at = await go(new URL(url));
  for (let steps = 0; at.pathname !== "/sign-in/callback"; steps++) {
    if (steps > 5) throw new Error(`not sent back, but to ${at.href}`);
    at = at.pathname.startsWith("/interaction/")
      ? await go(at, {
          method: "POST",
          headers: { "content-type": "application/x-www-form-urlencoded" },
          body: new URLSearchParams({ prompt: "login", login, password: "any" }).toString(),
        })
      : await go(at);
  }
  return at.search;
}
