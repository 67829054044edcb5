import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import {
  IDENTITY_CLIENT_ID_CHARS_MAX,
  IDENTITY_CLIENT_SECRET_CHARS_MAX,
  IDENTITY_ISSUER_CHARS_MAX,
  IDENTITY_PROVIDER_NAME_CHARS_MAX,
  ROLE_CLAIM_CHARS_MAX,
} from "../../../../limits.ts";
import { api, ask, sentOnce, useIdempotencyKey } from "../../api.ts";
import { useViewer } from "../../shared/page_hooks.ts";
import { domainsIn } from "../../shared/typed_domains.ts";
import { SegmentedField } from "../../ui/choices.tsx";
import { CopyField } from "../../ui/copy_field.tsx";
import { LinesField, PasswordField, TextField } from "../../ui/fields.tsx";
import { type DialogState, type Form, FormDialog, isBlank, useForm } from "../../ui/form.tsx";
import { toast } from "../../ui/toast.ts";
import { firstProof, ProofFields, type ProofWays, takeProof, wrongProof } from "../settings/confirm_person.tsx";
import { useHasPasskey } from "../settings/passkeys.tsx";
import { settingsQuery } from "../settings/queries.ts";
import { type IdentityKind, type IdentityProvider, PROVIDERS_KEY } from "./queries.ts";
import { rolesIn, toLines } from "./role_lines.ts";

/** Adds an identity provider, or changes one. Whoever says who may sign in confirms who they are. */

/** Names of products: not a text to translate. */
const KINDS = [
  { value: "oidc", label: "OpenID Connect" },
  { value: "google", label: "Google" },
  { value: "github", label: "GitHub" },
] as const satisfies readonly { value: IdentityKind; label: string }[];

export function kindWords(kind: IdentityKind): string {
  return KINDS.find(({ value }) => value === kind)?.label ?? kind;
}

function useProofWays() {
  const settings = useQuery(settingsQuery);
  return { hasPasskey: useHasPasskey(), asksForCode: settings.data?.totpEnabled ?? false };
}

type Typed = {
  kind: IdentityKind;
  name: string;
  issuer: string;
  clientId: string;
  clientSecret: string;
  mailDomains: string;
  accountId: string;
  roleClaim: string;
  roles: string;
};

function typedOf(edited: IdentityProvider | null): Typed {
  return {
    kind: edited?.kind ?? "oidc",
    name: edited?.name ?? "",
    issuer: edited?.issuer ?? "",
    clientId: edited?.clientId ?? "",
    clientSecret: "",
    mailDomains: edited?.mailDomains.map(({ domain }) => domain).join("\n") ?? "",
    accountId: edited?.accountId == null ? "" : String(edited.accountId),
    roleClaim: edited?.roleClaim ?? "",
    roles: toLines(edited?.roles ?? []),
  };
}

function wrongOf({ kind, name, issuer, clientId, clientSecret, ...typed }: Typed, isNew: boolean) {
  const { accountId, roleClaim, roles } = typed;
  const hasAccount = !isBlank(accountId);
  return {
    name: isBlank(name) ? t`Enter a name, as people read it on the button.` : null,
    issuer: isNew && kind === "oidc" && isBlank(issuer) ? t`Enter the issuer's URL.` : null,
    clientId: isBlank(clientId) ? t`Enter the client id.` : null,
    clientSecret: isNew && isBlank(clientSecret) ? t`Enter the client secret.` : null,
    mailDomains: null,
    accountId: hasAccount && !/^\d{1,15}$/.test(accountId.trim()) ? t`Enter the account's number.` : null,
    roleClaim: hasAccount && isBlank(roleClaim) ? t`Enter the claim that gives the role.` : null,
    roles:
      hasAccount && !rolesIn(roles)?.length
        ? t({
            message: "One value and its role a line, as in staff = developer.",
            comment: "People type developer as it is here.",
          })
        : null,
  };
}

function sentOf({ kind: _, issuer: __, clientSecret, mailDomains, accountId, roleClaim, roles, ...typed }: Typed) {
  const hasAccount = !isBlank(accountId);
  return {
    name: typed.name.trim(),
    clientId: typed.clientId.trim(),
    ...(!isBlank(clientSecret) && { clientSecret }),
    mailDomains: domainsIn(mailDomains),
    accountId: hasAccount ? Number(accountId) : null,
    roleClaim: hasAccount ? roleClaim.trim() : null,
    roles: hasAccount ? (rolesIn(roles) ?? []) : [],
  };
}

function useProviderForm({
  edited,
  ways,
  onClose,
}: {
  edited: IdentityProvider | null;
  ways: ProofWays;
  onClose: () => void;
}) {
  const client = useQueryClient();
  const formKey = useIdempotencyKey();
  return useForm({
    first: { ...typedOf(edited), ...firstProof(ways.hasPasskey) },
    wrong: ({ way, password, code, ...typed }) => ({
      ...wrongOf(typed, edited === null),
      ...wrongProof({ way, password, code }, ways),
    }),
    send: async ({ way, password, code, ...typed }) => {
      const proof = await takeProof({ way, password, code }, ways);
      const sent = { ...sentOf(typed), proof };
      if (edited !== null) return ask(api["identity-providers"]({ id: edited.identityProviderId }).patch(sent));
      const { kind, issuer, clientSecret } = typed;
      const more = { kind, clientSecret, ...(!isBlank(issuer) && { issuer: issuer.trim() }) };
      return ask(api["identity-providers"].post({ ...sent, ...more }, sentOnce(formKey)));
    },
    onSent: async ({ name }) => {
      onClose();
      toast.done(t`${name} is saved.`);
      await client.invalidateQueries({ queryKey: PROVIDERS_KEY });
    },
  });
}

