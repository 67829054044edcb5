import { plural, t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { LogIn, MoreHorizontal, Pencil, Plus, Power, SearchCheck, Trash2 } from "lucide-react";
import { api, ask } from "../../api.ts";
import { useOpened, useViewer } from "../../shared/page_hooks.ts";
import { Button, IconButton } from "../../ui/buttons.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { Confirm } from "../../ui/dialog.tsx";
import { Menu } from "../../ui/menu.tsx";
import { Page, Section } from "../../ui/page.tsx";
import { Badge, Empty, Loaded, SkeletonRows } from "../../ui/states.tsx";
import { type Column, DataTable } from "../../ui/table.tsx";
import { toast } from "../../ui/toast.ts";
import { TwoLines } from "../../ui/two_lines.tsx";
import { kindWords, ProviderDialog, SwitchDialog } from "./provider_dialogs.tsx";
import { type IdentityProvider, identityProvidersQuery, PROVIDERS_KEY } from "./queries.ts";

/** By which identity providers a seller's people sign in. */

type Opened = { kind: "add" } | { kind: "change" | "switch" | "remove"; row: IdentityProvider };

export function IdentityProvidersPage() {
  const { lock } = useViewer();
  const providers = useQuery(identityProvidersQuery);
  const dialog = useOpened<Opened>();
  return (
    <Page
      title={t`Sign-in`}
      lead={t`Identity providers by which people sign in, beside a password and a passkey: Google, GitHub, or one of a company.`}
      action={
        <Button variant="primary" icon={Plus} onClick={() => dialog.open({ kind: "add" })} {...lock}>
          {t`Add an identity provider`}
        </Button>
      }
    >
      <Loaded query={providers} skeleton={<SkeletonRows rows={2} />}>
        {({ identityProviders, redirectUris }) => (
          <>
            <Section title={t`Identity providers`} flush>
              <DataTable
                caption={t`Identity providers`}
                rows={identityProviders}
                rowKey={({ identityProviderId }) => String(identityProviderId)}
                columns={COLUMNS}
                empty={
                  <Empty
                    icon={LogIn}
                  >{t`No identity provider yet. People sign in with a password or a passkey.`}</Empty>
                }
                actions={(row) => <ProviderMenu row={row} onOpen={dialog.open} />}
              />
            </Section>
            {identityProviders
              .filter(({ records }) => records.length > 0)
              .map((row) => (
                <Proofs key={row.identityProviderId} row={row} />
              ))}
            <Dialogs dialog={dialog} redirectUris={redirectUris} />
          </>
        )}
      </Loaded>
    </Page>
  );
}

const COLUMNS: readonly Column<IdentityProvider>[] = [
  { head: t`Name`, cell: ({ name, kind }) => <TwoLines below={kindWords(kind)}>{name}</TwoLines> },
  {
    head: t`Issuer`,
    cell: ({ issuer }) => <span className="font-mono text-13 break-all">{issuer}</span>,
    hideBelow: "md",
  },
  {
    head: t`Mail domains`,
    cell: ({ mailDomains }) =>
      mailDomains.length === 0
        ? t({ message: "All", context: "mail domains" })
        : mailDomains.map(({ domain, isProved }) => (isProved ? domain : t`${domain} (not proved)`)).join(", "),
  },
  { head: t`People`, cell: ({ people }) => plural(people, { one: "# person", other: "# people" }), hideBelow: "md" },
  {
    head: t`State`,
    cell: ({ enabled }) => (
      <Badge tone={enabled ? "ok" : "neutral"}>
        {enabled ? t({ message: "On", context: "state" }) : t({ message: "Off", context: "state" })}
      </Badge>
    ),
  },
];

function ProviderMenu({ row, onOpen }: { row: IdentityProvider; onOpen: (what: Opened) => void }) {
  const { lock } = useViewer();
  if (lock.disabled) return null;
  return (
    <Menu
      trigger={<IconButton icon={MoreHorizontal} label={t`Actions for ${{ name: row.name }}`} size="sm" />}
      items={[
        {
          label: t({ message: "Change", context: "verb" }),
          icon: Pencil,
          onSelect: () => onOpen({ kind: "change", row }),
        },
        {
          label: row.enabled ? t`Switch off` : t`Switch on`,
          icon: Power,
          onSelect: () => onOpen({ kind: "switch", row }),
        },
        "line",
        { label: t`Remove`, icon: Trash2, tone: "danger", onSelect: () => onOpen({ kind: "remove", row }) },
      ]}
    />
  );
}

/** The DNS records that a reseller sets, so that addresses of its domains may sign in. */
function Proofs({ row: { identityProviderId, name, records } }: { row: IdentityProvider }) {
  const client = useQueryClient();
  const { lock } = useViewer();
  const look = async () => {
    try {
      const { records: left } = await ask(api["identity-providers"]({ id: identityProviderId }).prove.post({}));
      toast.done(
        left.length === 0
          ? t`All domains are proved.`
          : plural(
              { count: left.length },
              {
                one: "# record not found yet. DNS changes can take an hour.",
                other: "# records not found yet. DNS changes can take an hour.",
              },
            ),
      );
      await client.invalidateQueries({ queryKey: PROVIDERS_KEY });
    } catch (error) {
      toast.failed(error);
    }
  };
  return (
    <Section
      title={t`Prove the domains of ${name}`}
      description={t`Add these TXT records at your DNS. Until then, addresses of these domains do not sign in by it.`}
      action={
        <Button size="sm" icon={SearchCheck} onClick={() => void look()} {...lock}>
          {t`Look for the records`}
        </Button>
      }
    >
      {records.map((record) => (
        <div key={record.name} className="grid gap-2">
          <CopyField label={t`Name of the TXT record`} value={record.name} />
          <CopyField label={t`Its value`} value={record.value} />
        </div>
      ))}
    </Section>
  );
}

function Dialogs({
  dialog,
  redirectUris,
}: {
  dialog: ReturnType<typeof useOpened<Opened>>;
  redirectUris: readonly string[];
}) {
  const client = useQueryClient();
  const { what, isOpen: open, close: onClose, times } = dialog;
  if (what === null) return null;
  const state = { open, onClose };
  if (what.kind === "add" || what.kind === "change")
    return (
      <ProviderDialog
        key={times}
        {...state}
        edited={what.kind === "add" ? null : what.row}
        redirectUris={redirectUris}
      />
    );
  if (what.kind === "switch") return <SwitchDialog key={times} {...state} row={what.row} />;
  const { name, identityProviderId } = what.row;
  return (
    <Confirm
      open={open}
      onOpenChange={(isOpen: boolean) => isOpen || onClose()}
      title={t`Remove ${name}?`}
      confirmLabel={t`Remove identity provider`}
      cancelLabel={t`Keep it`}
      onConfirm={async () => {
        await ask(api["identity-providers"]({ id: identityProviderId }).delete());
        await client.invalidateQueries({ queryKey: PROVIDERS_KEY });
        toast.done(t`${name} is removed.`);
      }}
    >
      {t`The identities that people have linked are removed too. They sign in another way.`}
    </Confirm>
  );
}
