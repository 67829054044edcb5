import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { explainRepeat, useMe } from "../../api.ts";
import { useKeyOptions } from "../../shared/account_queries.ts";
import { useRefresh } from "../../shared/page_hooks.ts";
import { SecretOnce } from "../../ui/copy_field.tsx";
import { keptOnce } from "../../ui/kept_once.ts";
import { helloCode } from "../../ui/request_code.ts";
import { OFFERS } from "../playground/models.ts";

/** A new key's secret, from its creation until the person has stored it. The Keys page shows it. */

export type FreshKey = {
  secret: string;
  title: string;
  /** The models and hosts that the key is limited to; null: all. */
  modelIds: readonly string[] | null;
  hosts: readonly string[] | null;
};

const fresh = keptOnce<FreshKey>();
export const showSecret = fresh.show;

export function KeySecret() {
  const shown = fresh.useShown();
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
      {...(model !== null && { snippets: helloCode({ baseUrl, model, key: shown.secret }) })}
      onDone={() => {
        showSecret(null);
        void refresh();
      }}
    />
  );
}

/** The API base URL of a key: this site's own if the key may be used there. */
export function useBaseUrl({ hosts }: Pick<FreshKey, "hosts">): string {
  const { apiBaseUrl } = useMe();
  const options = useKeyOptions();
  if (hosts === null || hosts.includes(new URL(apiBaseUrl).hostname)) return apiBaseUrl;
  return options.data?.hosts.find(({ host }) => hosts.includes(host))?.label ?? apiBaseUrl;
}

/** A model for the example: one that the key can pay for now, or else any that it may use. null while loading. */
function useFirstModel({ modelIds }: FreshKey): string | null {
  const options = useKeyOptions();
  // Loaded again for each key, since a new key may be able to use more models.
  const playground = useQuery({ ...OFFERS, refetchOnMount: "always" });
  if (options.isPending || playground.isPending || playground.isRefetching) return null;
  const isFit = ({ id, modality }: { id: string; modality: string }) =>
    (modality === "text" || modality === "multimodal") && (modelIds === null || modelIds.includes(id));
  const payable = playground.data?.models.find(isFit);
  return (payable ?? options.data?.models.find(isFit) ?? options.data?.models[0])?.id ?? null;
}

/** As `explainRepeat`, for a secret key. */
export function explainLostKey<T>(sent: Promise<T>): Promise<T> {
  return explainRepeat(
    sent,
    t`The key was created, but its secret got lost on the way. Revoke the new key in the list and create another.`,
  );
}
