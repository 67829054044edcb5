import { t } from "@lingui/core/macro";

/** Choices that lists of requests have in common: of one account, and of all. */

export const RECENT_RANGES = [
  { value: "1", label: t`Last 24 hours` },
  { value: "7", label: t`Last 7 days` },
  { value: "30", label: t`Last 30 days` },
] as const;
export const ALL_TIME = { value: "all", label: t`All time` } as const;
export const MODES = [
  { value: "", label: t`Any billing` },
  { value: "package", label: t`Package` },
  { value: "payg", label: t`Balance` },
] as const;
