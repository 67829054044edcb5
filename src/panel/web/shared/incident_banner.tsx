import { plural, t } from "@lingui/core/macro";
import { useQuery } from "@tanstack/react-query";
import { api, ask } from "../api.ts";
import { TextLink } from "../ui/buttons.tsx";
import { Banner } from "../ui/states.tsx";

/** Says above every page that an incident is open, or maintenance in progress, on the status page of the host. A page works without it. */

const RENEWED_MS = 120_000;
const OPEN: readonly string[] = ["investigating", "identified", "monitoring", "in_progress"];

export function IncidentBanner() {
  const { data } = useQuery({
    queryKey: ["status"],
    queryFn: () => ask(api.status.get()),
    refetchInterval: RENEWED_MS,
    staleTime: RENEWED_MS,
    retry: false,
    meta: { isAside: true },
  });
  const open = data?.incidents.filter(({ status }) => OPEN.includes(status)) ?? [];
  const [first, ...others] = open;
  if (first === undefined) return null;
  const count = others.length;
  return (
    <aside aria-label={t`Status`} className="mx-auto w-full max-w-[76rem] px-4 pt-4 sm:px-6 lg:px-8">
      <Banner
        tone={open.some(({ impact }) => impact === "outage") ? "bad" : "warn"}
        title={first.title}
        action={<TextLink href="/status">{t`Status page`}</TextLink>}
      >
        {first.kind === "maintenance" ? t`Maintenance is in progress.` : t`We are working on it.`}
        {count > 0 && ` ${plural(count, { other: "# more on the status page." })}`}
      </Banner>
    </aside>
  );
}
