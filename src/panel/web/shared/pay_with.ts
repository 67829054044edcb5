/** What a reseller pays a package with that it gives away, as choices. */
export const PAY_WITH = [
  { value: "balance", label: "Your balance" },
  { value: "allotment", label: "Your allotment" },
] as const;
