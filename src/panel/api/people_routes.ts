import { Elysia, t } from "elysia";
import {
  type Account,
  activateAccount,
  addAccount,
  findAccount,
  listAccounts,
  renameAccount,
  suspendAccount,
} from "../../accounts/accounts_store.ts";
import { disableKey, findKey, type Key, listKeys } from "../../accounts/keys_store.ts";
import {
  createLink,
  inviteAccount,
  type NewLink,
  pendingLinkOf,
  signInHostOf,
} from "../../accounts/password_links_store.ts";
import { removeTotp } from "../../accounts/second_factor_store.ts";
import { beginViewing } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { longRead } from "./long_read.ts";
import { Id, IdInBody, once, type Person, signedIn, toWire, whole } from "./panel_session.ts";
import { accountInScope } from "./scope.ts";
import { siteUrl } from "./session_auth.ts";

/** People, for those who look after them: a reseller its own customers, an admin everybody. */

const OfPerson = t.Object({ id: Id });
const RoleName = t.Union([t.Literal("customer"), t.Literal("reseller"), t.Literal("admin")]);
const StateName = t.Union([t.Literal("active"), t.Literal("invited"), t.Literal("suspended")]);
const Paging = { before: t.Optional(Id), limit: t.Optional(whole(1, 200)) };
/** What a name may have is checked by its store; this is where nobody has to read on. */
const NAME_LENGTH_MAX = 400;
const Name = t.String({ maxLength: NAME_LENGTH_MAX });

export function peopleRoutes(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(rowRoutes(deps))
    .use(accessRoutes(deps))
    .use(keyRoutes(deps))
    .use(viewRoutes(deps));
}

function rowRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people",
      async ({ person, query, request: { signal } }) => {
        const { rows, hasMore } = await longRead(deps, { person, signal }, (reading) =>
          listAccounts(reading, { ...query, resellerId: scopeOf(person) }),
        );
        return toWire({ people: rows, hasMore });
      },
      {
        query: t.Object({
          q: t.Optional(
            t.String({
              maxLength: 254,
              pattern: "^[^\\u0000]*$",
              says: "a string of at most 254 characters without NUL",
            }),
          ),
          role: t.Optional(RoleName),
          state: t.Optional(StateName),
          ...Paging,
        }),
      },
    )
    .post(
      "/people",
      async ({ person, body, request }) => toWire(await once(deps, person, request, () => invite(deps, person, body))),
      {
        body: t.Object({
          email: t.String({ maxLength: 254 }),
          name: Name,
          role: t.Optional(RoleName),
          resellerId: t.Optional(IdInBody),
        }),
      },
    )
    .get("/people/:id", ({ person, params }) => describe(deps, person, params.id), { params: OfPerson })
    .patch(
      "/people/:id",
      async ({ person, params, body }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        if (body.name !== undefined) await renameAccount({ ...deps, by: person.by }, accountId, body.name);
        return describe(deps, person, accountId);
      },
      { params: OfPerson, body: t.Object({ name: t.Optional(Name) }) },
    );
}

/** What lets a person in, or keeps them out. */
function accessRoutes(deps: Deps) {
  const ofPerson = { params: OfPerson };
  return signedIn(deps, "reseller", "admin")
    .post(
      "/people/:id/suspend",
      async ({ person, params }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        if (accountId === person.accountId) throw new InputError("You cannot suspend yourself.");
        await suspendAccount({ ...deps, by: person.by }, accountId, partyOf(person));
        return describe(deps, person, accountId);
      },
      ofPerson,
    )
    .post(
      "/people/:id/activate",
      async ({ person, params }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        await activateAccount({ ...deps, by: person.by }, accountId, partyOf(person));
        return describe(deps, person, accountId);
      },
      ofPerson,
    )
    .post(
      "/people/:id/link",
      ({ person, params, request }) => once(deps, person, request, () => makeLink(deps, person, params.id)),
      ofPerson,
    )
    .post(
      "/people/:id/remove-second-factor",
      async ({ person, params }) => {
        const { accountId, role } = await accountInScope(deps, person, params.id);
        // One's own is removed in the settings, by password and code.
        if (accountId === person.accountId) throw new InputError("Remove your own second factor in your settings.");
        // Else an admin's session alone would do: it can invite a second admin, who removes the first one's.
        if (role === "admin")
          throw new InputError(
            "An admin's second factor is removed on the server, by the command line: account remove-second-factor.",
          );
        await removeTotp({ ...deps, by: person.by }, accountId);
        return describe(deps, person, accountId);
      },
      ofPerson,
    );
}

