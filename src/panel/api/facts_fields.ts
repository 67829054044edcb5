import { t } from "elysia";
import { FACT_NAMES } from "../../catalog/dialects.ts";

/** A name of `catalog/dialects.ts`; `checkDialect` checks it, so that the known ones are listed. */
export const DialectField = t.String({ maxLength: 60 });

/** Facts of a dialect that are set, by name; null: as the dialect says. `checkFacts` checks them, so that an unknown name is named. */
export const FactsFields = t.Record(t.String({ maxLength: 60 }), t.Unknown(), { maxProperties: 2 * FACT_NAMES.length });
