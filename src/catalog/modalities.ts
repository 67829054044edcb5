/**
 * What models make, one entry a kind: what requests a model serves, and the words of panel and CLI. The tables' CHECK has the same names. This file
 * imports nothing, so that the browser can load it.
 */

/** What a request wants of a model: how errors say it, and the model of the examples in the API reference. */
export const SERVICES = {
  text: { words: "chat", example: "gpt-mini" },
  image: { words: "images", example: "painter" },
  embedding: { words: "embeddings", example: "embed-small" },
  rerank: { words: "reranking", example: "rerank-small" },
} as const satisfies Record<string, { words: string; example: string }>;
export type Service = keyof typeof SERVICES;
export const SERVICE_NAMES = Object.keys(SERVICES) as [Service, ...Service[]];

type Kind = {
  label: string;
  hint: string;
  /** What requests its models serve: `service` of a metered endpoint. */
  serves: readonly Service[];
  /** A chat may have images in its messages. */
  readsImages?: boolean;
  /** Its answers have no tokens of their own: only input has a price. */
  isInputOnly?: boolean;
};

const KINDS = {
  text: { label: /*i18n*/ "Text", hint: /*i18n*/ "chat", serves: ["text"] },
  multimodal: {
    label: /*i18n*/ "Text and images",
    hint: /*i18n*/ "chat with image input",
    serves: ["text", "image"],
    readsImages: true,
  },
  image: { label: /*i18n*/ "Images", hint: /*i18n*/ "image generation", serves: ["image"] },
  embedding: {
    label: /*i18n*/ "Embeddings",
    hint: /*i18n*/ "vectors of texts; set the output price to 0",
    serves: ["embedding"],
    isInputOnly: true,
  },
  rerank: {
    label: /*i18n*/ "Reranking",
    hint: /*i18n*/ "orders texts by how well they answer a query; set the output price to 0, or a price a request",
    serves: ["rerank"],
    isInputOnly: true,
  },
} as const satisfies Record<string, Kind>;

export type Modality = keyof typeof KINDS;
export const MODALITIES: Readonly<Record<Modality, Kind>> = KINDS;
export const MODALITY_NAMES = Object.keys(KINDS) as [Modality, ...Modality[]];

/** One value for each service. */
export function byService<Value>(value: (service: Service) => Value): Readonly<Record<Service, Value>> {
  return Object.fromEntries(SERVICE_NAMES.map((service) => [service, value(service)])) as Record<Service, Value>;
}
