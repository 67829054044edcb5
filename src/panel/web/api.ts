import { treaty } from "@elysiajs/eden";
import { t } from "@lingui/core/macro";
import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import type { LanguageTag } from "../../languages/languages.ts";
import type { PanelApi } from "../api/endpoints.ts";
import { keepFor } from "./kept_here.ts";
import { i18n } from "./language.ts";
import { syncClock } from "./ui/clock.ts";

/**
 * Calls to the panel's server: `ask(api.…)` for typed calls, `call` for one request, `useMe` for who is signed in.
 *
 *   const keys = useQuery({ queryKey: ["keys"], queryFn: ({ signal }) => call<Keys>("/api/panel/keys", { signal }) });
 *   await call("/api/panel/keys", { method: "POST", body: { name }, idempotencyKey });
 *
 * Every error is thrown as an ApiError; if the server cannot be reached, with status 0 and code "offline".
 */

const CSRF_HEADER = "x-csrf-token";
const IDEMPOTENCY_HEADER = "idempotency-key";
export const ME_KEY = ["me"] as const;

export type Role = "customer" | "reseller" | "admin";

export type MemberRole = "owner" | "developer" | "billing" | "viewer";

export type Me = {
  /** Who signed in, by the id of the account that they began. */
  person: { accountId: string; role: Role; name: string; email: string; language: LanguageTag | null };
  /** The account that they work in. */
  account: { accountId: string; role: Role; name: string };
  /** Their role in it. */
  member: MemberRole;
  /** All accounts that they can work in. */
  accounts: { accountId: number; name: string; role: MemberRole }[];
  /** The person whose panel an admin views, read-only; null on your own panel. */
  viewing: null | { accountId: string; name: string; role: Role };
  host: string;
  brand: { name: string; logoLight: string | null; logoDark: string | null; support: string | null };
  csrfToken: string;
  serverTime: string;
  /** In which months begin: an IANA name. */
  billingTimeZone: string;
  apiBaseUrl: string;
};

/** An error of the server. Source: ERR-1. */
export class ApiError extends Error {
  override readonly name = /* not a text */ "ApiError";
  readonly status: number;
  readonly code: string;
  readonly param: string | null;
  readonly requestId: string | null;
  readonly limit: number | undefined;
  readonly used: number | undefined;
  readonly remaining: number | undefined;
  readonly resetsAt: string | null | undefined;
  readonly retryAfterSeconds: number | undefined;

  constructor(message: string, facts: { status: number; code: string } & Partial<Omit<ApiError, keyof Error>>) {
    super(message);
    this.status = facts.status;
    this.code = facts.code;
    this.param = facts.param ?? null;
    this.requestId = facts.requestId ?? null;
    this.limit = facts.limit;
    this.used = facts.used;
    this.remaining = facts.remaining;
    this.resetsAt = facts.resetsAt;
    this.retryAfterSeconds = facts.retryAfterSeconds;
  }
}

/**
 * Typed calls, by the types of the server's routes: `ask(api.keys.get())`, `ask(api.keys({ keyId: 7 }).patch({ name }))`,
 * `ask(api.keys.post(form, sentOnce(formKey)))`.
 */
export const api = treaty<PanelApi>(location.origin, {
  parseDate: false,
  fetch: { credentials: "same-origin" },
  headers: () => ({ accept: "application/json", ...(csrfToken !== null && { [CSRF_HEADER]: csrfToken }) }),
}).api.panel;

type Answered<T> = { data: T; error: unknown; response: Response; status: number };

/** The answer of a typed call. Throws ApiError. */
export async function ask<T>(calling: Promise<Answered<T>>): Promise<NonNullable<T>> {
  const { data, error, response } = await calling.catch((thrown: unknown) => {
    if (thrown instanceof DOMException && thrown.name === "AbortError") throw thrown;
    throw offline();
  });
  if (response === undefined) throw offline();
  if (!response.ok || data === null || data === undefined) throw apiErrorOf(response, fieldOf(error, "value"));
  return data;
}

/** The idempotency key of a form that creates something: sent twice, it takes effect once. */
export function sentOnce(formKey: string): { headers: Record<string, string> } {
  return { headers: { [IDEMPOTENCY_HEADER]: formKey } };
}

/**
 * The answer to a form that shows a secret once. Sent twice, the form cannot return it again: the first response had it, and was lost.
 * The ApiError then says `lost`.
 */
export async function explainRepeat<T>(sent: Promise<T>, lost: string): Promise<T> {
  try {
    return await sent;
  } catch (error) {
    if (!(error instanceof ApiError) || error.code !== "idempotency_conflict") throw error;
    const { status, code, requestId } = error;
    throw new ApiError(lost, { status, code, requestId });
  }
}

/** In memory only, where no script of another page can read it. */
let csrfToken: string | null = null;

