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
  linkUrl,
  type NewLink,
  pendingLinkOf,
  signInHostOf,
} from "../../accounts/password_links_store.ts";
import { appliedLimits } from "../../accounts/rate_limits.ts";
import { accountLimits, setAccountLimits } from "../../accounts/rate_limits_store.ts";
import { removeTotp } from "../../accounts/second_factor_store.ts";
import { beginViewing } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { siteUrl } from "../../http/host.ts";
import { EMAIL_CHARS_MAX } from "../../limits.ts";
import { canMail } from "../../messages/senders.ts";
import { csvResponse, FILE_WAIT_MS_MAX, type ReadPage } from "./csv_stream.ts";
import { Id, IdInBody, IdParam, NO_NUL, RateLimits, whole } from "./fields.ts";
import { once } from "./form_once.ts";
import { toJson } from "./formats.ts";
import { accountInScope, longRead, type Person, signedIn } from "./panel_session.ts";
import { peopleCsv } from "./people_csv.ts";

/** People, for those who manage them: a reseller its own customers, an admin everyone. */

const RoleName = t.Union([t.Literal("customer"), t.Literal("reseller"), t.Literal("admin")]);
const StateName = t.Union([t.Literal("active"), t.Literal("invited"), t.Literal("suspended")]);
const SortName = t.Union([t.Literal("added"), t.Literal("name"), t.Literal("balance")]);
const PeopleFilter = {
  q: t.Optional(
    t.String({
      maxLength: EMAIL_CHARS_MAX,
      pattern: NO_NUL,
      says: `a string of at most ${EMAIL_CHARS_MAX} characters without NUL`,
    }),
  ),
  role: t.Optional(RoleName),
  state: t.Optional(StateName),
};
const Paging = { before: t.Optional(Id), limit: t.Optional(whole(1, 200)) };
const NAME_LENGTH_MAX = 400;
const Name = t.String({ maxLength: NAME_LENGTH_MAX });

export function peopleEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(accountEndpoints(deps))
    .use(accessEndpoints(deps))
    .use(keyEndpoints(deps))
    .use(limitEndpoints(deps))
    .use(viewEndpoints(deps));
}

function accountEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people",
      async ({ person, query, request: { signal } }) => {
        const { rows, hasMore } = await longRead(deps, { person, signal }, (reading) =>
          listAccounts(reading, { ...query, resellerId: scopeOf(person) }),
        );
        return toJson({ people: rows, hasMore });
      },
      { query: t.Object({ ...PeopleFilter, sort: t.Optional(SortName), ...Paging }) },
    )
    .get(
      "/people.csv",
      async ({ person, query }) => {
        const read: ReadPage = (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page);
        const csv = await peopleCsv(read, { ...query, resellerId: scopeOf(person) });
        const day = new Date(deps.clock.unixMs()).toISOString().slice(0, 10);
        return csvResponse(csv, `customers-${person.host.name}-${day}.csv`);
      },
      { query: t.Object(PeopleFilter) },
    )
    .post(
      "/people",
      async ({ person, body, request }) =>
        toJson(await once(deps, { person, request }, () => invite(deps, person, body))),
      {
        body: t.Object({
          email: t.String({ maxLength: EMAIL_CHARS_MAX }),
          name: Name,
          role: t.Optional(RoleName),
          resellerId: t.Optional(IdInBody),
        }),
      },
    )
    .get("/people/:id", ({ person, params }) => describe(deps, person, params.id), { params: IdParam })
    .patch(
      "/people/:id",
      async ({ person, params, body }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        if (body.name !== undefined) await renameAccount({ ...deps, by: person.by }, accountId, body.name);
        return describe(deps, person, accountId);
      },
      { params: IdParam, body: t.Object({ name: t.Optional(Name) }) },
    );
}

/** A person's access: suspension, links that set a password, and the second factor. */
function accessEndpoints(deps: Deps) {
  const ofPerson = { params: IdParam };
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
      ({ person, params, request }) => once(deps, { person, request }, () => makeLink(deps, person, params.id)),
      ofPerson,
    )
    .post(
      "/people/:id/remove-second-factor",
      async ({ person, params }) => {
        const { accountId, role } = await accountInScope(deps, person, params.id);
        // Your own is removed in Settings, with password and code.
        if (accountId === person.accountId) throw new InputError("Remove your own second factor in your settings.");
        // Otherwise one stolen admin session could invite a second admin, who removes the first one's second factor.
        if (role === "admin")
          throw new InputError(
            "An admin's second factor can only be removed on the server, with the command account remove-second-factor.",
          );
        await removeTotp({ ...deps, by: person.by }, accountId);
        return describe(deps, person, accountId);
      },
      ofPerson,
    );
}

/** A person's keys, without secrets. */
function keyEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin")
    .get(
      "/people/:id/keys",
      async ({ person, params, query }) => {
        const { accountId } = await accountInScope(deps, person, params.id);
        const { rows, hasMore } = await listKeys(deps, { accountId, ...query });
        return { keys: rows.map(listedKey), hasMore };
      },
      { params: IdParam, query: t.Object(Paging) },
    )
    .post(
      "/people/:id/keys/:keyId/disable",
      async ({ person, params: { id, keyId } }) => {
        const { accountId } = await accountInScope(deps, person, id);
        if (!(await findKey(deps, { keyId, accountId }))) throw new Refusal("not_found");
        const acting = { ...deps, by: person.by };
        return listedKey(await disableKey(acting, { accountId, keyId }));
      },
      { params: t.Object({ id: Id, keyId: Id }) },
    );
}

