import { and, asc, count, eq, inArray, sql } from "drizzle-orm";
import { ExistsError, InputError, Refusal, sentence } from "../errors.ts";
import {
  IDENTITY_CLIENT_ID_CHARS_MAX,
  IDENTITY_CLIENT_SECRET_CHARS_MAX,
  IDENTITY_PROVIDER_NAME_CHARS_MAX,
  IDENTITY_PROVIDERS_MAX,
  IDENTITY_SCOPES_CHARS_MAX,
  ROLE_CLAIM_CHARS_MAX,
  ROLE_VALUE_CHARS_MAX,
  ROLE_VALUES_MAX,
} from "../limits.ts";
import { type ChangeDeps, changing } from "../platform/changes_store.ts";
import { decrypt, encrypt, randomToken, Secret } from "../platform/crypto.ts";
import type { Db, Tx } from "../platform/db.ts";
import { toIso } from "../platform/iso_time.ts";
import { tell } from "../platform/outbox_store.ts";
import { accounts, hosts, sessions } from "../platform/schema_accounts.ts";
import { identities, identityProviders, type RoleOfClaim } from "../platform/schema_identities.ts";
import { holdSecretKey } from "../platform/secret_key_store.ts";
import { IDENTITY_PRESETS, type IdentityKind } from "./identity_presets.ts";
import { checkName, isRowId } from "./input_checks.ts";
import { checkMailDomains } from "./mail_domains.ts";

/** The identity providers of sellers (0: the operator). Secrets are stored encrypted, and never shown again. Source: OIDC-1, OIDC-2, OIDC-3. */

const PROOF_TOKEN_BYTES = 24;
/** How often the TXT records of proved domains are looked for again, and for how long one may be gone. Source: OIDC-11. */
const PROOFS_EVERY_HOURS = 6;
const PROOF_GONE_MS = 3 * 86_400_000;
const SCOPES = /^[\x21\x23-\x5b\x5d-\x7e]+(?: [\x21\x23-\x5b\x5d-\x7e]+)*$/;
const PLAIN = /^[\x20-\x7e]+$/;

/** `found`: every resolver has the record. `gone`: one answered without it. `unknown`: one did not answer, and the others have it. */
export type Proof = "found" | "gone" | "unknown";
/** A domain whose addresses sign in by a provider. `isProved`: always of the operator. Source: OIDC-3. */
export type IdentityDomain = { domain: string; isProved: boolean };

/** As its seller sees it. `people`: how many have linked an identity of it. */
export type IdentityProvider = {
  identityProviderId: number;
  sellerId: number;
  kind: IdentityKind;
  name: string;
  issuer: string;
  clientId: string;
  scopes: string;
  mailDomains: IdentityDomain[];
  proofToken: string;
  accountId: number | null;
  roleClaim: string | null;
  roles: RoleOfClaim[];
  enabled: boolean;
  people: number;
  createdAt: string;
};

/** A provider to sign in by. `mailDomains`: those that are proved; null: all. */
export type UsableProvider = Pick<
  IdentityProvider,
  "identityProviderId" | "sellerId" | "kind" | "name" | "issuer" | "clientId" | "scopes" | "accountId"
> & {
  roleClaim: string | null;
  roles: readonly RoleOfClaim[];
  mailDomains: string[] | null;
  clientSecret: Secret;
};

/** What the sign-in page shows of a provider. */
export type OfferedProvider = Pick<IdentityProvider, "identityProviderId" | "name" | "kind">;

export type IdentityProviderRef = { sellerId: number; identityProviderId: number };

type Settings = {
  name: string;
  clientId: string;
  scopes: string;
  mailDomains: string[];
  accountId: number | null;
  roleClaim: string | null;
  roles: RoleOfClaim[];
  enabled: boolean;
};
/** `issuer` was checked. */
export type NewIdentityProvider = Omit<Settings, "scopes"> & {
  sellerId: number;
  kind: IdentityKind;
  issuer: string;
  scopes?: string | undefined;
  clientSecret: string;
};
/** What is left out stays. */
export type IdentityProviderChange = IdentityProviderRef & {
  [Name in keyof Settings]?: Settings[Name] | undefined;
} & { clientSecret?: string | undefined };

