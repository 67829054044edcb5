import type { IDENTITY_KINDS } from "../platform/schema_identities.ts";

/** The kinds of identity providers, as data: what each speaks, where it is, and what it is asked for. Pure. Source: OIDC-1. */

export type IdentityKind = (typeof IDENTITY_KINDS)[number];

type Preset = {
  /** `oauth`: it has no ID token; who signed in is read from its API. */
  protocol: "oidc" | "oauth";
  /** null: the seller names it. */
  issuer: string | null;
  scopes: string;
  /** Sent with every request for a sign-in. */
  parameters?: Readonly<Record<string, string>>;
  /**
   * Domains at which it is the mail service itself. At any other one it knows an address only by a mail that was once clicked, unless its token
   * names the domain that manages the account (`hd`). Source: OIDC-4.
   */
  ownMailDomains?: readonly string[];
};

export const IDENTITY_PRESETS: Readonly<Record<IdentityKind, Preset>> = {
  oidc: { protocol: "oidc", issuer: null, scopes: "openid email profile" },
  google: {
    protocol: "oidc",
    issuer: "https://accounts.google.com",
    scopes: "openid email profile",
    parameters: { prompt: "select_account" },
    ownMailDomains: ["gmail.com", "googlemail.com"],
  },
  github: { protocol: "oauth", issuer: "https://github.com", scopes: "read:user user:email" },
};
