import type { MemberSubject } from "../../accounts/member_roles.ts";

/** What each path of the panel changes; the first that fits. A path that is missing is for owners. Source: MEM-2. */
const SUBJECTS: readonly (readonly [path: RegExp, subject: MemberSubject])[] = [
  [/^\/settings\/notices(?:\/|$)/, "balances"],
  [/^\/settings\/invoices(?:\/|$)/, "payments"],
  [/^\/(?:settings|sign-out-everywhere|work-in|members\/leave)(?:\/|$)/, "own"],
  [/^\/(?:keys|people\/\d+\/keys)(?:\/|$)/, "keys"],
  [/^\/ai\//, "playground"],
  [/^\/webhooks(?:\/|$)/, "webhooks"],
  [/^\/tokens(?:\/|$)/, "tokens"],
  [/^\/orders(?:\/|$)/, "orders"],
  [/^\/(?:payments|refunds|card|seller\/invoice-details)(?:\/|$)/, "payments"],
  [/^\/(?:auto-top-up|people\/\d+\/balance)(?:\/|$)/, "balances"],
  [/^\/(?:renewals|packages|people\/\d+\/packages)(?:\/|$)/, "packages"],
  [/^\/incidents(?:\/|$)/, "incidents"],
  [/^\/vouchers(?:\/|$)/, "vouchers"],
];

const PREFIX = "/api/panel";

/** What a path of the panel changes. */
export function subjectOf(pathname: string): MemberSubject {
  const path = pathname.slice(PREFIX.length);
  return SUBJECTS.find(([form]) => form.test(path))?.[1] ?? "settings";
}
