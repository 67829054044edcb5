import { useQuery } from "@tanstack/react-query";
import { Clock } from "lucide-react";
import { type ReactNode, useMemo } from "react";
import { ApiError, api, ask } from "../api.ts";
import { formatDuration, formatTime } from "../format.ts";
import type { BrandLook } from "../ui/brand_mark.tsx";
import { TextLink } from "../ui/buttons.tsx";
import { nowMs } from "../ui/clock.ts";
import { brandName } from "../ui/page.tsx";
import { Banner, ErrorLine } from "../ui/states.tsx";

/** What the pages for who is not signed in have in common: the host's brand, whom to ask, and why the door stays shut. */

export type FormState = { isPending: boolean; error: Error | null };

/** Why the door stays shut, but for what stands at a field. Nothing of it was charged, so no word of charges. */
export function DoorProblem({ error }: { error: Error | null }) {
  // Reckoned once: a time that runs would be read aloud each second.
  const until = useMemo(() => {
    if (!(error instanceof ApiError) || error.code !== "too_many_requests") return null;
    const waitMs = (error.retryAfterSeconds ?? 0) * 1_000;
    return { wait: formatDuration(waitMs), at: formatTime(new Date(nowMs() + waitMs).toISOString()) };
  }, [error]);
  if (error === null || wrongOf(error) !== null) return null;
  if (until === null) return <ErrorLine error={error} />;
  return (
    <div role="alert">
      <Banner tone="warn" icon={Clock} title="Too many wrong tries">
        Wait {until.wait}, until {until.at}, and try again.
      </Banner>
    </div>
  );
}

/** Whom to ask: there is no mail that sets a password anew. */
export function Help({ support, children }: { support: string | null; children: ReactNode }) {
  if (support === null) {
    return <p>{children} Ask whoever invited you.</p>;
  }
  const isPage = support.startsWith("https://");
  return (
    <p>
      {children} Ask{" "}
      <TextLink href={isPage ? support : `mailto:${support}`}>
        {isPage ? support.replace(/^https:\/\/|\/$/g, "") : support}
      </TextLink>
      .
    </p>
  );
}

/** How this host looks; `look` is null until it is known, so that no letter flashes where a logo will be. */
export function useDoorBrand(): { look: BrandLook | null; name: string; support: string | null } {
  const { data, isPending } = useQuery({
    queryKey: ["brand", "public"],
    queryFn: () => ask(api.brand.public.get()),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const name = data?.name ?? brandName();
  const plain = { name, logoLight: null, logoDark: null };
  return { look: data ?? (isPending ? null : plain), name, support: data?.support ?? null };
}

/** A full load: whatever the last person saw must not be left in memory. */
export function goOn(path: string): void {
  location.replace(path);
}

export function codeOf(error: Error | null): string | null {
  return error instanceof ApiError ? error.code : null;
}

/** What was wrong with what was typed, in the server's words. */
export function wrongOf(error: Error | null): string | null {
  return error instanceof ApiError && error.code === "session_required" ? error.message : null;
}
