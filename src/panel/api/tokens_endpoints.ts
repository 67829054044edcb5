import { t } from "elysia";
import type { Deps } from "../../deps.ts";
import { API_TOKEN_NETWORKS_MAX } from "../../limits.ts";
import { perform } from "../../operations/operation.ts";
import { createToken, listTokens, revokeToken, rotateToken } from "../../operations/tokens.ts";
import { IdParam, Instant, orNull } from "./fields.ts";
import { once } from "./form_once.ts";
import { Proof, provePerson } from "./own_proof.ts";
import { callBy, signedIn } from "./panel_session.ts";

/** A person's tokens of the management API. Whoever makes one confirms who they are: it works on without their session. */

const TEXT_LENGTH_MAX = 400;
const SCOPES_MAX = 100;
const Text = t.String({ maxLength: TEXT_LENGTH_MAX });

const NewToken = t.Object({
  name: Text,
  scopes: t.Array(Text, { maxItems: SCOPES_MAX }),
  networks: t.Optional(orNull(t.Array(Text, { maxItems: API_TOKEN_NETWORKS_MAX }))),
  expiresAt: t.Optional(orNull(Instant)),
  proof: Proof,
});

export function tokensEndpoints(deps: Deps) {
  return signedIn(deps, ...listTokens.roles)
    .get("/tokens", ({ person, request }) => perform(deps, listTokens, callBy(deps, { person, request }), {}))
    .post(
      "/tokens",
      ({ person, request, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          return await perform(deps, createToken, callBy(deps, { person, request }), wanted);
        }),
      { body: NewToken },
    )
    .post(
      "/tokens/:id/rotate",
      ({ person, request, params: { id: tokenId }, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          return await perform(deps, rotateToken, callBy(deps, { person, request }), { ...wanted, tokenId });
        }),
      { params: IdParam, body: t.Object({ overlapSeconds: t.Integer(), proof: Proof }) },
    )
    .post(
      "/tokens/:id/revoke",
      ({ person, request, params: { id: tokenId } }) =>
        perform(deps, revokeToken, callBy(deps, { person, request }), { tokenId }),
      { params: IdParam },
    );
}
