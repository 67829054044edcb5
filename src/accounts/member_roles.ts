import type { Subject } from "./subjects.ts";

/** What a member may do in an account, as data. Everyone reads everything; the owner changes everything. Source: MEM-2. */

export const MEMBER_ROLES = ["owner", "developer", "billing", "viewer"] as const;
export type MemberRole = (typeof MEMBER_ROLES)[number];

/** What is changed: a subject of the operations, or of the panel alone. `own`: how the person signs in, and what they are mailed. */
export type MemberSubject = Subject | "playground" | "tokens" | "settings" | "own";

/** Who changes a subject beside the owner. */
const WRITERS: Partial<Record<MemberSubject, readonly MemberRole[]>> = {
  own: MEMBER_ROLES,
  keys: ["developer"],
  models: ["developer"],
  incidents: ["developer"],
  playground: ["developer"],
  webhooks: ["developer"],
  // A token has at most the scopes of its maker.
  tokens: ["developer", "billing"],
  balances: ["billing"],
  orders: ["billing"],
  packages: ["billing"],
  payments: ["billing"],
  vouchers: ["billing"],
};

/** Whether a member may change a subject. */
export function mayWrite(role: MemberRole, subject: MemberSubject): boolean {
  return role === "owner" || (WRITERS[subject]?.includes(role) ?? false);
}