export type CallOptions = {
  method?: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  body?: unknown;
  signal?: AbortSignal;
  /** One for each opened form (`useIdempotencyKey`), so that a repeated click takes effect once. */
  idempotencyKey?: string;
};

/** One request; its JSON answer. Throws ApiError. */
export async function call<Answer>(path: string, options: CallOptions = {}): Promise<Answer> {
  const response = await send(path, options);
  if (!response.ok) throw await toApiError(response);
  const text = await response.text();
  return JSON.parse(text === "" ? "null" : text);
}

/** The same without reading the answer, for streams. Throws ApiError only if the server cannot be reached. */
export async function send(
  path: string,
  { method = "GET", body, signal, idempotencyKey }: CallOptions,
): Promise<Response> {
  const headers = new Headers({ accept: "application/json" });
  if (body !== undefined) headers.set("content-type", "application/json");
  if (idempotencyKey !== undefined) headers.set(IDEMPOTENCY_HEADER, idempotencyKey);
  if (method !== "GET" && csrfToken !== null) headers.set(CSRF_HEADER, csrfToken);
  try {
    return await fetch(path, {
      method,
      headers,
      credentials: "same-origin",
      ...(body !== undefined && { body: JSON.stringify(body) }),
      ...(signal && { signal }),
    });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw offline();
  }
}

function offline(): ApiError {
  return new ApiError(t`The server cannot be reached.`, { status: 0, code: "offline" });
}

/** The error of a response; a body without an error envelope (a proxy's page) becomes internal_error. */
export async function toApiError(response: Response): Promise<ApiError> {
  return apiErrorOf(response, await response.json().catch(() => null));
}

function apiErrorOf(response: Response, envelope: unknown): ApiError {
  const error = fieldOf(envelope, "error");
  const number = (name: string) => {
    const value = fieldOf(error, name);
    return typeof value === "number" ? value : undefined;
  };
  const text = (from: unknown, name: string) => {
    const value = fieldOf(from, name);
    return typeof value === "string" ? value : null;
  };
  const retryAfter = Number.parseInt(response.headers.get("retry-after") ?? "", 10);
  return new ApiError(messageOf(error) ?? t`Something went wrong on our side.`, {
    status: response.status,
    code: text(error, "code") ?? "internal_error",
    param: text(error, "param"),
    requestId: text(envelope, "request_id") ?? response.headers.get("x-request-id"),
    limit: number("limit"),
    used: number("used"),
    remaining: number("remaining"),
    resetsAt: fieldOf(error, "resets_at") === null ? null : (text(error, "resets_at") ?? undefined),
    retryAfterSeconds: Number.isNaN(retryAfter) ? undefined : retryAfter,
  });
}

/** The sentence of an error in the page's language; in English if the language does not have it. Source: LNG-8. */
function messageOf(error: unknown): string | null {
  const said = fieldOf(error, "sentence");
  const message = fieldOf(error, "message");
  if (typeof message !== "string") return null;
  const id = fieldOf(said, "id") ?? message;
  const values = fieldOf(said, "values");
  return typeof id === "string" ? inLanguage(id, message, values) : message;
}

/** A text of the server in the page's language; `english` if the language does not have it. */
export function inLanguage(id: string, english = id, values?: unknown): string {
  if (!Object.hasOwn(i18n.messages, id)) return english;
  return i18n._(id, typeof values === "object" && values !== null ? { ...values } : undefined);
}

/** Loads who is signed in, and with it the CSRF token and the server's clock. */
export async function fetchMe(signal?: AbortSignal): Promise<Me> {
  const me = await call<Me>("/api/panel/me", { ...(signal && { signal }) });
  csrfToken = me.csrfToken;
  syncClock(me.serverTime);
  void keepFor(Number(me.account.accountId));
  return me;
}

/** The same as a query, for the shell around the pages. */
export function useMeQuery() {
  return useQuery({ queryKey: ME_KEY, queryFn: ({ signal }) => fetchMe(signal) });
}

/** Who is signed in. Only inside the shell, which draws no page before this is loaded. */
export function useMe(): Me {
  const { data } = useMeQuery();
  if (data === undefined) throw new Error("useMe is used outside the signed-in shell.");
  return data;
}

/**
 * Ends the session and clears everything that was loaded or kept in this browser. Returns the page to go to: that of the identity provider by
 * which the person signed in, if it has one.
 */
export function useSignOut(): () => Promise<string | null> {
  const client = useQueryClient();
  return async () => {
    const { goTo } = await ask(api["sign-out"].post());
    csrfToken = null;
    client.clear();
    try {
      sessionStorage.clear();
    } catch {
      // A browser that forbids storage has stored nothing.
    }
    await keepFor(null);
    return goTo;
  };
}

/** A random key that stays the same while the component is mounted. */
export function useIdempotencyKey(): string {
  const [key] = useState(randomKey);
  return key;
}

export function randomKey(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === "object" && value !== null && name in value ? Reflect.get(value, name) : undefined;
}
