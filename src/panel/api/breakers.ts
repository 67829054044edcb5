import type { FailureKind } from "../../catalog/provider_errors.ts";
import type { Deps } from "../../deps.ts";

/** The circuit breakers of models' routes, as this replica sees them; each replica has its own. */

export type BreakerFacts = {
  /** The route is skipped for now, because it failed or its provider asked for a pause. */
  open: boolean;
  dueInMs: number;
  /** Skipped for every account; false: only for the accounts that met the failures. */
  forAll: boolean;
  /** Why the route failed since it last served a request; for the operator to fix. */
  trouble: FailureKind | null;
};

export function breakerOf({ breakers }: Pick<Deps, "breakers">, routeId: number): BreakerFacts {
  const dueInMs = Math.ceil(breakers.dueInMs(routeId));
  return { open: dueInMs > 0, dueInMs, forAll: breakers.isForAll(routeId), trouble: breakers.trouble(routeId) };
}

/** The number of open breakers by provider name; providers without one are left out. */
export function openBreakers({ catalog, breakers }: Deps): Map<string, number> {
  const open = new Map<string, number>();
  for (const model of catalog.models()) {
    for (const { id, providerName } of model.routes) {
      if (breakers.dueInMs(id) > 0) open.set(providerName, (open.get(providerName) ?? 0) + 1);
    }
  }
  return open;
}
