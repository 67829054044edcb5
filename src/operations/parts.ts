import type { Base } from "../platform/base.ts";
import { createCallPlaces } from "./asked_calls.ts";
import { createBatchPlaces } from "./batch_places.ts";

export type OperationParts = ReturnType<typeof openOperations>;

export function openOperations({ metrics }: Pick<Base, "metrics">) {
  return {
    /** For calls to other servers that people ask for. */
    callPlaces: createCallPlaces(metrics.shed),
    /** For batches of vouchers. */
    batchPlaces: createBatchPlaces(),
  };
}
