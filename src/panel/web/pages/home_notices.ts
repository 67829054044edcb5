import { formatDay, formatDuration, formatMoney, formatOf, formatReset } from "../format.ts";
import type { Home } from "./account_queries.ts";

/** The notices of the first page: what may need its owner, in words. */

type Notice = Home["notices"][number];
type Words = { tone: "warn" | "bad"; title: string; body: string; step: { label: string; href: string } | null };

const MORE = { label: "Ask for a package", href: "/billing?ask=package" };

/** By its kind. `zone` is the package's. `package_none` is a section of its own on the page, and has the same words here. */
export function noticeText(
  notice: Notice,
  { zone, now, isCustomer }: { zone: string; now: number; isCustomer: boolean },
): Words {
  switch (notice.kind) {
    case "package_none":
      return { tone: "warn", title: "No package is active", body: "Your keys are kept.", step: MORE };
    case "package_used_up":
      return {
        tone: "bad",
        title: `${notice.name} is used up`,
        body: "Requests by package are refused. Your keys are kept and work again with a new one.",
        step: MORE,
      };
    case "allowance_used_up":
      return {
        tone: "bad",
        title: notice.carryover ? "All you had saved up is used" : "Today's requests are used",
        body:
          notice.resetsAt === null
            ? `No more days are left in ${notice.name}.`
            : `More in ${formatDuration(Date.parse(notice.resetsAt) - now)}, at ${formatReset(notice.resetsAt, zone)}.`,
        step: notice.resetsAt === null ? MORE : null,
      };
    case "tokens_used_up":
      return {
        tone: "bad",
        title: `The tokens of ${notice.name} are used`,
        body: `All ${formatOf(notice.tokenLimit, "token")} are gone. Requests by package are refused.`,
        step: MORE,
      };
    case "package_low":
      return {
        tone: "warn",
        title: `${formatOf(notice.left, "request")} left of ${notice.name}`,
        body: `Of ${formatOf(notice.totalLimit, "request")} in all. Ask for another before they are gone.`,
        step: MORE,
      };
    case "package_ending":
      return {
        tone: "warn",
        title: `${notice.name} ends in ${formatDuration(Date.parse(notice.endsAt) - now)}`,
        body:
          notice.nextName === null
            ? `On ${formatDay(notice.endsAt, zone, now)}. Nothing is queued after it.`
            : `On ${formatDay(notice.endsAt, zone, now)}. ${notice.nextName} follows.`,
        step: notice.nextName === null ? MORE : null,
      };
    case "balance_low":
      return {
        tone: "warn",
        title: `${formatMoney(notice.freeNanoUsd)} of the balance is free`,
        body: isCustomer
          ? `You wanted to be told below ${formatMoney(notice.belowNanoUsd)}.`
          : `You wanted to be told below ${formatMoney(notice.belowNanoUsd)}. Packages you hand out are paid from it too.`,
        step: { label: "Ask for a top-up", href: "/billing?ask=top_up" },
      };
  }
}
