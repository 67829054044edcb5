import { Type } from "@sinclair/typebox";
import { listReceiptMonths } from "../books/months_store.ts";
import { Amount, At, orNull } from "./fields.ts";
import { operation } from "./operation.ts";

/** The months of receipts: which are sealed, exported, dropped. Source: RET-11. */

const Hash = Type.String({ description: "SHA-256, in hexadecimal digits." });

export const getRetention = operation({
  name: "usage.months",
  says: "Lists the months of receipts that are over, the newest first: sealed, exported and dropped ones, with their seals and totals.",
  scope: "usage:read",
  roles: ["admin"],
  route: "GET /retention",
  input: {},
  output: Type.Object(
    {
      months: Type.Array(
        Type.Object({
          month: Type.String({ description: "In UTC, as 2030-01." }),
          state: Type.Union([
            Type.Literal("open"),
            Type.Literal("closed"),
            Type.Literal("sealed"),
            Type.Literal("dropped"),
          ]),
          receipts: orNull(Type.Integer({ description: "null: the month is open." })),
          totals: orNull(
            Type.Object({
              settled: Type.Integer({ description: "Requests that were charged, or counted in a package." }),
              chargedTokens: Amount,
              chargedNanoUsd: Amount,
            }),
          ),
          seal: orNull(Hash),
          previous: orNull(Hash),
          sealedAt: orNull(At),
          exportedAt: orNull(At),
          droppedAt: orNull(At),
          comparedAt: orNull(At),
          problems: Type.Array(Type.String(), {
            description: "What differed when the month was last compared with its seal. Empty: nothing.",
          }),
        }),
      ),
    },
    { title: "Retention" },
  ),
  async run(_, call) {
    return { months: await call.read(({ db }) => listReceiptMonths(db.sql)) };
  },
});