type SecretDeps = { config: { secretKey: Uint8Array } };

/** A seller's providers, by name. */
export async function listIdentityProviders({ db }: { db: Db }, sellerId: number): Promise<IdentityProvider[]> {
  return select(db.orm, sellerId);
}

/** Throws not_found, also for another seller's. */
export async function findIdentityProvider({ db }: { db: Db }, ref: IdentityProviderRef): Promise<IdentityProvider> {
  return one(db.orm, ref);
}

/** The providers that are switched on, of these sellers. Keys are their ids as text. */
export async function offeredProviders(
  { db }: { db: Db },
  sellerIds: readonly string[],
): Promise<Map<string, OfferedProvider[]>> {
  const rows = await db.orm
    .select({
      sellerId: identityProviders.sellerId,
      identityProviderId: identityProviders.id,
      name: identityProviders.name,
      kind: identityProviders.kind,
    })
    .from(identityProviders)
    .where(
      and(
        identityProviders.enabled,
        sql`${identityProviders.sellerId} = any(${`{${sellerIds.join(",")}}`}::text::bigint[])`,
      ),
    )
    .orderBy(asc(identityProviders.name));
  const found = new Map<string, OfferedProvider[]>();
  for (const { sellerId, ...offered } of rows)
    found.set(String(sellerId), [...(found.get(String(sellerId)) ?? []), offered]);
  return found;
}

/** A provider that is switched on, of this seller. undefined: there is none. Throws Error if SECRET_KEY is another one. */
export async function usableProvider(
  deps: { db: Db } & SecretDeps,
  ref: IdentityProviderRef,
): Promise<UsableProvider | undefined> {
  return (await usableProviders(deps.db.orm, deps, ref))[0];
}

/** The same in a transaction; it stays as it is until that ends. */
export async function lockUsableProvider(
  tx: Tx,
  deps: SecretDeps,
  ref: IdentityProviderRef,
): Promise<UsableProvider | undefined> {
  return (await usableProviders(tx, deps, ref, true))[0];
}

async function usableProviders(
  tx: Tx,
  { config }: SecretDeps,
  { sellerId, identityProviderId }: IdentityProviderRef,
  isLocked = false,
): Promise<UsableProvider[]> {
  if (!isRowId(identityProviderId)) return [];
  const reading = tx
    .select()
    .from(identityProviders)
    .where(
      and(
        eq(identityProviders.id, identityProviderId),
        eq(identityProviders.sellerId, sellerId),
        identityProviders.enabled,
      ),
    );
  const rows = await (isLocked ? reading.for("share") : reading);
  return await Promise.all(
    rows.map(async ({ id, secretCiphertext, ...row }) => ({
      ...row,
      identityProviderId: id,
      mailDomains: await provedDomainsOf(tx, row),
      clientSecret: new Secret(decrypt(config.secretKey, secretCiphertext)),
    })),
  );
}

type DomainFacts = Pick<typeof identityProviders.$inferSelect, "sellerId" | "mailDomains" | "provedDomains">;

/** The domains whose addresses may sign in; null: all, for the operator alone. Source: OIDC-3. */
async function provedDomainsOf(tx: Tx, row: DomainFacts): Promise<string[] | null> {
  if (row.sellerId === 0) return row.mailDomains.length === 0 ? null : row.mailDomains;
  const names = await activeHostsOf(tx, row.sellerId);
  return row.mailDomains.filter((domain) => isProved(domain, row, names));
}

/** A domain that the reseller serves is proved by its check, and so are those below it. */
function isProved(domain: string, { sellerId, provedDomains }: DomainFacts, activeHosts: readonly string[]): boolean {
  const isServed = activeHosts.some((host) => domain === host || domain.endsWith(`.${host}`));
  return sellerId === 0 || isServed || provedDomains.includes(domain);
}

