import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, ask } from "../api.ts";
import { formatCount, formatDuration, formatOf } from "../format.ts";
import { Badge, Status, type Tone } from "../ui/states.tsx";
import { toast } from "../ui/toast.tsx";
import { MODALITIES } from "./modalities.ts";

/** What the catalog pages share: types of models and routes, their URLs, and their health. */

export const MODELS_KEY = ["admin", "models"];

export type Model = NonNullable<Awaited<ReturnType<typeof api.admin.model.get>>["data"]>;
export type ListedModel = Omit<Model, "example" | "reports" | "advice">;
/** The report of a route for the last 24 hours. */
export type Report = Model["reports"][number];

/** The id is in the query, because it can contain slashes. */
export function modelHref(id: string): string {
  return `/admin/models?model=${encodeURIComponent(id)}`;
}

/** A provider's details open beside the list. */
export function providerHref(id: number): string {
  return `/admin/providers?provider=${id}`;
}

/** Whether a model reports more tokens than it shows. */
export const HIDES_TOKENS = { yes: "Yes", no: "No", unknown: "Not known yet: learned from its answers" } as const;

export function hidesTokensOf({ hidesTokens }: Model): keyof typeof HIDES_TOKENS {
  return hidesTokens === null ? "unknown" : hidesTokens ? "yes" : "no";
}

/** What the routes of a model are ordered by. */
export const ROUTE_CHOICES = {
  order: "Order: the lowest priority number first",
  weight: "Weight: requests are shared by weight",
  price: "Price: the lowest cost first",
  latency: "Latency: the fastest first",
} as const;

export const MODALITY_OPTIONS = [
  { value: "text", label: MODALITIES.text, hint: "chat" },
  { value: "multimodal", label: MODALITIES.multimodal, hint: "chat with image input" },
  { value: "image", label: MODALITIES.image, hint: "image generation" },
  { value: "embedding", label: MODALITIES.embedding, hint: "vectors of texts; set the output price to 0" },
] as const;

const STATUSES = { active: "Active", preview: "Preview", deprecated: "Deprecated" } as const;

export function ModelStatus({ model: { enabled, status } }: { model: Pick<ListedModel, "enabled" | "status"> }) {
  if (!enabled) return <Status kind="disabled" />;
  return status === "active" ? <Status kind="active" /> : <Badge tone="warn">{STATUSES[status]}</Badge>;
}

export type Route = ListedModel["routes"][number];

/** `refuses`: the last request was refused by the provider; `left out`: the circuit breaker is open. */
function routeState({ enabled, providerEnabled, breaker }: Pick<Route, "enabled" | "providerEnabled" | "breaker">) {
  if (!enabled) return "off";
  if (!providerEnabled) return "provider off";
  if (breaker.open) return "left out";
  return breaker.trouble === null ? "answers" : "refuses";
}

/** What the operator must fix, by the kind of the last refusal. */
const TROUBLES: Readonly<Record<string, string>> = {
  no_credit: "Provider asks for credit (402)",
  unknown_model: "Does not serve some requests (404)",
  too_large: "Above the provider's rate limit (429)",
  unsupported: "Cannot do what some requests ask for",
};

/** `isShort`: without the details that the model's page shows. */
export function RouteState({ route, isShort = false }: { route: Parameters<typeof routeState>[0]; isShort?: boolean }) {
  const state = routeState(route);
  if (state === "answers") return <Status kind="active">Answers</Status>;
  if (state === "off") return <Status kind="disabled" />;
  if (state === "provider off") return <Status kind="disabled">Provider is off</Status>;
  const { trouble, forAll, dueInMs } = route.breaker;
  if (state === "refuses")
    return <Status kind="failed">{(isShort ? undefined : TROUBLES[trouble ?? ""]) ?? "Refuses requests"}</Status>;
  if (isShort) return <Status kind="failed" />;
  return (
    <Status kind="failed">
      Failed{forAll ? "" : " for one customer"}, retried in {formatDuration(dueInMs)}
    </Status>
  );
}

/** The number of routes of a model that can answer, in a few words. */
export function routesHealth(routes: readonly Route[]): { tone: Tone; words: string; answering: number } {
  const states = routes.map(routeState);
  // A route that refused one request may serve the next.
  const answering = states.filter((state) => state === "answers" || state === "refuses").length;
  const wanted = answering + states.filter((state) => state === "left out").length;
  if (routes.length === 0) return { tone: "bad", words: "No route", answering };
  if (wanted === 0) return { tone: "bad", words: "All off", answering };
  if (answering === wanted) return { tone: "ok", words: formatOf(answering, "route"), answering };
  return {
    tone: answering === 0 ? "bad" : "warn",
    words: `${formatCount(answering)} of ${formatCount(wanted)} answer`,
    answering,
  };
}

/** Switches a model on or off, with Undo. */
export function useEnabling() {
  const client = useQueryClient();
  const send = async ({ model, enabled }: { model: Pick<ListedModel, "id">; enabled: boolean }) => {
    await ask(api.admin.model.patch({ enabled }, { query: { id: model.id } }));
    await client.invalidateQueries({ queryKey: MODELS_KEY });
  };
  return useMutation({
    mutationFn: send,
    onSuccess: (_, { model, enabled }) =>
      toast.undo(enabled ? `${model.id} is on.` : `${model.id} is off: requests for it get model_not_found.`, () =>
        send({ model, enabled: !enabled }),
      ),
    onError: (error, { model, enabled }) => toast.failed(error, `${model.id} stays ${enabled ? "off" : "on"}.`),
  });
}
