import { type StaticDecode, Type } from "@sinclair/typebox";
import {
  type Account,
  activateAccount,
  addAccount,
  findAccount,
  findAccountsByEmail,
  setPaygRight as grantPaygRight,
  listAccounts as readAccounts,
  renameAccount,
  suspendAccount as suspend,
} from "../accounts/accounts_store.ts";
import {
  createLink,
  inviteAccount,
  linkUrl,
  type NewLink,
  pendingLinkOf,
  signInHostOf,
} from "../accounts/password_links_store.ts";
import { appliedLimits } from "../accounts/rate_limits.ts";
import { accountLimits, setAccountLimits } from "../accounts/rate_limits_store.ts";
import { InputError, Refusal } from "../errors.ts";
import { siteUrl } from "../http/host.ts";
import { setPayg as switchPayg } from "../ledger/balances_store.ts";
import { EMAIL_CHARS_MAX } from "../limits.ts";
import { canMail } from "../messages/senders.ts";
import { accountInScope, resellerOf } from "./fence.ts";
import { Amount, At, OneLanguage, orNull, RateLimits, RowId, ShownLimits, text } from "./fields.ts";
import { type Call, type Caller, changing, listOperation, type OperationDeps, operation } from "./operation.ts";
import { PackageShape, packagesOfAll } from "./packages.ts";

/** Accounts, for those who manage them: a reseller its own customers, an admin everyone. */

const NAME_LENGTH_MAX = 400;
const SELLERS = ["reseller", "admin"] as const;

const Name = text(NAME_LENGTH_MAX);
const Email = text(EMAIL_CHARS_MAX);
const RoleName = Type.Union([Type.Literal("customer"), Type.Literal("reseller"), Type.Literal("admin")]);
const OfAccount = { accountId: RowId };

const ACCOUNT = {
  accountId: RowId,
  role: RoleName,
  resellerId: orNull(RowId),
  resellerName: orNull(Type.String()),
  language: orNull(OneLanguage),
  email: Type.String(),
  name: Type.String(),
  status: Type.Union([Type.Literal("active"), Type.Literal("suspended")]),
  hasPassword: Type.Boolean(),
  hasIdentity: Type.Boolean({ description: "Whether the person signs in by an identity provider." }),
  totpEnabled: Type.Boolean(),
  packageName: orNull(Type.String({ description: "The package that is active now." })),
  balanceNanoUsd: Amount,
  heldNanoUsd: Amount,
  paygEnabled: Type.Boolean(),
  maySwitchPayg: Type.Boolean({ description: "Of a reseller: whether it may switch pay-as-you-go of its customers." }),
  createdAt: At,
};
const AccountShape = Type.Object(ACCOUNT, { title: "Account" });
const ListedAccount = Type.Object(
  { ...ACCOUNT, packages: Type.Optional(Type.Array(PackageShape)) },
  { title: "ListedAccount" },
);
const LinkKind = Type.Union([Type.Literal("invitation"), Type.Literal("reset")]);
const AccountDetails = Type.Object(
  {
    ...ACCOUNT,
    link: orNull(Type.Object({ kind: LinkKind, expiresAt: At })),
    limits: Type.Object({
      own: orNull(ShownLimits),
      package: orNull(ShownLimits),
      reseller: orNull(ShownLimits),
      applied: orNull(ShownLimits),
    }),
  },
  { title: "AccountDetails" },
);
const SignInLink = Type.Object(
  {
    kind: LinkKind,
    url: Type.String({ description: "Opens once. It is shown only in this answer." }),
    expiresAt: At,
    mailed: Type.Boolean({ description: "It was also mailed to the person." }),
  },
  { title: "SignInLink" },
);

export const listAccounts = listOperation({
  name: "accounts.list",
  says: "Lists accounts, newest first.",
  scope: "accounts:read",
  roles: SELLERS,
  route: "GET /accounts",
  filter: {
    q: Type.Optional(text(EMAIL_CHARS_MAX, "Begins the name or the e-mail address.")),
    email: Type.Optional(text(EMAIL_CHARS_MAX, "The whole e-mail address. Such a list has one page.")),
    role: Type.Optional(RoleName),
    state: Type.Optional(Type.Union([Type.Literal("active"), Type.Literal("invited"), Type.Literal("suspended")])),
    resellerId: Type.Optional(RowId),
    expand: Type.Optional(
      Type.Union([Type.Literal("packages")], { description: "Adds the active and queued packages of each account." }),
    ),
  },
  before: Type.Optional(RowId),
  item: ListedAccount,
  cursor: ({ accountId }: Account) => accountId,
  async list(deps, call, { email, expand, resellerId, ...page }) {
    const own = resellerOf(call.caller);
    // Another reseller's customers read like none.
    if (own !== undefined && resellerId !== undefined && resellerId !== own) return { rows: [], hasMore: false };
    const filter = { ...page, resellerId: own ?? resellerId };
    const { rows, hasMore } =
      email === undefined
        ? await call.read((reading) => readAccounts(reading, filter))
        : { rows: await byEmail(deps, email, filter.resellerId), hasMore: false };
    return { rows: expand === undefined ? rows : await withPackages(deps, rows), hasMore };
  },
});

