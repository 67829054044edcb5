import type { MemberSubject } from "../../../accounts/member_roles.ts";

/** What the controls of each page change, by the beginning of its path. A page that is missing is for owners. The server decides. */
const SUBJECTS: readonly (readonly [begins: string, subject: MemberSubject])[] = [
  ["/keys", "keys"],
  ["/playground", "playground"],
  ["/webhooks", "webhooks"],
  ["/tokens", "tokens"],
  ["/admin/tokens", "tokens"],
  ["/billing", "payments"],
  ["/orders", "orders"],
  ["/payments", "payments"],
  ["/vouchers", "vouchers"],
  ["/incidents", "incidents"],
  ["/admin/incidents", "incidents"],
  ["/members", "members"],
  ["/settings", "own"],
];

/** The subject of the page at this path. */
export function subjectOfPage(path: string): MemberSubject {
  return SUBJECTS.find(([begins]) => path === begins || path.startsWith(`${begins}/`))?.[1] ?? "settings";
}
