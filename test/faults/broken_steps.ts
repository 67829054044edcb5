import type { Model } from "../../src/catalog/catalog.ts";
import type { Deps } from "../../src/deps.ts";
import type { Ledger } from "../../src/ledger/ledger.ts";

/**
 * Deps of which one use throws: the n-th after a hold was granted. Every use of a dependency is a step, and so is every look at the model.
 * The ledger's own work is no step, and neither is what happens before the hold.
 */
export type BrokenSteps = {
  deps: Deps;
  /** The n-th step throws once. */
  breakAt(n: number): void;
  /** What the broken step used, as in `deps.clock` or `model.id`; undefined: the request had fewer steps. Ends the counting. */
  broken(): string | undefined;
};

export function brokenSteps(deps: Deps): BrokenSteps {
  let left = -1;
  let isCounting = false;
  let broken: string | undefined;
  const step = (name: string) => {
    if (!isCounting || left-- > 0) return;
    isCounting = false;
    broken = name;
    throw new Error(`broken: ${name}`);
  };
  const watched = <T extends object>(of: T, name: string): T =>
    new Proxy(of, {
      get(target, key) {
        step(`${name}.${String(key)}`);
        return Reflect.get(target, key);
      },
    });
  const granted = <T>(hold: T): T => {
    if (hold !== undefined && left >= 0) isCounting = true;
    return hold;
  };
  const ledger: Ledger = {
    ...deps.ledger,
    grant: (request) => granted(deps.ledger.grant(request)),
    reserve: async (request) => granted(await deps.ledger.reserve(request)),
  };
  const models = new WeakMap<Model, Model>();
  const catalog: Deps["catalog"] = {
    ...deps.catalog,
    model(id) {
      const model = deps.catalog.model(id);
      if (model === undefined) return undefined;
      const known = models.get(model) ?? watched(model, "model");
      models.set(model, known);
      return known;
    },
  };
  return {
    deps: watched({ ...deps, ledger, catalog }, "deps"),
    breakAt(n) {
      left = n;
      broken = undefined;
    },
    broken() {
      isCounting = false;
      left = -1;
      return broken;
    },
  };
}
