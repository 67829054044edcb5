import { t } from "elysia";
import { removeMember as remove } from "../../accounts/members_store.ts";
import type { Deps } from "../../deps.ts";
import { changeMember, inviteMember, listMembers, removeMember, revokeInvitation } from "../../operations/members.ts";
import { IdParam } from "./fields.ts";
import { bodyOf, operate } from "./operate.ts";
import { type Person, signedIn } from "./panel_session.ts";

/** The members of the account that is shown, and their invitations. */

/** A page shows one account. */
const ofShown = { add: ({ person: { accountId } }: { person: Person }) => ({ accountId }) };

export function membersEndpoints(deps: Deps) {
  const params = IdParam;
  const ofMember = { ...ofShown, path: { id: "personId" } } as const;
  return signedIn(deps)
    .get("/members", operate(deps, listMembers, ofShown))
    .post("/members/invitations", operate(deps, inviteMember, ofShown), { body: bodyOf(inviteMember, "accountId") })
    .delete("/members/invitations/:id", operate(deps, revokeInvitation, { ...ofShown, path: { id: "invitationId" } }), {
      params,
    })
    .post(
      "/members/leave",
      async ({ person: { accountId, self, by } }) => {
        await remove({ ...deps, by }, { accountId, personId: self.accountId });
        return { left: true };
      },
      { body: t.Object({}) },
    )
    .patch("/members/:id", operate(deps, changeMember, ofMember), {
      params,
      body: bodyOf(changeMember, "accountId", "personId"),
    })
    .delete("/members/:id", operate(deps, removeMember, ofMember), { params });
}
