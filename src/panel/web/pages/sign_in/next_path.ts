/** Where a person who links an identity began, and comes back to. */
export const LINKING = "/settings?tab=sign-in";

/** Pages for people who are not signed in, and paths that are not pages. */
const NOT_A_TARGET = /^\/(?:sign-in|forgot|invite|reset|email|api|v1)(?:\/|$)/;

/**
 * The path to open after signing in: `next` if it is a page of this panel, else Home. Guards against open redirects.
 */
export function pathAfterSignIn(next: string | null, origin: string): string {
  // Two slashes or a backslash turn what follows into a host, so the parsed URL decides.
  if (next === null || !next.startsWith("/") || !URL.canParse(next, origin)) return "/";
  const url = new URL(next, origin);
  // "/.//host" parses as a path of ours, "//host", which alone is a host.
  if (url.origin !== origin || url.pathname.startsWith("//") || NOT_A_TARGET.test(url.pathname)) return "/";
  return `${url.pathname}${url.search}${url.hash}`;
}

/** The key under which this tab remembers where to go, while it is at an identity provider. */
const NEXT = "after-identity-sign-in";

/** Remembers where to go after the sign-in, while the browser is away; each time anew. A browser that forbids storage goes to Home. */
export function rememberNext(next: string | null): void {
  try {
    if (next === null) sessionStorage.removeItem(NEXT);
    else sessionStorage.setItem(NEXT, next);
  } catch {
    // Then there is no path to go to.
  }
}

/** The path that was remembered when the browser left; null: none. */
export function rememberedNext(): string | null {
  try {
    return sessionStorage.getItem(NEXT);
  } catch {
    return null; // Nothing was remembered.
  }
}
