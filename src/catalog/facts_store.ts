import { eq, type SQL, sql } from "drizzle-orm";
import { InputError } from "../errors.ts";
import type { Tx } from "../platform/db.ts";
import { providers, routes } from "../platform/schema_catalog.ts";
import { contradictionOf, factsOf } from "./dialects.ts";
import { type FactsPatch, storedDialect, storedFacts } from "./facts_input.ts";

/** Dialects and facts in the tables of providers and routes. */

/** Facts with a change: a fact that becomes null is as the dialect says again. */
export function changedFacts(column: typeof providers.facts | typeof routes.facts, patch: FactsPatch): SQL {
  return sql`jsonb_strip_nulls(${column} || ${JSON.stringify(patch)}::text::jsonb)`;
}

/**
 * Checks a provider's facts and those of all of its routes, after a change in the same transaction: no two of them may contradict each
 * other. Throws InputError. Source: DIA-2.
 */
export async function checkFactsAgree(tx: Tx, providerId: number): Promise<void> {
  const [provider] = await tx
    .select({ dialect: providers.dialect, facts: providers.facts })
    .from(providers)
    .where(eq(providers.id, providerId))
    // Not `update`: routes that are added at the same time hold the key of this row.
    .for("no key update");
  const dialect = storedDialect(provider?.dialect);
  const facts = storedFacts(provider?.facts, "provider");
  // What another version has stored is not judged: the catalog reports it.
  if (dialect === undefined || facts === undefined) return;
  refuse(contradictionOf(factsOf(dialect, facts)));
  const rows = await tx
    .select({ modelId: routes.modelId, facts: routes.facts })
    .from(routes)
    .where(eq(routes.providerId, providerId));
  for (const route of rows) {
    const problem = contradictionOf(factsOf(dialect, facts, storedFacts(route.facts, "route") ?? {}));
    refuse(problem && `On the route of ${route.modelId}: ${problem}`);
  }
}

function refuse(problem: string | undefined): void {
  if (problem !== undefined) throw new InputError(problem, "facts");
}