async function byEmail(deps: OperationDeps, email: string, resellerId: number | undefined): Promise<Account[]> {
  const found = await findAccountsByEmail(deps, email);
  return found.filter((account) => resellerId === undefined || account.resellerId === resellerId);
}

async function withPackages(deps: OperationDeps, rows: readonly Account[]) {
  const packages = await packagesOfAll(
    deps,
    rows.map(({ accountId }) => accountId),
  );
  return rows.map((row) => ({ ...row, packages: packages.get(row.accountId) ?? [] }));
}

export const getAccount = operation({
  name: "accounts.get",
  says: "Returns an account, with its limits and the link that was last made for it.",
  scope: "accounts:read",
  roles: SELLERS,
  route: "GET /accounts/{accountId}",
  input: OfAccount,
  output: AccountDetails,
  run: (deps, call, { accountId }) => describe(deps, call, accountId),
});

export const createAccount = operation({
  name: "accounts.create",
  says: "Adds an account, and an invitation with which the person sets a password.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "POST /accounts",
  input: {
    email: Email,
    name: Name,
    role: Type.Optional(RoleName),
    resellerId: Type.Optional(RowId),
  },
  output: Type.Object({ account: AccountShape, link: orNull(SignInLink) }, { title: "InvitedAccount" }),
  async run(deps, call, { email, name, role = "customer", resellerId = resellerOf(call.caller) }) {
    const { caller } = call;
    requireNoMoreRights(caller, { role, hasPassword: false });
    if (caller.role !== "admin" && role !== "customer") throw new InputError("You can only add customers.", "role");
    if (caller.role !== "admin" && resellerId !== caller.accountId)
      throw new InputError("You can only add your own customers.", "resellerId");
    const wanted = { email, name, role, resellerId: resellerId ?? null };
    const { by } = caller;
    const site = await siteOf(deps, call, wanted.resellerId);
    // The command line sets a password instead.
    if (site === undefined || by === undefined) {
      const passwordHash = call.brings?.passwordHash ?? null;
      return { account: await addAccount(changing(deps, call), { ...wanted, passwordHash }), link: null };
    }
    const isMailed = await canMail(deps, wanted.resellerId ?? 0);
    const { account, link } = await inviteAccount({ ...deps, by }, wanted, { site, isMailed });
    return { account, link: shownLink(link, { site, isMailed }) };
  },
});

export const updateAccount = operation({
  name: "accounts.update",
  says: "Renames an account.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "PATCH /accounts/{accountId}",
  input: { ...OfAccount, name: Type.Optional(Name) },
  output: AccountDetails,
  async run(deps, call, { accountId, name }) {
    await accountInScope(deps, call.caller, accountId);
    if (name !== undefined) await renameAccount(changing(deps, call), accountId, name);
    return describe(deps, call, accountId);
  },
});

export const suspendAccount = operation({
  name: "accounts.suspend",
  says: "Stops the keys and ends the sessions of an account, and of a reseller's customers with it.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/suspend",
  input: OfAccount,
  output: AccountDetails,
  async run(deps, call, { accountId }) {
    await accountInScope(deps, call.caller, accountId);
    if (accountId === call.caller.accountId) throw new InputError("You cannot suspend yourself.");
    await suspend(changing(deps, call), accountId, partyOf(call));
    return describe(deps, call, accountId);
  },
});

export const reactivateAccount = operation({
  name: "accounts.activate",
  says: "Ends the suspension of an account.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/activate",
  input: OfAccount,
  output: AccountDetails,
  async run(deps, call, { accountId }) {
    await accountInScope(deps, call.caller, accountId);
    await activateAccount(changing(deps, call), accountId, partyOf(call));
    return describe(deps, call, accountId);
  },
});

