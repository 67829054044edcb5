import { Elysia, t } from "elysia";
import { removeMember as remove } from "../../accounts/members_store.ts";
import type { Deps } from "../../deps.ts";
import { changeMember, inviteMember, listMembers, removeMember, revokeInvitation } from "../../operations/members.ts";
import { performJson } from "../../operations/operation.ts";
import { IdParam } from "./fields.ts";
import { once } from "./form_once.ts";
import { bodyWith, operate } from "./operate.ts";
import { Proof, provePerson } from "./own_proof.ts";
import { callBy, type Person, signedIn } from "./panel_session.ts";

/**
 * The members of the account that is shown, and their invitations. Whoever gives somebody rights confirms who they are: those rights last
 * longer than a session.
 */

/** Asked of the person, beside the input of the operation. */
const MORE = { proof: Proof };
/** A page shows one account. */
const ofShown = { add: ({ person: { accountId } }: { person: Person }) => ({ accountId }) };

export function membersEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(listEndpoints(deps)).use(memberEndpoints(deps));
}

function listEndpoints(deps: Deps) {
  const ofInvitation = { ...ofShown, path: { id: "invitationId" } } as const;
  return signedIn(deps)
    .get("/members", operate(deps, listMembers, ofShown))
    .post(
      "/members/invitations",
      ({ person, request, body: { proof, ...wanted } }) =>
        once(deps, { person, request }, async () => {
          await provePerson(deps, { person, request }, proof);
          const given = { ...wanted, accountId: person.accountId };
          return await performJson(deps, inviteMember, callBy(deps, { person, request }), given);
        }),
      { body: bodyWith(inviteMember, MORE, "accountId") },
    )
    .delete("/members/invitations/:id", operate(deps, revokeInvitation, ofInvitation), { params: IdParam });
}

function memberEndpoints(deps: Deps) {
  return signedIn(deps)
    .post(
      "/members/leave",
      async ({ person: { accountId, self, by } }) => {
        await remove({ ...deps, by }, { accountId, personId: self.accountId });
        return { left: true };
      },
      { body: t.Object({}) },
    )
    .patch(
      "/members/:id",
      async ({ person, request, params: { id: personId }, body: { proof, ...wanted } }) => {
        await provePerson(deps, { person, request }, proof);
        const given = { ...wanted, personId, accountId: person.accountId };
        return await performJson(deps, changeMember, callBy(deps, { person, request }), given);
      },
      { params: IdParam, body: bodyWith(changeMember, MORE, "accountId", "personId") },
    )
    .delete("/members/:id", operate(deps, removeMember, { ...ofShown, path: { id: "personId" } }), {
      params: IdParam,
    });
}
