import { type StaticDecode, Type } from "@sinclair/typebox";
import { proofNameOf } from "../accounts/domain_records.ts";
import { listHosts } from "../accounts/hosts_store.ts";
import { IDENTITY_PRESETS, type IdentityKind } from "../accounts/identity_presets.ts";
import { lookForProofs } from "../accounts/identity_proofs.ts";
import {
  addIdentityProvider,
  changeIdentityProvider,
  findIdentityProvider,
  type IdentityProvider,
  listIdentityProviders as list,
  removeIdentityProvider as remove,
  setProvedDomains,
} from "../accounts/identity_providers_store.ts";
import { InputError } from "../errors.ts";
import { siteUrl } from "../http/host.ts";
import {
  IDENTITY_CLIENT_ID_CHARS_MAX,
  IDENTITY_CLIENT_SECRET_CHARS_MAX,
  IDENTITY_ISSUER_CHARS_MAX,
  IDENTITY_PROVIDER_NAME_CHARS_MAX,
  IDENTITY_SCOPES_CHARS_MAX,
  MAIL_DOMAIN_CHARS_MAX,
  MAIL_DOMAINS_MAX,
  ROLE_CLAIM_CHARS_MAX,
  ROLE_VALUE_CHARS_MAX,
  ROLE_VALUES_MAX,
} from "../limits.ts";
import { Secret } from "../platform/crypto.ts";
import { Seller, sellerInScope } from "./fence.ts";
import { At, orNull, RowId, text } from "./fields.ts";
import { checkIssuer } from "./identity_client.ts";
import { changing, type OperationDeps, operation } from "./operation.ts";

/** Identity providers, by which a seller's people sign in. Source: OIDC-1, OIDC-3, OIDC-5. */

const SELLERS = ["reseller", "admin"] as const;
/** Where an identity provider sends people back to, on the host where they began; and after signing out. */
export const CALLBACK_PATH = "/sign-in/callback";
export const SIGNED_OUT_PATH = "/sign-in";

const Kind = Type.Union([Type.Literal("oidc"), Type.Literal("google"), Type.Literal("github")], {
  description: "oidc: any provider with discovery.",
});
const Role = Type.Union([
  Type.Literal("owner"),
  Type.Literal("developer"),
  Type.Literal("billing"),
  Type.Literal("viewer"),
]);
const Roles = Type.Array(
  Type.Object({ value: text(ROLE_VALUE_CHARS_MAX * 2), role: Role }, { additionalProperties: false }),
  { maxItems: ROLE_VALUES_MAX, description: "Which values of the claim give which role. Other values give none." },
);
const Name = text(IDENTITY_PROVIDER_NAME_CHARS_MAX * 4, 'As in "Continue with …".');
const ClientId = text(IDENTITY_CLIENT_ID_CHARS_MAX * 2);
const ClientSecret = text(IDENTITY_CLIENT_SECRET_CHARS_MAX * 2, "Stored encrypted, and never shown again.");
const Scopes = text(IDENTITY_SCOPES_CHARS_MAX * 2, "Separated by spaces.");
const Domains = Type.Array(text(MAIL_DOMAIN_CHARS_MAX), {
  maxItems: MAIL_DOMAINS_MAX,
  description: "Whose addresses sign in by it, with the domains below. Empty: all, for the operator alone.",
});
const Account = Type.Optional(
  orNull(
    Type.Integer({ minimum: 1, description: "A customer's account whose members sign in by it, with roleClaim." }),
  ),
);
const RoleClaim = Type.Optional(
  orNull(text(ROLE_CLAIM_CHARS_MAX * 2, "A claim, or a path such as realm_access.roles.")),
);
const OfProvider = { ...Seller, identityProviderId: RowId };

const ProviderShape = Type.Object(
  {
    identityProviderId: RowId,
    sellerId: Type.Integer({ minimum: 0 }),
    kind: Kind,
    name: Type.String(),
    issuer: Type.String(),
    clientId: Type.String(),
    scopes: Type.String(),
    mailDomains: Type.Array(Type.Object({ domain: Type.String(), isProved: Type.Boolean() })),
    records: Type.Array(Type.Object({ type: Type.Literal("TXT"), name: Type.String(), value: Type.String() }), {
      description: "The DNS records that prove the domains that are not proved yet.",
    }),
    accountId: orNull(RowId),
    roleClaim: orNull(Type.String()),
    roles: Type.Array(Type.Object({ value: Type.String(), role: Role })),
    enabled: Type.Boolean(),
    people: Type.Integer({ description: "How many people have linked an identity of it." }),
    redirectUris: Type.Array(Type.String(), { description: "To be registered with the identity provider." }),
    signedOutUris: Type.Array(Type.String(), { description: "The same, for signing out." }),
    createdAt: At,
  },
  { title: "IdentityProvider" },
);

export const listIdentityProviders = operation({
  name: "identity_providers.list",
  says: "Lists the identity providers by which a seller's people sign in.",
  scope: "identity_providers:read",
  roles: SELLERS,
  route: "GET /identity_providers",
  input: Seller,
  output: Type.Object({
    identityProviders: Type.Array(ProviderShape),
    redirectUris: Type.Array(Type.String(), { description: "Where they send people back to." }),
  }),
  async run(deps, { caller }, wanted) {
    const sellerId = await sellerInScope(deps, caller, wanted.sellerId);
    const [found, sites] = await Promise.all([list(deps, sellerId), sitesOf(deps, sellerId)]);
    return {
      identityProviders: found.map((provider) => shown(provider, sites)),
      redirectUris: sites.map((site) => site + CALLBACK_PATH),
    };
  },
});