export function ProviderDialog({
  edited,
  redirectUris,
  ...dialog
}: DialogState & { edited: IdentityProvider | null; redirectUris: readonly string[] }) {
  const ways = useProofWays();
  const form = useProviderForm({ edited, ways, onClose: dialog.onClose });
  const { kind } = form.values;
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={edited === null ? t`Add an identity provider` : t`Change ${{ name: edited.name }}`}
      description={t`Register this site there first, with the address below. You get a client id and a client secret.`}
      submitLabel={edited === null ? t`Add identity provider` : t`Save changes`}
    >
      {redirectUris.map((uri) => (
        <CopyField key={uri} label={t`Redirect URI`} value={uri} />
      ))}
      {edited === null && (
        <SegmentedField label={t`Kind`} value={kind} onValue={(next) => form.set({ kind: next })} options={KINDS} />
      )}
      <TextField
        label={t`Name`}
        hint={t`On the button: Continue with …`}
        {...form.field("name")}
        maxLength={IDENTITY_PROVIDER_NAME_CHARS_MAX}
      />
      <IssuerField form={form} edited={edited} />
      <TextField label={t`Client id`} mono {...form.field("clientId")} maxLength={IDENTITY_CLIENT_ID_CHARS_MAX} />
      <PasswordField
        label={t`Client secret`}
        hint={edited === null ? t`Stored encrypted, and not shown again.` : t`Empty: it stays as it is.`}
        autoComplete="off"
        {...form.field("clientSecret")}
        maxLength={IDENTITY_CLIENT_SECRET_CHARS_MAX}
      />
      <DomainsField form={form} />
      {kind !== "github" && <RoleFields form={form} />}
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}

type ProviderForm = Pick<Form<Typed, keyof ReturnType<typeof wrongOf>>, "values" | "field">;

function IssuerField({ form, edited }: { form: ProviderForm; edited: IdentityProvider | null }) {
  const { kind } = form.values;
  if (kind === "google") return null;
  return (
    <TextField
      label={t`Issuer`}
      hint={
        kind === "oidc"
          ? t`Its URL. Below it is /.well-known/openid-configuration.`
          : t`Empty: github.com. Otherwise your GitHub Enterprise Server.`
      }
      mono
      optional={kind === "github"}
      readOnly={edited !== null}
      type="url"
      {...form.field("issuer")}
      maxLength={IDENTITY_ISSUER_CHARS_MAX}
      placeholder={kind === "oidc" ? "https://login.example.com" : "https://github.com"}
    />
  );
}

function DomainsField({ form }: { form: ProviderForm }) {
  const { role } = useViewer();
  return (
    <LinesField
      label={t`Mail domains`}
      optional={role === "admin"}
      hint={
        role === "admin"
          ? t`Whose addresses may sign in, one a line. Each includes the domains below it. Empty: all.`
          : t`Whose addresses may sign in, one a line. Those that are not one of your live domains are proved by a DNS record.`
      }
      {...form.field("mailDomains")}
      rows={2}
      placeholder="example.com"
    />
  );
}

/** For a customer that is a company: its people are members of its account, with roles that its groups give. */
function RoleFields({ form }: { form: ProviderForm }) {
  return (
    <>
      <TextField
        label={t`Members of account`}
        optional
        hint={t`The number of a customer. Its people then join that account, with the role that a claim gives. Empty: each new person gets an account.`}
        inputMode="numeric"
        {...form.field("accountId")}
      />
      {!isBlank(form.values.accountId) && (
        <>
          <TextField
            label={t`Role claim`}
            hint={t`A claim, or a path such as realm_access.roles.`}
            mono
            {...form.field("roleClaim")}
            maxLength={ROLE_CLAIM_CHARS_MAX}
            placeholder="groups"
          />
          <LinesField
            label={t`Roles`}
            hint={t({
              message:
                "One value of the claim a line, with owner, developer, billing or viewer. Other values give no role.",
              comment: "People type owner, developer, billing or viewer as they are here.",
            })}
            {...form.field("roles")}
            rows={3}
            placeholder="staff = developer"
          />
        </>
      )}
    </>
  );
}

/** Switches a provider on or off. */
export function SwitchDialog({ row, ...dialog }: DialogState & { row: IdentityProvider }) {
  const client = useQueryClient();
  const ways = useProofWays();
  const form = useForm({
    first: firstProof(ways.hasPasskey),
    wrong: (proof) => wrongProof(proof, ways),
    send: async (typed) => {
      const proof = await takeProof(typed, ways);
      return ask(api["identity-providers"]({ id: row.identityProviderId }).patch({ enabled: !row.enabled, proof }));
    },
    onSent: async ({ name, enabled }) => {
      dialog.onClose();
      toast.done(enabled ? t`${name} is on.` : t`${name} is off.`);
      await client.invalidateQueries({ queryKey: PROVIDERS_KEY });
    },
  });
  return (
    <FormDialog
      {...dialog}
      form={form}
      title={row.enabled ? t`Switch ${{ name: row.name }} off?` : t`Switch ${{ name: row.name }} on?`}
      description={
        row.enabled
          ? t`No one signs in by it, and who did is signed out. People without a password set one with “Forgot your password?”.`
          : t`Its button is on the page to sign in again.`
      }
      submitLabel={row.enabled ? t`Switch off` : t`Switch on`}
      isDanger={row.enabled}
      size="sm"
    >
      <ProofFields form={form} {...ways} />
    </FormDialog>
  );
}
