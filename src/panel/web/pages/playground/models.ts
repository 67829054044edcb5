import { t } from "@lingui/core/macro";
import { queryOptions, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, ask } from "../../api.ts";
import { formatPicoUsd } from "../../format.ts";
import { usePlayground } from "./state.ts";

/** The models and keys that the playground can use, the chosen ones, and the cost of a request. */

export type Offers = NonNullable<Awaited<ReturnType<typeof api.playground.models.get>>["data"]>;
export type Offer = Offers["models"][number];
export type Kind = "chat" | "images" | "embeddings";

/** The models that a kind of request can use, and where the chosen one is saved. */
export const KINDS = {
  chat: { modalities: ["text", "multimodal"], saved: "chatModel" },
  images: { modalities: ["image", "multimodal"], saved: "imageModel" },
  embeddings: { modalities: ["embedding"], saved: "embeddingModel" },
} as const satisfies Record<Kind, { modalities: readonly Offer["modality"][]; saved: string }>;

/** What a model is tried with first; null: the playground cannot try it. */
export function kindOf({ modality }: Offer): Kind | null {
  const kinds = ["chat", "images", "embeddings"] as const;
  return kinds.find((kind) => KINDS[kind].modalities.some((each) => each === modality)) ?? null;
}

export type Choice = {
  /** The models that the chosen key, or any key, can use. */
  models: readonly Offer[];
  /** undefined: there is none. */
  model: Offer | undefined;
  /** Of a chat: the model beside it; undefined: none. */
  other: Offer | undefined;
  /** "": the server chooses. */
  keyId: string;
};

export const OFFERS = queryOptions({
  queryKey: ["playground", "models"],
  queryFn: () => ask(api.playground.models.get()),
});

export function useOffers() {
  return useQuery(OFFERS);
}

/** The saved choice, as far as its model and key still exist. */
export function useChoice({ models, keys }: Offers, kind: Kind): Choice {
  const { modalities, saved }: { modalities: readonly Offer["modality"][]; saved: (typeof KINDS)[Kind]["saved"] } =
    KINDS[kind];
  const savedModel = usePlayground((state) => state[saved]);
  const savedOther = usePlayground((state) => (kind === "chat" ? state.otherModel : ""));
  const savedKey = usePlayground((state) => state.keyId);
  const key = keys.find(({ keyId }) => String(keyId) === savedKey);
  const usable = models
    .filter(({ id, modality }) => modalities.includes(modality) && (key?.modelIds?.includes(id) ?? true))
    .map((offer) => (key?.mode === "payg" ? { ...offer, pays: "balance" as const } : offer));
  // For images, prefer a model that only makes images.
  const first = (kind === "images" && usable.find(({ modality }) => modality === "image")) || usable[0];
  const model = usable.find(({ id }) => id === savedModel) ?? first;
  return {
    models: usable,
    model,
    other: usable.find(({ id }) => id === savedOther),
    keyId: key ? savedKey : "",
  };
}

/** The cost of one image, as text; null if nothing can pay for this size. */
export function imageCost({ model }: Choice, size: string): string | null {
  if (model?.pays !== "balance") return t`1 request`;
  const price = model?.imageSizes.find((each) => each.size === size)?.pricePicoUsd ?? null;
  return price === null ? null : formatPicoUsd(price);
}

/** Reloads every query whose answer a charge changes. */
export function useRefreshAfterCharge(): () => void {
  const client = useQueryClient();
  return () => {
    for (const name of ["home", "usage", "keys", "billing", "playground"]) {
      void client.invalidateQueries({ queryKey: [name] });
    }
  };
}
