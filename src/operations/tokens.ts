import { Type } from "@sinclair/typebox";
import { scopesFor } from "../accounts/scopes.ts";
import {
  createToken as create,
  listTokens as read,
  revokeToken as revoke,
  rotateToken as rotate,
} from "../accounts/tokens_store.ts";
import { API_TOKEN_NETWORKS_MAX } from "../limits.ts";
import { At, Instant, Maker, orNull, RowId, text } from "./fields.ts";
import { type Caller, changing, operation } from "./operation.ts";

/**
 * Tokens of the management API: of an admin, or of a member of a reseller. They have no scope, so no token makes another one: whoever has one cannot
 * give itself more. Source: MGT-1.
 */

const SELLERS = ["reseller", "admin"] as const;
const NAME_LENGTH_MAX = 400;
const SCOPES_MAX = 100;
const OfToken = { tokenId: RowId };

const TokenShape = Type.Object({
  tokenId: RowId,
  madeBy: Maker,
  name: Type.String(),
  prefix: Type.String(),
  scopes: Type.Array(Type.String()),
  networks: orNull(Type.Array(Type.String())),
  status: Type.Union([Type.Literal("active"), Type.Literal("revoked"), Type.Literal("expired")]),
  expiresAt: orNull(At),
  lastUsedAt: orNull(At),
  createdAt: At,
});
const NEW_TOKEN = { secret: Type.String(), token: TokenShape };

export const listTokens = operation({
  name: "tokens.list",
  says: "Lists your tokens, or as an owner those of all members, and the scopes that you can give to one.",
  scope: null,
  roles: SELLERS,
  route: "GET /tokens",
  input: {},
  output: Type.Object({ tokens: Type.Array(TokenShape), scopes: Type.Array(Type.String()) }),
  run: async (deps, { caller }) => ({
    tokens: await read(deps, scopeOf(caller)),
    scopes: scopesFor(caller.role, caller.member),
  }),
});

export const createToken = operation({
  name: "tokens.create",
  says: "Makes a token. Its secret is shown only in this answer.",
  scope: null,
  roles: SELLERS,
  route: "POST /tokens",
  input: {
    name: text(NAME_LENGTH_MAX),
    scopes: Type.Array(text(NAME_LENGTH_MAX), { maxItems: SCOPES_MAX }),
    networks: Type.Optional(orNull(Type.Array(text(NAME_LENGTH_MAX), { maxItems: API_TOKEN_NETWORKS_MAX }))),
    expiresAt: Type.Optional(orNull(Instant)),
  },
  output: Type.Object(NEW_TOKEN),
  run: (deps, call, { networks = null, expiresAt = null, ...wanted }) =>
    create(changing(deps, call), {
      ...wanted,
      ...{ networks, expiresAt, accountId: call.caller.accountId },
      ...(call.caller.by && { madeBy: call.caller.by.accountId }),
    }),
});

export const rotateToken = operation({
  name: "tokens.rotate",
  says: "Replaces a token with a new one that has the same settings. The old one works for a while.",
  scope: null,
  roles: SELLERS,
  route: "POST /tokens/{tokenId}/rotate",
  input: { ...OfToken, overlapSeconds: Type.Integer() },
  output: Type.Object({ ...NEW_TOKEN, old: TokenShape }),
  run: (deps, call, wanted) => rotate(changing(deps, call), { ...wanted, ...scopeOf(call.caller) }),
});

export const revokeToken = operation({
  name: "tokens.revoke",
  says: "Ends a token permanently.",
  scope: null,
  roles: SELLERS,
  route: "POST /tokens/{tokenId}/revoke",
  input: OfToken,
  output: TokenShape,
  run: (deps, call, wanted) => revoke(changing(deps, call), { ...wanted, ...scopeOf(call.caller) }),
});

/** Whose tokens a member manages: an owner everyone's, others the ones that they made. */
function scopeOf({ accountId, member, by }: Caller): { accountId: number; madeBy?: number | undefined } {
  return member === "owner" ? { accountId } : { accountId, madeBy: by?.accountId };
}