/** A person's keys: names and what is left of them to see, never a secret. */
function keyRoutes(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people/:id/keys",
      async ({ person, params, query }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        const { rows, hasMore } = await listKeys(deps, { accountId, ...query });
        return { keys: rows.map(seenFromOutside), hasMore };
      },
      { params: OfPerson, query: t.Object(Paging) },
    )
    .post(
      "/people/:id/keys/:keyId/disable",
      async ({ person, params: { id, keyId } }) => {
        const { accountId } = await accountInScope(deps, person, id);
        if (!(await findKey(deps, { keyId, accountId }))) throw new Refusal("not_found");
        const acting = { ...deps, by: person.by };
        return seenFromOutside(await disableKey(acting, { accountId, keyId }));
      },
      { params: t.Object({ id: Id, keyId: Id }) },
    );
}

/** Looking at somebody's panel; the way back is in session_routes.ts. */
function viewRoutes(deps: Deps) {
  return signedIn(deps, "admin").post(
    "/people/:id/view",
    async ({ person, params }) => {
      const { accountId, role } = await accountInScope(deps, person, params.id);
      if (role === "admin") throw new InputError("An admin's panel cannot be looked at.");
      const digest = Buffer.from(person.session.digestHex, "hex");
      if (!(await beginViewing({ ...deps, by: person.by }, { digest, accountId }))) throw new Refusal("not_found");
      return { viewing: accountId };
    },
    { params: OfPerson },
  );
}

/** Whose customers a person looks after; undefined: everybody's. */
function scopeOf({ role, accountId }: Person): number | undefined {
  return role === "admin" ? undefined : accountId;
}

function partyOf({ role }: Person): "operator" | "reseller" {
  return role === "admin" ? "operator" : "reseller";
}

/** `canSwitchPayg`: the one who looks may. */
async function describe(deps: Deps, person: Person, accountId: number) {
  const [account, link, own] = await Promise.all([
    accountInScope(deps, person, accountId),
    pendingLinkOf(deps, accountId),
    person.role === "admin" ? undefined : findAccount(deps, person.accountId),
  ]);
  return toWire({ ...account, link, canSwitchPayg: person.role === "admin" || own?.maySwitchPayg === true });
}

type Wanted = { email: string; name: string; role?: Account["role"]; resellerId?: number };
/** `url` is shown once: the database has only a digest of it. */
type HandedLink = { kind: NewLink["kind"]; url: string; expiresAt: string };

/** Adds an account and its invitation; `link` is null where the account has no host to sign in on yet. Throws InputError. */
async function invite(
  deps: Deps,
  person: Person,
  { email, name, role = "customer", resellerId = scopeOf(person) }: Wanted,
): Promise<{ account: Account; link: HandedLink | null }> {
  if (person.role !== "admin" && role !== "customer") throw new InputError("You can add customers only.", "role");
  if (person.role !== "admin" && resellerId !== person.accountId)
    throw new InputError("You can add customers of your own only.", "resellerId");
  const wanted = { email, name, role, resellerId: resellerId ?? null };
  const acting = { ...deps, by: person.by };
  const site = await siteOf(deps, person, wanted.resellerId);
  if (site === undefined) return { account: await addAccount(acting, { ...wanted, passwordHash: null }), link: null };
  const { account, link } = await inviteAccount(acting, wanted);
  return { account, link: handed(site, link) };
}

/** Throws not_found, InputError. */
async function makeLink(deps: Deps, person: Person, id: number): Promise<HandedLink> {
  const { accountId, resellerId } = await accountInScope(deps, person, id);
  const site = await siteOf(deps, person, resellerId);
  if (site === undefined)
    throw new InputError("This customer signs in on a domain of its reseller, and none is active yet.");
  return handed(site, await createLink({ ...deps, by: person.by }, accountId));
}

/** Where an account signs in: a customer of a reseller on a domain of it, everybody else on the panel's own. */
async function siteOf(deps: Deps, person: Person, resellerId: number | null): Promise<string | undefined> {
  if (resellerId === null) return deps.config.panelUrl;
  const host = await signInHostOf(deps, { resellerId, preferred: person.host.name });
  return host === undefined ? undefined : siteUrl(deps, host);
}

function handed(site: string, { kind, token, expiresAt }: NewLink): HandedLink {
  return { kind, url: `${site}/${kind === "invitation" ? "invite" : "reset"}/${token}`, expiresAt };
}

function seenFromOutside({ keyId, name, masked, mode, status, expiresAt, createdAt }: Key) {
  return { keyId, name, masked, mode, status, expiresAt, createdAt };
}
