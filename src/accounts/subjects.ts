import type { Role } from "./roles.ts";

/** Who may read and who may change each subject. */
export const SUBJECTS = {
  accounts: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  members: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  keys: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  packages: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  balances: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  usage: { read: ["reseller", "admin"], write: [] },
  offerings: { read: ["reseller", "admin"], write: ["admin"] },
  prices: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  markups: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  orders: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  payments: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  vouchers: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  sign_up: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  incidents: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  identity_providers: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  domains: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  models: { read: ["admin"], write: ["admin"] },
  providers: { read: ["admin"], write: ["admin"] },
  webhooks: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
} as const satisfies Record<string, Record<"read" | "write", readonly Role[]>>;

export type Subject = keyof typeof SUBJECTS;

export const SUBJECT_NAMES = Object.keys(SUBJECTS).filter((name): name is Subject => Object.hasOwn(SUBJECTS, name));
