import { t } from "@lingui/core/macro";

/** What a reseller pays a package with that it gives away, as choices. */
export const PAY_WITH = [
  { value: "balance", label: t`Your balance` },
  { value: "allotment", label: t`Your allotment` },
] as const;
