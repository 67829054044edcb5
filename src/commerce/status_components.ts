/** What a status page says the state of: the API, the panel, and models, by the names that incidents have for them. Pure. Source: STA-2. */

export const SERVICES = ["api", "panel"] as const;

/** Every model, in an incident; and all models together, where a page does not name them. */
export const ALL_MODELS = "models";
const MODEL_PREFIX = "model:";

/** The model of a component; null: it is none of a single model. */
export function modelIdOf(component: string): string | null {
  return component.startsWith(MODEL_PREFIX) ? component.slice(MODEL_PREFIX.length) : null;
}
