/** What kinds of models are called. */
export const MODALITIES = {
  text: "Text",
  image: "Images",
  multimodal: "Text and images",
  embedding: "Embeddings",
} as const;
