import { Elysia, t } from "elysia";
import { listAccounts as readAccounts } from "../../accounts/accounts_store.ts";
import { findKey, type Key, listKeys } from "../../accounts/keys_store.ts";
import { removeTotp } from "../../accounts/second_factor_store.ts";
import { beginViewing } from "../../accounts/sessions_store.ts";
import type { Deps } from "../../deps.ts";
import { InputError, Refusal } from "../../errors.ts";
import { EMAIL_CHARS_MAX } from "../../limits.ts";
import {
  createAccount,
  getAccount,
  listAccounts,
  makeLink,
  reactivateAccount,
  setLimits,
  suspendAccount,
  updateAccount,
} from "../../operations/accounts.ts";
import { accountInScope, resellerOf } from "../../operations/fence.ts";
import { disableKey } from "../../operations/keys.ts";
import { perform } from "../../operations/operation.ts";
import { csvResponse, FILE_WAIT_MS_MAX, type ReadPage } from "./csv_stream.ts";
import { Id, IdParam, NO_NUL, whole } from "./fields.ts";
import { toJson } from "./formats.ts";
import { bodyOf, operate } from "./operate.ts";
import { callBy, longRead, signedIn } from "./panel_session.ts";
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
/** The path's id is an account's. */
const OF_PERSON = { path: { id: "accountId" } } as const;
const Paging = { before: t.Optional(Id), limit: t.Optional(whole(1, 200)) };

export function peopleEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .use(accountEndpoints(deps))
    .use(accessEndpoints(deps))
    .use(keyEndpoints(deps))
    .use(limitEndpoints(deps))
    .use(viewEndpoints(deps));
}

function accountEndpoints(deps: Deps) {
  return signedIn(deps, ...listAccounts.roles)
    .get(
      "/people",
      async ({ person, query, request: { signal } }) => {
        const { rows, hasMore } = await longRead(deps, { person, signal }, (reading) =>
          readAccounts(reading, { ...query, resellerId: resellerOf(person) }),
        );
        return toJson({ people: rows, hasMore });
      },
      { query: t.Object({ ...PeopleFilter, sort: t.Optional(SortName), ...Paging }) },
    )
    .get(
      "/people.csv",
      async ({ person, query }) => {
        const read: ReadPage = (page, signal) => longRead(deps, { person, signal, waitMsMax: FILE_WAIT_MS_MAX }, page);
        const csv = await peopleCsv(read, { ...query, resellerId: resellerOf(person) });
        const day = new Date(deps.clock.unixMs()).toISOString().slice(0, 10);
        return csvResponse(csv, `customers-${person.host.name}-${day}.csv`);
      },
      { query: t.Object(PeopleFilter) },
    )
    .post("/people", operate(deps, createAccount), { body: bodyOf(createAccount) })
    .get("/people/:id", operate(deps, getAccount, OF_PERSON), { params: IdParam })
    .patch("/people/:id", operate(deps, updateAccount, OF_PERSON), {
      params: IdParam,
      body: bodyOf(updateAccount, "accountId"),
    });
}

/** A person's access: suspension, links that set a password, and the second factor. */
function accessEndpoints(deps: Deps) {
  const ofPerson = { params: IdParam };
  return signedIn(deps, "reseller", "admin")
    .post("/people/:id/suspend", operate(deps, suspendAccount, OF_PERSON), ofPerson)
    .post("/people/:id/activate", operate(deps, reactivateAccount, OF_PERSON), ofPerson)
    .post("/people/:id/link", operate(deps, makeLink, OF_PERSON), ofPerson)
    .post(
      "/people/:id/remove-second-factor",
      async ({ person, params, request }) => {
        const { accountId, role } = await accountInScope(deps, person, params.id);
        // Your own is removed in Settings, with password and code.
        if (accountId === person.accountId) throw new InputError("Remove your own second factor in your settings.");
        // Otherwise one stolen admin session could invite a second admin, who removes the first one's second factor.
        if (role === "admin")
          throw new InputError(
            "An admin's second factor can only be removed on the server, with the command account remove-second-factor.",
          );
        await removeTotp({ ...deps, by: person.by }, accountId);
        return toJson(await perform(deps, getAccount, callBy(deps, { person, request }), { accountId }));
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
      async ({ person, params: { id, keyId }, request }) => {
        const { accountId } = await accountInScope(deps, person, id);
        if (!(await findKey(deps, { keyId, accountId }))) throw new Refusal("not_found");
        return listedKey(await perform(deps, disableKey, callBy(deps, { person, request }), { keyId }));
      },
      { params: t.Object({ id: Id, keyId: Id }) },
    );
}

/** The limits of an account: an admin sets those of everyone, a reseller those of its customers, up to its own. */
function limitEndpoints(deps: Deps) {
  return signedIn(deps, ...setLimits.roles).patch("/people/:id/limits", operate(deps, setLimits, OF_PERSON), {
    params: IdParam,
    body: bodyOf(setLimits, "accountId"),
  });
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

function listedKey({ keyId, name, masked, mode, status, expiresAt, createdAt }: Key) {
  return { keyId, name, masked, mode, status, expiresAt, createdAt };
}
