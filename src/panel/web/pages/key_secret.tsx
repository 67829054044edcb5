import { useQuery } from "@tanstack/react-query";
import { useSyncExternalStore } from "react";
import { api, ask, useMe } from "../api.ts";
import { apiSnippets, SecretOnce } from "../ui/copy_field.tsx";
import { KEYS_KEY, useKeyOptions } from "./account_queries.ts";
import { useRefresh } from "./page_hooks.ts";

/**
 * A new key's secret, from its making until somebody has it. It is held here, not in the page, so that neither the
 * browser's Back nor a new list takes it away: it is shown again wherever the keys are shown.
 */

export type FreshKey = {
  secret: string;
  title: string;
  /** What it may name; null: all. */
  modelIds: readonly string[] | null;
  hosts: readonly string[] | null;
};

let fresh: FreshKey | null = null;
const listeners = new Set<() => void>();

export function showSecret(next: FreshKey | null): void {
  fresh = next;
  for (const listener of listeners) listener();
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function KeySecret() {
  const shown = useSyncExternalStore(subscribe, () => fresh);
  return shown && <Secret shown={shown} />;
}

function Secret({ shown }: { shown: FreshKey }) {
  const refresh = useRefresh();
  const baseUrl = useBaseUrl(shown);
  const model = useFirstModel(shown);
  return (
    <SecretOnce
      open
      title={shown.title}
      value={shown.secret}
      {...(model !== null && { snippets: apiSnippets({ baseUrl, model, key: shown.secret }) })}
      onDone={() => {
        showSecret(null);
        void refresh();
      }}
    />
  );
}

/** The address that the key may be sent to: this site's own, if it may. */
function useBaseUrl({ hosts }: FreshKey): string {
  const { apiBaseUrl } = useMe();
  const options = useKeyOptions();
  if (hosts === null || hosts.includes(new URL(apiBaseUrl).hostname)) return apiBaseUrl;
  return options.data?.hosts.find(({ host }) => hosts.includes(host))?.label ?? apiBaseUrl;
}

/** A model that answers this key, for the example: one that can be paid now, or else any that it may name. null while unknown. */
function useFirstModel({ modelIds, secret }: FreshKey): string | null {
  const options = useKeyOptions();
  // Asked anew for each key, since the new one may reach more.
  const playground = useQuery({
    queryKey: [...KEYS_KEY, "models of", secret.slice(-4)],
    queryFn: () => ask(api.playground.models.get()),
  });
  if (options.isPending || playground.isPending) return null;
  const isFit = ({ id, modality }: { id: string; modality: string }) =>
    modality !== "image" && (modelIds === null || modelIds.includes(id));
  const payable = playground.data?.models.find(isFit);
  return (payable ?? options.data?.models.find(isFit) ?? options.data?.models[0])?.id ?? null;
}