async function activeHostsOf(tx: Tx, resellerId: number): Promise<string[]> {
  const rows = await tx
    .select({ host: hosts.host })
    .from(hosts)
    .where(and(eq(hosts.resellerId, resellerId), eq(hosts.status, "active")));
  return rows.map(({ host }) => host);
}

/** Adds a provider. Throws InputError. */
export async function addIdentityProvider(
  deps: ChangeDeps & SecretDeps,
  { sellerId, kind, issuer, clientSecret, scopes = IDENTITY_PRESETS[kind].scopes, ...wanted }: NewIdentityProvider,
): Promise<IdentityProvider> {
  const { secretKey } = deps.config;
  const secret = checkSecret(clientSecret);
  return changing(deps, async (tx) => {
    await lockSeller(tx, sellerId);
    const [own] = await tx
      .select({ providers: count() })
      .from(identityProviders)
      .where(eq(identityProviders.sellerId, sellerId));
    if (own && own.providers >= IDENTITY_PROVIDERS_MAX)
      throw new InputError(
        sentence("There are {identityProvidersMax} identity providers, the most that you may have.", {
          identityProvidersMax: IDENTITY_PROVIDERS_MAX,
        }),
      );
    const set = await checkSettings(tx, { sellerId, kind }, { ...wanted, scopes });
    await holdSecretKey(tx, secretKey);
    const [added] = await tx
      .insert(identityProviders)
      .values({
        ...{ ...set, sellerId, kind, issuer, proofToken: randomToken(PROOF_TOKEN_BYTES) },
        secretCiphertext: encrypt(secretKey, secret),
      })
      .onConflictDoNothing()
      .returning({ identityProviderId: identityProviders.id });
    if (!added) throw nameTaken();
    return one(tx, { sellerId, ...added });
  });
}

/** Changes a provider. Switching it off ends the sessions that began with it. Throws not_found, InputError. Source: OIDC-9. */
export async function changeIdentityProvider(
  deps: ChangeDeps & SecretDeps,
  { sellerId, identityProviderId, clientSecret, ...wanted }: IdentityProviderChange,
): Promise<IdentityProvider> {
  const { secretKey } = deps.config;
  const ref = { sellerId, identityProviderId };
  const secret = clientSecret === undefined ? undefined : checkSecret(clientSecret);
  const change = async (tx: Tx) => {
    await lockSeller(tx, sellerId);
    const before = await lockProvider(tx, ref);
    const given = Object.fromEntries(Object.entries(wanted).filter(([, value]) => value !== undefined));
    const set = await checkSettings(tx, before, { ...before, ...given });
    if (set.name !== before.name) await requireFreeName(tx, sellerId, set.name);
    if (secret !== undefined) await holdSecretKey(tx, secretKey);
    await tx
      .update(identityProviders)
      .set({
        ...set,
        provedDomains: before.provedDomains.filter((domain) => set.mailDomains.includes(domain)),
        failingSince: Object.fromEntries(
          Object.entries(before.failingSince).filter(([domain]) => set.mailDomains.includes(domain)),
        ),
        ...(secret !== undefined && { secretCiphertext: encrypt(secretKey, secret) }),
      })
      .where(eq(identityProviders.id, identityProviderId));
    if (!set.enabled) await endSessionsOf(tx, identityProviderId);
    return one(tx, ref);
  };
  return changing(deps, change, { protects: wanted.enabled === false });
}

