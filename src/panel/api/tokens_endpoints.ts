import type { Deps } from "../../deps.ts";
import { performJson } from "../../operations/operation.ts";
import { createToken, listTokens, revokeToken, rotateToken } from "../../operations/tokens.ts";
import { IdParam } from "./fields.ts";
import { once } from "./form_once.ts";
import { bodyWith, operate } from "./operate.ts";
import { Proof, provePerson } from "./own_proof.ts";
import { callBy, signedIn } from "./panel_session.ts";

/** A person's tokens of the management API. Whoever makes one confirms who they are: it works on without their session. */

/** Asked of the person, beside the input of the operation. */
const MORE = { proof: Proof };

export function tokensEndpoints(deps: Deps) {
  return signedIn(deps, ...listTokens.roles)
    .get("/tokens", operate(deps, listTokens))
    .post(
      "/tokens",
      ({ person, request, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          return await performJson(deps, createToken, callBy(deps, { person, request }), wanted);
        }),
      { body: bodyWith(createToken, MORE) },
    )
    .post(
      "/tokens/:id/rotate",
      ({ person, request, params: { id: tokenId }, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          return await performJson(deps, rotateToken, callBy(deps, { person, request }), { ...wanted, tokenId });
        }),
      { params: IdParam, body: bodyWith(rotateToken, MORE, "tokenId") },
    )
    .post("/tokens/:id/revoke", operate(deps, revokeToken, { path: { id: "tokenId" } }), { params: IdParam });
}
