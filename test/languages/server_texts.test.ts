import { expect, test } from "bun:test";
import { Type } from "@sinclair/typebox";
import { serverCatalogue } from "../../scripts/catalogues.ts";
import { invoicePdf } from "../../src/commerce/invoice_pdf.ts";
import { type StatusPage, statusPageIn } from "../../src/commerce/status_page.ts";
import type { OpenApi } from "../../src/http/openapi.ts";
import { LANGUAGE_TAGS } from "../../src/languages/languages.ts";
import { textsIn } from "../../src/languages/server_texts.ts";
import { MESSAGE_KINDS } from "../../src/messages/kinds.ts";
import { type MailLook, mailHtml, mailPlain } from "../../src/messages/mail_html.ts";
import { type MailFacts, type MailText, mailText, testText } from "../../src/messages/mail_texts.ts";
import { statusFeed } from "../../src/panel/api/status_feed.ts";
import { apiPage } from "../../src/panel/api_page.ts";
import { customersPage, managementPage } from "../../src/panel/api_page_words.ts";
import { INVOICE, LOOKS, textOf } from "../commerce/sample_invoice.ts";
import { EXAMPLES } from "../messages/examples.ts";
import { asked, expectOnly, wordless } from "./wordless.ts";

/** Mails, invoices, status pages and the frame of the API reference have no words that are not translated. Source: LNG-1, LNG-3. */

const SITE = { site: "https://ai.lumen.example", link: "https://x.example/", unsubscribe: "https://x.example/stop" };
const LOOK: MailLook = {
  ...{ name: "Lumen", support: "help@lumen.example", language: null },
  ...{ accent: "#00647c", onAccent: "#ffffff", logoLight: null, logoDark: null },
};
/** What is written by Intl, and by the mail itself. */
const WRITTEN = [
  ...["November", "December", "UTC", "Lumen", "help@lumen.example", "https://ai.lumen.example/forgot"],
  ...Object.values(SITE),
];

/** All mails: each kind with all values, with none, and in its other forms. */
function drafts(): { kind: string; text: MailText; values: string[] }[] {
  const i18n = wordless();
  const kinds = MESSAGE_KINDS.flatMap((kind) =>
    [
      EXAMPLES[kind],
      {},
      { ...EXAMPLES[kind], ...OTHER_VALUES, ...(kind.startsWith("dispute") && { reason: "product_not_received" }) },
    ].flatMap((data) =>
      (["customer", "reseller", "admin"] as const).map((role) => {
        const facts: MailFacts = { i18n, data, brand: "Lumen", role, ...SITE };
        return { kind, text: mailText(kind, facts), values: textsOf(data) };
      }),
    ),
  );
  const from = "Lumen <mail@lumen.example>";
  return [...kinds, { kind: "test", text: testText(i18n, { brand: "Lumen", from }), values: [from] }];
}

/** Each has a text of its own. */
const OTHER_VALUES = {
  ...{ to: "old", source: "balance", trial: "taken", problem: "balance_low", retriesAt: null, nextName: null },
  ...{ offeringName: null, amountNanoUsd: "20000000000", totalNano: null, customerName: null, waitsFor: "seller" },
  ...{ names: ["One"], status: "won", dueAt: null, counts: { dispute_closed: 1 } },
};

/** The texts in the data of a message; codes are not among them. */
function textsOf(data: object): string[] {
  const { problem, trial, source, waitsFor, reason, status, ...shown } = data as Record<string, unknown>;
  const free = typeof reason === "string" && /^[A-Z]/.test(reason) ? [reason] : [];
  return [
    ...free,
    ...Object.values(shown)
      .flat()
      .filter((value) => typeof value === "string"),
  ];
}

