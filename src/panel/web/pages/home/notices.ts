import { plural, t } from "@lingui/core/macro";
import { formatDay, formatDuration, formatMoney, formatReset } from "../../format.ts";
import type { Home } from "../../shared/account_queries.ts";

/** The text of the notices on Home. */

type Notice = Home["notices"][number];
type NoticeText = { tone: "warn" | "bad"; title: string; body: string; step: { label: string; href: string } | null };

const MORE = { label: t`Get a package`, href: "/billing?ask=package" };

/** `zone` is the package's time zone. Home shows `package_none` as a section of its own. */
export function noticeText(
  notice: Notice,
  { zone, now, isCustomer }: { zone: string; now: number; isCustomer: boolean },
): NoticeText {
  switch (notice.kind) {
    case "package_none":
      return { tone: "warn", title: t`No package is active`, body: t`Your keys are kept.`, step: MORE };
    case "package_used_up":
      return {
        tone: "bad",
        title: t`${{ name: notice.name }} is used up`,
        body: t`Requests billed to the package are refused. Your keys are kept and work again with a new package.`,
        step: MORE,
      };
    case "allowance_used_up":
      return {
        tone: "bad",
        title: notice.carryover ? t`All your saved requests are used` : t`Today's requests are used`,
        body:
          notice.resetsAt === null
            ? t`${{ name: notice.name }} has no more days.`
            : t`More in ${{ duration: formatDuration(Date.parse(notice.resetsAt) - now) }}, at ${{ time: formatReset(notice.resetsAt, zone) }}.`,
        step: notice.resetsAt === null ? MORE : null,
      };
    case "tokens_used_up":
      return {
        tone: "bad",
        title: t`The tokens of ${{ name: notice.name }} are used up`,
        body: t`All ${plural({ tokens: notice.tokenLimit }, { one: "# token", other: "# tokens" })} are used. Requests billed to the package are refused.`,
        step: MORE,
      };
    case "package_low":
      return {
        tone: "warn",
        title: t`${plural({ left: notice.left }, { one: "# request", other: "# requests" })} left of ${{ name: notice.name }}`,
        body: t`Of ${plural({ total: notice.totalLimit }, { one: "# request", other: "# requests" })} in total. Get another package before they run out.`,
        step: MORE,
      };
    case "package_ending":
      return {
        tone: "warn",
        title: t`${{ name: notice.name }} ends in ${{ duration: formatDuration(Date.parse(notice.endsAt) - now) }}`,
        body:
          notice.nextName === null
            ? t`On ${{ day: formatDay(notice.endsAt, zone, now) }}. No package is queued after it.`
            : t`On ${{ day: formatDay(notice.endsAt, zone, now) }}. ${{ next: notice.nextName }} follows.`,
        step: notice.nextName === null ? MORE : null,
      };
    case "balance_low":
      return {
        tone: "warn",
        title: t`${{ free: formatMoney(notice.freeNanoUsd) }} of your balance is available`,
        body: isCustomer
          ? t`Your notice is set to ${{ below: formatMoney(notice.belowNanoUsd) }}.`
          : t`Your notice is set to ${{ below: formatMoney(notice.belowNanoUsd) }}. Packages that you assign are also charged to the balance.`,
        step: { label: t`Top up the balance`, href: "/billing?ask=top_up" },
      };
  }
}
