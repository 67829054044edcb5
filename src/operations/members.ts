import { Type } from "@sinclair/typebox";
import {
  inviteMember as invite,
  listInvitations,
  revokeInvitation as revoke,
} from "../accounts/member_invitations_store.ts";
import { changeMember as change, listMembers as read, removeMember as remove } from "../accounts/members_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { EMAIL_CHARS_MAX } from "../limits.ts";
import { canMail } from "../messages/senders.ts";
import { siteOf } from "./accounts.ts";
import { holderInScope } from "./fence.ts";
import { At, RowId, text } from "./fields.ts";
import { type Call, changing, type OperationDeps, operation } from "./operation.ts";

/**
 * Members of an account, and their invitations: of one's own, and of the accounts that one manages. An admin's account has one member.
 * Source: MEM-1.
 */

const EVERYONE = ["customer", "reseller", "admin"] as const;

const OfAccount = { accountId: Type.Optional(RowId) };
const Email = text(EMAIL_CHARS_MAX);
const MemberRoleName = Type.Union([
  Type.Literal("owner"),
  Type.Literal("developer"),
  Type.Literal("billing"),
  Type.Literal("viewer"),
]);
const MemberShape = Type.Object(
  { personId: RowId, name: Type.String(), email: Type.String(), role: MemberRoleName, createdAt: At },
  { title: "Member" },
);
const InvitationShape = Type.Object(
  { invitationId: RowId, email: Type.String(), role: MemberRoleName, createdAt: At, expiresAt: At },
  { title: "Invitation" },
);

export const listMembers = operation({
  name: "members.list",
  says: "Lists the members of your account, or of one that you manage, and the invitations that wait.",
  scope: "members:read",
  roles: EVERYONE,
  route: "GET /members",
  input: OfAccount,
  output: Type.Object(
    { members: Type.Array(MemberShape), invitations: Type.Array(InvitationShape) },
    { title: "Members" },
  ),
  async run(deps, call, wanted) {
    const { accountId } = await accountOf(deps, call, wanted.accountId);
    const [members, invitations] = await Promise.all([read(deps, accountId), listInvitations(deps, accountId)]);
    return { members, invitations };
  },
});

export const inviteMember = operation({
  name: "members.invite",
  says: "Mails an invitation to be a member. It replaces an earlier one to the same address.",
  scope: "members:write",
  roles: EVERYONE,
  route: "POST /members/invitations",
  input: { ...OfAccount, email: Email, role: MemberRoleName },
  output: InvitationShape,
  async run(deps, call, { email, role, ...wanted }) {
    const { accountId, resellerId } = await changedAccount(deps, call, wanted.accountId);
    const site = await siteOf(deps, call, resellerId);
    if (site === undefined || !(await canMail(deps, resellerId ?? 0)))
      throw new InputError("No mail is sent from here, so nobody can be invited.");
    return invite(changing(deps, call), { accountId, email, role, site });
  },
});

export const revokeInvitation = operation({
  name: "members.revoke",
  says: "Ends an invitation that nobody has accepted.",
  scope: "members:write",
  roles: EVERYONE,
  route: "DELETE /members/invitations/{invitationId}",
  input: { ...OfAccount, invitationId: RowId },
  output: InvitationShape,
  async run(deps, call, { invitationId, ...wanted }) {
    const { accountId } = await changedAccount(deps, call, wanted.accountId);
    return revoke(changing(deps, call), { accountId, invitationId });
  },
});

export const changeMember = operation({
  name: "members.update",
  says: "Gives a member another role. An account always has an owner.",
  scope: "members:write",
  roles: EVERYONE,
  route: "PATCH /members/{personId}",
  input: { ...OfAccount, personId: RowId, role: MemberRoleName },
  output: MemberShape,
  async run(deps, call, { personId, role, ...wanted }) {
    const { accountId } = await changedAccount(deps, call, wanted.accountId);
    return change(changing(deps, call), { accountId, personId, role });
  },
});

export const removeMember = operation({
  name: "members.remove",
  says: "Removes a member: their sessions and tokens of the account end, their keys stay. An account always has an owner.",
  scope: "members:write",
  roles: EVERYONE,
  route: "DELETE /members/{personId}",
  input: { ...OfAccount, personId: RowId },
  output: MemberShape,
  async run(deps, call, { personId, ...wanted }) {
    const { accountId } = await changedAccount(deps, call, wanted.accountId);
    return remove(changing(deps, call), { accountId, personId });
  },
});

/** The caller's own account, or one that it manages. Throws not_found, InputError. */
async function accountOf(deps: OperationDeps, { caller }: Call, accountId: number | undefined) {
  if (accountId === undefined && caller.by === undefined) throw new InputError("Name the account.", "accountId");
  return holderInScope(deps, caller, accountId ?? caller.accountId);
}

/**
 * The same for a change. A token changes the members of customers alone: a new owner of a reseller has rights that the token lacks. Throws
 * insufficient_scope too. Source: MEM-8, MGT-3.
 */
async function changedAccount(deps: OperationDeps, call: Call, accountId: number | undefined) {
  if (call.caller.scopes !== undefined && accountId === undefined)
    throw new InputError("Name the account of a customer.", "accountId");
  const account = await accountOf(deps, call, accountId);
  if (account.role === "admin") throw new InputError("An admin's account has one member. Add another admin instead.");
  if (call.caller.scopes !== undefined && account.role !== "customer")
    throw new Refusal("insufficient_scope", { message: "Only a signed-in person changes the members of a reseller." });
  return account;
}