test("no mail has a word that is not translated, with all its values and with none", () => {
  for (const { kind, text, values } of drafts()) {
    const said = [text.subject, text.title, ...text.paragraphs, ...text.facts.flat(), text.button?.label, text.why];
    expectOnly(said.join("\n"), [...values, ...WRITTEN], kind);
    expectOnly(mailPlain(text, LOOK, wordless()), [...values, ...WRITTEN, text.button?.url ?? ""], kind);
    const html = mailHtml(text, LOOK, wordless())
      .replace(/<style>[\s\S]*?<\/style>/, "")
      .replace(/<[^>]+>|&\w+;/g, "\n");
    expectOnly(html, [...values, ...WRITTEN, text.button?.url ?? ""], kind);
  }
});

test("the names of a mail's facts and its button have no value in them", () => {
  for (const { kind, text } of drafts())
    expectOnly([...text.facts.map(([name]) => name), text.button?.label].join("\n"), [], kind);
});

test("a mail says its language and its direction, and mirrors its sides", () => {
  const html = (language: "de" | "ar") => {
    const i18n = textsIn(language);
    const facts = { i18n, data: EXAMPLES.order_paid, brand: "Lumen", role: "customer" as const, ...SITE };
    return mailHtml(mailText("order_paid", facts), LOOK, i18n);
  };
  expect(html("de")).toContain('<html lang="de" dir="ltr">');
  expect(html("de")).not.toContain('align="right"');
  expect(html("ar")).toContain('<html lang="ar" dir="rtl">');
  expect(html("ar")).toMatch(/<body class="bg" dir="rtl"/);
  expect(html("ar")).toContain("padding:8px 0 8px 16px");
  // Addresses are read from left to right.
  expect(html("ar")).toMatch(/<p class="ink2" dir="ltr" align="right"[^>]*>https:/);
});

test("figures and dates of a mail are those of its language, with Latin digits", () => {
  const text = (language: (typeof LANGUAGE_TAGS)[number]) => {
    const i18n = textsIn(language);
    const facts = { i18n, data: EXAMPLES.package_assigned, brand: "Lumen", role: "customer" as const, ...SITE };
    return mailText("package_assigned", facts).facts.map(([, value]) => value);
  };
  expect(text("en")).toEqual(expect.arrayContaining(["15,000", "15 December 2026, 00:00 Europe/Berlin"]));
  expect(text("de").join()).toContain("15.000");
  expect(text("de").join()).toContain("15. Dezember 2026");
  expect(text("zh").join()).toContain("2026年12月15日");
  for (const language of LANGUAGE_TAGS) expect(text(language).join()).not.toMatch(/[٠-٩]/);
});

test("no invoice has a word that is not translated", async () => {
  const { seller, buyer, lines, reference } = INVOICE;
  const tax = { country: "DE", rate: 19_000, reverseCharge: false, sellerVatNumber: "DE1", buyerVatNumber: "AT2" };
  const values = [
    ...Object.values(seller).concat(Object.values(buyer)),
    ...lines.map(({ text }) => text),
    ...[reference, "November", "EUR", "DE", "AT"],
  ].filter((value) => value !== null);
  for (const invoice of [
    INVOICE,
    { ...INVOICE, correctsNumber: 41 },
    { ...INVOICE, kind: "credit_note" as const },
    { ...INVOICE, kind: "credit_note" as const, correctsNumber: 41, currency: "eur", tax },
    { ...INVOICE, tax: { ...tax, reverseCharge: true } },
    { ...INVOICE, tax: { ...tax, country: "US" }, seller: { ...seller, address: null } },
  ])
    expectOnly(textOf(await invoicePdf(invoice, LOOKS, wordless())), [...values, "Acme"], invoice.kind);
});

