import { formatDay, formatDuration, formatMoney, formatOf, formatReset } from "../../format.ts";
import type { Home } from "../../shared/account_queries.ts";

/** The text of the notices on Home. */

type Notice = Home["notices"][number];
type NoticeText = { tone: "warn" | "bad"; title: string; body: string; step: { label: string; href: string } | null };

const MORE = { label: "Get a package", href: "/billing?ask=package" };

/** `zone` is the package's time zone. Home shows `package_none` as a section of its own. */
export function noticeText(
  notice: Notice,
  { zone, now, isCustomer }: { zone: string; now: number; isCustomer: boolean },
): NoticeText {
  switch (notice.kind) {
    case "package_none":
      return { tone: "warn", title: "No package is active", body: "Your keys are kept.", step: MORE };
    case "package_used_up":
      return {
        tone: "bad",
        title: `${notice.name} is used up`,
        body: "Requests billed to the package are refused. Your keys are kept and work again with a new package.",
        step: MORE,
      };
    case "allowance_used_up":
      return {
        tone: "bad",
        title: notice.carryover ? "All your saved requests are used" : "Today's requests are used",
        body:
          notice.resetsAt === null
            ? `${notice.name} has no more days.`
            : `More in ${formatDuration(Date.parse(notice.resetsAt) - now)}, at ${formatReset(notice.resetsAt, zone)}.`,
        step: notice.resetsAt === null ? MORE : null,
      };
    case "tokens_used_up":
      return {
        tone: "bad",
        title: `The tokens of ${notice.name} are used up`,
        body: `All ${formatOf(notice.tokenLimit, "token")} are used. Requests billed to the package are refused.`,
        step: MORE,
      };
    case "package_low":
      return {
        tone: "warn",
        title: `${formatOf(notice.left, "request")} left of ${notice.name}`,
        body: `Of ${formatOf(notice.totalLimit, "request")} in total. Get another package before they run out.`,
        step: MORE,
      };
    case "package_ending":
      return {
        tone: "warn",
        title: `${notice.name} ends in ${formatDuration(Date.parse(notice.endsAt) - now)}`,
        body:
          notice.nextName === null
            ? `On ${formatDay(notice.endsAt, zone, now)}. No package is queued after it.`
            : `On ${formatDay(notice.endsAt, zone, now)}. ${notice.nextName} follows.`,
        step: notice.nextName === null ? MORE : null,
      };
    case "balance_low":
      return {
        tone: "warn",
        title: `${formatMoney(notice.freeNanoUsd)} of your balance is available`,
        body: isCustomer
          ? `Your notice is set to ${formatMoney(notice.belowNanoUsd)}.`
          : `Your notice is set to ${formatMoney(notice.belowNanoUsd)}. Packages that you assign are also charged to the balance.`,
        step: { label: "Top up the balance", href: "/billing?ask=top_up" },
      };
  }
}
