import { Type } from "@sinclair/typebox";
import { InputError } from "../errors.ts";
import { EMAIL_CHARS_MAX } from "../limits.ts";
import { erasePerson } from "../messages/erasure_store.ts";
import { exportPerson } from "../messages/person_data_store.ts";
import { accountInScope } from "./fence.ts";
import { At, RowId, text } from "./fields.ts";
import { changing, operation } from "./operation.ts";

/** What is kept of a person, exported and erased, for those who manage the account. One's own is in the settings. Source: RET-7, RET-8, RET-9. */

const SELLERS = ["reseller", "admin"] as const;

export const exportAccount = operation({
  name: "accounts.export",
  says: "Returns everything that is kept of the person of an account: by table, at most 10,000 rows each.",
  scope: "accounts:read",
  roles: SELLERS,
  route: "GET /accounts/{accountId}/data",
  input: { accountId: RowId },
  output: Type.Object(
    {
      personId: RowId,
      exportedAt: At,
      tables: Type.Record(Type.String(), Type.Array(Type.Record(Type.String(), Type.Unknown()))),
      truncated: Type.Array(Type.String(), {
        description: "Tables with more rows, of which only the newest are given.",
      }),
    },
    { title: "PersonData" },
  ),
  async run(deps, call, { accountId }) {
    await accountInScope(deps, call.caller, accountId);
    return await call.read((reading) => exportPerson(reading, accountId));
  },
});

export const eraseAccount = operation({
  name: "accounts.erase",
  says: "Erases the person of an account for good: name, address, keys, sessions. Orders, invoices and the books stay.",
  scope: "accounts:write",
  roles: SELLERS,
  route: "POST /accounts/{accountId}/erase",
  input: {
    accountId: RowId,
    email: text(EMAIL_CHARS_MAX, "The account's e-mail address, as a confirmation."),
    force: Type.Optional(
      Type.Boolean({
        description: "Gives up the balance, running packages and open orders. Otherwise they are in the way.",
      }),
    ),
  },
  output: Type.Object({ accountId: RowId, erased: Type.Literal(true) }, { title: "Erased" }),
  async run(deps, call, { accountId, email, force = false }) {
    await accountInScope(deps, call.caller, accountId);
    if (accountId === call.caller.accountId) throw new InputError("Erase your own account in your settings.");
    await erasePerson(changing(deps, call), { personId: accountId, email, force });
    return { accountId, erased: true as const };
  },
});