/** Records what was found of a provider's domains because its seller asked. What is unknown stays. Throws not_found. Source: OIDC-3. */
export async function setProvedDomains(
  deps: ChangeDeps,
  { proofs, ...ref }: IdentityProviderRef & { proofs: ReadonlyMap<string, Proof> },
): Promise<IdentityProvider> {
  return changing(deps, async (tx) => {
    const { mailDomains, provedDomains, failingSince } = await lockProvider(tx, ref);
    const isKept = (domain: string) => proofs.get(domain) === "unknown" && provedDomains.includes(domain);
    const proved = mailDomains.filter((domain) => proofs.get(domain) === "found" || isKept(domain));
    await tx
      .update(identityProviders)
      .set({
        provedDomains: proved,
        failingSince: Object.fromEntries(Object.entries(failingSince).filter(([domain]) => isKept(domain))),
      })
      .where(eq(identityProviders.id, ref.identityProviderId));
    return one(tx, ref);
  });
}

/** A provider whose proofs are looked for again. */
export type DueProofs = IdentityProviderRef & { domains: string[]; proofToken: string };

/** Starts at most `max` due checks of proofs. Two callers never get the same one; a crash delays it until the next is due. */
export async function startDueProofs({ db }: { db: Db }, max: number): Promise<DueProofs[]> {
  return db.orm
    .update(identityProviders)
    .set({ checkedAt: sql`clock_timestamp()` })
    .where(
      sql`${identityProviders.id} in (
        select id from identity_providers
        where proved_domains <> '{}' and (checked_at is null or checked_at <= now() - make_interval(hours => ${PROOFS_EVERY_HOURS}))
        order by checked_at nulls first limit ${max} for update skip locked)`,
    )
    .returning({
      identityProviderId: identityProviders.id,
      sellerId: identityProviders.sellerId,
      domains: identityProviders.provedDomains,
      proofToken: identityProviders.proofToken,
    });
}

/**
 * Stores what was found. A proof that has been gone for PROOF_GONE_MS ends, with the sessions that began with the provider, and the
 * seller is told. What is unknown counts neither way. Returns the domains whose proofs ended. Source: OIDC-11.
 */
export async function finishProofs(
  deps: ChangeDeps,
  { proofs, ...ref }: IdentityProviderRef & { proofs: ReadonlyMap<string, Proof> },
): Promise<string[]> {
  return changing(deps, async (tx) => {
    const row = await lockProvider(tx, ref);
    const now = await clockOf(tx);
    const failingSince: Record<string, string> = {};
    for (const domain of row.provedDomains) {
      const since = row.failingSince[domain] ?? (proofs.get(domain) === "gone" ? now.toISOString() : undefined);
      if (since !== undefined && proofs.get(domain) !== "found") failingSince[domain] = since;
    }
    const ended = row.provedDomains.filter(
      (domain) =>
        proofs.get(domain) === "gone" && now.getTime() - Date.parse(failingSince[domain] ?? "") >= PROOF_GONE_MS,
    );
    for (const domain of ended) delete failingSince[domain];
    const provedDomains = row.provedDomains.filter((domain) => !ended.includes(domain));
    await tx
      .update(identityProviders)
      .set({ provedDomains, failingSince })
      .where(eq(identityProviders.id, ref.identityProviderId));
    const activeHosts = await activeHostsOf(tx, ref.sellerId);
    const lost = ended.filter((domain) => !isProved(domain, { ...row, provedDomains }, activeHosts));
    if (lost.length > 0) await endSessionsOf(tx, ref.identityProviderId);
    for (const domain of lost) {
      const data = { domain, identityProvider: row.name };
      await tell(tx, { kind: "mail_domain_lost", accountId: ref.sellerId, data });
    }
    return lost;
  });
}

async function clockOf(tx: Tx): Promise<Date> {
  const [row] = await tx.execute<{ now: string }>(sql`select to_json(clock_timestamp()) #>> '{}' as now`);
  return new Date(String(row?.now));
}

/**
 * Removes a provider with the identities that people linked, and ends the sessions that began with it. Throws not_found; InputError while
 * somebody has no other way to sign in. Source: OIDC-9.
 */
