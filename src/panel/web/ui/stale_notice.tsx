import { t } from "@lingui/core/macro";
import { Trans } from "@lingui/react/macro";
import { notifyManager, type Query, useQueryClient } from "@tanstack/react-query";
import { CloudOff } from "lucide-react";
import { useCallback, useState, useSyncExternalStore } from "react";
import { Button } from "./buttons.tsx";
import { Banner } from "./states.tsx";
import { Instant } from "./time.tsx";

/**
 * Says that something on the page is old: it was loaded before, and loading it again has failed, or waits for a connection.
 * The shell draws it above every page, so that no page can forget it.
 */
export function StaleNotice() {
  const client = useQueryClient();
  const cache = client.getQueryCache();
  const subscribe = useCallback((changed: () => void) => cache.subscribe(notifyManager.batchCalls(changed)), [cache]);
  const oldestMs = useSyncExternalStore(subscribe, () => oldestOf(cache.findAll({ predicate: isStale })));
  const [isTrying, setTrying] = useState(false);
  const tryAgain = async () => {
    setTrying(true);
    await client.refetchQueries({ predicate: isStale });
    setTrying(false);
  };
  if (oldestMs === null) return null;
  return (
    <div role="alert" className="mx-auto w-full max-w-[76rem] px-4 pt-4 sm:px-6 lg:px-8">
      <Banner
        tone="warn"
        icon={CloudOff}
        title={t`This page could not be refreshed`}
        action={
          <Button size="sm" pending={isTrying} onClick={() => void tryAgain()}>
            <Trans>Try again</Trans>
          </Button>
        }
      >
        <Trans>
          Some of it is from <Instant iso={new Date(oldestMs).toISOString()} seconds />, and may have changed.
        </Trans>
      </Banner>
    </div>
  );
}

/** Shown, loaded before, and not loaded again since it was last tried. */
function isStale(query: Query): boolean {
  const { data, status, fetchStatus } = query.state;
  // What is beside the page is no part of it.
  if (query.meta?.isAside === true) return false;
  return query.isActive() && data !== undefined && (status === "error" || fetchStatus === "paused");
}

/** When the oldest of them was loaded, by the browser's clock; null: there is none. */
function oldestOf(queries: readonly Query[]): number | null {
  return queries.length === 0 ? null : Math.min(...queries.map(({ state }) => state.dataUpdatedAt));
}
