import { t } from "elysia";
import { listAudit } from "../../accounts/audit_store.ts";
import type { Deps } from "../../deps.ts";
import { longRead } from "./long_read.ts";
import { Id, signedIn, whole } from "./panel_session.ts";

/** Who changed what, for admins. */

export function auditRoutes(deps: Deps) {
  return signedIn(deps, "admin").get(
    "/audit",
    ({ person, query, request: { signal } }) =>
      longRead(deps, { person, signal }, (reading) => listAudit(reading, query)),
    {
      query: t.Object({
        subject: t.Optional(t.String({ pattern: "^[a-z_]{1,40}$", says: "the name of a table, as in keys" })),
        accountId: t.Optional(Id),
        actorId: t.Optional(Id),
        before: t.Optional(Id),
        limit: t.Optional(whole(1, 200)),
      }),
    },
  );
}
