import type { I18n } from "@lingui/core";
import type { Operation, Tag } from "../http/openapi.ts";

/**
 * What the API reference says around the names and descriptions of the OpenAPI document, in the language of its reader. A translation has
 * no markup (LNG-6), so a text is HTML as it is; so are the values in it.
 */

/** `english`: the attributes of parts that stay in English, from left to right; empty on a page in English. */
export type Frame = { i18n: I18n; english: string };

export function frameIn(i18n: I18n): Frame {
  return { i18n, english: i18n.locale === "en" ? "" : ' dir="ltr" lang="en"' };
}

/** Names, headers and other texts for programs, in a text of the page. */
export const code = ({ english }: Frame, html: string) => `<code${english}>${html}</code>`;
/** A name that is no code, as `string`. */
export const name = ({ english }: Frame, text: string) => (english === "" ? text : `<bdi${english}>${text}</bdi>`);
export const linkTo = (frame: Frame, shape: string) => `<a href="#${shape}">${code(frame, shape)}</a>`;

/** What a reference says of itself. HTML, with the placeholders of the page. */
export type PageWords = { title: string; lead: string; facts: readonly (readonly [name: string, words: string])[] };

export function customersPage(frame: Frame): PageWords {
  const { i18n } = frame;
  const header = code(frame, "Authorization: Bearer &lt;API_KEY&gt;");
  return {
    title: i18n.t("{brand} API", { brand: "%TITLE%" }),
    lead: `${i18n.t("An OpenAI-compatible API. Existing SDKs work once you set their base URL and API key.")}
${asFile(frame, "/docs/openapi.json")}`,
    facts: [
      [
        i18n.t("Key"),
        i18n.t("Create an API key in the panel and keep it on your server. Send it with every request: {header}", {
          header,
        }),
      ],
      [
        i18n.t("Request id"),
        i18n.t("Every response has {header}. Quote it when you contact support.", {
          header: code(frame, "X-Request-Id"),
        }),
      ],
      [
        i18n.t("Errors"),
        i18n.t(
          "Every error is an {shape}. A request refused with 402 reached no model, cost nothing and has no usage record.",
          { shape: linkTo(frame, "ErrorEnvelope") },
        ),
      ],
    ],
  };
}

export function managementPage(frame: Frame): PageWords {
  const { i18n } = frame;
  const of = (words: string) => code(frame, words);
  const customers = i18n.t("The <0>customers' API</0> has its own.");
  return {
    title: i18n.t("{brand} management API", { brand: "%TITLE%" }),
    lead: `${i18n.t("For programs of admins and resellers: accounts, keys, packages, balances and sales.")}
${asFile(frame, "/api/v1/openapi.json")} ${customers.replace("<0>", '<a href="/docs/api">').replace("</0>", "</a>")}`,
    facts: [
      [
        i18n.t("Token"),
        i18n.t(
          "Make a token in the panel under API tokens, with only the scopes that the program needs. Send it with every request: {header}",
          { header: of("Authorization: Bearer &lt;TOKEN&gt;") },
        ),
      ],
      [i18n.t("Amounts"), i18n.t("Strings of nano-USD: 1 USD is {amount}.", { amount: of("1000000000") })],
      [
        i18n.t("Writing once"),
        i18n.t(
          "Send an {header} with every write. The same request with the same key is made once, and gets the same answer for 24 hours.",
          { header: of("Idempotency-Key") },
        ),
      ],
      [
        i18n.t("Pages"),
        i18n.t(
          "A list has {data}, {hasMore} and {nextCursor}. Send that cursor as {cursor}, with the same filter and token.",
          { data: of("data"), hasMore: of("hasMore"), nextCursor: of("nextCursor"), cursor: of("cursor") },
        ),
      ],
      [
        i18n.t("Errors"),
        i18n.t("Every error is an {shape}. An unknown field is refused by its name.", {
          shape: linkTo(frame, "ErrorEnvelope"),
        }),
      ],
      [
        i18n.t("Webhooks"),
        i18n.t(
          "Instead of asking for changes, add an endpoint in the panel under Webhooks. The OpenAPI file lists the kinds of its calls.",
        ),
      ],
    ],
  };
}

function asFile(frame: Frame, address: string): string {
  const file = `<a href="${address}">${name(frame, "OpenAPI 3.1")}</a>`;
  return frame.i18n.t("The same reference as a file for tools: {file}.", { file });
}

export function tagWords({ i18n }: Frame): Readonly<Record<Tag, string>> {
  return {
    Models: i18n.t("Models"),
    Chat: i18n.t("Chat"),
    Responses: i18n.t("Responses"),
    Images: i18n.t("Images"),
    Embeddings: i18n.t("Embeddings"),
    Account: i18n.t("Account"),
    Panel: i18n.t("Panel"),
    Accounts: i18n.t("Accounts"),
    Keys: i18n.t("Keys"),
    Packages: i18n.t("Packages"),
    Balances: i18n.t("Balances"),
    Usage: i18n.t("Usage"),
    Offerings: i18n.t("Offerings"),
    Prices: i18n.t("Prices"),
    Markups: i18n.t("Markups"),
    Orders: i18n.t("Orders"),
    Payments: i18n.t("Payments"),
    Vouchers: i18n.t("Vouchers"),
    Incidents: i18n.t("Incidents"),
    Domains: i18n.t("Domains"),
    Providers: i18n.t("Providers"),
    Webhooks: i18n.t("Webhooks"),
  };
}

export function callerWords({ i18n }: Frame): Readonly<Record<Operation["caller"], string>> {
  return {
    key: i18n.t("With an API key."),
    session: i18n.t("Sent by the panel itself, with the session cookie and the CSRF header."),
    token: i18n.t("With a token of the management API."),
    anyone: i18n.t("Without an API key."),
  };
}

/** The limits of a number, of a text's characters and of a list's elements. */
export function rangeWords({ i18n }: Frame, of: "number" | "characters" | "elements", min?: number, max?: number) {
  if (min !== undefined && max !== undefined) {
    if (of === "characters") return i18n.t("{min, number} to {max, number} characters", { min, max });
    if (of === "elements") return i18n.t("{min, number} to {max, number} elements", { min, max });
    return i18n.t("{min, number} to {max, number}", { min, max });
  }
  if (min !== undefined) {
    if (of === "characters") return i18n.t("at least {min, number} characters", { min });
    if (of === "elements") return i18n.t("at least {min, number} elements", { min });
    return i18n.t("at least {min, number}", { min });
  }
  if (max === undefined) return "";
  if (of === "characters") return i18n.t("at most {max, number} characters", { max });
  if (of === "elements") return i18n.t("at most {max, number} elements", { max });
  return i18n.t("at most {max, number}", { max });
}