export async function removeIdentityProvider(deps: ChangeDeps, ref: IdentityProviderRef): Promise<void> {
  const { identityProviderId } = ref;
  const remove = async (tx: Tx) => {
    await lockProvider(tx, ref);
    const [only] = await tx.execute<{ people: number }>(sql`
      select count(*)::int as people from identities i join accounts a on a.id = i.account_id
      where i.identity_provider_id = ${identityProviderId} and a.status = 'active' and a.password_hash is null
        and not exists (select from passkeys p where p.account_id = a.id and p.cloned_at is null)
        and not exists (select from identities o join identity_providers p on p.id = o.identity_provider_id
          where o.account_id = a.id and p.enabled and p.id <> ${identityProviderId})`);
    if (only && only.people > 0)
      throw new InputError(
        sentence(
          "{people, plural, one {One person signs} other {# people sign}} in by it alone. Switch it off instead: with “Forgot your password?” they set a password.",
          { people: only.people },
        ),
      );
    await tx.delete(identities).where(eq(identities.identityProviderId, identityProviderId));
    await tx.delete(identityProviders).where(eq(identityProviders.id, identityProviderId));
    await endSessionsOf(tx, identityProviderId);
  };
  return changing(deps, remove, { protects: true });
}

async function endSessionsOf(tx: Tx, identityProviderId: number): Promise<void> {
  await tx.delete(sessions).where(eq(sessions.identityProviderId, identityProviderId));
}

/** Until commit: a seller's providers change one after the other. */
async function lockSeller(tx: Tx, sellerId: number): Promise<void> {
  await tx.execute(sql`select pg_advisory_xact_lock(hashtextextended(${`identity providers ${sellerId}`}, 0))`);
}

async function lockProvider(tx: Tx, { sellerId, identityProviderId }: IdentityProviderRef) {
  const [row] = isRowId(identityProviderId)
    ? await tx
        .select()
        .from(identityProviders)
        .where(and(eq(identityProviders.id, identityProviderId), eq(identityProviders.sellerId, sellerId)))
        .for("update")
    : [];
  if (!row) throw noProvider();
  return row;
}

async function requireFreeName(tx: Tx, sellerId: number, name: string): Promise<void> {
  const taken = await tx
    .select({ id: identityProviders.id })
    .from(identityProviders)
    .where(and(eq(identityProviders.sellerId, sellerId), eq(identityProviders.name, name)));
  if (taken.length > 0) throw nameTaken();
}

type Owner = { sellerId: number; kind: IdentityKind };

/** Throws InputError. */
async function checkSettings(tx: Tx, { sellerId, kind }: Owner, wanted: Settings): Promise<Settings> {
  const mailDomains = checkMailDomains(wanted.mailDomains, "mailDomains");
  if (sellerId !== 0 && mailDomains.length === 0)
    throw new InputError("Name the mail domains whose addresses sign in by it. You then prove them.", "mailDomains");
  return {
    name: checkName(wanted.name, { param: "name", charsMax: IDENTITY_PROVIDER_NAME_CHARS_MAX }),
    clientId: checkClientId(wanted.clientId),
    scopes: checkScopes(wanted.scopes, kind),
    mailDomains,
    enabled: wanted.enabled,
    ...(await checkRoles(tx, { sellerId, kind }, wanted)),
  };
}

type RoleSettings = Pick<Settings, "accountId" | "roleClaim" | "roles">;

