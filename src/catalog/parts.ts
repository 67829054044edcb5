import { type Base, close } from "../platform/base.ts";
import type { StartWait } from "../platform/start_wait.ts";
import { openAnswerSums } from "./answer_sums.ts";
import { openBoundUses } from "./bound_uses.ts";
import { createBreakers } from "./breaker.ts";
import { openCatalog } from "./catalog.ts";
import { openKeyStates } from "./key_states.ts";
import { createProviderClient } from "./provider_client.ts";
import { openRouteSpeeds } from "./route_speeds.ts";
import { openRouteStats } from "./route_stats.ts";

export type CatalogParts = Awaited<ReturnType<typeof openCatalogParts>>;

/** Waits for the database. Throws what `wait` throws. */
export async function openCatalogParts({ closing, ...base }: Base, wait: StartWait) {
  const { config, log, db, metrics, nowMs } = base;
  const catalog = closing.adopt(
    await wait.step("the catalog", (firstLoadMs) => openCatalog({ ...base, firstLoadMs })),
    close,
  );
  const provider = createProviderClient({ config, log, now: nowMs });
  const keyStates = closing.adopt(
    await wait.step("the states of provider keys", (firstLoadMs) =>
      openKeyStates({ ...base, catalog, provider, firstLoadMs }),
    ),
    close,
  );
  return {
    catalog,
    keyStates,
    provider,
    breakers: createBreakers({ now: nowMs, onOpen: metrics.breakerOpened }),
    /** For models that choose their routes by latency. */
    routeSpeeds: closing.adopt(openRouteSpeeds({ db, catalog, log }), close),
    routeStats: openRouteStats({ db, log }),
    answerSums: openAnswerSums({ db, log }),
    boundUses: openBoundUses({ db, log }),
  };
}
