import type { Base } from "../platform/base.ts";
import { createCallPlaces } from "./asked_calls.ts";
import { createBatchPlaces } from "./batch_places.ts";
import { createIdentityClient } from "./identity_client.ts";

export type OperationParts = ReturnType<typeof openOperations>;

export function openOperations({ metrics, config, log, nowMs }: Pick<Base, "metrics" | "config" | "log" | "nowMs">) {
  return {
    /** Where people sign in elsewhere. */
    identityClient: createIdentityClient({ config, log, nowMs }),
    /** For calls to other servers that people ask for. */
    callPlaces: createCallPlaces(metrics.shed),
    /** For batches of vouchers. */
    batchPlaces: createBatchPlaces(),
  };
}