/** The limits of an account: an admin sets those of everyone, a reseller those of its customers, up to its own. */
function limitEndpoints(deps: Deps) {
  return signedIn(deps, "reseller", "admin").patch(
    "/people/:id/limits",
    async ({ person, params, body: { limits } }) => {
      const { accountId } = await accountInScope(deps, person, params.id);
      await setAccountLimits({ ...deps, by: person.by }, { accountId, limits });
      return describe(deps, person, accountId);
    },
    { params: IdParam, body: t.Object({ limits: RateLimits }) },
  );
}

/** Viewing another account's panel. Leaving the view: session_endpoints.ts. */
function viewEndpoints(deps: Deps) {
  return signedIn(deps, "admin").post(
    "/people/:id/view",
    async ({ person, params }) => {
      const { accountId, role } = await accountInScope(deps, person, params.id);
      if (role === "admin") throw new InputError("An admin's panel cannot be viewed.");
      const digest = Buffer.from(person.session.digestHex, "hex");
      if (!(await beginViewing({ ...deps, by: person.by }, { digest, accountId }))) throw new Refusal("not_found");
      return { viewing: accountId };
    },
    { params: IdParam },
  );
}

/** The reseller whose customers a person manages; undefined: all accounts. */
function scopeOf({ role, accountId }: Person): number | undefined {
  return role === "admin" ? undefined : accountId;
}

function partyOf({ role }: Person): "operator" | "reseller" {
  return role === "admin" ? "operator" : "reseller";
}

/**
 * An account with its pending link, and its limits: each with its source, and those that apply. `canSwitchPayg`:
 * whether the viewer may switch
 * pay-as-you-go.
 */
async function describe(deps: Deps, person: Person, accountId: number) {
  const account = await accountInScope(deps, person, accountId);
  const [link, own, limits] = await Promise.all([
    pendingLinkOf(deps, accountId),
    person.role === "admin" ? undefined : findAccount(deps, person.accountId),
    accountLimits(deps, accountId),
  ]);
  const canSwitchPayg = person.role === "admin" || own?.maySwitchPayg === true;
  return toJson({ ...account, link, canSwitchPayg, limits: { ...limits, applied: appliedLimits(limits) } });
}

type NewAccount = { email: string; name: string; role?: Account["role"]; resellerId?: number };
/**
 * `url` is returned once: the database stores only a digest of its token. `mailed`: it was also mailed to the person.
 */
type ShownLink = { kind: NewLink["kind"]; url: string; expiresAt: string; mailed: boolean };

/** Adds an account with an invitation. `link` is null while the account has no host to sign in on. Throws InputError. */
async function invite(
  deps: Deps,
  person: Person,
  { email, name, role = "customer", resellerId = scopeOf(person) }: NewAccount,
): Promise<{ account: Account; link: ShownLink | null }> {
  if (person.role !== "admin" && role !== "customer") throw new InputError("You can only add customers.", "role");
  if (person.role !== "admin" && resellerId !== person.accountId)
    throw new InputError("You can only add your own customers.", "resellerId");
  const wanted = { email, name, role, resellerId: resellerId ?? null };
  const acting = { ...deps, by: person.by };
  const site = await siteOf(deps, person, wanted.resellerId);
  if (site === undefined) return { account: await addAccount(acting, { ...wanted, passwordHash: null }), link: null };
  const isMailed = await canMail(deps, wanted.resellerId ?? 0);
  const { account, link } = await inviteAccount(acting, wanted, { site, isMailed });
  return { account, link: shownLink(link, { site, isMailed }) };
}

/** Throws not_found, InputError. */
async function makeLink(deps: Deps, person: Person, id: number): Promise<ShownLink> {
  const { accountId, resellerId } = await accountInScope(deps, person, id);
  const site = await siteOf(deps, person, resellerId);
  if (site === undefined)
    throw new InputError(
      "This customer signs in on a domain of its reseller, and the reseller has no active domain yet.",
    );
  const isMailed = await canMail(deps, resellerId ?? 0);
  const link = await createLink({ ...deps, by: person.by }, accountId, { site, isMailed });
  return shownLink(link, { site, isMailed });
}

/** The site where an account signs in: a reseller's customer on an active domain of the reseller, everyone else on PANEL_URL. */
async function siteOf(deps: Deps, person: Person, resellerId: number | null): Promise<string | undefined> {
  if (resellerId === null) return deps.config.panelUrl;
  const host = await signInHostOf(deps, { resellerId, preferred: person.host.name });
  return host === undefined ? undefined : siteUrl(deps, host);
}

function shownLink(link: NewLink, { site, isMailed }: { site: string; isMailed: boolean }): ShownLink {
  return { kind: link.kind, url: linkUrl(site, link), expiresAt: link.expiresAt, mailed: isMailed };
}

function listedKey({ keyId, name, masked, mode, status, expiresAt, createdAt }: Key) {
  return { keyId, name, masked, mode, status, expiresAt, createdAt };
}
