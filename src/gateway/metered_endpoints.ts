import { COMPLETIONS } from "./completions.ts";
import { EMBEDDINGS } from "./embeddings.ts";
import { CHAT, IMAGES } from "./flow.ts";
import type { MeteredEndpoint } from "./metered.ts";
import { RERANK } from "./rerank.ts";
import { RESPONSES } from "./responses/endpoint.ts";

/** All metered endpoints. A new one is an entry here, and a file of its own. */
export const METERED_ENDPOINTS: readonly MeteredEndpoint[] = [CHAT, RESPONSES, COMPLETIONS, IMAGES, EMBEDDINGS, RERANK];