/** The members of a customer's account by a claim, or none of it. Throws InputError. Source: OIDC-5. */
async function checkRoles(
  tx: Tx,
  { sellerId, kind }: Owner,
  { accountId, roleClaim, roles }: RoleSettings,
): Promise<RoleSettings> {
  if (accountId === null) {
    if (roleClaim !== null || roles.length > 0)
      throw new InputError("A claim gives roles in an account: name the account too.", "accountId");
    return { accountId, roleClaim, roles: [] };
  }
  if (IDENTITY_PRESETS[kind].protocol !== "oidc")
    throw new InputError("This identity provider has no claims, so it cannot give roles.", "accountId");
  const found = await tx
    .select({ id: accounts.id })
    .from(accounts)
    .where(
      and(
        eq(accounts.id, accountId),
        eq(accounts.role, "customer"),
        eq(accounts.onlyPerson, false),
        sql`coalesce(${accounts.resellerId}, 0) = ${sellerId}`,
      ),
    );
  if (found.length === 0) throw new InputError("Name the account of one of your customers.", "accountId");
  const claim = roleClaim?.trim() ?? "";
  if (claim === "" || claim.length > ROLE_CLAIM_CHARS_MAX || !PLAIN.test(claim))
    throw new InputError(
      sentence("Name the claim that gives the role, in 1 to {roleClaimCharsMax} characters.", {
        roleClaimCharsMax: ROLE_CLAIM_CHARS_MAX,
      }),
      "roleClaim",
    );
  if (roles.length === 0 || roles.length > ROLE_VALUES_MAX)
    throw new InputError(
      sentence("Map 1 to {roleValuesMax} values of the claim to roles.", { roleValuesMax: ROLE_VALUES_MAX }),
      "roles",
    );
  const values = roles.map(({ value }) => checkName(value, { param: "roles", charsMax: ROLE_VALUE_CHARS_MAX }));
  if (new Set(values).size < values.length) throw new InputError("Each value can give one role.", "roles");
  return { accountId, roleClaim: claim, roles: roles.map(({ role }, i) => ({ value: values[i] ?? "", role })) };
}

function checkClientId(typed: string): string {
  const clientId = typed.trim();
  if (clientId === "" || clientId.length > IDENTITY_CLIENT_ID_CHARS_MAX || !PLAIN.test(clientId))
    throw new InputError("Enter the client id that the identity provider gave you.", "clientId");
  return clientId;
}

function checkSecret(typed: string): string {
  const secret = typed.trim();
  if (secret === "" || secret.length > IDENTITY_CLIENT_SECRET_CHARS_MAX || !PLAIN.test(secret))
    throw new InputError("Enter the client secret that the identity provider gave you.", "clientSecret");
  return secret;
}

function checkScopes(typed: string, kind: IdentityKind): string {
  const scopes = typed.trim().replace(/\s+/g, " ");
  if (scopes.length > IDENTITY_SCOPES_CHARS_MAX || !SCOPES.test(scopes))
    throw new InputError("Scopes are words separated by spaces, as in: openid email profile.", "scopes");
  if (IDENTITY_PRESETS[kind].protocol === "oidc" && !scopes.split(" ").includes("openid"))
    throw new InputError("The scopes must include openid.", "scopes");
  return scopes;
}

function nameTaken(): InputError {
  return new ExistsError("You have an identity provider with this name already.", "name");
}

function noProvider(): Refusal {
  return new Refusal("not_found", { message: "There is no such identity provider." });
}

async function one(tx: Tx, { sellerId, identityProviderId }: IdentityProviderRef): Promise<IdentityProvider> {
  const [found] = isRowId(identityProviderId) ? await select(tx, sellerId, [identityProviderId]) : [];
  if (!found) throw noProvider();
  return found;
}

async function select(tx: Tx, sellerId: number, ids?: readonly number[]): Promise<IdentityProvider[]> {
  const [rows, activeHosts] = await Promise.all([
    tx
      .select({
        row: identityProviders,
        people: sql<number>`(select count(*)::int from identities i where i.identity_provider_id = ${identityProviders.id})`,
      })
      .from(identityProviders)
      .where(
        and(
          eq(identityProviders.sellerId, sellerId),
          ids === undefined ? undefined : inArray(identityProviders.id, [...ids]),
        ),
      )
      .orderBy(asc(identityProviders.name)),
    activeHostsOf(tx, sellerId),
  ]);
  return rows.map(({ row: { id, secretCiphertext: _, provedDomains, mailDomains, createdAt, ...row }, people }) => ({
    ...row,
    identityProviderId: id,
    mailDomains: mailDomains.map((domain) => ({
      domain,
      isProved: isProved(domain, { sellerId, mailDomains, provedDomains }, activeHosts),
    })),
    people,
    createdAt: toIso(createdAt),
  }));
}
