import { bigint, pgTable, primaryKey, text, uuid } from "drizzle-orm/pg-core";
import { bytea, instant } from "./schema_columns.ts";

/**
 * Responses of POST /v1/responses that later requests may refer to. Partitioned by the UTC day of `created_at` (the migration adds
 * PARTITION BY); a day is dropped when all of it is past RESPONSES_KEEP_HOURS. See `gateway/responses/stored_responses.ts`.
 */
export const storedResponses = pgTable(
  "stored_responses",
  {
    accountId: bigint({ mode: "number" }).notNull(),
    /** The id of the request; the response's id has the same digits. */
    id: uuid().notNull(),
    createdAt: instant().notNull(),
    /** Ids of output items that a provider gave, which do not tell their response. */
    itemIds: text().array().notNull(),
    /** The items that the model was given, and the response object: JSON, encrypted. */
    input: bytea().notNull(),
    response: bytea().notNull(),
  },
  (t) => [primaryKey({ columns: [t.accountId, t.id, t.createdAt] })],
);
