import { InputError } from "../errors.ts";
import type { Role } from "./roles.ts";

/** What a token of the management API may do: a subject, and whether it may change it. */

/** Who may read and who may change each subject. */
const SUBJECTS = {
  accounts: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
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
  domains: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
  models: { read: ["admin"], write: ["admin"] },
  providers: { read: ["admin"], write: ["admin"] },
  webhooks: { read: ["reseller", "admin"], write: ["reseller", "admin"] },
} as const satisfies Record<string, Record<"read" | "write", readonly Role[]>>;

export type Subject = keyof typeof SUBJECTS;
export type Access = "read" | "write";
export type Scope = `${Subject}:${Access}`;

const NAMES = Object.keys(SUBJECTS).filter((name): name is Subject => Object.hasOwn(SUBJECTS, name));

/** The scopes that an account of this role can give its tokens. Customers have none. */
export function scopesFor(role: Role): Scope[] {
  const accesses = ["read", "write"] as const;
  return NAMES.flatMap((subject) =>
    accesses
      .filter((access) => SUBJECTS[subject][access].some((one) => one === role))
      .map((access): Scope => `${subject}:${access}`),
  );
}

/** The scopes that a token has: those that it was given and its owner's role still has. To write includes to read. */
export function scopesNow(given: readonly string[], role: Role): ReadonlySet<Scope> {
  const own = scopesFor(role);
  const has = own.filter((scope) => given.includes(scope));
  return new Set([...has, ...own.filter((scope) => has.some((one) => one === scope.replace(/read$/, "write")))]);
}

/** Checks the scopes of a new token. Throws InputError. */
export function checkScopes(wanted: readonly string[], role: Role): Scope[] {
  const own = scopesFor(role);
  const unknown = wanted.find((scope) => !own.some((one) => one === scope));
  if (unknown !== undefined)
    throw new InputError(`You cannot give a token the scope ${JSON.stringify(unknown.slice(0, 60))}.`, "scopes");
  if (wanted.length === 0) throw new InputError("Give the token at least one scope.", "scopes");
  return own.filter((scope) => wanted.includes(scope));
}
