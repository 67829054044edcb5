import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { EMAIL_CHARS_MAX } from "../../limits.ts";
import { erasePerson } from "../../messages/erasure_store.ts";
import { exportPerson, type PersonData } from "../../messages/person_data_store.ts";
import { perform } from "../../operations/operation.ts";
import { eraseAccount, exportAccount } from "../../operations/privacy.ts";
import { IdParam } from "./fields.ts";
import { Proof, provePerson } from "./own_proof.ts";
import { callBy, longRead, signedIn } from "./panel_session.ts";

/** What is kept of a person: as a file, and erased. Erasing asks again who is at the screen. Source: RET-7, RET-8, RET-9. */

const Erasing = t.Object(
  { email: t.String({ minLength: 1, maxLength: EMAIL_CHARS_MAX }), force: t.Optional(t.Boolean()), proof: Proof },
  { additionalProperties: false },
);

export function privacyEndpoints(deps: Deps) {
  return new Elysia({ normalize: false }).use(ownEndpoints(deps)).use(managerEndpoints(deps));
}

function ownEndpoints(deps: Deps) {
  return signedIn(deps)
    .get("/settings/data", async ({ person, request: { signal } }) =>
      fileOf(await longRead(deps, { person, signal }, (reading) => exportPerson(reading, person.self.accountId))),
    )
    .post(
      "/settings/erase",
      async ({ person, request, body: { email, force = false, proof } }) => {
        await provePerson(deps, { person, request }, proof);
        await erasePerson({ ...deps, by: person.by }, { personId: person.self.accountId, email, force });
        return { erased: true };
      },
      { body: Erasing },
    );
}

function managerEndpoints(deps: Deps) {
  return signedIn(deps, ...eraseAccount.roles)
    .get(
      "/people/:id/data",
      async ({ person, request, params: { id: accountId } }) =>
        fileOf(await perform(deps, exportAccount, callBy(deps, { person, request }), { accountId })),
      { params: IdParam },
    )
    .post(
      "/people/:id/erase",
      async ({ person, request, params: { id: accountId }, body: { proof, ...confirmed } }) => {
        await provePerson(deps, { person, request }, proof);
        return await perform(deps, eraseAccount, callBy(deps, { person, request }), { accountId, ...confirmed });
      },
      { params: IdParam, body: Erasing },
    );
}

function fileOf(data: PersonData): Response {
  return new Response(JSON.stringify(data, null, 2), {
    headers: {
      "content-type": "application/json",
      "content-disposition": `attachment; filename="account-${data.personId}-${data.exportedAt.slice(0, 10)}.json"`,
    },
  });
}