export const makeLink = operation({
  name: "accounts.link",
  says: "Makes a link with which a person sets a password. It replaces the one before it.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/link",
  input: OfAccount,
  output: SignInLink,
  async run(deps, call, wanted) {
    const account = await accountInScope(deps, call.caller, wanted.accountId);
    requireNoMoreRights(call.caller, account);
    const { accountId, resellerId } = account;
    const { by } = call.caller;
    if (by === undefined) throw new InputError("Set a password instead: account password.");
    const site = await siteOf(deps, call, resellerId);
    if (site === undefined)
      throw new InputError(
        "This customer signs in on a domain of its reseller, and the reseller has no active domain yet.",
      );
    const isMailed = await canMail(deps, resellerId ?? 0);
    return shownLink(await createLink({ ...deps, by }, accountId, { site, isMailed }), { site, isMailed });
  },
});

export const setLimits = operation({
  name: "accounts.limits",
  says: "Sets the limits of an account, over all its keys. A limit that is left out is removed.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "PUT /accounts/{accountId}/limits",
  input: { ...OfAccount, limits: RateLimits },
  output: AccountDetails,
  async run(deps, call, { accountId, limits }) {
    await accountInScope(deps, call.caller, accountId);
    await setAccountLimits(changing(deps, call), { accountId, limits });
    return describe(deps, call, accountId);
  },
});

export const setPayg = operation({
  name: "accounts.payg",
  says: "Enables or disables pay-as-you-go for an account. A reseller needs the permission of an admin.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "PUT /accounts/{accountId}/payg",
  input: { ...OfAccount, enabled: Type.Boolean() },
  output: Type.Object({ paygEnabled: Type.Boolean() }),
  async run(deps, call, { accountId, enabled }) {
    await accountInScope(deps, call.caller, accountId);
    await switchPayg(changing(deps, call), accountId, enabled, resellerOf(call.caller));
    return { paygEnabled: enabled };
  },
});

export const setPaygRight = operation({
  name: "accounts.payg_right",
  says: "Lets a reseller enable and disable pay-as-you-go for its customers, or takes that right.",
  scope: "accounts:write",
  roles: ["admin"],
  route: "PUT /accounts/{accountId}/payg-right",
  input: { ...OfAccount, granted: Type.Boolean() },
  output: Type.Object({ maySwitchPayg: Type.Boolean() }),
  async run(deps, call, { accountId, granted }) {
    await accountInScope(deps, call.caller, accountId);
    await grantPaygRight(changing(deps, call), accountId, granted);
    return { maySwitchPayg: granted };
  },
});

/**
 * An account with its pending link, and its limits: each with its source, and those that apply. `canSwitchPayg`: whether the caller may
 * switch pay-as-you-go.
 */
async function describe(deps: OperationDeps, { caller }: Call, accountId: number) {
  const account = await accountInScope(deps, caller, accountId);
  const [link, own, limits] = await Promise.all([
    pendingLinkOf(deps, accountId),
    caller.role === "admin" ? undefined : findAccount(deps, caller.accountId),
    accountLimits(deps, accountId),
  ]);
  const canSwitchPayg = caller.role === "admin" || own?.maySwitchPayg === true;
  return { ...account, link, canSwitchPayg, limits: { ...limits, applied: appliedLimits(limits) } };
}

/**
 * A token makes no link with which somebody signs in as an admin, or in the place of a reseller who has a password: that person would have
 * rights that the token lacks. Throws insufficient_scope. Source: MGT-3.
 */
function requireNoMoreRights(
  { scopes }: Pick<Caller, "scopes">,
  { role, hasPassword }: Pick<Account, "role" | "hasPassword">,
): void {
  if (scopes === undefined || role === "customer" || (role === "reseller" && !hasPassword)) return;
  const message =
    role === "admin"
      ? /*i18n*/ "Only a signed-in admin adds admins and makes links for them."
      : /*i18n*/ "Only a signed-in admin makes a link for a reseller who has a password.";
  throw new Refusal("insufficient_scope", { message });
}

/** A reseller cannot undo a suspension by the operator. */
function partyOf({ caller }: Call): "operator" | "reseller" {
  return caller.role === "admin" ? "operator" : "reseller";
}

/** The site where an account signs in: a reseller's customer on an active domain of the reseller, everyone else on PANEL_URL. */
export async function siteOf(
  deps: OperationDeps,
  { hostName }: Call,
  resellerId: number | null,
): Promise<string | undefined> {
  if (resellerId === null) return deps.config.panelUrl;
  const host = await signInHostOf(deps, { resellerId, preferred: hostName ?? "" });
  return host === undefined ? undefined : siteUrl(deps, host);
}

function shownLink(
  link: NewLink,
  { site, isMailed }: { site: string; isMailed: boolean },
): StaticDecode<typeof SignInLink> {
  return { kind: link.kind, url: linkUrl(site, link), expiresAt: link.expiresAt, mailed: isMailed };
}
