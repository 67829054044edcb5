import { t } from "@lingui/core/macro";
import { formatInstant, formatRelative, formatUtc } from "../format.ts";
import { useNow } from "./clock.ts";

/**
 * Moments. Both have the exact UTC time as their title.
 *
 *   <Instant iso={createdAt} />  <Instant iso={createdAt} seconds />     // "14 Dec, 09:14(:02)" in the viewer's zone
 *   <Ago iso={key.lastUsedAt} never="Never" />                           // "2 min ago", updated every 30 s
 */

const RENEWED_MS = 30_000;

export function Instant({ iso, seconds = false }: { iso: string; seconds?: boolean }) {
  const now = useNow(60 * RENEWED_MS);
  return (
    <time dateTime={iso} title={formatUtc(iso)} className="whitespace-nowrap">
      {formatInstant(iso, { seconds, now })}
    </time>
  );
}

export function Ago({
  iso,
  never = t({ message: "Never", context: "it has not happened yet" }),
}: {
  iso: string | null;
  never?: string;
}) {
  const now = useNow(RENEWED_MS);
  if (iso === null) return never;
  return (
    <time dateTime={iso} title={formatUtc(iso)} className="whitespace-nowrap">
      {formatRelative(iso, now)}
    </time>
  );
}
