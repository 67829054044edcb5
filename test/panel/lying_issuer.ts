import { createServer, type IncomingMessage } from "node:http";
import type { AddressInfo } from "node:net";
import { exportJWK, generateKeyPair, type JWTPayload, SignJWT, UnsecuredJWT } from "jose";

/** An identity provider that lies: its ID tokens are what a test wants. It speaks as GitHub too. */

const NOW_SECONDS = () => Math.floor(Date.now() / 1000);

export type Lie = {
  /** Claims that replace those of an honest token; undefined removes one. */
  claims?: JWTPayload;
  signed?: "by its key" | "by another key" | "not at all" | "changed afterwards";
  userInfo?: Record<string, unknown>;
};

export type LyingIssuer = Awaited<ReturnType<typeof startLyingIssuer>>;

export async function startLyingIssuer() {
  const own = await generateKeyPair("RS256");
  const other = await generateKeyPair("RS256");
  const key = { ...(await exportJWK(own.publicKey)), kid: "own", alg: "RS256", use: "sig" };
  /** Tokens by their codes. A code works as often as it is sent: replays are for the client to find. */
  const tokens = new Map<string, { idToken: string; userInfo: Record<string, unknown> }>();
  const asked: string[] = [];
  let state: "there" | "failing" | "huge" | "elsewhere" | "a script" = "there";
  let github: { user: unknown; emails: unknown } = { user: {}, emails: [] };
  let codes = 0;
  const server = createServer((request, response) => {
    void reply(request).then(({ status = 200, body, location }) => {
      response.writeHead(status, { "content-type": "application/json", ...(location && { location }) });
      response.end(typeof body === "string" ? body : JSON.stringify(body));
    });
  });
  await new Promise<void>((done) => server.listen(0, "127.0.0.1", done));
  const { port } = server.address() as AddressInfo;
  const issuer = `http://127.0.0.1:${port}`;

  async function reply(request: IncomingMessage): Promise<{ status?: number; body: unknown; location?: string }> {
    const { pathname } = new URL(request.url ?? "/", issuer);
    asked.push(pathname);
    if (state === "failing") return { status: 503, body: {} };
    if (state === "huge") return { body: `{"issuer":"${"x".repeat(400_000)}"}` };
    if (state === "elsewhere") return { status: 302, body: {}, location: "http://169.254.169.254/latest/meta-data" };
    if (pathname === "/.well-known/openid-configuration")
      return {
        body: {
          issuer,
          authorization_endpoint: state === "a script" ? "javascript:alert(1)//" : `${issuer}/authorize`,
          token_endpoint: `${issuer}/token`,
          jwks_uri: `${issuer}/jwks`,
          userinfo_endpoint: `${issuer}/me`,
          response_types_supported: ["code"],
          subject_types_supported: ["public"],
          id_token_signing_alg_values_supported: ["RS256", "none"],
        },
      };
    if (pathname === "/jwks") return { body: { keys: [key] } };
    if (pathname === "/token" || pathname === "/login/oauth/access_token") return token(await bodyOf(request));
    if (pathname === "/me") return { body: tokens.get(bearerOf(request))?.userInfo ?? {} };
    if (pathname === "/api/v3/user") return { body: github.user };
    if (pathname === "/api/v3/user/emails") return { body: github.emails };
    return { status: 404, body: {} };
  }

  function token(form: URLSearchParams) {
    const code = form.get("code") ?? "";
    const found = tokens.get(code);
    if (found === undefined) return { status: 400, body: { error: "invalid_grant" } };
    const idToken = found.idToken === "" ? {} : { id_token: found.idToken };
    return { body: { access_token: code, token_type: "bearer", expires_in: 60, ...idToken } };
  }

  return {
    issuer,
    hostPort: `127.0.0.1:${port}`,
    /** The paths that were asked for. */
    asked,
    set(next: typeof state) {
      state = next;
    },
    /** A code for a token, as after a sign-in that began with this URL. */
    async code(url: string, subject: string, { claims = {}, signed = "by its key", userInfo = {} }: Lie = {}) {
      const asked = new URL(url).searchParams;
      const payload: JWTPayload = {
        ...{ iss: issuer, sub: subject, aud: asked.get("client_id") ?? "", nonce: asked.get("nonce") ?? "" },
        ...{ iat: NOW_SECONDS(), exp: NOW_SECONDS() + 300, email: `${subject}@example.com`, email_verified: true },
        ...claims,
      };
      const code = `code-${++codes}`;
      const idToken = await sign(payload, signed);
      tokens.set(code, { idToken, userInfo: { sub: subject, ...userInfo } });
      return `?code=${code}&state=${asked.get("state")}`;
    },
    /** The same of GitHub. */
    githubCode(url: string, user: unknown, emails: unknown) {
      github = { user, emails };
      const code = `code-${++codes}`;
      tokens.set(code, { idToken: "", userInfo: {} });
      return `?code=${code}&state=${new URL(url).searchParams.get("state")}`;
    },
    async stop() {
      server.closeAllConnections();
      await new Promise((done) => server.close(done));
    },
  };

  async function sign(payload: JWTPayload, how: Lie["signed"]): Promise<string> {
    if (how === "not at all") return new UnsecuredJWT(payload).encode();
    const { privateKey } = how === "by another key" ? other : own;
    const signed = await new SignJWT(payload).setProtectedHeader({ alg: "RS256", kid: "own" }).sign(privateKey);
    if (how !== "changed afterwards") return signed;
    const [head, , signature] = signed.split(".");
    const changed = Buffer.from(JSON.stringify({ ...payload, sub: "somebody-else" })).toString("base64url");
    return `${head}.${changed}.${signature}`;
  }
}

const bearerOf = (request: IncomingMessage) => (request.headers.authorization ?? "").replace(/^bearer /i, "");

async function bodyOf(request: IncomingMessage): Promise<URLSearchParams> {
  const pieces: Buffer[] = [];
  for await (const piece of request) pieces.push(Buffer.from(piece));
  return new URLSearchParams(Buffer.concat(pieces).toString());
}
