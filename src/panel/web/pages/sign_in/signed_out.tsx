import { t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { Clock } from "lucide-react";
import { useMemo } from "react";
import { ApiError, api, ask } from "../../api.ts";
import { formatDuration, formatTime } from "../../format.ts";
import type { BrandLook } from "../../ui/brand_mark.tsx";
import { nowMs } from "../../ui/clock.ts";
import { brandName } from "../../ui/page.tsx";
import { Banner, ErrorLine, ErrorState } from "../../ui/states.tsx";

/** Shared by the pages for people who are not signed in: the host's brand, whom to ask for help, and errors. */

/** A way to sign in elsewhere. */
export type OfferedProvider = { identityProviderId: number; name: string; kind: "oidc" | "google" | "github" };

export type Sending = { isPending: boolean; error: Error | null };

/** Why signing in, or what `limited` counts instead, failed, unless the message belongs to a field. */
export function SignInProblem({
  error,
  limited = t`Too many failed attempts`,
}: {
  error: Error | null;
  limited?: string;
}) {
  // Computed once: a running time would be read aloud every second.
  const until = useMemo(() => {
    if (!(error instanceof ApiError) || error.code !== "too_many_requests") return null;
    const waitMs = (error.retryAfterSeconds ?? 0) * 1_000;
    return { wait: formatDuration(waitMs), at: formatTime(new Date(nowMs() + waitMs).toISOString()) };
  }, [error]);
  if (error === null || credentialErrorOf(error) !== null) return null;
  if (until === null) return <ErrorLine error={error} />;
  return (
    <div role="alert">
      <Banner tone="warn" icon={Clock} title={limited}>
        {t`Try again in ${{ wait: until.wait }}, at ${{ time: until.at }}.`}
      </Banner>
    </div>
  );
}

/** A link that did not load. */
export function LinkProblem({ link: { error, refetch } }: { link: { error: Error | null; refetch: () => unknown } }) {
  if (codeOf(error) === "too_many_requests") return <SignInProblem error={error} />;
  return <ErrorState error={error} onRetry={() => void refetch()} />;
}

/** The host's brand. `look` is null while loading, so that no placeholder flashes before a logo. */
export function useHostBrand(): {
  look: BrandLook | null;
  name: string;
  support: string | null;
  /** Whether a link for a new password can be sent. */
  sendsMail: boolean;
  identityProviders: OfferedProvider[];
  /** Whether strangers can make an account. */
  signUp: boolean;
} {
  const { data, isPending } = useQuery({
    queryKey: ["brand", "public"],
    queryFn: () => ask(api.brand.public.get()),
    staleTime: Number.POSITIVE_INFINITY,
  });
  const name = data?.name ?? brandName();
  const plain = { name, logoLight: null, logoDark: null };
  return {
    look: data ?? (isPending ? null : plain),
    name,
    support: data?.support ?? null,
    sendsMail: data?.sendsMail ?? false,
    signUp: data?.signUp ?? false,
    identityProviders: data?.identityProviders ?? [],
  };
}

/** Opens a path with a full load, so that no data of the previous person stays in memory. */
export function openFresh(path: string): void {
  location.replace(path);
}

export function codeOf(error: Error | null): string | null {
  return error instanceof ApiError ? error.code : null;
}

/** The server's message about wrong credentials, shown at the field; null for any other error. */
export function credentialErrorOf(error: Error | null): string | null {
  return error instanceof ApiError && error.code === "session_required" ? error.message : null;
}
