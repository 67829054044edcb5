import { type Command, Option } from "commander";
import { MEMBER_ROLES, type MemberRole } from "../accounts/member_roles.ts";
import type { Member } from "../accounts/members_store.ts";
import { InputError } from "../errors.ts";
import { changeMember, inviteMember, listMembers, removeMember, revokeInvitation } from "../operations/members.ts";
import { accountBy, defineOperations } from "./door.ts";
import { idOf } from "./options.ts";
import { facts, table } from "./output.ts";
import type { Door } from "./server_door.ts";

/** The command `member`. */

type Of = { account: string };

export function addMemberCommands(program: Command): void {
  const member = program.command("member").description("who works in an account");
  addList(member);
  addInvite(member);
  addRevoke(member);
  addRole(member);
  addRemove(member);
}

function ofAccount(command: Command): Command {
  return command.requiredOption("--account <account>", "the account, by id or e-mail address");
}

function withRole(command: Command): Command {
  return command.addOption(
    new Option("--role <role>", "what the member may do").choices(MEMBER_ROLES).makeOptionMandatory(),
  );
}

function addList(member: Command): void {
  defineOperations<Of>(
    ofAccount(member.command("list").description("list the members of an account, and the invitations that wait")),
    {},
    async (ask, { account }) => {
      const { accountId } = await accountBy(ask, account);
      const { members, invitations } = await ask(listMembers, { accountId });
      const rows = [
        ...members.map(({ personId, name, email, role }) => [String(personId), name, email, role, "member"]),
        ...invitations.map(({ invitationId, email, role, expiresAt }) => [
          ...[String(invitationId), "", email, role, `invited until ${expiresAt}`],
        ]),
      ];
      return {
        text: table(["ID", "NAME", "E-MAIL", "ROLE", "STATE"], rows, "No members."),
        json: { members, invitations },
      };
    },
  );
}

function addInvite(member: Command): void {
  defineOperations<Of & { email: string; role: MemberRole }>(
    withRole(
      ofAccount(member.command("invite").description("mail an invitation to be a member")).requiredOption(
        "--email <address>",
        "where the invitation goes",
      ),
    ),
    { changes: true, secretKey: true },
    async (ask, { account, email, role }) => {
      const { accountId } = await accountBy(ask, account);
      const invitation = await ask(inviteMember, { accountId, email, role });
      const text = facts([
        ["invitation", String(invitation.invitationId)],
        ["e-mail", invitation.email],
        ["role", invitation.role],
        ["until", invitation.expiresAt],
      ]);
      return { text, json: invitation };
    },
  );
}

function addRevoke(member: Command): void {
  defineOperations<Of>(
    ofAccount(member.command("revoke <invitation-id>").description("end an invitation that nobody has accepted")),
    { changes: true },
    async (ask, { account }, [id]) => {
      const { accountId } = await accountBy(ask, account);
      const ended = await ask(revokeInvitation, { accountId, invitationId: idOf(id, "invitation's id") });
      return { text: `The invitation of ${ended.email} is revoked.`, json: ended };
    },
  );
}

function addRole(member: Command): void {
  defineOperations<Of & { role: MemberRole }>(
    withRole(ofAccount(member.command("role <member>").description("give a member another role"))),
    { changes: true },
    async (ask, { account, role }, [reference]) => {
      const { accountId } = await accountBy(ask, account);
      const { personId } = await memberBy(ask, accountId, reference);
      const changed = await ask(changeMember, { accountId, personId, role });
      return { text: memberFacts(changed), json: changed };
    },
  );
}

function addRemove(member: Command): void {
  defineOperations<Of>(
    ofAccount(member.command("remove <member>").description("remove a member; their keys stay")),
    { changes: true },
    async (ask, { account }, [reference]) => {
      const { accountId } = await accountBy(ask, account);
      const { personId } = await memberBy(ask, accountId, reference);
      const removed = await ask(removeMember, { accountId, personId });
      return { text: `${removed.name} is no longer a member.`, json: removed };
    },
  );
}

/** The member with this id or e-mail address. Throws InputError. */
async function memberBy(ask: Door, accountId: number, reference = ""): Promise<Member> {
  const text = reference.trim().toLowerCase();
  const { members } = await ask(listMembers, { accountId });
  const found = members.find(({ personId, email }) => String(personId) === text || email.toLowerCase() === text);
  if (!found) throw new InputError(`There is no member ${JSON.stringify(text)}: give the id or the e-mail address.`);
  return found;
}

function memberFacts({ personId, name, email, role }: Member): string {
  return facts([
    ["member", `${personId} (${name})`],
    ["e-mail", email],
    ["role", role],
  ]);
}
