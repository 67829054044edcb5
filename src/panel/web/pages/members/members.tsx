import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { LogOut, MoreHorizontal, Plus, ShieldCheck, UserMinus } from "lucide-react";
import { api, ask, useMe } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { Instant } from "../../ui/time.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { InviteDialog, RoleDialog, roleWords } from "./member_dialogs.tsx";
import { type Invitation, MEMBERS_KEY, type Member, membersQuery } from "./queries.ts";

/** Who works in the account, and who is invited to. */

type Opened =
  | { kind: "invite" }
  | { kind: "role" | "remove" | "leave"; row: Member }
  | { kind: "revoke"; row: Invitation };

export function MembersPage() {
  const { role, lock } = useViewer();
  const members = useQuery(membersQuery);
  const dialog = useOpened<Opened>();
  // An admin's account has one member.
  const invite = role !== "admin" && (
    <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "invite" })} {...lock}>
      <Trans>Invite a member</Trans>
    </Button>
  );
  return (
    <Page
      title={t`Members`}
      lead={t`Who works in this account. Keys belong to the account, and stay when a member goes.`}
      action={invite}
    >
      <Loaded query={members} skeleton={<SkeletonRows rows={2} />}>
        {({ members: rows, invitations }) => (
          <>
            <Section title={t`Members`} flush>
              <DataTable
                caption={t`Members`}
                rows={rows}
                rowKey={({ personId }) => String(personId)}
                columns={COLUMNS}
                actions={(row) => <MemberMenu row={row} onOpen={dialog.open} />}
              />
            </Section>
            {invitations.length > 0 && (
              <Section title={t`Invitations`} flush>
                <DataTable
                  caption={t`Invitations`}
                  rows={invitations}
                  rowKey={({ invitationId }) => String(invitationId)}
                  columns={INVITED_COLUMNS}
                  actions={(row) => {
                    const { email } = row;
                    return (
                      <Button size="sm" variant="quiet" onClick={() => dialog.open({ kind: "revoke", row })} {...lock}>
                        <Trans>
                          Revoke<span className="sr-only"> the invitation of {email}</span>
                        </Trans>
                      </Button>
                    );
                  }}
                />
              </Section>
            )}
            <Dialogs dialog={dialog} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

const COLUMNS: Column<Member>[] = [
  {
    head: t`Member`,
    cell: ({ personId, name, email }) => (
      <TwoLines below={email}>
        {name} <You personId={personId} />
      </TwoLines>
    ),
  },
  { head: t`Role`, cell: ({ role }) => roleWords(role) },
  { head: t`Since`, cell: ({ createdAt }) => <Instant iso={createdAt} />, hideBelow: "md" },
];

const INVITED_COLUMNS: Column<Invitation>[] = [
  { head: t`E-mail`, cell: ({ email }) => email },
  { head: t`Role`, cell: ({ role }) => roleWords(role) },
  { head: t`Until`, cell: ({ expiresAt }) => <Instant iso={expiresAt} />, hideBelow: "md" },
];

function You({ personId }: { personId: number }) {
  const { person } = useMe();
  return Number(person.accountId) === personId ? (
    <Badge>
      <Trans>You</Trans>
    </Badge>
  ) : null;
}

/** Everyone may leave; the rest is for owners. */
function MemberMenu({ row, onOpen }: { row: Member; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer();
  const { person, viewing } = useMe();
  const isSelf = Number(person.accountId) === row.personId;
  if (viewing !== null || (lock.disabled && !isSelf)) return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" />}
      items={[
        ...(lock.disabled
          ? []
          : [
              { label: t`Change role`, icon: ShieldCheck, onSelect: () => onOpen({ kind: "role", row }) },
              "line" as const,
            ]),
        isSelf
          ? {
              label: t({ message: "Leave", context: "an account" }),
              icon: LogOut,
              tone: "danger",
              onSelect: () => onOpen({ kind: "leave", row }),
            }
          : { label: t`Remove`, icon: UserMinus, tone: "danger", onSelect: () => onOpen({ kind: "remove", row }) },
      ]}
    />
  );
}

function Dialogs({ dialog }: { dialog: ReturnType<typeof useOpened<Opened>> }) {
  const client = useQueryClient();
  const { what, isOpen: open, close: onClose, times } = dialog;
  if (what === null) return null;
  const state = { open, onClose };
  if (what.kind === "invite") return <InviteDialog key={times} {...state} />;
  if (what.kind === "role") return <RoleDialog key={times} {...state} row={what.row} />;
  const confirm = { open, onOpenChange: (isOpen: boolean) => isOpen || onClose() };
  const reread = () => client.invalidateQueries({ queryKey: MEMBERS_KEY });
  if (what.kind === "revoke")
    return (
      <Confirm
        {...confirm}
        title={t`Revoke the invitation of ${{ email: what.row.email }}?`}
        confirmLabel={t`Revoke invitation`}
        cancelLabel={t`Keep invitation`}
        onConfirm={async () => {
          await ask(api.members.invitations({ id: what.row.invitationId }).delete());
          await reread();
          toast.done(t`The invitation is revoked.`);
        }}
      >
        <Trans>The link in the mail stops working.</Trans>
      </Confirm>
    );
  if (what.kind === "leave")
    return (
      <Confirm
        {...confirm}
        title={t`Leave this account?`}
        confirmLabel={t`Leave account`}
        cancelLabel={t`Stay`}
        onConfirm={async () => {
          await ask(api.members.leave.post({}));
          // The session in this account has ended.
          window.location.replace("/sign-in");
        }}
      >
        <Trans>You can come back only if an owner invites you again.</Trans>
      </Confirm>
    );
  return (
    <Confirm
      {...confirm}
      title={t`Remove ${{ name: what.row.name }}?`}
      confirmLabel={t`Remove member`}
      cancelLabel={t`Keep member`}
      onConfirm={async () => {
        await ask(api.members({ id: what.row.personId }).delete());
        await reread();
        toast.done(t`${{ name: what.row.name }} is no longer a member.`);
      }}
    >
      {t`Every device is signed out of this account at once, and API tokens that ${{ name: what.row.name }} made stop working. Keys stay.`}
    </Confirm>
  );
}
