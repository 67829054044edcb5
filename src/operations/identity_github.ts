import type * as Client from "openid-client";
import type { Claims } from "../accounts/identity_claims.ts";

/**
 * GitHub, and GitHub Enterprise Server: OAuth 2.0 without ID tokens and discovery. Who signed in is read from the API with the access token,
 * which was got with this sign-in's PKCE verifier. Source: OIDC-1, OIDC-4.
 */

const GITHUB = "https://github.com";
const GITHUB_API = "https://api.github.com";

export function githubServer(issuer: string): Client.ServerMetadata {
  return {
    issuer,
    authorization_endpoint: `${issuer}/login/oauth/authorize`,
    token_endpoint: `${issuer}/login/oauth/access_token`,
  };
}

/** As claims of OpenID Connect: the id, the name, and the primary address if it is verified. Throws Error. */
export async function githubClaims(
  client: typeof Client,
  config: Client.Configuration,
  { accessToken, issuer }: { accessToken: string; issuer: string },
): Promise<Claims> {
  const api = issuer === GITHUB ? GITHUB_API : `${issuer}/api/v3`;
  const read = async (path: string): Promise<unknown> => {
    const headers = new Headers({ accept: "application/vnd.github+json" });
    const response = await client.fetchProtectedResource(
      config,
      accessToken,
      new URL(`${api}${path}`),
      "GET",
      null,
      headers,
    );
    if (response.status !== 200) throw new Error(`${path} answered with status ${response.status}`);
    return await response.json();
  };
  const [user, addresses] = await Promise.all([read("/user"), read("/user/emails")]);
  const id = fieldOf(user, "id");
  if (!Number.isSafeInteger(id)) throw new Error("the user has no id");
  const primary = (Array.isArray(addresses) ? addresses : []).find((one) => fieldOf(one, "primary") === true);
  return {
    subject: String(id),
    claims: {
      name: fieldOf(user, "name") ?? fieldOf(user, "login"),
      email: fieldOf(primary, "email"),
      email_verified: fieldOf(primary, "verified"),
    },
  };
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && Object.hasOwn(value, name)
    ? Reflect.get(value, name)
    : undefined;
}