test("no status page or feed has a word that is not translated", () => {
  const component = { status: "operational" as const, uptime: 1, days: [1] };
  const page: StatusPage = {
    ...{ status: "operational", at: "2026-11-30T00:00:00.000Z", firstDay: "2026-11-01" },
    components: [
      { id: "api", name: "API", isModel: false, ...component },
      { id: "panel", name: "Panel", isModel: false, ...component },
      { id: "models", name: "Other models", isModel: true, ...component },
      { id: "model:m1", name: "Model one", isModel: true, ...component },
    ],
    incidents: [
      {
        ...{ incidentId: 1, kind: "maintenance", title: "Disks", impact: null, status: "in_progress" },
        ...{ beginsAt: "2026-11-30T00:00:00.000Z", endsAt: null },
        updates: [],
        components: [{ id: "models", name: "All models" }],
      },
    ],
  };
  const shown = statusPageIn(wordless(), page);
  const named = [...shown.components, ...shown.incidents.flatMap(({ components }) => components)];
  expectOnly(named.map(({ name }) => name).join("\n"), ["Model one"], "names");
  const feed = statusFeed({ i18n: wordless(), name: "Lumen", origin: "https://ai.lumen.example", page });
  const text = feed.replace(/<\?[^>]+>|<[^>]+>/g, "\n").replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, "");
  expectOnly(text, ["Lumen", "https://ai.lumen.example/status#incident-1", "Disks"], "feed");
});

test("the API reference has no word that is not translated, but code and what is marked as English", () => {
  const i18n = wordless("ar");
  for (const words of [customersPage, managementPage]) {
    const html = apiPage(REFERENCE, words, i18n);
    expect(html).toContain('<html lang="ar" dir="rtl">');
    const page = html.replace(/[\s\S]*<title>/, "<title>").replace(/%[A-Z]+%/g, "");
    const withoutCode = page.replace(/<(code|bdi) dir="ltr" lang="en">[\s\S]*?<\/\1>/g, "");
    const facts = [...withoutCode.matchAll(/<span lang="ar" dir="rtl">(.*?)<\/span>/g)].map(([, text]) => text);
    expect(facts.length).toBeGreaterThan(5);
    const frame = withoutCode.replace(/<(\w+)( id="\w+")? dir="ltr" lang="en">[\s\S]*?<\/\1>/g, "");
    const labels = [...frame.matchAll(/ aria-label="([^"]*)"/g)].map(([, text]) => text);
    expectOnly([frame, ...facts].join("\n").replace(/<[^>]+>/g, "\n") + labels.join("\n"), [], "reference");
  }
});

/** Has each kind of part that the reference shows. */
const REFERENCE: OpenApi = {
  routes: (["key", "session", "token", "anyone"] as const).map((caller) => ({
    method: "post",
    path: `/v1/${caller}`,
    operation: {
      ...{ id: caller, tag: "Chat", summary: "Summary", description: "Description.", caller },
      params: Type.Object({ id: Type.String() }),
      query: Type.Object({ from: Type.Optional(Type.String({ format: "date-time" })) }),
      headers: Type.Object({ name: Type.String() }),
      body: { schema: Type.Object({}, { title: "Body" }), example: { name: "value" } },
      answer: { description: "Answer.", schema: Type.Object({}, { title: "Body" }) },
      events: Type.Object({}, { title: "Body" }),
      refusals: [{ code: "not_found", status: 404 }],
    },
  })),
  schemas: {
    Other: { type: "object", properties: {} },
    Body: {
      ...{ title: "Body", description: "Words." },
      allOf: [
        { $ref: "#/components/schemas/Other" },
        {
          required: ["text"],
          properties: {
            text: { type: "string", minLength: 1, maxLength: 9, default: "value", description: "Words." },
            longer: { type: ["string", "null"], minLength: 2 },
            shorter: { type: "string", maxLength: 2 },
            number: { type: "number", minimum: 1, maximum: 2 },
            more: { type: "number", minimum: 1 },
            fewer: { type: "number", maximum: 1 },
            list: { type: "array", items: { type: "string" }, minItems: 1, maxItems: 2 },
            long: { type: "array", items: { $ref: "#/components/schemas/Other" }, minItems: 1 },
            short: { type: "array", maxItems: 1 },
            choice: { enum: ["one", "two"] },
            constant: { const: "one" },
            either: { anyOf: [{ type: "string" }, { properties: { inner: {} } }] },
          },
        },
      ],
    },
  },
  document: () => ({}),
};

test("every text of them is in the catalogues", async () => {
  const { texts } = await serverCatalogue("de");
  expect(asked.size).toBeGreaterThan(200);
  expect([...asked].filter((text) => !texts.has(text))).toEqual([]);
});
