import { Elysia, t } from "elysia";
import type { Deps } from "../../deps.ts";
import { Refusal } from "../../errors.ts";
import { readForm } from "../../http/body.ts";
import { factsOf } from "../../http/request_facts.ts";
import { findMailChoice, setMailed } from "../../messages/mail_choices_store.ts";
import { readUnsubscribeToken, type Unsubscribe } from "../../messages/unsubscribe.ts";
import { inTime } from "../../platform/time_limit.ts";
import { signedOut } from "./panel_session.ts";
import { checkOrigin } from "./session_auth.ts";
import { type Arrival, arrivalOf, limited } from "./sign_in.ts";

/**
 * Links in mails that switch off one kind of mail, without signing in. Opening a link changes nothing, since mail
 * scanners open links; only the button of its page, or a mail program's button, does. Source: MSG-13, RFC 8058.
 */

const TOKEN_CHARS_MAX = 200;
const LinkParams = { params: t.Object({ token: t.String({ maxLength: TOKEN_CHARS_MAX }) }) };
/** Mail programs send a form with one field. */
const FORM_BYTES_MAX = 4 * 1024;
const ONE_CLICK_FIELD = /List-Unsubscribe\b.*\bOne-Click\b/s;

/** The data of the link's page. */
export function unsubscribeEndpoints(deps: Deps) {
  return signedOut()
    .get(
      "/unsubscribe/:token",
      async ({ request, params }) => {
        const { kind, isMailed } = await openLink(deps, await arrivalOf(deps, request), params.token);
        return { kind, mailed: isMailed };
      },
      LinkParams,
    )
    .post(
      "/unsubscribe/:token",
      async ({ request, params }) => {
        checkOrigin(request);
        await unsubscribe(deps, await arrivalOf(deps, request), params.token);
        return { mailed: false };
      },
      { ...LinkParams, parse: "none" },
    );
}

/** The URL in a mail's header List-Unsubscribe. A person who opens it gets the page. */
export function oneClickEndpoints(deps: Deps) {
  return new Elysia({ normalize: false })
    .onRequest(({ request, set }) => {
      const { url, requestId } = factsOf(request);
      if (url.pathname.startsWith("/unsubscribe/")) set.headers["x-request-id"] = requestId;
    })
    .post(
      "/unsubscribe/:token",
      async ({ request, params }) => {
        const arrival = await arrivalOf(deps, request);
        const form = await readForm(deps, request, FORM_BYTES_MAX);
        if (!ONE_CLICK_FIELD.test(form))
          throw new Refusal("invalid_request", { message: "The body must be List-Unsubscribe=One-Click." });
        await unsubscribe(deps, arrival, params.token);
        return { mailed: false };
      },
      { ...LinkParams, parse: "none" },
    );
}

/** Throws as `openLink`. */
async function unsubscribe(deps: Deps, arrival: Arrival, token: string): Promise<void> {
  const { accountId, kind, isMailed } = await openLink(deps, arrival, token);
  if (!isMailed) return;
  const by = { accountId, requestId: arrival.requestId };
  await inTime(setMailed({ ...deps, by }, { accountId, kind, mailed: false }));
}

/**
 * Throws not_found if the token was not signed here or its account does not sign in on this host, and
 * too_many_requests.
 */
async function openLink(
  deps: Deps,
  { host, network }: Arrival,
  token: string,
): Promise<Unsubscribe & { isMailed: boolean }> {
  return limited(deps, { shared: [`link:${network}`], own: [] }, async () => {
    const wanted = readUnsubscribeToken(deps.config.secretKey, token);
    if (wanted === undefined) return notFound();
    await deps.limiter.take(`unsubscribe:${wanted.accountId}`);
    const found = await inTime(findMailChoice(deps, { ...wanted, resellerId: host.resellerId }));
    return found === undefined ? notFound() : { ...wanted, ...found };
  });
}

function notFound(): Refusal {
  return new Refusal("not_found", { message: "This link does not work here. You can choose your mails in Settings." });
}