export const createIdentityProvider = operation({
  name: "identity_providers.create",
  says: "Adds an identity provider. Its issuer is asked for its settings first.",
  scope: "identity_providers:write",
  roles: SELLERS,
  route: "POST /identity_providers",
  input: {
    ...Seller,
    kind: Kind,
    name: Name,
    issuer: Type.Optional(text(IDENTITY_ISSUER_CHARS_MAX * 2, "Its URL. Google and GitHub have one already.")),
    clientId: ClientId,
    clientSecret: ClientSecret,
    scopes: Type.Optional(Scopes),
    mailDomains: Type.Optional(Domains),
    accountId: Account,
    roleClaim: RoleClaim,
    roles: Type.Optional(Roles),
    enabled: Type.Optional(Type.Boolean()),
  },
  output: ProviderShape,
  async run(deps, call, { kind, issuer: typed, ...wanted }) {
    const sellerId = await sellerInScope(deps, call.caller, wanted.sellerId);
    const { clientId, clientSecret } = wanted;
    const asked = { kind, sellerId, clientId, clientSecret: new Secret(clientSecret), issuer: issuerOf(kind, typed) };
    const issuer = await call.callOut("receiver", () => checkIssuer(deps.config, asked));
    const { mailDomains = [], accountId = null, roleClaim = null, roles = [], enabled = true } = wanted;
    const added = await addIdentityProvider(changing(deps, call), {
      ...wanted,
      ...{ sellerId, kind, issuer, mailDomains, accountId, roleClaim, roles, enabled },
    });
    return shown(added, await sitesOf(deps, sellerId));
  },
});

export const updateIdentityProvider = operation({
  name: "identity_providers.update",
  says: "Changes an identity provider, or switches it on or off. What is left out stays. The issuer cannot be changed.",
  scope: "identity_providers:write",
  roles: SELLERS,
  route: "PATCH /identity_providers/{identityProviderId}",
  input: {
    ...OfProvider,
    name: Type.Optional(Name),
    clientId: Type.Optional(ClientId),
    clientSecret: Type.Optional(ClientSecret),
    scopes: Type.Optional(Scopes),
    mailDomains: Type.Optional(Domains),
    accountId: Account,
    roleClaim: RoleClaim,
    roles: Type.Optional(Roles),
    enabled: Type.Optional(Type.Boolean()),
  },
  output: ProviderShape,
  async run(deps, call, wanted) {
    const sellerId = await sellerInScope(deps, call.caller, wanted.sellerId);
    const changed = await changeIdentityProvider(changing(deps, call), { ...wanted, sellerId });
    return shown(changed, await sitesOf(deps, sellerId));
  },
});

export const proveIdentityDomains = operation({
  name: "identity_providers.prove",
  says: "Looks for the DNS records that prove the mail domains of a reseller's identity provider.",
  scope: "identity_providers:write",
  roles: SELLERS,
  route: "POST /identity_providers/{identityProviderId}/prove",
  input: OfProvider,
  output: ProviderShape,
  async run(deps, call, { identityProviderId, ...wanted }) {
    const sellerId = await sellerInScope(deps, call.caller, wanted.sellerId);
    const ref = { sellerId, identityProviderId };
    const { mailDomains, proofToken } = await findIdentityProvider(deps, ref);
    const domains = mailDomains.map(({ domain }) => domain);
    const proofs = await call.callOut("receiver", () => lookForProofs(deps.config, { domains, proofToken }));
    const proved = await setProvedDomains(changing(deps, call), { ...ref, proofs });
    return shown(proved, await sitesOf(deps, sellerId));
  },
});

export const removeIdentityProvider = operation({
  name: "identity_providers.remove",
  says: "Removes an identity provider. The people who linked an identity of it sign in another way.",
  scope: "identity_providers:write",
  roles: SELLERS,
  route: "DELETE /identity_providers/{identityProviderId}",
  input: OfProvider,
  output: Type.Object({ removed: Type.Boolean() }),
  async run(deps, call, { identityProviderId, ...wanted }) {
    const sellerId = await sellerInScope(deps, call.caller, wanted.sellerId);
    await remove(changing(deps, call), { sellerId, identityProviderId });
    return { removed: true };
  },
});

function issuerOf(kind: IdentityKind, typed: string | undefined): string {
  const issuer = typed?.trim() || IDENTITY_PRESETS[kind].issuer;
  if (issuer === null) throw new InputError("Enter the issuer's URL.", "issuer");
  return issuer;
}

/** The origins on which a seller's people sign in. */
async function sitesOf(deps: OperationDeps, sellerId: number): Promise<string[]> {
  if (sellerId === 0) return [deps.config.panelUrl];
  const hosts = await listHosts(deps, { resellerId: sellerId });
  return hosts.filter(({ status }) => status === "active").map(({ host }) => siteUrl(deps, host));
}

function shown(
  { proofToken, ...provider }: IdentityProvider,
  sites: readonly string[],
): StaticDecode<typeof ProviderShape> {
  return {
    ...provider,
    records: provider.mailDomains
      .filter(({ isProved }) => !isProved)
      .map(({ domain }) => ({ type: "TXT" as const, name: proofNameOf(domain), value: proofToken })),
    redirectUris: sites.map((site) => site + CALLBACK_PATH),
    signedOutUris: sites.map((site) => site + SIGNED_OUT_PATH),
  };
}
