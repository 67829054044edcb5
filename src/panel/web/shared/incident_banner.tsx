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
  return (
    <aside aria-label="Status" className="mx-auto w-full max-w-[76rem] px-4 pt-4 sm:px-6 lg:px-8">
      <Banner
        tone={open.some(({ impact }) => impact === "outage") ? "bad" : "warn"}
        title={first.title}
        action={<TextLink href="/status">Status page</TextLink>}
      >
        {first.kind === "maintenance" ? "Maintenance is in progress." : "We are working on it."}
        {others.length > 0 && ` ${others.length} more on the status page.`}
      </Banner>
    </aside>
  );
}
